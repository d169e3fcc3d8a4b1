//! Fetch: record batches on their way out.

use crate::error_code::ErrorCode;
use crate::records::Records;
use crate::schema::messages;
use crate::text::KafkaStr;
use crate::uuid::Uuid;

messages! {
    /// Asks for batches from an offset on, as a whole or as the difference to a fetch session.
    FetchRequest {
        [12+ tag 0] cluster_id: Option<KafkaStr>,
        [0-14]      replica_id: i32 = -1,
        [15+ tag 1] replica_state: ReplicaState,
        [0+]        max_wait_ms: i32,
        [0+]        min_bytes: i32,
        [3+]        max_bytes: i32 = i32::MAX,
        [4+]        isolation_level: i8,
        [7+]        session_id: i32,
        [7+]        session_epoch: i32 = -1,
        [0+]        topics: Vec<FetchTopic>,
        [7+]        forgotten_topics_data: Vec<ForgottenTopic>,
        [11+]       rack_id: KafkaStr,
    }

    /// The broker that fetches as a replica.
    ReplicaState {
        [15+]       replica_id: i32 = -1,
        [15+]       replica_epoch: i64 = -1,
    }

    /// One topic to fetch from.
    FetchTopic {
        [0-12]      topic: KafkaStr,
        [13+]       topic_id: Uuid,
        [0+]        partitions: Vec<FetchPartition>,
    }

    /// One partition to fetch from.
    FetchPartition {
        [0+]        partition: i32,
        [9+]        current_leader_epoch: i32 = -1,
        [0+]        fetch_offset: i64,
        [12+]       last_fetched_epoch: i32 = -1,
        [5+]        log_start_offset: i64 = -1,
        [0+]        partition_max_bytes: i32,
        [17+ tag 0] replica_directory_id: Uuid,
        [18+ tag 1] high_watermark: i64 = i64::MAX,
    }

    /// Partitions that leave the fetch session.
    ForgottenTopic {
        [7-12]      topic: KafkaStr,
        [13+]       topic_id: Uuid,
        [7+]        partitions: Vec<i32>,
    }

    /// Batches as they lie in the log.
    FetchResponse {
        [1+]        throttle_time_ms: i32,
        [7+]        error_code: ErrorCode,
        [7+]        session_id: i32,
        [0+]        responses: Vec<FetchableTopicResponse>,
        [16+ tag 0] node_endpoints: Vec<NodeEndpoint>,
    }

    /// One topic's batches.
    FetchableTopicResponse {
        [0-12]      topic: KafkaStr,
        [13+]       topic_id: Uuid,
        [0+]        partitions: Vec<PartitionData>,
    }

    /// One partition's batches.
    PartitionData {
        [0+]        partition_index: i32,
        [0+]        error_code: ErrorCode,
        [0+]        high_watermark: i64,
        [4+]        last_stable_offset: i64 = -1,
        [5+]        log_start_offset: i64 = -1,
        [12+ tag 0] diverging_epoch: EpochEndOffset,
        [12+ tag 1] current_leader: LeaderIdAndEpoch,
        [12+ tag 2] snapshot_id: SnapshotId,
        [4+]        aborted_transactions: Option<Vec<AbortedTransaction>>,
        [11+]       preferred_read_replica: i32 = -1,
        [0+]        records: Option<Records>,
    }

    /// Where the asker's log and the leader's part ways.
    EpochEndOffset {
        [12+]       epoch: i32 = -1,
        [12+]       end_offset: i64 = -1,
    }

    /// The partition's present leader, for a client that asked another node.
    LeaderIdAndEpoch {
        [12+]       leader_id: i32 = -1,
        [12+]       leader_epoch: i32 = -1,
    }

    /// A snapshot to fetch instead; only brokers among themselves use it.
    SnapshotId {
        [0+]        end_offset: i64 = -1,
        [0+]        epoch: i32 = -1,
    }

    /// An aborted transaction whose records lie within the batches; sorted by first offset.
    AbortedTransaction {
        [4+]        producer_id: i64,
        [4+]        first_offset: i64,
    }

    /// Where a leader named in the response listens.
    NodeEndpoint {
        [16+]       node_id: i32,
        [16+]       host: KafkaStr,
        [16+]       port: i32,
        [16+]       rack: Option<KafkaStr>,
    }
}
