//! DescribeLogDirs: how large partitions are on disk.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Partitions whose sizes are asked for; `None` asks for all.
    DescribeLogDirsRequest {
        [0+]    topics: Option<Vec<DescribableLogDirTopic>>,
    }

    /// Partitions of one topic.
    DescribableLogDirTopic {
        [0+]    topic: KafkaStr,
        [0+]    partitions: Vec<i32>,
    }

    /// The directories of the broker that answers.
    DescribeLogDirsResponse {
        [0+]    throttle_time_ms: i32,
        [3+]    error_code: ErrorCode,
        [0+]    results: Vec<DescribeLogDirsResult>,
    }

    /// One directory; sizes of its file system are -1 if they are not known.
    DescribeLogDirsResult {
        [0+]    error_code: ErrorCode,
        [0+]    log_dir: KafkaStr,
        [0+]    topics: Vec<DescribeLogDirsTopic>,
        [4+]    total_bytes: i64 = -1,
        [4+]    usable_bytes: i64 = -1,
    }

    /// One topic's partitions.
    DescribeLogDirsTopic {
        [0+]    name: KafkaStr,
        [0+]    partitions: Vec<DescribeLogDirsPartition>,
    }

    /// One partition's size in bytes.
    DescribeLogDirsPartition {
        [0+]    partition_index: i32,
        [0+]    partition_size: i64,
        [0+]    offset_lag: i64,
        [0+]    is_future_key: bool,
    }
}
