//! A voter that was away for longer than the journals reach back gets a copy of the shard, and follows again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use weir_cluster::{
    Line, NodeOptions, ProposeError, ShardHandle, Transport, TransportError, TransportFuture,
};
use weir_log::disk::{Disk, SimDisk};
use weir_model::command::{Command, Outcome};
use weir_model::settings::PartitionSettings;
use weir_model::subscription::{Disposition, Settlement};
use weir_model::{NodeId, PartitionId, SubscriptionId};

use crate::support::{Machine, PARTITION, SHARD, batch, run, values};
use crate::three::{Between, Cluster};

/// Bytes of one record's value, so that few records fill a journal.
const VALUE_BYTES: usize = 8 << 10;

/// A partition that is deleted while a voter is away.
const DELETED: PartitionId = PartitionId(8);

/// One that is made meanwhile, with a subscription and a timer.
const QUEUE: PartitionId = PartitionId(9);

/// Where in a request about a snapshot its part stands: behind version, kind, vote and checkpoint.
const PART_AT: usize = 2 + 17 + 28;

/// What a call about a snapshot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Call {
    Offer,
    Manifest,
    State,
    Segment,
    Checksum,
    Install,
}

fn call_of(request: &[Bytes]) -> Option<Call> {
    let head = request.first()?;
    if head.get(1) != Some(&5) {
        return None;
    }
    Some(match (head.get(PART_AT)?, head.get(PART_AT + 1)) {
        (0, _) => Call::Offer,
        (1, Some(0)) => Call::Manifest,
        (1, Some(1)) => Call::State,
        (1, _) => Call::Segment,
        (2, _) => Call::Checksum,
        _ => Call::Install,
    })
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Arrives,
    /// It does not arrive.
    Lost,
    /// It arrives, and its answer does not come back.
    Unanswered,
}

type Decide = Box<dyn FnMut(NodeId, Call) -> Fate + Send>;

/// What was said about snapshots, and what is to become of what will be.
#[derive(Default)]
struct Watch {
    calls: BTreeMap<Call, usize>,
    segment_bytes: usize,
    /// Pieces and their bytes, by when they were sent.
    pieces: Vec<(tokio::time::Duration, usize)>,
    began: Option<tokio::time::Instant>,
    decide: Option<Decide>,
}

type Shared = Arc<Mutex<Watch>>;

struct Watched {
    inner: Arc<dyn Transport>,
    watch: Shared,
}

impl Transport for Watched {
    fn call(&self, to: NodeId, line: Line, request: Vec<Bytes>) -> TransportFuture<'_> {
        let mut fate = Fate::Arrives;
        if line == Line::Shard(SHARD)
            && let Some(call) = call_of(&request)
        {
            let mut watch = self.watch.lock();
            *watch.calls.entry(call).or_default() += 1;
            let began = *watch.began.get_or_insert_with(tokio::time::Instant::now);
            if call == Call::Segment {
                watch.segment_bytes += request[1].len();
                watch.pieces.push((began.elapsed(), request[1].len()));
            }
            if let Some(decide) = &mut watch.decide {
                fate = decide(to, call);
            }
        }
        Box::pin(async move {
            let failed = || TransportError::Failed { to, why: "the connection was lost".into() };
            match fate {
                Fate::Arrives => self.inner.call(to, line, request).await,
                Fate::Lost => Err(failed()),
                Fate::Unanswered => {
                    let _ = self.inner.call(to, line, request).await;
                    Err(failed())
                }
            }
        })
    }
}

fn tune(options: &mut NodeOptions) {
    options.journal.journal_bytes_max = 1 << 20;
    options.checkpoint_bytes = 128 << 10;
}

struct Story {
    cluster: Cluster,
    watch: Shared,
    written: usize,
    behind: NodeId,
}

impl Story {
    /// Three voters that agree on some records; then one is away while the others write more than the journal keeps.
    async fn begin(seed: u64, before: usize, tuned: fn(&mut NodeOptions)) -> Story {
        let watch = Shared::default();
        let between: Between = {
            let watch = Arc::clone(&watch);
            Arc::new(move |_, inner| Arc::new(Watched { inner, watch: Arc::clone(&watch) }))
        };
        let cluster = Cluster::start_between(
            seed,
            move |options| {
                tune(options);
                tuned(options);
            },
            Some(between),
        )
        .await;
        let leader = cluster.leader().await;
        let behind = *cluster.nodes.keys().find(|id| **id != leader).expect("a follower");
        let mut story = Story { cluster, watch, written: 0, behind };
        let shard = story.shard().await;
        open(&shard, PARTITION).await;
        open(&shard, DELETED).await;
        story.write(before).await;
        story.cluster.settle().await;
        story
    }

