//! The task that asks leaders for batches: one fetch under way to each node that leads something, answers
//! handed over in order, and no faster than they are read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::sync::mpsc;
use tokio::time::Instant;
use weir_kafka_wire::messages::fetch::{FetchPartition, FetchTopic, PartitionData};
use weir_kafka_wire::{ErrorCode, FetchRequest, FetchResponse, KafkaStr};

use super::Shared;
use super::offsets::{self, StartAt};
use super::records::next_offset;
use crate::error::ClientError;
use crate::retry::Retry;

/// Beyond the time that a node may wait for records, an answer may take this long.
const GRACE: Duration = Duration::from_secs(10);

/// Batches of one partition.
#[derive(Debug)]
pub(super) struct Chunk {
    /// The assignment under which they were read.
    pub(super) epoch: u64,
    pub(super) partition: i32,
    /// The offset that was asked for.
    pub(super) from: i64,
    pub(super) records: Bytes,
}

/// Reads partitions of one assignment until it is stopped or nobody listens.
#[derive(Debug)]
pub(super) struct Fetcher {
    shared: Arc<Shared>,
    epoch: u64,
    /// The next offset of each partition.
    positions: BTreeMap<i32, i64>,
    chunks: mpsc::Sender<Result<Chunk, ClientError>>,
    /// The attempts since the last success, of partitions that fail.
    failing: BTreeMap<i32, Retry>,
    /// Partitions that are left alone until then.
    paused: BTreeMap<i32, Instant>,
}

/// The fetcher ends: nobody listens, or the error has been handed over.
struct Ended;

type Fetched = (i32, Vec<i32>, Result<FetchResponse, ClientError>);

impl Fetcher {
    pub(super) fn new(
        shared: Arc<Shared>,
        epoch: u64,
        positions: BTreeMap<i32, i64>,
        chunks: mpsc::Sender<Result<Chunk, ClientError>>,
    ) -> Fetcher {
        Fetcher { shared, epoch, positions, chunks, failing: BTreeMap::new(), paused: BTreeMap::new() }
    }

    pub(super) async fn run(mut self) {
        let mut under_way = FuturesUnordered::new();
        let mut asked: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        loop {
            match self.due(&asked).await {
                Ok(due) => {
                    for (leader, partitions) in due {
                        asked.insert(leader, partitions.clone());
                        under_way.push(self.fetch(leader, partitions));
                    }
                }
                Err(Ended) => return,
            }
            let wake = self.paused.values().min().copied();
            let fetched = tokio::select! {
                Some(fetched) = under_way.next(), if !under_way.is_empty() => fetched,
                () = tokio::time::sleep_until(wake.unwrap_or_else(Instant::now)), if wake.is_some() => continue,
                () = self.chunks.closed() => return,
                else => return,
            };
            asked.remove(&fetched.0);
            if self.deliver(fetched).await.is_err() {
                return;
            }
        }
    }

    /// What should be asked of whom: partitions that are neither asked for nor paused.
    async fn due(&mut self, asked: &BTreeMap<i32, Vec<i32>>) -> Result<BTreeMap<i32, Vec<i32>>, Ended> {
        let now = Instant::now();
        self.paused.retain(|_, until| *until > now);
        let busy = |partition: &i32| asked.values().flatten().any(|asked| asked == partition);
        let free: Vec<i32> = self
            .positions
            .keys()
            .copied()
            .filter(|partition| !self.paused.contains_key(partition) && !busy(partition))
            .collect();
        let mut due: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
        if free.is_empty() {
            return Ok(due);
        }
        let known = match self.shared.network.known_topic(&self.shared.topic) {
            Some(known) => Ok(known),
            None => self.shared.network.refresh(&self.shared.topic, false).await,
        };
        match known {
            Ok(topic) => {
                for partition in free {
                    let index = usize::try_from(partition).unwrap_or(usize::MAX);
                    match topic.leaders.get(index).copied().flatten() {
                        // A node that is being asked already gets the partition with its next request.
                        Some(leader) if asked.contains_key(&leader) => {}
                        Some(leader) => due.entry(leader).or_default().push(partition),
                        None => {
                            self.shared.network.forget(&self.shared.topic);
                            self.failed(partition, self.refused(partition, ErrorCode::LEADER_NOT_AVAILABLE))
                                .await?;
                        }
                    }
                }
            }
            Err(error) => {
                for partition in free {
                    self.failed(partition, error.clone()).await?;
                }
            }
        }
        Ok(due)
    }

