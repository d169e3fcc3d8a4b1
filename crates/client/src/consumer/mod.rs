//! Reading one topic: as a member of a group, or alone from a chosen place.
//!
//! * [`fetcher`]: the task that asks leaders for batches.
//! * [`group`]: the task that keeps the membership: joins, beats, commits, leaves.
//! * [`assign`]: who reads what.
//! * [`offsets`]: places in the log by time and by end.
//! * [`records`]: batches into records.

mod assign;
mod fetcher;
mod group;
pub(crate) mod offsets;
mod records;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use weir_model::batch::Header;

pub use offsets::StartAt;

use crate::error::ClientError;
use crate::network::Network;
use fetcher::{Chunk, Fetcher};
use records::Batches;

/// Answers that wait for the reader, each of at most [`ConsumerOptions::partition_bytes`] (or one batch).
const CHUNKS_MAX: usize = 4;

/// Commands that wait for the membership's task.
const COMMANDS_MAX: usize = 16;

/// A record that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumedRecord {
    /// Which partition it is in.
    pub partition: i32,
    /// Its position there.
    pub offset: i64,
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Key, or none.
    pub key: Option<Bytes>,
    /// Value, or none.
    pub value: Option<Bytes>,
    /// Headers in order.
    pub headers: Vec<Header>,
    /// The assignment under which it was read; an acknowledgement under another one means nothing.
    epoch: u64,
}

/// How records are read.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// Where to begin where nothing is committed.
    pub start: StartAt,
    /// How long a node may wait for records before it answers that there are none.
    pub max_wait: Duration,
    /// Most bytes of one partition in an answer, unless a single batch has more.
    pub partition_bytes: i32,
    /// Most bytes of an answer, unless a single batch has more.
    pub fetch_bytes: i32,
    /// A member unheard of for this long is out of its group.
    pub session_timeout: Duration,
    /// How often a member says that it is alive.
    pub heartbeat_interval: Duration,
    /// A member has this long to join again in a rebalance.
    pub rebalance_timeout: Duration,
    /// How often acknowledged positions are committed by themselves; never if none.
    pub commit_interval: Option<Duration>,
    /// The name of a static member, which keeps its partitions across a restart.
    pub instance_id: Option<String>,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        ConsumerOptions {
            start: StartAt::Start,
            max_wait: Duration::from_millis(500),
            partition_bytes: 1 << 20,
            fetch_bytes: 8 << 20,
            session_timeout: Duration::from_secs(30),
            heartbeat_interval: Duration::from_secs(3),
            rebalance_timeout: Duration::from_secs(60),
            commit_interval: Some(Duration::from_secs(1)),
            instance_id: None,
        }
    }
}

/// A consumer in the making.
#[derive(Debug)]
#[must_use = "nothing is read before it is opened"]
pub struct ConsumerBuilder {
    network: Arc<Network>,
    topic: String,
    group: Option<String>,
    options: ConsumerOptions,
}

impl ConsumerBuilder {
    pub(crate) fn new(network: Arc<Network>, topic: String, group: Option<String>) -> ConsumerBuilder {
        ConsumerBuilder { network, topic, group, options: ConsumerOptions::default() }
    }

    /// With all of these options.
    pub fn options(mut self, options: ConsumerOptions) -> ConsumerBuilder {
        self.options = options;
        self
    }

    /// Where to begin where nothing is committed.
    pub fn start(mut self, start: StartAt) -> ConsumerBuilder {
        self.options.start = start;
        self
    }

    /// Commit acknowledged positions by themselves this often, or never.
    pub fn commit_interval(mut self, interval: Option<Duration>) -> ConsumerBuilder {
        self.options.commit_interval = interval;
        self
    }

    /// Be a static member of this name.
    pub fn instance_id(mut self, instance_id: impl Into<String>) -> ConsumerBuilder {
        self.options.instance_id = Some(instance_id.into());
        self
    }

    /// Joins the group, or without one begins to read all partitions. With a group this returns once the
    /// membership is being sought; the first record comes when there is an assignment.
    pub async fn open(self) -> Result<Consumer, ClientError> {
        let ConsumerBuilder { network, topic, group, options } = self;
        let (chunks, incoming) = mpsc::channel(CHUNKS_MAX);
        let network = network.apart();
        let shared = Arc::new(Shared { topic, options, network, state: Mutex::default() });
        let info = shared.network.topic(&shared.topic, group.is_some()).await?;
        let (task, commands) = match group {
            Some(group) => {
                let (commands, receiver) = mpsc::channel(COMMANDS_MAX);
                let member = group::Member::new(shared.clone(), group, chunks, receiver);
                (tokio::spawn(member.run()).abort_handle(), Some(commands))
            }
            None => {
                let partitions: Vec<i32> = (0..info.leaders.len() as i32).collect();
                let start = shared.options.start;
                let positions = offsets::find(&shared.network, &shared.topic, &partitions, start).await?;
                let epoch = shared.state.lock().assign(&positions);
                let fetcher = Fetcher::new(shared.clone(), epoch, positions, chunks);
                (tokio::spawn(fetcher.run()).abort_handle(), None)
            }
        };
        Ok(Consumer { shared, incoming, commands, task, batches: None })
    }
}

