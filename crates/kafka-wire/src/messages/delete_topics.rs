//! DeleteTopics.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;
use crate::uuid::Uuid;

messages! {
    /// Topics to delete: `topics` from version 6 on, `topic_names` before.
    DeleteTopicsRequest {
        [6+]            topics: Vec<DeleteTopicState>,
        [0-5]           topic_names: Vec<KafkaStr>,
        [0+]            timeout_ms: i32,
    }

    /// A topic by name, or by id if there is none.
    DeleteTopicState {
        [6+]            name: Option<KafkaStr>,
        [6+]            topic_id: Uuid,
    }

    /// What became of the topics.
    DeleteTopicsResponse {
        [1+]            throttle_time_ms: i32,
        [0+]            responses: Vec<DeletableTopicResult>,
    }

    /// What became of one topic.
    DeletableTopicResult {
        [0+ null 6+]    name: Option<KafkaStr>,
        [6+]            topic_id: Uuid,
        [0+]            error_code: ErrorCode,
        [5+]            error_message: Option<KafkaStr>,
    }
}