    /// One fetch. There are no fetch sessions: few partitions are asked for at once.
    fn fetch(&self, leader: i32, partitions: Vec<i32>) -> impl Future<Output = Fetched> + use<> {
        let options = &self.shared.options;
        let fetch_partitions = partitions.iter().map(|partition| FetchPartition {
            partition: *partition,
            fetch_offset: self.positions.get(partition).copied().unwrap_or_default(),
            partition_max_bytes: options.partition_bytes,
            ..Default::default()
        });
        let request = FetchRequest {
            max_wait_ms: i32::try_from(options.max_wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: 1,
            max_bytes: options.fetch_bytes,
            session_id: 0,
            session_epoch: -1,
            topics: vec![FetchTopic {
                topic: KafkaStr::from(&self.shared.topic),
                partitions: fetch_partitions.collect(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let at_most = options.max_wait + GRACE.max(self.shared.network.options.request_timeout);
        let network = self.shared.network.clone();
        async move {
            let fetched = async { network.node(leader).await?.send(&request).await?.wait(at_most).await };
            (leader, partitions, fetched.await)
        }
    }

    async fn deliver(&mut self, (_, partitions, fetched): Fetched) -> Result<(), Ended> {
        let response = match fetched.and_then(|response| {
            ClientError::check(response.error_code, || format!("reading {}", self.shared.topic))?;
            Ok(response)
        }) {
            Ok(response) => response,
            Err(error) => {
                self.shared.network.forget(&self.shared.topic);
                for partition in partitions {
                    self.failed(partition, error.clone()).await?;
                }
                return Ok(());
            }
        };
        for data in response.responses.into_iter().flat_map(|topic| topic.partitions) {
            if partitions.contains(&data.partition_index) {
                self.deliver_partition(data).await?;
            }
        }
        Ok(())
    }

    async fn deliver_partition(&mut self, data: PartitionData) -> Result<(), Ended> {
        let partition = data.partition_index;
        if data.error_code == ErrorCode::OFFSET_OUT_OF_RANGE {
            return self.find_position_anew(partition).await;
        }
        if !data.error_code.is_none() {
            self.shared.network.forget(&self.shared.topic);
            return self.failed(partition, self.refused(partition, data.error_code)).await;
        }
        self.failing.remove(&partition);
        let records = data.records.unwrap_or_default().into_contiguous();
        let Some(next) = next_offset(&records) else { return Ok(()) };
        let Some(position) = self.positions.get_mut(&partition) else { return Ok(()) };
        let from = *position;
        *position = next.max(from);
        let chunk = Chunk { epoch: self.epoch, partition, from, records };
        self.chunks.send(Ok(chunk)).await.map_err(|_| Ended)
    }

    /// Retention has passed the position, or it was beyond the end: go on where the options say.
    async fn find_position_anew(&mut self, partition: i32) -> Result<(), Ended> {
        let Shared { network, topic, options, .. } = &*self.shared;
        let place = match options.start {
            StartAt::End => StartAt::End,
            _ => StartAt::Start,
        };
        let lost = self.positions.get(&partition).copied();
        match offsets::find(network, topic, &[partition], place).await {
            Ok(found) => {
                tracing::warn!(topic, partition, ?lost, ?found, "the position was out of range");
                self.positions.extend(found);
                Ok(())
            }
            Err(error) => self.failed(partition, error).await,
        }
    }

    /// Leaves the partition alone for a while; hands the error over if that cannot help, and ends.
    async fn failed(&mut self, partition: i32, error: ClientError) -> Result<(), Ended> {
        let retry = self.failing.entry(partition).or_insert_with(|| self.shared.network.retry());
        if error.is_retryable() && !retry.is_over() {
            tracing::debug!(%error, partition, "reading fails; trying again");
            self.paused.insert(partition, Instant::now() + retry.next_pause());
            return Ok(());
        }
        // If nobody listens, nobody needs to know.
        let _ = self.chunks.send(Err(error)).await;
        Err(Ended)
    }

    fn refused(&self, partition: i32, code: ErrorCode) -> ClientError {
        ClientError::Refused {
            what: format!("reading {}/{partition}", self.shared.topic),
            code,
            message: None,
        }
    }
}
