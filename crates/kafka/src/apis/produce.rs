//! Produce: record batches on their way in. A batch is a slice of the request's frame and stays one.
//!
//! A request has two halves. In the first its batches take their places in their partitions' lines, one
//! after the other, so that a connection's order is the log's order; in the second it waits until they
//! are durable, beside the requests behind it.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tokio::time::error::Elapsed;
use weir_broker::{Acks, Action, PartitionRef, Piece, PublishError, Published, Publishing, Topic};
use weir_kafka_wire::messages::produce::{
    LeaderIdAndEpoch, NodeEndpoint, PartitionProduceData, PartitionProduceResponse, TopicProduceData,
    TopicProduceResponse,
};
use weir_kafka_wire::{
    ErrorCode, KafkaStr, ProduceRequest, ProduceResponse, Reader, Uuid, Version, Wire, Writer,
};
use weir_model::TopicId;
use weir_model::batch::{BatchHeader, Compression};

use super::cluster::{self, LeaderHint};
use super::gaps::{Numbered, OutOfOrder};
use crate::errors::Failure;
use crate::pipeline::{Answer, Begun};
use crate::session::{Call, read};

/// First version that names topics by id.
const TOPIC_IDS_FROM_VERSION: i16 = 13;
/// First version whose clients know zstd.
const ZSTD_FROM_VERSION: i16 = 7;
/// First version that is told who leads.
const LEADER_HINTS_FROM_VERSION: i16 = 10;
/// Longest time that a producer may have its request wait, whatever it asks for.
const TIMEOUT_MAX: Duration = Duration::from_secs(300);
/// Shortest time with `acks=all`. A producer's timeout bounds the wait for other replicas, which in Kafka
/// is none where there are no others; some clients say 0.
const TIMEOUT_MIN: Duration = Duration::from_secs(1);
/// Shortest time with `acks=1`, which in Kafka waits for nobody and so never times out.
const TIMEOUT_MIN_LEADER: Duration = Duration::from_secs(30);

/// One partition's part of a request.
enum Part {
    /// In its partition's line.
    Waiting(Publishing, Option<Numbered>),
    /// Not appended.
    Failed(Failure),
}

/// One topic's part of a request.
struct TopicParts {
    name: KafkaStr,
    topic_id: Uuid,
    /// If there is one.
    topic: Option<Arc<Topic>>,
    parts: Vec<(i32, Part)>,
}

pub(crate) fn begin(call: Call, body: Bytes) -> Begun {
    match read::<ProduceRequest>(&call, body) {
        Ok(request) => Begun::Entering(Box::pin(enter(call, request))),
        Err(closing) => closing,
    }
}

async fn enter(call: Call, request: ProduceRequest) -> Begun {
    let (acks, timeout_min) = match request.acks {
        0 => (Acks::None, TIMEOUT_MIN_LEADER),
        1 => (Acks::Leader, TIMEOUT_MIN_LEADER),
        -1 => (Acks::All, TIMEOUT_MIN),
        other => {
            let why = format!("acks is {other}; it must be 0, 1 or -1 (all)");
            let failure = Failure::new(ErrorCode::INVALID_REQUIRED_ACKS, why);
            return Begun::Done(refuse_all(&call, request, &failure));
        }
    };
    let timeout = Duration::from_millis(request.timeout_ms.max(0) as u64);
    let deadline = call.arrived + timeout.clamp(timeout_min, TIMEOUT_MAX);
    if request.transactional_id.is_some() {
        let why = "transactions are not served; remove transactional.id from the producer";
        let failure = Failure::new(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, why);
        return Begun::Done(refuse_all(&call, request, &failure));
    }
    let mut topics = Vec::with_capacity(request.topic_data.len());
    for data in request.topic_data {
        topics.push(enter_topic(&call, data, acks, deadline).await);
    }
    match acks {
        Acks::None => Begun::Done(without_answer(&call, &topics)),
        Acks::Leader | Acks::All => Begun::Running(Box::pin(finish(call, topics, deadline))),
    }
}

async fn enter_topic(call: &Call, data: TopicProduceData, acks: Acks, deadline: Instant) -> TopicParts {
    let topic = find_topic(call, &data);
    let mut parts = Vec::with_capacity(data.partition_data.len());
    for partition in data.partition_data {
        let index = partition.index;
        let part = match &topic {
            Ok(topic) => enter_partition(call, topic, partition, acks, deadline).await,
            Err(failure) => Part::Failed(failure.clone()),
        };
        parts.push((index, part));
    }
    TopicParts { name: data.name, topic_id: data.topic_id, topic: topic.ok(), parts }
}

