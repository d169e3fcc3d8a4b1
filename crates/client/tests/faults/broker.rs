//! A broker in memory that speaks enough of the protocol to be lied to by: it stores batches under Kafka's
//! rules for idempotent producers, and misbehaves as it is told.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir_kafka_wire::messages::api_versions::ApiVersion;
use weir_kafka_wire::messages::fetch::{FetchableTopicResponse, PartitionData};
use weir_kafka_wire::messages::list_offsets::{
    ListOffsetsPartitionResponse, ListOffsetsTopicResponse, timestamp,
};
use weir_kafka_wire::messages::metadata::{
    MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use weir_kafka_wire::messages::produce::{PartitionProduceResponse, TopicProduceResponse};
use weir_kafka_wire::{
    ApiKey, ApiVersionsResponse, ErrorCode, FetchRequest, FetchResponse, InitProducerIdResponse,
    ListOffsetsRequest, ListOffsetsResponse, MetadataRequest, MetadataResponse, ProduceRequest,
    ProduceResponse, Records, Request, RequestHeader, Response,
};
use weir_model::batch::{BATCH_HEADER_BYTES, StoredBatch, decode_records, verify_batch};

/// The one topic.
const TOPIC: &str = "t";

/// What a produce request meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// The connection ends, and nothing is stored.
    CloseBeforeStoring,
    /// The batches are stored, and the connection ends before the answer.
    CloseAfterStoring,
    /// Nothing is stored, and the answer has this code.
    Refuse(ErrorCode),
}

/// A broker that listens.
pub struct Broker {
    shared: Arc<Shared>,
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

struct Shared {
    state: Mutex<State>,
    /// Changes when connections are to be closed.
    close: watch::Sender<u64>,
    /// Changes with every append.
    appended: watch::Sender<u64>,
}

struct State {
    partitions: Vec<Partition>,
    faults: VecDeque<Fault>,
    next_producer_id: i64,
    only_oldest_api_versions: bool,
}

#[derive(Default)]
struct Partition {
    batches: Vec<StoredBatch>,
    next_offset: i64,
    /// By producer id: the next sequence, and the last batches as (first sequence, base offset).
    producers: BTreeMap<i64, (i32, VecDeque<(i32, i64)>)>,
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.accepting.abort();
        self.close_connections();
    }
}

impl Broker {
    pub async fn start(partitions: usize, faults: Vec<Fault>) -> Broker {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let state = State {
            partitions: (0..partitions).map(|_| Partition::default()).collect(),
            faults: faults.into(),
            next_producer_id: 0,
            only_oldest_api_versions: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            close: watch::Sender::new(0),
            appended: watch::Sender::new(0),
        });
        let serving = shared.clone();
        let accepting = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = serving.clone();
                tokio::spawn(async move {
                    let mut close = shared.close.subscribe();
                    tokio::select! {
                        _ = close.changed() => {}
                        () = serve(&shared, stream, address) => {}
                    }
                });
            }
        });
        Broker { shared, address, accepting }
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends every connection.
    pub fn close_connections(&self) {
        self.shared.close.send_modify(|n| *n += 1);
    }

    /// Answers newer questions for its versions with error 35 in the oldest layout.
    pub fn only_oldest_api_versions(&self) {
        self.shared.state.lock().only_oldest_api_versions = true;
    }

    /// The values of a partition in order.
    pub fn values(&self, partition: usize) -> Vec<String> {
        let state = self.shared.state.lock();
        state.partitions[partition].batches.iter().flat_map(values).map(|(_, value)| value).collect()
    }

    /// The value at an offset.
    pub fn value(&self, partition: i32, offset: i64) -> String {
        let state = self.shared.state.lock();
        let mut all = state.partitions[partition as usize].batches.iter().flat_map(values);
        all.find(|(at, _)| *at == offset).expect("a record at that offset").1
    }
}

