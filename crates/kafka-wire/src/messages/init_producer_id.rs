//! InitProducerId: the identity of an idempotent or transactional producer.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Asks for a producer id, or for a new epoch of one.
    InitProducerIdRequest {
        [0+]    transactional_id: Option<KafkaStr>,
        [0+]    transaction_timeout_ms: i32,
        [3+]    producer_id: i64 = -1,
        [3+]    producer_epoch: i16 = -1,
    }

    /// The identity.
    InitProducerIdResponse {
        [0+]    throttle_time_ms: i32,
        [0+]    error_code: ErrorCode,
        [0+]    producer_id: i64 = -1,
        [0+]    producer_epoch: i16,
    }
}