    async fn shard(&self) -> ShardHandle {
        let leader = self.cluster.leader().await;
        self.cluster.nodes[&leader].shard(SHARD).expect("the shard").clone()
    }

    /// So many records more.
    async fn write(&mut self, count: usize) {
        let shard = self.shard().await;
        let all: Vec<usize> = (self.written..self.written + count).collect();
        for few in all.chunks(8) {
            join_all(few.iter().map(|i| propose(&shard, append(PARTITION, *i)))).await;
        }
        self.written += count;
    }

    /// Everything that happens while one is away.
    async fn go_on_without(&mut self, count: usize) {
        let shard = self.shard().await;
        propose(&shard, Command::ClosePartition { partition: DELETED }).await;
        open(&shard, QUEUE).await;
        let subscription = SubscriptionId::QUEUE;
        propose(&shard, Command::OpenSubscription { partition: QUEUE, subscription, start: 0 }).await;
        let deadlines = vec![(0, i64::MAX / 2)];
        propose(&shard, Command::AppendTimed { partition: QUEUE, deadlines, batch: batch("timed") }).await;
        propose(&shard, append(QUEUE, 0)).await;
        let settled = Settlement { from: 1, to: 1, disposition: Disposition::Accept };
        let settle =
            Command::Settle { partition: QUEUE, subscription, handed_out: 2, settlements: vec![settled] };
        propose(&shard, settle).await;
        self.write(count).await;
    }

    /// All replicas are the same, in memory and on disk, and go on together.
    async fn check(&mut self) {
        self.cluster.settle().await;
        self.write(20).await;
        let shard = self.shard().await;
        let Ok(Outcome::Digest { index, digest }) = shard.propose(Command::TakeDigest).await else {
            panic!("no digest");
        };
        // A replica that differs stops, and then does not come to agree.
        propose(&shard, Command::CompareDigest { index, digest }).await;
        self.write(4).await;
        self.cluster.settle().await;
        let expected: Vec<String> = (0..self.written).map(value).collect();
        let mut views = Vec::new();
        for (id, node) in &self.cluster.nodes {
            let shard = node.shard(SHARD).expect("the shard");
            let mut values = values(shard);
            values.sort_unstable();
            assert!(values == expected, "node {id} has other records");
            let view = shard.view();
            assert!(view.partition(DELETED).is_none());
            views.push((view.subscription(QUEUE, SubscriptionId::QUEUE), view.timers(QUEUE)));
        }
        assert!(views[0].0.is_some() && views[0].1.is_some());
        assert!(views.iter().all(|other| *other == views[0]), "subscriptions or timers differ");
        let files: Vec<_> = self.cluster.nodes.keys().map(|id| self.cluster.segment_files(*id)).collect();
        assert!(files.iter().all(|other| *other == files[0]), "segment files differ");
        assert!(files[0].len() > 1, "only one segment: not much of a test");
        for machine in self.cluster.machines.values() {
            let dir = format!("/data/shards/{SHARD}");
            let names = machine.disk.list(std::path::Path::new(&dir)).expect("a directory");
            assert!(names.iter().all(|entry| entry.name != "incoming"), "something is left of the snapshot");
            assert!(names.iter().all(|entry| entry.name != DELETED.to_string()));
        }
    }

    fn calls(&self, call: Call) -> usize {
        self.watch.lock().calls.get(&call).copied().unwrap_or(0)
    }

    fn decide(&self, decide: impl FnMut(NodeId, Call) -> Fate + Send + 'static) {
        self.watch.lock().decide = Some(Box::new(decide));
    }
}

fn value(i: usize) -> String {
    format!("{i:0>width$}", width = VALUE_BYTES)
}

fn append(partition: PartitionId, i: usize) -> Command {
    Command::Append { partition, batch: batch(&value(i)) }
}

async fn open(shard: &ShardHandle, partition: PartitionId) {
    let settings = PartitionSettings { segment_bytes: 512 << 10, ..PartitionSettings::default() };
    propose(shard, Command::OpenPartition { partition, settings, epoch_base: 0 }).await;
}