fn values(batch: &StoredBatch) -> Vec<(i64, String)> {
    let header = batch.header().expect("a stored batch");
    let section = batch.to_contiguous().slice(BATCH_HEADER_BYTES..);
    let text = |value: Option<Bytes>| String::from_utf8(value.expect("a value").to_vec()).expect("text");
    decode_records(&header, section)
        .map(|record| record.expect("a record"))
        .map(|record| (record.offset, text(record.value)))
        .collect()
}

async fn serve(shared: &Shared, mut stream: TcpStream, address: SocketAddr) {
    while let Ok(length) = stream.read_u32().await {
        let mut frame = BytesMut::zeroed(length as usize);
        if stream.read_exact(&mut frame).await.is_err() {
            return;
        }
        let Some(answer) = answer(shared, frame.freeze(), address).await else { return };
        if stream.write_all(&answer).await.is_err() {
            return;
        }
    }
}

/// The answer's frame; none if the connection is to end.
async fn answer(shared: &Shared, mut frame: Bytes, address: SocketAddr) -> Option<Bytes> {
    let header = RequestHeader::decode(&mut frame).expect("a request header");
    let (version, correlation) = (header.api_version, header.correlation_id);
    if header.api_key == ApiKey::ApiVersions as i16 && version > 0 {
        let served: Vec<ApiVersion> = ApiKey::ALL.iter().map(|api| ApiVersion::from(*api)).collect();
        if shared.state.lock().only_oldest_api_versions {
            let refusal = ApiVersionsResponse::unsupported_version(correlation, &served).expect("it fits");
            return Some(refusal.into_contiguous());
        }
    }
    let response = match Request::decode(header.api_key, version, frame).expect("a request") {
        Request::ApiVersions(_) => {
            let api_keys = ApiKey::ALL.iter().map(|api| ApiVersion::from(*api)).collect();
            Response::from(ApiVersionsResponse { api_keys, ..Default::default() })
        }
        Request::Metadata(request) => metadata(shared, &request, address).into(),
        Request::InitProducerId(_) => {
            let mut state = shared.state.lock();
            state.next_producer_id += 1;
            InitProducerIdResponse { producer_id: state.next_producer_id, ..Default::default() }.into()
        }
        Request::Produce(request) => produce(shared, &request)?.into(),
        Request::Fetch(request) => fetch(shared, &request).await.into(),
        Request::ListOffsets(request) => list_offsets(shared, &request).into(),
        other => panic!("the client asked for {}", other.api()),
    };
    Some(response.encode(version, correlation).expect("an answer").into_contiguous())
}

fn metadata(shared: &Shared, request: &MetadataRequest, address: SocketAddr) -> MetadataResponse {
    let count = shared.state.lock().partitions.len() as i32;
    let topics = request.topics.iter().flatten().map(|topic| {
        let name = topic.name.clone();
        if name.as_deref() != Some(TOPIC) {
            let error_code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
            return MetadataResponseTopic { error_code, name, ..Default::default() };
        }
        let partitions = (0..count).map(|partition_index| MetadataResponsePartition {
            partition_index,
            leader_id: 1,
            ..Default::default()
        });
        MetadataResponseTopic { name, partitions: partitions.collect(), ..Default::default() }
    });
    MetadataResponse {
        topics: topics.collect(),
        brokers: vec![MetadataResponseBroker {
            node_id: 1,
            host: address.ip().to_string().into(),
            port: address.port().into(),
            rack: None,
        }],
        ..Default::default()
    }
}

fn produce(shared: &Shared, request: &ProduceRequest) -> Option<ProduceResponse> {
    let mut state = shared.state.lock();
    let fault = state.faults.pop_front().unwrap_or(Fault::None);
    if fault == Fault::CloseBeforeStoring {
        return None;
    }
    let mut response = ProduceResponse::default();
    for topic in &request.topic_data {
        let answers = topic.partition_data.iter().map(|data| {
            let batch = data.records.clone().expect("records").into_contiguous();
            let stored = match fault {
                Fault::Refuse(code) => Err(code),
                _ => state.partitions[data.index as usize].append(batch),
            };
            PartitionProduceResponse {
                index: data.index,
                error_code: stored.err().unwrap_or(ErrorCode::NONE),
                base_offset: stored.unwrap_or(-1),
                ..Default::default()
            }
        });
        let partition_responses = answers.collect();
        response.responses.push(TopicProduceResponse {
            name: topic.name.clone(),
            partition_responses,
            ..Default::default()
        });
    }
    drop(state);
    shared.appended.send_modify(|n| *n += 1);
    (fault != Fault::CloseAfterStoring).then_some(response)
}

