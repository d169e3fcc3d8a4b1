//! The task that empties the lanes: one produce request to each node that leads something due, several of
//! them under way at once, in order on each connection.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;
use weir_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};
use weir_kafka_wire::{ErrorCode, KafkaStr, ProduceRequest, ProduceResponse, Records};

use super::lane::{Batch, Due, Lane};
use super::{Acks, Shared, ask_identity};
use crate::error::ClientError;
use crate::network::TopicInfo;

/// How often the topic is looked at anew, so that partitions that were added are used.
const TOPIC_AGE_MAX: Duration = Duration::from_secs(300);

/// Bytes of batches in one request; a batch larger than this travels alone.
const REQUEST_BYTES_MAX: usize = 4 << 20;

/// A batch on its way to its partition's leader.
struct Going {
    partition: usize,
    batch: Batch,
    bytes: Bytes,
}

/// What came of one request: each batch with its result.
type CameBack = Vec<(usize, Batch, Result<i64, ClientError>)>;

/// Runs until no more records will come and all are settled.
pub(super) async fn run(shared: Arc<Shared>) {
    let mut under_way = FuturesUnordered::new();
    let mut topic_known_since = Instant::now();
    loop {
        if topic_known_since.elapsed() > TOPIC_AGE_MAX {
            topic_known_since = Instant::now();
            shared.network.forget(&shared.topic);
        }
        let (going, next) = collect(&shared).await;
        for (leader, going) in going {
            under_way.push(send(shared.clone(), leader, going).await);
        }
        let wait_until = match next {
            Next::Ended => break,
            Next::At(time) => time,
            Next::Event => Instant::now() + TOPIC_AGE_MAX,
        };
        tokio::select! {
            biased;
            Some(came_back) = under_way.next(), if !under_way.is_empty() => settle(&shared, came_back),
            () = shared.wake.notified() => {}
            () = tokio::time::sleep_until(wait_until) => {}
        }
    }
    end(&shared);
}

/// When to look again.
enum Next {
    At(Instant),
    Event,
    Ended,
}

/// Takes what is due out of the lanes, by leader.
async fn collect(shared: &Shared) -> (BTreeMap<i32, Vec<Going>>, Next) {
    let mut next: Option<Instant> = None;
    let mut earliest = |time: Instant| next = Some(next.map_or(time, |next| next.min(time)));
    let mut due = Vec::new();
    let mut nameless = Vec::new();
    {
        let mut lanes = shared.lanes.lock();
        if lanes.closing {
            lanes.lanes.iter_mut().for_each(Lane::close_open);
            if lanes.lanes.iter().all(Lane::is_idle) {
                return (BTreeMap::new(), Next::Ended);
            }
        }
        let now = Instant::now();
        for (partition, lane) in lanes.lanes.iter().enumerate() {
            match lane.due(now, shared.options.linger, shared.options.in_flight) {
                Due::Now => due.push(partition),
                Due::At(time) => earliest(time),
                Due::Identity => nameless.push(partition),
                Due::Idle => {}
            }
        }
    }
    for partition in nameless {
        let identity = ask_identity(&shared.network).await;
        let mut lanes = shared.lanes.lock();
        let Some(lane) = lanes.lanes.get_mut(partition) else { continue };
        match identity {
            Ok(identity) => {
                tracing::warn!(
                    topic = shared.topic,
                    partition,
                    "batches do not follow what the broker has; going on under a new producer id"
                );
                lane.renew(identity);
                earliest(Instant::now());
            }
            Err(error) => {
                tracing::debug!(%error, "no producer id yet");
                earliest(lane.pause(Instant::now()));
            }
        }
    }
    let mut going: BTreeMap<i32, Vec<Going>> = BTreeMap::new();
    if !due.is_empty() {
        match leaders(shared).await {
            Ok(topic) => take(shared, &topic, &due, &mut going, &mut earliest),
            Err(error) => {
                tracing::debug!(%error, topic = shared.topic, "the leaders are not known");
                pause(shared, &due, error, &mut earliest);
            }
        }
    }
    (going, next.map_or(Next::Event, Next::At))
}

/// Who leads the partitions; lanes for partitions that are new.
async fn leaders(shared: &Shared) -> Result<Arc<TopicInfo>, ClientError> {
    // One attempt: the lanes have their own patience, and other lanes should not wait here.
    let topic = match shared.network.known_topic(&shared.topic) {
        Some(topic) => topic,
        None => shared.network.refresh(&shared.topic, shared.options.create_topic).await?,
    };
    let mut lanes = shared.lanes.lock();
    let identity = lanes.identity;
    while lanes.lanes.len() < topic.leaders.len() {
        lanes.lanes.push(Lane::new(identity));
    }
    Ok(topic)
}

