//! Fetch: record batches on their way out, as they lie in the log.
//!
//! A fetch reads what there is. If that is less than the client wants, it registers with its partitions
//! and waits, at no cost, until enough has arrived or its time is up.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use weir_broker::{Action, FetchWait, FileRange, PartitionRef, Piece, Topic};
use weir_kafka_wire::messages::fetch::{EpochEndOffset, LeaderIdAndEpoch, NodeEndpoint, PartitionData};
use weir_kafka_wire::{ErrorCode, FetchRequest, FetchResponse, Gap, Records};
use weir_model::TopicId;

use super::cluster::{self, LeaderHint};
use crate::budget::Held;
use crate::errors::Failure;
use crate::fetch_sessions::{FetchContext, TopicRef, Wanted};
use crate::pipeline::{Answer, Begun};
use crate::session::{Call, read};

/// First version that is told who leads.
const LEADER_HINTS_FROM_VERSION: i16 = 16;
/// Isolation level of a client that wants committed records only.
const READ_COMMITTED: i8 = 1;

/// A wanted partition, looked up.
struct Looked {
    wanted: Wanted,
    partition: Result<PartitionRef, ErrorCode>,
}

/// What one pass over the partitions found.
struct Pass {
    data: Vec<PartitionData>,
    /// Records that are sent from where they are stored; `data` has gaps for them.
    ranges: Vec<FileRange>,
    /// Bytes of records.
    bytes: usize,
    /// The memory for them.
    held: Held,
    /// Whether there is no use in waiting: something is wrong, or there is more than fits.
    urgent: bool,
}

pub(crate) fn begin(call: Call, body: Bytes) -> Begun {
    match read::<FetchRequest>(&call, body) {
        Ok(request) => Begun::Running(Box::pin(answer(call, request))),
        Err(closing) => closing,
    }
}

async fn answer(call: Call, request: FetchRequest) -> Answer {
    let sessions = &call.front.fetch_sessions;
    let mut context = sessions.begin(&request, call.version, Instant::now());
    let wanted = match &mut context {
        FetchContext::Refused(code) => {
            call.count_error();
            return call.answer(&FetchResponse { error_code: *code, ..Default::default() });
        }
        FetchContext::Sessionless(wanted)
        | FetchContext::Full(wanted)
        | FetchContext::Incremental(_, wanted) => wanted.clone(),
    };
    let looked = look_up(&call, wanted);
    let Pass { mut data, ranges, bytes, held, .. } = read_or_wait(&call, &request, &looked).await;
    call.front.metrics.front.bytes_out.inc_by(bytes as u64);
    let node_endpoints = tell_leaders(&call, &looked, &mut data);
    let read = looked.into_iter().map(|looked| looked.wanted.topic).zip(data).collect();
    let (session_id, responses) = sessions.finish(context, read, Instant::now());
    let response = FetchResponse { session_id, responses, node_endpoints, ..Default::default() };
    call.answer_with(&response, ranges, Some(held))
}

/// Tells a client that understands it who leads the partitions for which this is not the node, and where those are.
fn tell_leaders(call: &Call, looked: &[Looked], data: &mut [PartitionData]) -> Vec<NodeEndpoint> {
    let mut endpoints: Vec<NodeEndpoint> = Vec::new();
    if call.version < LEADER_HINTS_FROM_VERSION {
        return endpoints;
    }
    for (Looked { wanted, .. }, data) in looked.iter().zip(data) {
        if !matches!(data.error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER | ErrorCode::FENCED_LEADER_EPOCH) {
            continue;
        }
        let topic = find_topic(call, &wanted.topic).ok();
        let hint = topic.and_then(|topic| cluster::leader_hint(call, &topic, wanted.partition));
        let Some(LeaderHint { leader_id, leader_epoch, endpoint }) = hint else { continue };
        data.current_leader = LeaderIdAndEpoch { leader_id, leader_epoch };
        endpoints.extend(endpoint.map(|at| NodeEndpoint {
            node_id: at.node_id,
            host: at.host,
            port: at.port,
            rack: at.rack,
        }));
    }
    endpoints.sort_by_key(|node| node.node_id);
    endpoints.dedup_by_key(|node| node.node_id);
    endpoints
}