impl Partition {
    /// Kafka's rules: the next sequence is stored, one of the last five is a duplicate, a producer that is
    /// not known may begin anywhere, and everything else is out of order.
    fn append(&mut self, batch: Bytes) -> Result<i64, ErrorCode> {
        let header = verify_batch(&batch).map_err(|_| ErrorCode::CORRUPT_MESSAGE)?;
        if header.is_idempotent() {
            let first = header.base_sequence;
            if let Some((next, last)) = self.producers.get(&header.producer_id) {
                if let Some((_, base)) = last.iter().find(|(sequence, _)| *sequence == first) {
                    return Ok(*base);
                }
                if first != *next {
                    return Err(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
                }
            }
            let (next, last) = self.producers.entry(header.producer_id).or_default();
            *next = header.last_sequence() + 1;
            last.push_back((first, self.next_offset));
            if last.len() > 5 {
                last.pop_front();
            }
        }
        let base = self.next_offset;
        self.next_offset += i64::from(header.record_count);
        self.batches.push(StoredBatch::place(&header, batch, base, 0));
        Ok(base)
    }
}

async fn fetch(shared: &Shared, request: &FetchRequest) -> FetchResponse {
    let mut appended = shared.appended.subscribe();
    let wait = tokio::time::sleep(Duration::from_millis(request.max_wait_ms as u64));
    let mut wait = std::pin::pin!(wait);
    loop {
        let (response, something) = fetch_now(shared, request);
        if something {
            return response;
        }
        tokio::select! {
            _ = appended.changed() => {}
            () = &mut wait => return response,
        }
    }
}

fn fetch_now(shared: &Shared, request: &FetchRequest) -> (FetchResponse, bool) {
    let state = shared.state.lock();
    let mut response = FetchResponse::default();
    let mut something = false;
    for topic in &request.topics {
        let partitions = topic.partitions.iter().map(|asked| {
            let partition = &state.partitions[asked.partition as usize];
            let mut data = PartitionData { partition_index: asked.partition, ..Default::default() };
            if asked.fetch_offset > partition.next_offset {
                data.error_code = ErrorCode::OFFSET_OUT_OF_RANGE;
                something = true;
                return data;
            }
            let mut records = Records::new();
            for batch in partition.batches.iter().filter(|batch| batch.last_offset >= asked.fetch_offset) {
                if records.len() < asked.partition_max_bytes as usize {
                    records.push(batch.to_contiguous());
                }
            }
            something |= !records.is_empty();
            data.records = Some(records);
            data
        });
        let partitions = partitions.collect();
        response.responses.push(FetchableTopicResponse {
            topic: topic.topic.clone(),
            partitions,
            ..Default::default()
        });
    }
    (response, something)
}

fn list_offsets(shared: &Shared, request: &ListOffsetsRequest) -> ListOffsetsResponse {
    let state = shared.state.lock();
    let topics = request.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|asked| {
            let partition = &state.partitions[asked.partition_index as usize];
            let offset = match asked.timestamp {
                timestamp::EARLIEST => 0,
                timestamp::LATEST => partition.next_offset,
                time => {
                    let found = partition.batches.iter().find(|batch| batch.max_timestamp >= time);
                    found.map_or(-1, |batch| batch.base_offset)
                }
            };
            let partition_index = asked.partition_index;
            ListOffsetsPartitionResponse { partition_index, offset, ..Default::default() }
        });
        ListOffsetsTopicResponse { name: topic.name.clone(), partitions: partitions.collect() }
    });
    ListOffsetsResponse { topics: topics.collect(), ..Default::default() }
}
