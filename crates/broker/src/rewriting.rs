//! Which segments of queues are written anew, so that a record that nobody settles does not hold the space of all that
//! came and went around it. The shard's leader looks at what is left of them and proposes; every replica writes the
//! same, and none takes a proposal under which an unsettled record would be gone.

use std::collections::BTreeMap;

use weir_model::command::Command;
use weir_model::entry::{KEPT_RUNS_MAX, REWRITTEN_SEGMENTS_MAX};
use weir_model::{Offset, PartitionId, SegmentId};
use weir_shard::{PartitionView, ReadError, SegmentInfo, Stretch, Subscription};

/// A segment is written anew when at most one of so many of its bytes is still wanted.
const SPARSE: u64 = 2;

/// A segment is looked at again when at most one of so many of its records waits that waited at the last look. Together
/// with [`SPARSE`] it bounds what is read and written for every record that comes and goes.
const LOOKED_AGAIN: u64 = 2;

/// Bytes that go into one segment when several are written anew as one.
const REWRITTEN_BYTES_MAX: u64 = 16 << 20;

/// A segment that was written anew and holds no more than this is written anew with the next one behind it: thousands
/// of segments that hold one record each become few.
const SMALL_BYTES: u64 = 1 << 20;

/// Bytes of segments that one look at a partition walks through; the next look goes on.
const WALKED_BYTES_MAX: u64 = 1 << 30;

/// Segments remembered, of all partitions, with what waited in them. Who was forgotten is looked at again.
const LOOKS_MAX: usize = 100_000;

/// How many records of a segment waited when it was looked at last.
pub(crate) type Looks = BTreeMap<(PartitionId, SegmentId), u64>;

/// What is to be written anew of one partition.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    pub rewrites: Vec<Command>,
    /// What was found on the way.
    pub looks: Vec<(SegmentId, u64)>,
}

/// A segment that was walked through.
#[derive(Clone, Debug)]
struct Walked {
    info: SegmentInfo,
    stretches: Vec<Stretch>,
}

/// Segments that become one.
#[derive(Debug, Default)]
struct Group {
    members: Vec<Walked>,
    kept_bytes: u64,
}

/// What is noted of a partition's segments.
pub(crate) fn looks_of(looks: &Looks, partition: PartitionId) -> BTreeMap<SegmentId, u64> {
    let first = SegmentId { base: 0, generation: 0 };
    let last = SegmentId { base: Offset::MAX, generation: u32::MAX };
    let all = (partition, first)..=(partition, last);
    looks.range(all).map(|((_, segment), waiting)| (*segment, *waiting)).collect()
}

/// Forgets what was noted of segments that are gone, and of all if they are too many.
pub(crate) fn note(looks: &mut Looks, partition: PartitionId, segments: &[SegmentInfo], plan: &Plan) {
    for segment in looks_of(looks, partition).into_keys() {
        if segments.binary_search_by_key(&segment, |segment| segment.id).is_err() {
            looks.remove(&(partition, segment));
        }
    }
    if looks.len() + plan.looks.len() > LOOKS_MAX {
        looks.clear();
    }
    looks.extend(plan.looks.iter().map(|(segment, waiting)| ((partition, *segment), *waiting)));
}

/// Looks at the closed segments below a bound in which enough was settled since the last look. May wait for the disk.
pub(crate) fn plan(
    view: &PartitionView,
    subscription: &Subscription,
    bound: Offset,
    looks: &BTreeMap<SegmentId, u64>,
) -> Result<Plan, ReadError> {
    let segments = view.segments();
    let closed = segments.len().saturating_sub(1);
    let mut planning = Planning {
        view,
        subscription,
        plan: Plan::default(),
        group: Group::default(),
        taken_below: 0,
        walked: 0,
    };
    for (at, segment) in segments[..closed].iter().enumerate() {
        if segment.last_offset >= bound || planning.walked >= WALKED_BYTES_MAX {
            break;
        }
        let waiting = subscription.unsettled_within(segment.id.base, segment.last_offset);
        let before = looks.get(&segment.id).copied().unwrap_or(match segment.id.generation {
            0 => (segment.last_offset - segment.id.base + 1) as u64,
            _ => u64::MAX,
        });
        if waiting > before / LOOKED_AGAIN {
            planning.flush();
            continue;
        }
        let before = at.checked_sub(1).map(|before| segments[before]);
        planning.look(segment, waiting, before)?;
    }
    planning.flush();
    Ok(planning.plan)
}

struct Planning<'a> {
    view: &'a PartitionView,
    subscription: &'a Subscription,
    plan: Plan,
    group: Group,
    /// Everything below is in a command, or in the group.
    taken_below: Offset,
    walked: u64,
}

