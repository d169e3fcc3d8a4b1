//! FindCoordinator: which node keeps a group or a transaction.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Asks for the coordinators of keys: one `key` before version 4, several `coordinator_keys` since.
    FindCoordinatorRequest {
        [0-3]   key: KafkaStr,
        [1+]    key_type: i8,
        [4+]    coordinator_keys: Vec<KafkaStr>,
    }

    /// The coordinator, or from version 4 on the coordinators.
    FindCoordinatorResponse {
        [1+]    throttle_time_ms: i32,
        [0-3]   error_code: ErrorCode,
        [1-3]   error_message: Option<KafkaStr>,
        [0-3]   node_id: i32,
        [0-3]   host: KafkaStr,
        [0-3]   port: i32,
        [4+]    coordinators: Vec<Coordinator>,
    }

    /// One key's coordinator.
    Coordinator {
        [4+]    key: KafkaStr,
        [4+]    node_id: i32,
        [4+]    host: KafkaStr,
        [4+]    port: i32,
        [4+]    error_code: ErrorCode,
        [4+]    error_message: Option<KafkaStr>,
    }
}

/// What a key names.
pub mod key_type {
    /// A consumer group.
    pub const GROUP: i8 = 0;
    /// A transactional id.
    pub const TRANSACTION: i8 = 1;
    /// A share group's partition, `group:topic id:partition`.
    pub const SHARE: i8 = 2;
}
