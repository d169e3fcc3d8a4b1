//! DescribeCluster.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// Asks for the cluster's nodes; `endpoint_type` 1 means brokers, 2 controllers.
    DescribeClusterRequest {
        [0+]    include_cluster_authorized_operations: bool,
        [1+]    endpoint_type: i8 = 1,
        [2+]    include_fenced_brokers: bool,
    }

    /// The nodes.
    DescribeClusterResponse {
        [0+]    throttle_time_ms: i32,
        [0+]    error_code: ErrorCode,
        [0+]    error_message: Option<KafkaStr>,
        [1+]    endpoint_type: i8 = 1,
        [0+]    cluster_id: KafkaStr,
        [0+]    controller_id: i32 = -1,
        [0+]    brokers: Vec<DescribeClusterBroker>,
        [0+]    cluster_authorized_operations: i32 = i32::MIN,
    }

    /// One node.
    DescribeClusterBroker {
        [0+]    broker_id: i32,
        [0+]    host: KafkaStr,
        [0+]    port: i32,
        [0+]    rack: Option<KafkaStr>,
        [2+]    is_fenced: bool,
    }
}