/// Finds the partitions. Consecutive ones mostly belong to one topic, which is looked up once.
fn look_up(call: &Call, wanted: Vec<Wanted>) -> Vec<Looked> {
    let broker = &call.front.broker;
    let mut last: Option<(TopicRef, Result<Arc<Topic>, ErrorCode>)> = None;
    let mut all = Vec::with_capacity(wanted.len());
    for wanted in wanted {
        let topic = match &last {
            Some((name, topic)) if *name == wanted.topic => topic.clone(),
            _ => {
                let topic = find_topic(call, &wanted.topic);
                last = Some((wanted.topic.clone(), topic.clone()));
                topic
            }
        };
        let partition = topic.and_then(|topic| {
            broker.partition(&topic, wanted.partition).map_err(|error| Failure::from(&error).code)
        });
        all.push(Looked { wanted, partition });
    }
    all
}

fn find_topic(call: &Call, topic: &TopicRef) -> Result<Arc<Topic>, ErrorCode> {
    let broker = &call.front.broker;
    let may_read = |name: &str| match call.may(Action::Read, name) {
        true => Ok(()),
        false => Err(ErrorCode::TOPIC_AUTHORIZATION_FAILED),
    };
    match topic {
        TopicRef::Name(name) => {
            may_read(name)?;
            broker.topic(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION)
        }
        TopicRef::Id(id) => {
            let topic = broker.topic_by_id(TopicId(id.0)).ok_or(ErrorCode::UNKNOWN_TOPIC_ID)?;
            may_read(topic.name())?;
            Ok(topic)
        }
    }
}

async fn read_or_wait(call: &Call, request: &FetchRequest, looked: &[Looked]) -> Pass {
    let bytes_max = (request.max_bytes.max(0) as usize).min(call.front.options.fetch_bytes_max);
    // A client may want more at least than it accepts at most.
    let bytes_min = (request.min_bytes.max(0) as usize).min(bytes_max);
    let reader = Reader {
        read_committed: request.isolation_level == READ_COMMITTED,
        rack: Some(request.rack_id.as_str()).filter(|rack| !rack.is_empty()),
    };
    let deadline = call.arrived + Duration::from_millis(request.max_wait_ms.max(0) as u64);

    let pass = read_all(call, looked, bytes_max, reader).await;
    if pass.urgent || pass.bytes >= bytes_min || looked.is_empty() || deadline <= Instant::now() {
        return pass;
    }
    let wait = FetchWait::on(looked.iter().filter_map(|looked| looked.partition.as_ref().ok()));
    loop {
        // What arrived before the mark is found by the reading behind it, what arrives later by the wait.
        let mark = wait.mark();
        let pass = read_all(call, looked, bytes_max, reader).await;
        if pass.urgent || pass.bytes >= bytes_min {
            return pass;
        }
        let more = call.unless_draining(wait.beyond(mark, bytes_min - pass.bytes, deadline)).await;
        match more {
            Some(true) => {}
            // Time is up, or the front stops: what there is goes out.
            Some(false) | None => return pass,
        }
    }
}

async fn read_all(call: &Call, looked: &[Looked], bytes_max: usize, reader: Reader<'_>) -> Pass {
    let held = call.front.fetch_budget.hold(bytes_max);
    let bytes_max = held.bytes();
    let data = Vec::with_capacity(looked.len());
    let mut pass = Pass { data, ranges: Vec::new(), bytes: 0, held, urgent: false };
    for Looked { wanted, partition } in looked {
        let room = Room { bytes: bytes_max.saturating_sub(pass.bytes), first: pass.bytes == 0 };
        let (data, more) = match partition {
            Ok(partition) => read_partition(call, partition, wanted, room, reader, &mut pass.ranges).await,
            Err(code) => (failed(call, wanted.partition, *code), false),
        };
        let leads_elsewhere = data.diverging_epoch.epoch >= 0 || data.preferred_read_replica >= 0;
        pass.urgent |= more || !data.error_code.is_none() || leads_elsewhere;
        pass.bytes += data.records.as_ref().map_or(0, Records::len);
        pass.data.push(data);
    }
    // Ranges of files take no memory.
    let stored: usize = pass.ranges.iter().map(FileRange::len).sum();
    pass.held.resize(pass.bytes - stored);
    pass
}

/// Who reads.
#[derive(Clone, Copy)]
struct Reader<'a> {
    read_committed: bool,
    /// Where it stands, if it wants to read from a node that stands there too (KIP-392).
    rack: Option<&'a str>,
}

/// What an answer still has room for.
#[derive(Clone, Copy)]
struct Room {
    bytes: usize,
    /// Whether it has no records yet. Only the first batch of an answer may exceed the limits, so that a
    /// reader gets on at all. Another that would exceed them comes first next time.
    first: bool,
}

