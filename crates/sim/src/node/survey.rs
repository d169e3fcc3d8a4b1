//! What a node holds, seen from outside of the simulation: what queues and lots have settled, what their logs have, who
//! the users are. A survey looks at views in one moment, and asks nobody.

use std::collections::BTreeMap;
use std::hash::Hasher;

use futures_util::FutureExt;
use weir_cluster::{Node, ProposeError, ShardHandle};
use weir_model::batch::split_batches;
use weir_model::command::TopicMeta;
use weir_model::queue::split_name;
use weir_model::{Offset, ShardId, SubscriptionId};
use weir_shard::{PartitionView, ReadError, Subscription};

use super::SimNode;
use crate::declared::{QUEUES, lots_name};
use crate::scenario::SHARDS;

/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;

/// What one node holds of everything whose records are settled one by one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Survey {
    /// Partitions by a name for people.
    pub partitions: BTreeMap<String, Surveyed>,
    /// Users with their tags, and in how many namespaces they may do something.
    pub users: BTreeMap<String, (Vec<String>, usize)>,
    /// The last entry that is applied, by shard.
    pub applied: BTreeMap<u32, u64>,
    /// Replicas that stopped, and why.
    pub stopped: BTreeMap<u32, String>,
}

/// One partition.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surveyed {
    /// First and next offset of its log.
    pub log: (Offset, Offset),
    /// Everything below is settled.
    pub head: Offset,
    /// Everything below may have been handed out.
    pub handed_out: Offset,
    /// Records that are not settled.
    pub unsettled: u64,
    /// Deadlines.
    pub timers: usize,
    /// Of everything that is noted of records, and of the log's contents.
    pub digest: u64,
    /// Records that are not settled and not in the log either.
    pub gone: Vec<Offset>,
    /// Segments, and how many of them were written anew.
    pub segments: (usize, usize),
}

impl SimNode {
    /// What the node holds; none if it does not run.
    pub fn survey(&self) -> Option<Survey> {
        let node = self.running.lock().upgrade()?;
        Survey::of(&node)
    }
}

impl Survey {
    fn of(node: &Node) -> Option<Survey> {
        let meta = node.shard(ShardId::META)?;
        let mut survey = Survey::default();
        for topic in meta.view().catalog().topics() {
            let (_, name) = split_name(&topic.name);
            if topic.name == lots_name() || QUEUES.iter().any(|queue| queue.name == name) {
                survey.look_at(node, name, &topic);
            }
        }
        let records = meta.view().accounts().records();
        for user in &records.users {
            let allowed = records.permissions.iter().filter(|permission| permission.user == user.name);
            survey.users.insert(user.name.clone(), (user.tags.clone(), allowed.count()));
        }
        for shard in (0..=SHARDS).filter_map(|shard| node.shard(ShardId(shard))) {
            survey.applied.insert(shard.id().0, shard.view().applied_index());
            if let Some(why) = stopped(shard) {
                survey.stopped.insert(shard.id().0, why);
            }
        }
        Some(survey)
    }

    fn look_at(&mut self, node: &Node, name: &str, topic: &TopicMeta) {
        for (index, partition) in topic.partitions.iter().enumerate() {
            let Some(shard) = node.shard(partition.shard) else { continue };
            let Some(view) = shard.view().partition(partition.id) else { continue };
            let state = shard.view().subscription(partition.id, SubscriptionId::QUEUE);
            let timers = shard.view().timers(partition.id);
            let mut surveyed = Surveyed { log: view.offsets(), ..Surveyed::default() };
            surveyed.timers = timers.as_ref().map_or(0, |timers| timers.len());
            let segments = view.segments();
            let anew = segments.iter().filter(|segment| segment.id.generation > 0).count();
            surveyed.segments = (segments.len(), anew);
            let mut digest = Digest::default();
            for row in timers.iter().flat_map(|timers| timers.iter()) {
                digest.numbers(&[row.at, row.offset]);
            }
            let runs = read_runs(&view, &mut digest);
            if let Some(state) = state {
                surveyed.note(&state, &mut digest);
                if let Ok(runs) = runs {
                    surveyed.gone = gone(&state, surveyed.log.1, &runs);
                }
            }
            surveyed.digest = digest.0.finish();
            self.partitions.insert(format!("{name}-{index}"), surveyed);
        }
    }
}

impl Surveyed {
    fn note(&mut self, state: &Subscription, digest: &mut Digest) {
        self.head = state.head();
        self.handed_out = state.handed_out();
        self.unsettled = state.unsettled(self.log.1);
        state.settled_runs().for_each(|(from, to)| digest.numbers(&[from, to]));
        for (from, to, marks) in state.marked_runs() {
            let dead = marks.dead.map_or(0, |reason| reason as i64);
            let counts = [i64::from(marks.failures), i64::from(marks.returns)];
            digest.numbers(&[from, to, counts[0], counts[1], marks.order.cast_signed(), dead]);
        }
    }
}

/// Why a replica takes no commands any more; none if it does, or another one leads.
fn stopped(shard: &ShardHandle) -> Option<String> {
    match shard.admit(0).now_or_never() {
        Some(Err(ProposeError::Stopped(why))) => Some(why),
        _ => None,
    }
}

/// The offsets that a log has, as runs, their batches put into a digest.
fn read_runs(view: &PartitionView, digest: &mut Digest) -> Result<Vec<(Offset, Offset)>, ReadError> {
    let (mut at, end) = view.offsets();
    let mut runs = Vec::new();
    while at < end {
        let read = view.read(at, READ_BYTES, false)?;
        if read.next_offset <= at {
            break;
        }
        at = read.next_offset;
        let bytes = read.in_one_piece();
        for (header, _) in split_batches(&bytes).unwrap_or_default() {
            let last = header.base_offset + i64::from(header.record_count) - 1;
            digest.numbers(&[header.base_offset, last, i64::from(header.crc)]);
            runs.push((header.base_offset, last));
        }
    }
    Ok(runs)
}

/// Records that are not settled and not in any of these runs.
fn gone(state: &Subscription, end: Offset, runs: &[(Offset, Offset)]) -> Vec<Offset> {
    let mut gone = Vec::new();
    let mut at = state.head();
    let mut missing = |from: Offset, to: Offset| {
        gone.extend((from..=to).filter(|offset| !state.is_settled(*offset)));
    };
    for (from, to) in runs {
        missing(at, from - 1);
        at = at.max(to + 1);
    }
    missing(at, end - 1);
    gone
}

/// A number that is the same for the same numbers, whatever the process.
#[derive(Default)]
struct Digest(std::hash::DefaultHasher);

impl Digest {
    fn numbers(&mut self, numbers: &[i64]) {
        numbers.iter().for_each(|number| self.0.write_i64(*number));
    }
}
