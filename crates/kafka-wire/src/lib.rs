//! The Kafka wire format: messages of every version that is served, without I/O.
//!
//! Bytes in, plain structs out, and back; for the broker's side and the client's alike. Decoding takes
//! [`bytes::Bytes`] and shares them: strings and record sets are slices of the frame. Encoding yields a [`Frame`],
//! a list of chunks in which the records of a fetch response lie as they came from the log. Every parser is
//! total: any bytes give a message or a [`DecodeError`], and what is reserved for a list is bounded by the bytes
//! that are really there.
//!
//! This crate does not open record batches, keeps no session, and knows no topic.
//!
//! # A broker
//!
//! ```
//! use bytes::Bytes;
//! use weir_kafka_wire::messages::produce::{PartitionProduceResponse, TopicProduceResponse};
//! use weir_kafka_wire::{ErrorCode, Frame, ProduceResponse, Request, RequestHeader, Response};
//!
//! /// Takes a frame without its length, gives one with it.
//! fn answer(mut frame: Bytes) -> Result<Option<Frame>, Box<dyn std::error::Error>> {
//!     let header = RequestHeader::decode(&mut frame)?;
//!     let response = match Request::decode(header.api_key, header.api_version, frame)? {
//!         Request::Produce(request) => {
//!             let mut response = ProduceResponse::default();
//!             for topic in &request.topic_data {
//!                 let partitions = topic.partition_data.iter().map(|partition| PartitionProduceResponse {
//!                     index: partition.index,
//!                     error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
//!                     base_offset: -1,
//!                     ..Default::default()
//!                 });
//!                 response.responses.push(TopicProduceResponse {
//!                     name: topic.name.clone(),
//!                     topic_id: topic.topic_id,
//!                     partition_responses: partitions.collect(),
//!                 });
//!             }
//!             if request.acks == 0 {
//!                 return Ok(None);
//!             }
//!             Response::from(response)
//!         }
//!         other => return Err(format!("{} is not served", other.api()).into()),
//!     };
//!     Ok(Some(response.encode(header.api_version, header.correlation_id)?))
//! }
//!
//! // A client, on the other end.
//! use weir_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};
//! use weir_kafka_wire::{KafkaStr, ProduceRequest, Records, RequestMessage};
//!
//! let request = ProduceRequest {
//!     acks: -1,
//!     timeout_ms: 30_000,
//!     topic_data: vec![TopicProduceData {
//!         name: "orders".into(),
//!         partition_data: vec![PartitionProduceData {
//!             index: 0,
//!             records: Some(Records::from(Bytes::from_static(b"a record batch"))),
//!         }],
//!         ..Default::default()
//!     }],
//!     ..Default::default()
//! };
//! let frame = request.encode_request(9, 7, Some(&KafkaStr::from_static("example")))?.into_contiguous();
//!
//! let response = answer(frame.slice(4..))?.expect("acks is not 0").into_contiguous();
//! let (correlation_id, response) = ProduceRequest::decode_response(9, response.slice(4..))?;
//! assert_eq!(correlation_id, 7);
//! assert_eq!(response.responses[0].name, "orders");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod api;
mod error;
mod error_code;
#[cfg(any(test, feature = "generate"))]
mod generate;
mod header;
pub mod messages;
mod reader;
mod records;
mod schema;
#[cfg(test)]
mod tests;
mod text;
mod uuid;
mod wire;
mod writer;

pub use api::{ApiKey, Message, Request, RequestMessage, Response};
pub use error::{DecodeError, EncodeError, Why};
pub use error_code::ErrorCode;
#[cfg(any(test, feature = "generate"))]
pub use generate::Source;
pub use header::{RequestHeader, peek_correlation_id};
pub use messages::alter_configs::{AlterConfigsRequest, AlterConfigsResponse};
pub use messages::api_versions::{ApiVersion, ApiVersionsRequest, ApiVersionsResponse};
pub use messages::consumer_protocol::{ConsumerProtocolAssignment, ConsumerProtocolSubscription};
pub use messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsResponse};
pub use messages::create_topics::{CreateTopicsRequest, CreateTopicsResponse};
pub use messages::delete_groups::{DeleteGroupsRequest, DeleteGroupsResponse};
pub use messages::delete_records::{DeleteRecordsRequest, DeleteRecordsResponse};
pub use messages::delete_topics::{DeleteTopicsRequest, DeleteTopicsResponse};
pub use messages::describe_cluster::{DescribeClusterRequest, DescribeClusterResponse};
pub use messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResponse};
pub use messages::describe_groups::{DescribeGroupsRequest, DescribeGroupsResponse};
pub use messages::describe_log_dirs::{DescribeLogDirsRequest, DescribeLogDirsResponse};
pub use messages::fetch::{FetchRequest, FetchResponse};
pub use messages::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
pub use messages::heartbeat::{HeartbeatRequest, HeartbeatResponse};
pub use messages::incremental_alter_configs::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
pub use messages::init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
pub use messages::join_group::{JoinGroupRequest, JoinGroupResponse};
pub use messages::leave_group::{LeaveGroupRequest, LeaveGroupResponse};
pub use messages::list_groups::{ListGroupsRequest, ListGroupsResponse};
pub use messages::list_offsets::{ListOffsetsRequest, ListOffsetsResponse};
pub use messages::metadata::{MetadataRequest, MetadataResponse};
pub use messages::offset_commit::{OffsetCommitRequest, OffsetCommitResponse};
pub use messages::offset_delete::{OffsetDeleteRequest, OffsetDeleteResponse};
pub use messages::offset_fetch::{OffsetFetchRequest, OffsetFetchResponse};
pub use messages::offset_for_leader_epoch::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};
pub use messages::produce::{ProduceRequest, ProduceResponse};
pub use messages::sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
pub use messages::sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
pub use messages::sync_group::{SyncGroupRequest, SyncGroupResponse};
pub use reader::{ARRAY_ELEMENTS_MAX, Reader, STRING_BYTES_MAX, TAGGED_FIELDS_MAX};
pub use records::{Gap, Records};
pub use text::KafkaStr;
pub use uuid::Uuid;
pub use wire::{Version, Wire};
pub use writer::{Frame, Part, Writer};
