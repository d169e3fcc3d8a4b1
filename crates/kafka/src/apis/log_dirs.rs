//! DescribeLogDirs: how large partitions are. Consoles show sizes from it, and some refuse to work
//! without it.

use std::sync::Arc;

use weir_broker::Topic;
use weir_kafka_wire::messages::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use weir_kafka_wire::{DescribeLogDirsRequest, DescribeLogDirsResponse, ErrorCode, KafkaStr};

use crate::session::Call;

/// The one directory of a node. Its path is nobody's business.
const LOG_DIR: &str = "weir-data";

pub(crate) async fn describe(call: Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    if call.check_cluster().is_err() {
        call.count_error();
        return DescribeLogDirsResponse {
            error_code: ErrorCode::CLUSTER_AUTHORIZATION_FAILED,
            ..Default::default()
        };
    }
    let broker = &call.front.broker;
    let topics: Vec<DescribeLogDirsTopic> = match request.topics {
        None => broker
            .topics()
            .iter()
            .map(|topic| sizes(&call, topic, (0..topic.partition_count()).map(|index| index as i32)))
            .collect(),
        Some(asked) => {
            let known = asked.into_iter().filter_map(|asked| {
                let topic: Arc<Topic> = broker.topic(&asked.topic)?;
                Some(sizes(&call, &topic, asked.partitions.into_iter()))
            });
            known.collect()
        }
    };
    let only =
        DescribeLogDirsResult { log_dir: KafkaStr::from_static(LOG_DIR), topics, ..Default::default() };
    DescribeLogDirsResponse { results: vec![only], ..Default::default() }
}

/// The sizes of those partitions that exist; Kafka leaves the others out as well.
fn sizes(call: &Call, topic: &Topic, partitions: impl Iterator<Item = i32>) -> DescribeLogDirsTopic {
    let partitions = partitions.filter_map(|index| {
        let partition = call.front.broker.partition(topic, index).ok()?;
        let partition_size = i64::try_from(partition.bytes()).unwrap_or(i64::MAX);
        Some(DescribeLogDirsPartition { partition_index: index, partition_size, ..Default::default() })
    });
    DescribeLogDirsTopic { partitions: partitions.collect(), name: KafkaStr::from(topic.name()) }
}