impl Planning<'_> {
    /// Adds a segment to the group, if it is worth it.
    fn look(
        &mut self,
        segment: &SegmentInfo,
        waiting: u64,
        before: Option<SegmentInfo>,
    ) -> Result<(), ReadError> {
        let walked = self.walk(segment, waiting)?;
        self.plan.looks.push((segment.id, waiting));
        // What was trimmed or rewritten meanwhile is looked at the next time.
        let Some(walked) = walked else {
            self.flush();
            return Ok(());
        };
        let wanted = wanted_bytes(&walked.stretches);
        if wanted > segment.bytes / SPARSE {
            self.flush();
            return Ok(());
        }
        if !self.group.has_room_for(&walked, wanted) {
            self.flush();
        }
        if self.group.members.is_empty()
            && let Some(small) = before.filter(|before| {
                before.id.generation > 0 && before.bytes <= SMALL_BYTES && before.id.base >= self.taken_below
            })
        {
            let waiting = self.subscription.unsettled_within(small.id.base, small.last_offset);
            if let Some(small) = self.walk(&small, waiting)? {
                self.group.add(small);
            }
        }
        self.taken_below = walked.info.last_offset + 1;
        self.group.add(walked);
        Ok(())
    }

    /// What is left of a segment; none if it is not there as it was.
    fn walk(&mut self, segment: &SegmentInfo, waiting: u64) -> Result<Option<Walked>, ReadError> {
        let info = *segment;
        if waiting == 0 {
            return Ok(Some(Walked { info, stretches: Vec::new() }));
        }
        self.walked += segment.bytes;
        let mut wanted = |from, to| self.subscription.unsettled_within(from, to) > 0;
        let stretches = self.view.stretches(segment.id, &mut wanted)?;
        Ok((!stretches.is_empty()).then_some(Walked { info, stretches }))
    }

    /// Makes a command of the group.
    fn flush(&mut self) {
        let group = std::mem::take(&mut self.group);
        self.plan.rewrites.extend(group.into_command(self.view.id()));
    }
}

impl Group {
    fn has_room_for(&self, walked: &Walked, wanted: u64) -> bool {
        let Some(first) = self.members.first() else { return true };
        self.kept_bytes + wanted <= REWRITTEN_BYTES_MAX
            && self.members.len() < REWRITTEN_SEGMENTS_MAX
            && walked.info.last_offset - first.info.id.base <= i64::from(i32::MAX)
    }

    fn add(&mut self, walked: Walked) {
        self.kept_bytes += wanted_bytes(&walked.stretches);
        self.members.push(walked);
    }

    /// The command, unless it would save too little after all.
    fn into_command(self, partition: PartitionId) -> Option<Command> {
        let before: u64 = self.members.iter().map(|member| member.info.bytes).sum();
        let segments: Vec<SegmentId> = self.members.iter().map(|member| member.info.id).collect();
        let mut stretches: Vec<Stretch> =
            self.members.into_iter().flat_map(|member| member.stretches).collect();
        keep_short_gaps(&mut stretches, KEPT_RUNS_MAX);
        let wanted = || stretches.iter().filter(|stretch| stretch.wanted);
        let bytes = wanted_bytes(&stretches);
        let max_timestamp = wanted().map(|stretch| stretch.max_timestamp).max().unwrap_or(-1);
        let kept = runs(wanted());
        let is_worth_it = !segments.is_empty() && bytes <= before / SPARSE;
        is_worth_it.then_some(Command::RewriteSegments { partition, segments, kept, bytes, max_timestamp })
    }
}

fn wanted_bytes(stretches: &[Stretch]) -> u64 {
    stretches.iter().filter(|stretch| stretch.wanted).map(|stretch| stretch.bytes).sum()
}

/// Wants the shortest of what is not wanted as well, until no more than so many runs are wanted.
fn keep_short_gaps(stretches: &mut [Stretch], runs_max: usize) {
    let wanted = stretches.iter().filter(|stretch| stretch.wanted).count();
    let Some(excess) = wanted.checked_sub(runs_max).filter(|excess| *excess > 0) else { return };
    let mut gaps: Vec<(u64, usize)> = stretches
        .iter()
        .enumerate()
        .filter(|(at, stretch)| {
            let beside = |at: Option<usize>| at.and_then(|at| stretches.get(at)).is_some_and(|s| s.wanted);
            !stretch.wanted && beside(at.checked_sub(1)) && beside(at.checked_add(1))
        })
        .map(|(at, stretch)| (stretch.bytes, at))
        .collect();
    gaps.sort_unstable();
    for (_, at) in gaps.into_iter().take(excess) {
        stretches[at].wanted = true;
    }
}

/// What is wanted as runs of offsets; those that meet become one.
fn runs<'a>(wanted: impl Iterator<Item = &'a Stretch>) -> Vec<(Offset, Offset)> {
    let mut runs: Vec<(Offset, Offset)> = Vec::new();
    for stretch in wanted {
        match runs.last_mut().filter(|last| last.1 + 1 == stretch.from) {
            Some(last) => last.1 = stretch.to,
            None => runs.push((stretch.from, stretch.to)),
        }
    }
    runs
}