/// Reads one topic: a stream of records.
///
/// In a group, what [`Consumer::ack`] was told is committed from time to time, at [`Consumer::commit`], when
/// a rebalance begins, and at [`Consumer::close`]. What was not acknowledged is read again by whoever
/// gets the partition next.
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    incoming: mpsc::Receiver<Result<Chunk, ClientError>>,
    commands: Option<mpsc::Sender<Command>>,
    task: AbortHandle,
    /// What the current answer still has.
    batches: Option<(Chunk, Batches)>,
}

/// What a consumer asks of its membership's task.
#[derive(Debug)]
enum Command {
    /// Commit what is acknowledged, and say when it is durable.
    Commit(oneshot::Sender<Result<(), ClientError>>),
    /// Commit, leave, end.
    Leave(oneshot::Sender<Result<(), ClientError>>),
}

/// Between a consumer and its tasks.
#[derive(Debug)]
pub(crate) struct Shared {
    /// For fetches; the membership has connections of its own.
    network: Arc<Network>,
    topic: String,
    options: ConsumerOptions,
    state: Mutex<State>,
}

/// What is being read.
#[derive(Debug, Default)]
struct State {
    /// Rises with every assignment; 0 while there is none.
    epoch: u64,
    /// By partition of the current assignment.
    positions: BTreeMap<i32, Position>,
}

/// Where a partition's reader is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Position {
    /// The next offset after the last record that was acknowledged.
    acked: Option<i64>,
    /// What of that is committed.
    committed: Option<i64>,
}

impl State {
    /// A new assignment.
    fn assign(&mut self, positions: &BTreeMap<i32, i64>) -> u64 {
        self.epoch += 1;
        let position = Position { acked: None, committed: None };
        self.positions = positions.keys().map(|partition| (*partition, position)).collect();
        self.epoch
    }

    /// No assignment any more: what is still under way belongs to nobody.
    fn revoke(&mut self) {
        self.epoch += 1;
        self.positions.clear();
    }

    fn ack(&mut self, record: &ConsumedRecord) -> bool {
        match self.positions.get_mut(&record.partition) {
            Some(position) if record.epoch == self.epoch => {
                let next = record.offset + 1;
                position.acked = Some(position.acked.map_or(next, |acked| acked.max(next)));
                true
            }
            _ => false,
        }
    }

    /// What is acknowledged and not committed yet.
    fn uncommitted(&self) -> BTreeMap<i32, i64> {
        let news = self.positions.iter().filter(|(_, position)| position.acked != position.committed);
        news.filter_map(|(partition, position)| Some((*partition, position.acked?))).collect()
    }

    fn committed(&mut self, epoch: u64, offsets: &BTreeMap<i32, i64>) {
        if epoch != self.epoch {
            return;
        }
        for (partition, offset) in offsets {
            if let Some(position) = self.positions.get_mut(partition) {
                position.committed = Some(*offset);
            }
        }
    }
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Consumer {
    /// Notes that this record and all before it in its partition are dealt with. False if the partition has
    /// been given to another member since it was read, which will read it again.
    pub fn ack(&self, record: &ConsumedRecord) -> bool {
        self.shared.state.lock().ack(record)
    }

    /// Commits what is acknowledged; returns when that is durable.
    pub async fn commit(&self) -> Result<(), ClientError> {
        self.command(Command::Commit).await
    }

    /// Commits what is acknowledged and leaves the group, so that others get the partitions at once.
    pub async fn close(self) -> Result<(), ClientError> {
        match self.commands {
            Some(_) => self.command(Command::Leave).await,
            None => Ok(()),
        }
    }

    /// The partitions that are being read now.
    pub fn assignment(&self) -> Vec<i32> {
        self.shared.state.lock().positions.keys().copied().collect()
    }

    async fn command(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<(), ClientError>>) -> Command,
    ) -> Result<(), ClientError> {
        let Some(commands) = &self.commands else {
            return Err(ClientError::Options(
                "there is no group to commit to; open the consumer with a group".into(),
            ));
        };
        let (sender, done) = oneshot::channel();
        commands.send(command(sender)).await.map_err(|_| ClientError::Closed)?;
        done.await.map_err(|_| ClientError::Closed)?
    }

    /// The next record of what has come in already.
    fn next_at_hand(&mut self) -> Option<Result<ConsumedRecord, ClientError>> {
        let (chunk, batches) = self.batches.as_mut()?;
        if chunk.epoch != self.shared.state.lock().epoch {
            self.batches = None;
            return None;
        }
        match batches.next() {
            Some(Ok(record)) => Some(Ok(ConsumedRecord {
                partition: chunk.partition,
                offset: record.offset,
                timestamp_ms: record.timestamp,
                key: record.key,
                value: record.value,
                headers: record.headers,
                epoch: chunk.epoch,
            })),
            Some(Err(error)) => {
                let error = ClientError::Records {
                    topic: self.shared.topic.clone(),
                    partition: chunk.partition,
                    offset: error.offset,
                    why: error.why,
                };
                self.batches = None;
                Some(Err(error))
            }
            None => {
                self.batches = None;
                None
            }
        }
    }
}

impl Stream for Consumer {
    type Item = Result<ConsumedRecord, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if let Some(record) = self.next_at_hand() {
                return Poll::Ready(Some(record));
            }
            match self.incoming.poll_recv(context) {
                Poll::Ready(Some(Ok(chunk))) => {
                    let batches = Batches::new(chunk.records.clone(), chunk.from);
                    self.batches = Some((chunk, batches));
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