/// Reads one partition: its part of the answer, and whether there was more than fits.
async fn read_partition(
    call: &Call,
    partition: &PartitionRef,
    wanted: &Wanted,
    room: Room,
    reader: Reader<'_>,
    ranges: &mut Vec<FileRange>,
) -> (PartitionData, bool) {
    if let Err(code) = check_epoch(partition, wanted.current_leader_epoch) {
        return (failed(call, wanted.partition, code), false);
    }
    let mut data = PartitionData {
        partition_index: wanted.partition,
        // There are no transactions whose end a reader would have to wait for, so that everything
        // committed is stable.
        high_watermark: partition.next_offset(),
        last_stable_offset: partition.next_offset(),
        log_start_offset: partition.log_start(),
        aborted_transactions: reader.read_committed.then(Vec::new),
        records: Some(Records::new()),
        ..Default::default()
    };
    if let Some(diverging) = divergence(partition, wanted) {
        data.diverging_epoch = diverging;
        return (data, false);
    }
    if let Some(rack) = reader.rack {
        if let Some(nearer) = call.front.broker.replica_in(partition, rack) {
            data.preferred_read_replica = nearer.0 as i32;
            return (data, false);
        }
        // Read from where a leader has sent it, it may know of records that have not arrived here.
        if !partition.is_led_here() && wanted.fetch_offset > data.high_watermark {
            return (data, false);
        }
    }
    let limit = room.bytes.min(wanted.max_bytes.max(0) as usize);
    if limit == 0 && !room.first && wanted.fetch_offset != data.high_watermark {
        return (data, true);
    }
    // Also at the end of the log, where there is nothing to read: a partition that was deleted says so.
    let read = match partition.read(wanted.fetch_offset, limit).await {
        Ok(read) => read,
        Err(error) => {
            let code = Failure::from(&error).code;
            if matches!(code, ErrorCode::KAFKA_STORAGE_ERROR | ErrorCode::CORRUPT_MESSAGE) {
                tracing::error!(partition = %partition.id(), %error, "a fetch could not be answered");
            }
            return (failed(call, wanted.partition, code), false);
        }
    };
    if read.bytes > limit && !room.first {
        return (data, true);
    }
    // Batches of zstd go to clients of every version, as real brokers of 4.x send them: only the reader
    // can tell whether it knows zstd, and many that ask with an old version do.
    // Records may have been appended since; a client that sees records beyond the watermark takes the
    // answer for damaged.
    data.high_watermark = data.high_watermark.max(read.next_offset);
    data.last_stable_offset = data.high_watermark;
    data.records = Some(records(read.pieces, ranges));
    let more = read.next_offset < data.high_watermark;
    (data, more)
}

/// The pieces of one partition; a range is put with the others, and leaves a gap.
fn records(pieces: Vec<Piece>, ranges: &mut Vec<FileRange>) -> Records {
    let mut records = Records::new();
    for piece in pieces {
        match piece {
            Piece::Memory(bytes) => records.push(bytes),
            Piece::Stored(range) => {
                records.leave(Gap { bytes: range.len(), key: ranges.len() });
                ranges.push(range);
            }
        }
    }
    records
}

/// Whether the leader that the client knows is the present one (KIP-320).
pub(super) fn check_epoch(partition: &PartitionRef, client_epoch: i32) -> Result<(), ErrorCode> {
    let epoch = partition.leader_epoch();
    match client_epoch {
        -1 => Ok(()),
        older if older < epoch => Err(ErrorCode::FENCED_LEADER_EPOCH),
        newer if newer > epoch => Err(ErrorCode::UNKNOWN_LEADER_EPOCH),
        _ => Ok(()),
    }
}

/// Where the client's log and this one part ways, if they do (KIP-595).
fn divergence(partition: &PartitionRef, wanted: &Wanted) -> Option<EpochEndOffset> {
    if wanted.last_fetched_epoch < 0 {
        return None;
    }
    let (epoch, end_offset) = partition.end_offset_for_epoch(wanted.last_fetched_epoch);
    (epoch < wanted.last_fetched_epoch || end_offset < wanted.fetch_offset)
        .then_some(EpochEndOffset { epoch, end_offset })
}

fn failed(call: &Call, partition_index: i32, code: ErrorCode) -> PartitionData {
    call.count_error();
    PartitionData {
        partition_index,
        error_code: code,
        high_watermark: -1,
        records: Some(Records::new()),
        ..Default::default()
    }
}
