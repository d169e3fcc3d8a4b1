//! Looking at what waits in a queue without taking anything out of it.

use weir_dispatch::LaneNumber;
use weir_model::batch::Record;
use weir_model::subscription::Marks;
use weir_model::{Offset, SubscriptionId};
use weir_shard::{ReadError, Subscription};

use super::record::read_records;
use crate::broker::Broker;
use crate::errors::AdminError;
use crate::read::PartitionRef;
use crate::topology::{QueueInfo, TopologyError};

/// Records that are looked at together.
pub const BROWSED_MAX: usize = 1_000;

/// Bytes of values of records that are looked at together, about.
const BROWSED_BYTES: usize = 16 << 20;

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

/// A record that is in a queue, waiting or with somebody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Browsed {
    /// In which lane.
    pub lane: LaneNumber,
    /// As it is stored.
    pub record: Record,
    /// What is noted of it.
    pub marks: Marks,
}

/// What a queue holds, by what is durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueContents {
    /// Records that are not settled: those that wait, and those that are with somebody.
    pub records: u64,
    /// Bytes that its partitions take, those of settled records included until their segments go.
    pub bytes: u64,
}

impl Broker {
    /// What a queue holds, as far as this node has its partitions.
    pub fn queue_contents(&self, queue: &QueueInfo) -> QueueContents {
        let mut contents = QueueContents::default();
        for partition in self.lanes_of(queue) {
            let end = partition.next_offset();
            let waiting = match subscription(&partition) {
                Some(state) => state.unsettled(end),
                // Nobody has used it yet.
                None => (end - partition.log_start()).max(0).cast_unsigned(),
            };
            contents.records += waiting;
            contents.bytes += partition.bytes();
        }
        contents
    }

    /// The first records of a queue that are not settled, lane by lane, at most [`BROWSED_MAX`].
    pub async fn browse(&self, queue: &QueueInfo, count: usize) -> Result<Vec<Browsed>, TopologyError> {
        match self.leader_elsewhere(&queue.topic) {
            Some(leader) => self.browse_elsewhere(queue, leader, count).await,
            None => self.browse_here(queue, count).await,
        }
    }

    /// As [`Broker::browse`], of a queue that this node leads.
    pub(crate) async fn browse_here(
        &self,
        queue: &QueueInfo,
        count: usize,
    ) -> Result<Vec<Browsed>, TopologyError> {
        let count = count.min(BROWSED_MAX);
        let mut browsed: Vec<Browsed> = Vec::new();
        let mut bytes = BROWSED_BYTES;
        for (partition, lane) in self.lanes_of(queue).iter().zip(queue.meta.lanes.iter().copied()) {
            partition.ready()?;
            let state = subscription(partition);
            let looked = look(lane, partition, state.as_deref(), count - browsed.len(), bytes).await;
            let unreadable =
                |error: ReadError| AdminError::Conflict(format!("the queue cannot be read: {error}"));
            let (found, left) = looked.map_err(unreadable)?;
            browsed.extend(found);
            bytes = left;
            if browsed.len() >= count || bytes == 0 {
                break;
            }
        }
        Ok(browsed)
    }

    fn lanes_of(&self, queue: &QueueInfo) -> Vec<PartitionRef> {
        let lanes = 0..queue.topic.partition_count();
        lanes.filter_map(|index| self.partition(&queue.topic, index as i32).ok()).collect()
    }
}

fn subscription(partition: &PartitionRef) -> Option<std::sync::Arc<Subscription>> {
    partition.handle().view().subscription(partition.id(), SubscriptionId::QUEUE)
}

/// Records that are not settled, and how many bytes may still be read.
async fn look(
    lane: LaneNumber,
    partition: &PartitionRef,
    state: Option<&Subscription>,
    count: usize,
    mut bytes: usize,
) -> Result<(Vec<Browsed>, usize), ReadError> {
    let mut found = Vec::new();
    let mut next: Offset = partition.log_start().max(state.map_or(0, Subscription::head));
    let marked: Vec<_> = state.map(|state| state.marked_runs().collect()).unwrap_or_default();
    while found.len() < count && bytes > 0 && next < partition.next_offset() {
        let run = match read_records(partition, next, READ_BYTES, None).await {
            Ok(run) => run,
            // Retention has gone on meanwhile.
            Err(ReadError::OutOfRange { log_start, .. }) if log_start > next => {
                next = log_start;
                continue;
            }
            Err(error) => return Err(error),
        };
        for (offset, record) in run.records {
            if found.len() == count || bytes == 0 {
                break;
            }
            if state.is_some_and(|state| state.is_settled(offset)) {
                continue;
            }
            let record = record.record;
            bytes = bytes.saturating_sub(record.value.as_ref().map_or(0, |value| value.len()));
            let at = marked.partition_point(|(_, to, _)| *to < offset);
            let marks = marked.get(at).filter(|(from, ..)| *from <= offset).map(|(.., marks)| *marks);
            found.push(Browsed { lane, record, marks: marks.unwrap_or_default() });
        }
        next = run.next.max(next + 1);
    }
    Ok((found, bytes))
}
