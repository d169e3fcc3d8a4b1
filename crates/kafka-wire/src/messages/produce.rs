//! Produce: record batches on their way in.

use crate::error_code::ErrorCode;
use crate::records::Records;
use crate::schema::messages;
use crate::text::KafkaStr;
use crate::uuid::Uuid;

messages! {
    /// Record batches to append. With `acks` 0 the client waits for no response and must not be sent one.
    ProduceRequest {
        [3+]        transactional_id: Option<KafkaStr>,
        [0+]        acks: i16,
        [0+]        timeout_ms: i32,
        [0+]        topic_data: Vec<TopicProduceData>,
    }

    /// One topic's batches.
    TopicProduceData {
        [0-12]      name: KafkaStr,
        [13+]       topic_id: Uuid,
        [0+]        partition_data: Vec<PartitionProduceData>,
    }

    /// One partition's batches.
    PartitionProduceData {
        [0+]        index: i32,
        [0+]        records: Option<Records>,
    }

    /// Where the batches went.
    ProduceResponse {
        [0+]        responses: Vec<TopicProduceResponse>,
        [1+]        throttle_time_ms: i32,
        [10+ tag 0] node_endpoints: Vec<NodeEndpoint>,
    }

    /// One topic's outcome.
    TopicProduceResponse {
        [0-12]      name: KafkaStr,
        [13+]       topic_id: Uuid,
        [0+]        partition_responses: Vec<PartitionProduceResponse>,
    }

    /// One partition's outcome.
    PartitionProduceResponse {
        [0+]        index: i32,
        [0+]        error_code: ErrorCode,
        [0+]        base_offset: i64,
        [2+]        log_append_time_ms: i64 = -1,
        [5+]        log_start_offset: i64 = -1,
        [8+]        record_errors: Vec<BatchIndexAndErrorMessage>,
        [8+]        error_message: Option<KafkaStr>,
        [10+ tag 0] current_leader: LeaderIdAndEpoch,
    }

    /// A record that made its batch fail.
    BatchIndexAndErrorMessage {
        [8+]        batch_index: i32,
        [8+]        batch_index_error_message: Option<KafkaStr>,
    }

    /// The partition's present leader, for a client that asked another node.
    LeaderIdAndEpoch {
        [10+]       leader_id: i32 = -1,
        [10+]       leader_epoch: i32 = -1,
    }

    /// Where a leader named in the response listens.
    NodeEndpoint {
        [10+]       node_id: i32,
        [10+]       host: KafkaStr,
        [10+]       port: i32,
        [10+]       rack: Option<KafkaStr>,
    }
}