fn find_topic(call: &Call, data: &TopicProduceData) -> Result<Arc<Topic>, Failure> {
    let topic = if call.version >= TOPIC_IDS_FROM_VERSION {
        call.front.broker.topic_by_id(TopicId(data.topic_id.0)).ok_or_else(|| {
            Failure::new(ErrorCode::UNKNOWN_TOPIC_ID, format!("there is no topic with id {}", data.topic_id))
        })?
    } else {
        call.check_topic(Action::Write, &data.name)?;
        call.front.broker.topic(&data.name).ok_or_else(|| {
            let why = format!("there is no topic '{}'", data.name);
            Failure::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, why)
        })?
    };
    if call.version >= TOPIC_IDS_FROM_VERSION {
        call.check_topic(Action::Write, topic.name())?;
    }
    Ok(topic)
}

async fn enter_partition(
    call: &Call,
    topic: &Topic,
    data: PartitionProduceData,
    acks: Acks,
    deadline: Instant,
) -> Part {
    let index = data.index;
    let batch = data.records.map(weir_kafka_wire::Records::into_contiguous).unwrap_or_default();
    let header = BatchHeader::parse(&batch).ok();
    let numbered = header.and_then(|header| Numbered::new(topic.id(), index, &header));
    match publish(call, topic, index, (batch, header), acks, deadline).await {
        Ok(publishing) => Part::Waiting(publishing, numbered),
        Err(failure) => Part::Failed(match numbered {
            Some(numbered) => call.gaps.refused(numbered, failure, None),
            None => failure,
        }),
    }
}

async fn publish(
    call: &Call,
    topic: &Topic,
    index: i32,
    (batch, header): (Bytes, Option<BatchHeader>),
    acks: Acks,
    deadline: Instant,
) -> Result<Publishing, Failure> {
    let partition: PartitionRef =
        call.front.broker.partition(topic, index).map_err(|error| Failure::from(&error))?;
    if batch.is_empty() {
        let why = "there is no record batch; send exactly one for each partition";
        return Err(Failure::new(ErrorCode::INVALID_RECORD, why));
    }
    if call.version < ZSTD_FROM_VERSION
        && header.is_some_and(|header| header.compression() == Some(Compression::Zstd))
    {
        let why = "zstd needs Produce version 7; use a newer client or another compression";
        return Err(Failure::new(ErrorCode::UNSUPPORTED_COMPRESSION_TYPE, why));
    }
    let bytes = batch.len();
    let entering = call.front.broker.publish(&partition, batch, acks);
    let publishing = match tokio::time::timeout_at(deadline, entering).await {
        Ok(entered) => entered.map_err(|error| Failure::from(&error))?,
        Err(_) => return Err(timed_out()),
    };
    let metrics = &call.front.metrics.front;
    metrics.batches_in.inc();
    metrics.bytes_in.inc_by(bytes as u64);
    metrics.records_in.inc_by(header.map_or(0, |header| header.record_count.max(0) as u64));
    Ok(publishing)
}

fn timed_out() -> Failure {
    let why = "not durable within the request's timeout; it may become so later";
    Failure::new(ErrorCode::REQUEST_TIMED_OUT, why)
}

/// A producer that wants no answer is told of a failure by the end of the connection, which makes it
/// ask for new metadata.
fn without_answer(call: &Call, topics: &[TopicParts]) -> Answer {
    call.answered(0);
    for topic in topics {
        for (index, part) in &topic.parts {
            if let Part::Failed(failure) = part {
                call.count_error();
                return Answer::Close(format!(
                    "a produce request with acks=0 to partition {index} of '{}' failed with {:?}: {}",
                    topic.name,
                    failure.code,
                    failure.message.as_deref().unwrap_or_default()
                ));
            }
        }
    }
    Answer::Nothing
}

async fn finish(call: Call, topics: Vec<TopicParts>, deadline: Instant) -> Answer {
    let mut response = ProduceResponse { responses: Vec::with_capacity(topics.len()), ..Default::default() };
    for topic in topics {
        let mut partition_responses = Vec::with_capacity(topic.parts.len());
        for (index, part) in topic.parts {
            let outcome = match part {
                Part::Failed(failure) => Err(failure),
                Part::Waiting(publishing, numbered) => {
                    let published = tokio::time::timeout_at(deadline, publishing).await;
                    published_or_not(&call, topic.topic.as_deref(), index, published, numbered)
                }
            };
            let mut answered = partition_response(&call, index, outcome);
            if let Some(hint) = hint(&call, topic.topic.as_deref(), &answered) {
                let LeaderHint { leader_id, leader_epoch, endpoint } = hint;
                answered.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch };
                response.node_endpoints.extend(endpoint.map(|at| NodeEndpoint {
                    node_id: at.node_id,
                    host: at.host,
                    port: at.port,
                    rack: at.rack,
                }));
            }
            partition_responses.push(answered);
        }
        response.responses.push(TopicProduceResponse {
            name: topic.name,
            topic_id: topic.topic_id,
            partition_responses,
        });
    }
    response.node_endpoints.sort_by_key(|node| node.node_id);
    response.node_endpoints.dedup_by_key(|node| node.node_id);
    call.answer(&response)
}