/// Proposes until there is room.
async fn propose(shard: &ShardHandle, command: Command) {
    loop {
        match shard.propose(command.clone()).await {
            Ok(Outcome::Refused(refusal)) => panic!("{refusal:?}"),
            Ok(_) => return,
            Err(ProposeError::Overloaded) => tokio::time::sleep(Duration::from_millis(20)).await,
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn a_voter_that_was_away_too_long_gets_a_snapshot_and_follows() {
    run(async {
        let mut story = Story::begin(300, 40, |_| {}).await;
        let behind = story.behind;
        story.cluster.kill(behind, true).await;
        story.go_on_without(400).await;
        story.cluster.boot(behind).await;
        story.cluster.settle().await;
        assert!(story.calls(Call::Install) > 0, "it was fed from the journals");
        story.check().await;
        // What it was given survives.
        story.cluster.kill(behind, true).await;
        story.cluster.boot(behind).await;
        story.check().await;
        assert_eq!(story.calls(Call::Install), 1);
        // It may lead.
        let leader = story.cluster.leader().await;
        story.cluster.kill(leader, true).await;
        story.cluster.leader().await;
        story.cluster.boot(leader).await;
        story.check().await;
        story.cluster.stop().await;
    });
}

#[test]
fn segments_that_are_there_are_not_sent_again() {
    run(async {
        let mut story = Story::begin(301, 300, |_| {}).await;
        let behind = story.behind;
        story.cluster.kill(behind, false).await;
        story.go_on_without(300).await;
        story.cluster.boot(behind).await;
        story.check().await;
        let sent = story.watch.lock().segment_bytes;
        assert!(story.calls(Call::Checksum) > 0);
        assert!(sent < 450 * VALUE_BYTES, "{sent} bytes were sent, of {}", 600 * VALUE_BYTES);
        assert!(sent >= 200 * VALUE_BYTES, "{sent} bytes were sent");
        story.cluster.stop().await;
    });
}

#[test]
fn calls_and_answers_that_are_lost_cost_only_themselves() {
    run(async {
        let mut story = Story::begin(302, 10, |_| {}).await;
        let behind = story.behind;
        story.cluster.kill(behind, false).await;
        story.go_on_without(300).await;
        let mut calls = 0;
        story.decide(move |_, _| {
            calls += 1;
            match calls % 7 {
                3 => Fate::Lost,
                6 => Fate::Unanswered,
                _ => Fate::Arrives,
            }
        });
        story.cluster.boot(behind).await;
        story.check().await;
        let sent = story.watch.lock().segment_bytes;
        // Those that were lost are sent twice.
        assert!(sent < 2 * 350 * VALUE_BYTES, "{sent} bytes were sent");
        story.cluster.stop().await;
    });
}

#[test]
fn snapshots_leave_at_the_rate_that_is_set() {
    run(async {
        let tuned = |options: &mut NodeOptions| options.snapshot_bytes_per_second = Some(256 << 10);
        let mut story = Story::begin(303, 10, tuned).await;
        let behind = story.behind;
        story.cluster.kill(behind, false).await;
        story.go_on_without(300).await;
        story.cluster.boot(behind).await;
        // It takes some ten seconds, which the others do not notice.
        story.write(10).await;
        story.check().await;
        let pieces = story.watch.lock().pieces.clone();
        let (first, last) = (pieces[0], pieces[pieces.len() - 1]);
        let bytes: usize = pieces.iter().map(|(_, bytes)| bytes).sum::<usize>() - last.1;
        let least = Duration::from_secs_f64(bytes as f64 / f64::from(256 << 10));
        assert!(last.0 - first.0 >= least.mul_f64(0.9), "{bytes} bytes within {:?}", last.0 - first.0);
        story.cluster.stop().await;
    });
}

/// The replica goes down when the nth call about the snapshot is made, and comes back.
async fn crash_at_call(seed: u64, nth: usize, power: bool) -> bool {
    let mut story = Story::begin(seed, 40, |_| {}).await;
    let behind = story.behind;
    story.cluster.kill(behind, power).await;
    story.go_on_without(200).await;
    let hit = Arc::new(Mutex::new(false));
    {
        let (hit, mut calls) = (Arc::clone(&hit), 0);
        story.decide(move |to, _| {
            calls += 1;
            *hit.lock() |= to == behind && calls == nth + 1;
            // Every other one has arrived when the machine goes down.
            if *hit.lock() && nth.is_multiple_of(2) { Fate::Lost } else { Fate::Arrives }
        });
    }
    story.cluster.boot(behind).await;
    for _ in 0..3000 {
        if *hit.lock() {
            break;
        }
        tokio::time::sleep(Duration::from_micros(100)).await;
    }
    let was_hit = *hit.lock();
    story.cluster.kill(behind, power).await;
    story.watch.lock().decide = None;
    story.cluster.boot(behind).await;
    story.check().await;
    story.cluster.stop().await;
    was_hit
}

#[test]
fn a_replica_that_crashes_at_any_call_gets_the_snapshot_after_all() {
    let mut calls = 0;
    while run(crash_at_call(310 + calls as u64, calls, calls % 4 < 2)) {
        calls += 1;
        assert!(calls < 40, "more calls than there should be");
    }
    assert!(calls > 5, "only {calls} calls: not much of a test");
}

/// The replica's disk goes down so many changes behind the call to install.
async fn crash_within_install(seed: u64, after: u64) -> bool {
    let mut story = Story::begin(seed, 40, |_| {}).await;
    let behind = story.behind;
    story.cluster.kill(behind, true).await;
    story.go_on_without(150).await;
    let disk: SimDisk = story.cluster.machines[&behind].disk.clone();
    story.decide(move |to, call| {
        if to == behind && call == Call::Install {
            disk.crash_at(disk.operations() + after);
        }
        Fate::Arrives
    });
    story.cluster.boot(behind).await;
    let disk = story.cluster.machines[&behind].disk.clone();
    for _ in 0..500 {
        if disk.is_down() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let struck = disk.is_down();
    story.watch.lock().decide = None;
    story.cluster.kill(behind, true).await;
    story.cluster.boot(behind).await;
    story.check().await;
    story.cluster.stop().await;
    struck
}

#[test]
fn a_replica_whose_disk_goes_down_within_the_install_comes_back_with_one_state_or_the_other() {
    for after in 0..36 {
        assert!(run(crash_within_install(400 + after, after)), "nothing happens at change {after}");
    }
}

#[test]
fn another_leader_goes_on_when_the_one_that_sends_dies() {
    run(async {
        let mut story = Story::begin(304, 10, |_| {}).await;
        let behind = story.behind;
        story.cluster.kill(behind, false).await;
        story.go_on_without(300).await;
        let hit = Arc::new(Mutex::new(false));
        {
            let (hit, mut pieces) = (Arc::clone(&hit), 0);
            story.decide(move |_, call| {
                pieces += usize::from(call == Call::Segment);
                *hit.lock() |= pieces == 3;
                // It is stuck there until it dies.
                if *hit.lock() { Fate::Lost } else { Fate::Arrives }
            });
        }
        story.cluster.boot(behind).await;
        while !*hit.lock() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        let leader = story.cluster.leader().await;
        story.cluster.kill(leader, true).await;
        story.watch.lock().decide = None;
        // The two that are left agree only once the snapshot is there.
        story.cluster.leader().await;
        story.cluster.boot(leader).await;
        story.check().await;
        assert!(story.calls(Call::Install) > 0);
        story.cluster.stop().await;
    });
}

#[test]
fn a_replica_that_is_only_cut_off_serves_what_it_has_until_the_switch_and_goes_on_behind_it() {
    run(async {
        let mut story = Story::begin(305, 60, |_| {}).await;
        let behind = story.behind;
        let all: Vec<NodeId> = (1..=3).map(NodeId).collect();
        story.cluster.transport.isolate(behind, &all, true);
        story.go_on_without(300).await;
        let shard = story.cluster.nodes[&behind].shard(SHARD).expect("the shard").clone();
        let partition = shard.view().partition(PARTITION).expect("the partition");
        let deleted = shard.view().partition(DELETED).expect("it is not known to be deleted here");
        let before = values(&shard);
        assert_eq!(before.len(), 60);
        let range = partition.range(0, 1 << 20).expect("at hand");
        let bytes = range.range.first(range.range.len()).expect("its bytes");
        // While pieces come, everything is as it was.
        let seen = Arc::new(Mutex::new(Vec::new()));
        {
            let (seen, partition) = (Arc::clone(&seen), Arc::clone(&partition));
            story.decide(move |to, call| {
                if to == behind && call != Call::Install {
                    seen.lock().push((partition.next_offset(), partition.read(0, 100, false).is_ok()));
                }
                Fate::Arrives
            });
        }
        story.cluster.transport.isolate(behind, &all, false);
        story.cluster.settle().await;
        assert!(story.calls(Call::Install) > 0, "it was fed from the journals");
        assert!(seen.lock().len() > 3);
        assert!(seen.lock().iter().all(|seen| *seen == (60, true)), "{:?}", seen.lock());
        story.watch.lock().decide = None;
        assert_eq!(range.range.first(range.range.len()).expect("its bytes"), bytes);
        assert_eq!(partition.next_offset(), story.written as i64);
        partition.read(0, 100, false).expect("the same view reads on");
        assert!(deleted.is_closed());
        story.check().await;
        story.cluster.stop().await;
    });
}

#[test]
fn a_plain_replica_with_an_empty_directory_is_filled_by_a_snapshot() {
    run(async {
        let mut story = Story::begin(306, 10, |_| {}).await;
        let behind = story.behind;
        story.cluster.kill(behind, true).await;
        story.go_on_without(300).await;
        // It is not told that it votes: with an empty directory it must not say so of itself.
        let others: Vec<NodeId> = (1..=3).map(NodeId).filter(|id| *id != behind).collect();
        let machine = Machine { id: behind, voters: others, ..Machine::alone(9999).tuned(tune) };
        story.cluster.machines.insert(behind, machine);
        story.cluster.boot(behind).await;
        story.check().await;
        assert!(story.calls(Call::Install) > 0);
        story.cluster.stop().await;
    });
}