fn take(
    shared: &Shared,
    topic: &TopicInfo,
    due: &[usize],
    going: &mut BTreeMap<i32, Vec<Going>>,
    earliest: &mut impl FnMut(Instant),
) {
    let mut lanes = shared.lanes.lock();
    let mut bytes_to: BTreeMap<i32, usize> = BTreeMap::new();
    for &partition in due {
        let Some(lane) = lanes.lanes.get_mut(partition) else { continue };
        let Some(leader) = topic.leaders.get(partition).copied().flatten() else {
            shared.network.forget(&shared.topic);
            earliest(lane.pause(Instant::now()));
            continue;
        };
        let so_far = bytes_to.entry(leader).or_default();
        if *so_far >= REQUEST_BYTES_MAX {
            // The next request takes it, at once.
            earliest(Instant::now());
            continue;
        }
        if let Some((batch, bytes)) = lane.take(shared.options.compression) {
            *so_far += bytes.len();
            if partition == lanes.sticky % lanes.lanes.len().max(1) {
                // The batch is closed: records without a key go elsewhere from here on.
                lanes.sticky = lanes.sticky.wrapping_add(1);
            }
            going.entry(leader).or_default().push(Going { partition, batch, bytes });
        }
        // There may be more than one batch, each for a request of its own.
        let Some(lane) = lanes.lanes.get(partition) else { continue };
        match lane.due(Instant::now(), shared.options.linger, shared.options.in_flight) {
            Due::Now => earliest(Instant::now()),
            Due::At(time) => earliest(time),
            Due::Identity | Due::Idle => {}
        }
    }
}

/// Nothing can leave for these partitions now. What has waited too long is given up.
fn pause(shared: &Shared, due: &[usize], error: ClientError, earliest: &mut impl FnMut(Instant)) {
    let now = Instant::now();
    let mut given_up = Vec::new();
    {
        let mut lanes = shared.lanes.lock();
        for &partition in due {
            let Some(lane) = lanes.lanes.get_mut(partition) else { continue };
            if error.is_retryable() {
                earliest(lane.pause(now));
                given_up.extend(lane.take_expired(now));
            } else {
                given_up.extend(lane.drain());
            }
        }
    }
    for batch in given_up {
        finish(shared, batch, Err(error.clone()));
    }
    shared.settled.notify_waiters();
}

/// Hands one request over; the future that is returned waits for its answer.
async fn send(shared: Arc<Shared>, leader: i32, going: Vec<Going>) -> impl Future<Output = CameBack> + use<> {
    let request = request(&shared, &going);
    let sent = async {
        let connection = shared.network.node(leader).await?;
        if shared.options.acks == Acks::None {
            connection.send_unanswered(&request).await?;
            return Ok(None);
        }
        connection.send(&request).await.map(Some)
    };
    let sent = sent.await;
    drop(request);
    let at_most = shared.network.options.request_timeout;
    async move {
        let answer = match sent {
            Ok(Some(answer)) => answer.wait(at_most).await.map(Some),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        match answer {
            Ok(Some(response)) => results(&shared, going, &response),
            Ok(None) => going.into_iter().map(|going| (going.partition, going.batch, Ok(-1))).collect(),
            Err(error) => {
                going.into_iter().map(|going| (going.partition, going.batch, Err(error.clone()))).collect()
            }
        }
    }
}

fn request(shared: &Shared, going: &[Going]) -> ProduceRequest {
    let partitions = going.iter().map(|going| PartitionProduceData {
        index: going.partition as i32,
        records: Some(Records::from(going.bytes.clone())),
    });
    ProduceRequest {
        acks: if shared.options.acks == Acks::None { 0 } else { -1 },
        timeout_ms: i32::try_from(shared.network.options.request_timeout.as_millis()).unwrap_or(i32::MAX),
        topic_data: vec![TopicProduceData {
            name: KafkaStr::from(&shared.topic),
            partition_data: partitions.collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn results(shared: &Shared, going: Vec<Going>, response: &ProduceResponse) -> CameBack {
    let answers = response.responses.iter().flat_map(|topic| &topic.partition_responses);
    let answers: BTreeMap<i32, _> = answers.map(|answer| (answer.index, answer)).collect();
    going
        .into_iter()
        .map(|going| {
            let what = || format!("writing to {}/{}", shared.topic, going.partition);
            let result = match answers.get(&(going.partition as i32)) {
                Some(answer) if answer.error_code.is_none() => Ok(answer.base_offset),
                Some(answer) => Err(ClientError::Refused {
                    what: what(),
                    code: answer.error_code,
                    message: answer.error_message.as_ref().map(|words| words.as_str().to_owned()),
                }),
                // The broker said nothing about it, so nothing is known.
                None => Err(ClientError::Refused {
                    what: what(),
                    code: ErrorCode::REQUEST_TIMED_OUT,
                    message: Some("the answer does not mention the partition".into()),
                }),
            };
            (going.partition, going.batch, result)
        })
        .collect()
}

fn settle(shared: &Shared, came_back: CameBack) {
    let now = Instant::now();
    for (partition, batch, result) in came_back {
        if let Err(error) = &result
            && error.is_retryable()
        {
            tracing::debug!(%error, topic = shared.topic, partition, "a batch comes back");
            shared.network.forget(&shared.topic);
        }
        let settled = match shared.lanes.lock().lanes.get_mut(partition) {
            Some(lane) => lane.came_back(batch, result, now),
            None => None,
        };
        if let Some((batch, result)) = settled {
            finish(shared, batch, result);
        }
    }
    shared.settled.notify_waiters();
}

fn finish(shared: &Shared, batch: Batch, result: Result<i64, ClientError>) {
    batch.outcome.settle(result);
    shared.room.add_permits(batch.room);
}

/// Nothing is sent any more; whoever still waits is told.
fn end(shared: &Shared) {
    let left: Vec<Batch> = {
        let mut lanes = shared.lanes.lock();
        lanes.ended = true;
        lanes.lanes.iter_mut().flat_map(Lane::drain).collect()
    };
    for batch in left {
        finish(shared, batch, Err(ClientError::Closed));
    }
    shared.room.close();
    shared.settled.notify_waiters();
}