/// What came of a batch, in the order of those of its producer.
fn published_or_not(
    call: &Call,
    topic: Option<&Topic>,
    index: i32,
    published: Result<Result<Published, PublishError>, Elapsed>,
    numbered: Option<Numbered>,
) -> Result<Published, Failure> {
    let (failure, out_of_order) = match published {
        Ok(Ok(published)) => {
            numbered.into_iter().for_each(|numbered| call.gaps.appended(numbered));
            return Ok(published);
        }
        Ok(Err(error)) => {
            let out_of_order = match &error {
                PublishError::OutOfOrderSequence { expected, .. } => {
                    let info = topic.and_then(|topic| call.front.broker.partition_info(topic, index).ok());
                    let replicated = info.is_some_and(|info| info.replicas.len() > 1);
                    Some(OutOfOrder { expected: *expected, replicated })
                }
                _ => None,
            };
            (Failure::from(&error), out_of_order)
        }
        Err(_) => (timed_out(), None),
    };
    Err(match numbered {
        Some(numbered) => call.gaps.refused(numbered, failure, out_of_order),
        None => failure,
    })
}

/// Where a batch should have gone that another node leads the partition of, for a client that understands it.
fn hint(call: &Call, topic: Option<&Topic>, answered: &PartitionProduceResponse) -> Option<LeaderHint> {
    let elsewhere = answered.error_code == ErrorCode::NOT_LEADER_OR_FOLLOWER;
    if !elsewhere || call.version < LEADER_HINTS_FROM_VERSION {
        return None;
    }
    cluster::leader_hint(call, topic?, answered.index)
}

fn partition_response(
    call: &Call,
    index: i32,
    outcome: Result<Published, Failure>,
) -> PartitionProduceResponse {
    match outcome {
        // A batch that was there already is a success at its first position.
        Ok(published) => PartitionProduceResponse {
            index,
            base_offset: published.base_offset,
            log_append_time_ms: published.append_time,
            log_start_offset: published.log_start,
            ..Default::default()
        },
        Err(failure) => {
            call.count_error();
            refused_partition(index, &failure)
        }
    }
}

fn refused_partition(index: i32, failure: &Failure) -> PartitionProduceResponse {
    PartitionProduceResponse {
        index,
        error_code: failure.code,
        base_offset: -1,
        error_message: failure.message.clone(),
        ..Default::default()
    }
}

fn refusal(request: ProduceRequest, failure: &Failure) -> ProduceResponse {
    let responses = request.topic_data.into_iter().map(|topic| TopicProduceResponse {
        name: topic.name,
        topic_id: topic.topic_id,
        partition_responses: topic
            .partition_data
            .iter()
            .map(|partition| refused_partition(partition.index, failure))
            .collect(),
    });
    ProduceResponse { responses: responses.collect(), ..Default::default() }
}

fn refuse_all(call: &Call, request: ProduceRequest, failure: &Failure) -> Answer {
    call.count_error();
    if request.acks == 0 {
        return Answer::Close(format!("a produce request with acks=0 failed with {:?}", failure.code));
    }
    call.answer(&refusal(request, failure))
}

/// Versions 0 to 2 carry message formats that are not stored any more. They are advertised all the same,
/// because librdkafka otherwise takes the broker for one without compression, and are answered in their
/// own layout, which is that of later versions with fewer fields.
pub(crate) fn refuse_version(call: &Call, body: Bytes) -> Option<Answer> {
    if !(0..=2).contains(&call.version) {
        return None;
    }
    let layout = Version { number: call.version, flexible: false };
    let mut reader = Reader::new(body);
    // The header of a version that the codec does not know ends before the client's name.
    Option::<KafkaStr>::read(&mut reader, layout).ok()?;
    let request = ProduceRequest::read(&mut reader, layout).ok()?;
    let why = "Produce versions 0 to 2 are not served; use a client of Kafka 0.11 or newer";
    let failure = Failure::new(ErrorCode::UNSUPPORTED_VERSION, why);
    call.count_error();
    if request.acks == 0 {
        return Some(Answer::Close(why.into()));
    }
    let mut writer = Writer::new();
    call.correlation_id.write(&mut writer, layout);
    refusal(request, &failure).write(&mut writer, layout);
    let bytes = writer.len();
    let length = Bytes::copy_from_slice(&i32::try_from(bytes).ok()?.to_be_bytes());
    let mut chunks = vec![length];
    chunks.extend(writer.finish().ok()?);
    call.answered(bytes);
    Some(Answer::Frame(chunks.into_iter().map(Piece::Memory).collect(), None))
}
