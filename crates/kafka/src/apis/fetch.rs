//! Fetch: record batches on their way out, as they lie in the log.
//!
//! A fetch reads what there is. If that is less than the client wants, it registers with its partitions
//! and waits, at no cost, until enough has arrived or its time is up.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_broker::{FetchWait, PartitionRef, Topic};
use weir_kafka_wire::messages::fetch::{EpochEndOffset, PartitionData};
use weir_kafka_wire::{ErrorCode, FetchRequest, FetchResponse, Records};
use weir_model::TopicId;

use crate::errors::Failure;
use crate::fetch_sessions::{FetchContext, TopicRef, Wanted};
use crate::session::Call;
use crate::zstd_batches::has_zstd_batch;

/// First version whose clients know zstd.
const ZSTD_FROM_VERSION: i16 = 10;
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
    /// Bytes of records.
    bytes: usize,
    /// Whether a partition has something to say that the client should not wait for.
    urgent: bool,
}

pub(crate) async fn answer(call: Call, request: FetchRequest) -> FetchResponse {
    let sessions = &call.front.fetch_sessions;
    let mut context = sessions.begin(&request, call.version, Instant::now());
    let wanted = match &mut context {
        FetchContext::Refused(code) => {
            call.count_error();
            return FetchResponse { error_code: *code, ..Default::default() };
        }
        FetchContext::Sessionless(wanted)
        | FetchContext::Full(wanted)
        | FetchContext::Incremental(_, wanted) => wanted.clone(),
    };
    let looked = look_up(&call, wanted);
    let read = read_or_wait(&call, &request, &looked).await;
    call.front.metrics.front.bytes_out.inc_by(read.bytes as u64);
    let read = looked.into_iter().map(|looked| looked.wanted.topic).zip(read.data).collect();
    let (session_id, responses) = sessions.finish(context, read, Instant::now());
    FetchResponse { session_id, responses, ..Default::default() }
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
                let topic = match &wanted.topic {
                    TopicRef::Name(name) => broker.topic(name).ok_or(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
                    TopicRef::Id(id) => broker.topic_by_id(TopicId(id.0)).ok_or(ErrorCode::UNKNOWN_TOPIC_ID),
                };
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

async fn read_or_wait(call: &Call, request: &FetchRequest, looked: &[Looked]) -> Pass {
    let bytes_max = (request.max_bytes.max(0) as usize).min(call.front.options.fetch_bytes_max);
    // A client may want more at least than it accepts at most.
    let bytes_min = (request.min_bytes.max(0) as usize).min(bytes_max);
    let read_committed = request.isolation_level == READ_COMMITTED;
    let deadline = call.arrived + Duration::from_millis(request.max_wait_ms.max(0) as u64);

    let pass = read_all(call, looked, bytes_max, read_committed).await;
    if pass.urgent || pass.bytes >= bytes_min || looked.is_empty() || deadline <= Instant::now() {
        return pass;
    }
    let wait = FetchWait::on(looked.iter().filter_map(|looked| looked.partition.as_ref().ok()));
    loop {
        // What arrived before the mark is found by the reading behind it, what arrives later by the wait.
        let mark = wait.mark();
        let pass = read_all(call, looked, bytes_max, read_committed).await;
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

async fn read_all(call: &Call, looked: &[Looked], bytes_max: usize, read_committed: bool) -> Pass {
    let mut pass = Pass { data: Vec::with_capacity(looked.len()), bytes: 0, urgent: false };
    for looked in looked {
        let left = bytes_max.saturating_sub(pass.bytes);
        let data = match &looked.partition {
            Ok(partition) => {
                read_partition(call, partition, &looked.wanted, left, pass.bytes == 0, read_committed).await
            }
            Err(code) => failed(call, looked.wanted.partition, *code),
        };
        pass.urgent |= !data.error_code.is_none() || data.diverging_epoch.epoch >= 0;
        pass.bytes += data.records.as_ref().map_or(0, Records::len);
        pass.data.push(data);
    }
    pass
}

async fn read_partition(
    call: &Call,
    partition: &PartitionRef,
    wanted: &Wanted,
    bytes_left: usize,
    first: bool,
    read_committed: bool,
) -> PartitionData {
    if let Err(code) = check_epoch(partition, wanted.current_leader_epoch) {
        return failed(call, wanted.partition, code);
    }
    let mut data = PartitionData {
        partition_index: wanted.partition,
        // There are no transactions whose end a reader would have to wait for, so that everything
        // committed is stable.
        high_watermark: partition.next_offset(),
        last_stable_offset: partition.next_offset(),
        log_start_offset: partition.log_start(),
        aborted_transactions: read_committed.then(Vec::new),
        records: Some(Records::new()),
        ..Default::default()
    };
    if let Some(diverging) = divergence(partition, wanted) {
        data.diverging_epoch = diverging;
        return data;
    }
    let limit = bytes_left.min(wanted.max_bytes.max(0) as usize);
    let at_the_end = wanted.fetch_offset == data.high_watermark;
    if at_the_end || (limit == 0 && !first) {
        return data;
    }
    match partition.read(wanted.fetch_offset, limit).await {
        Ok(read) => {
            // Only the first batch of an answer may exceed the limits, so that a reader gets on at all.
            // Another that would exceed them comes first next time.
            if read.bytes > limit && !first {
                return data;
            }
            if call.version < ZSTD_FROM_VERSION && has_zstd_batch(&read.chunks) {
                return failed(call, wanted.partition, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
            }
            // Records may have been appended since; a client that sees records beyond the watermark
            // takes the answer for damaged.
            data.high_watermark = data.high_watermark.max(read.next_offset);
            data.last_stable_offset = data.high_watermark;
            data.records = Some(read.chunks.into_iter().collect());
            data
        }
        Err(error) => {
            let failure = Failure::from(&error);
            if failure.code == ErrorCode::KAFKA_STORAGE_ERROR {
                tracing::error!(partition = %partition.id(), %error, "a fetch could not be answered");
            }
            failed(call, wanted.partition, failure.code)
        }
    }
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
