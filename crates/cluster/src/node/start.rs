//! Starting a node: the journal, the shards, what drives them, and their Raft groups, in this order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use openraft::async_runtime::WatchReceiver as _;
use openraft::errors::{InitializeError, RaftError};
use openraft::impls::EmptyNode;
use openraft::{ServerState, SnapshotPolicy};
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::sync::{Semaphore, mpsc, watch};
use weir_log::disk::Disk;
use weir_log::journal::{Journal, JournalError, JournalOptions, JournalReader};
use weir_model::entry::ENTRY_BYTES_MAX;
use weir_model::{Incarnation, ShardId, TimestampMs};
use weir_shard::{Recovered, SegmentWriter, Shard, ShardError, checkpointed_index};

use super::{Node, Running, Worker, Workers, spawn_thread, sync_latency};
use crate::admission::{DiskSpace, Gate};
use crate::blocking::Blocking;
use crate::checkpoint::Checkpointer;
use crate::clock::Clock;
use crate::errors::{ProposeError, StartError};
use crate::gathering::COMMANDS_WAITING_MAX;
use crate::handle::ShardHandle;
use crate::journal::driver::{self, JournalDriver, JournalStatus};
use crate::journal::queue::{JournalQueue, Request};
use crate::leadership::Leadership;
use crate::mending::Mender;
use crate::options::{Drive, NodeOptions};
use crate::proposer::Proposer;
use crate::raft::abandoning::be_the_only_voter;
use crate::raft::codec::decode_stored_membership;
use crate::raft::log::{Dropped, LogRecovery, LogStore, ShardLog};
use crate::raft::machine::{Installing, MachineStatus, StateMachine};
use crate::raft::member::Member;
use crate::raft::network::Network;
use crate::raft::snapshot::{Pace, SnapshotReceiver, SnapshotSender};
use crate::raft::types::{LogId, RaftHandle, SnapshotMeta, log_id};
use crate::relay::{self, Relay};
use crate::replica::{Agreement, Replica};
use crate::segments::{SegmentDriver, SegmentQueue, SegmentSignal, ShardSegments};
use crate::temporary;
use crate::transport::Transport;
use crate::vigilance;

/// What a record takes besides the command that it carries, generously.
const RECORD_SPARE_BYTES: usize = 4096;

/// Entries of one append to a follower; bytes bound it before.
const APPEND_ENTRIES_MAX: u64 = 1024;

/// Everything that is read from the disk before anything runs.
struct Opened {
    journal: Journal,
    shards: BTreeMap<ShardId, OpenedShard>,
}

struct OpenedShard {
    shard: Shard,
    writer: SegmentWriter,
    checkpoint: Option<SnapshotMeta>,
    log: Arc<ShardLog>,
    /// Entries in the journal that must be truncated before others are appended.
    dropped: Option<Dropped>,
}

/// What all shards of a node share.
struct Shared {
    options: NodeOptions,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    blocking: Blocking,
    queue: Arc<JournalQueue>,
    reader: JournalReader,
    status: Arc<JournalStatus>,
    turn: Arc<Semaphore>,
    pace: Arc<Pace>,
    stop: watch::Receiver<bool>,
}

/// What a shard's Raft group is started over.
struct Parts {
    shard: Shard,
    log: Arc<ShardLog>,
    checkpoint: Option<SnapshotMeta>,
    gate: Arc<Gate>,
    signal: SegmentSignal,
}

pub(super) async fn start(
    options: NodeOptions,
    disk: Arc<dyn Disk>,
    transport: Arc<dyn Transport>,
    clock: Arc<dyn Clock>,
    drive: Drive,
) -> Result<Node, StartError> {
    let blocking = Blocking::new(drive);
    let (opened, temporary) = {
        let (options, disk) = (options.clone(), Arc::clone(&disk));
        let open_all = move || -> Result<_, StartError> {
            Ok((open(&options, &disk)?, temporary::open(&options, &disk)?))
        };
        blocking.run(open_all).await.map_err(StartError::Options)??
    };
    let available = disk.available_space(&options.data_dir)?;
    let space = Arc::new(DiskSpace::new(available, options.disk_reserve_bytes));
    let (stop, stopped) = watch::channel(false);
    let shared = Shared {
        transport,
        clock,
        blocking,
        queue: Arc::new(JournalQueue::new(options.journal_queue_bytes_max)),
        reader: opened.journal.reader(),
        status: Arc::new(JournalStatus::new(options.journal.journal_bytes_max)),
        turn: Arc::new(Semaphore::new(1)),
        pace: Arc::new(Pace::new(options.snapshot_bytes_per_second)),
        stop: stopped,
        options,
    };

    let logs = opened.shards.iter().map(|(id, shard)| (*id, Arc::clone(&shard.log))).collect();
    let journal = JournalDriver::new(
        opened.journal,
        shared.options.journal.group_bytes_max,
        logs,
        Arc::clone(&shared.status),
    );
    let segments = Arc::new(SegmentQueue::default());
    let (temporary, temporary_segments) =
        temporary.prepare(&shared.options, &shared.clock, &space, &segments, blocking)?;
    let mut node = Node {
        id: shared.options.node,
        incarnation: shared.options.incarnation,
        founders: shared.options.voters.len(),
        on_removed: shared.options.on_removed.clone(),
        seed: shared.options.seed,
        drive,
        shards: BTreeMap::new(),
        temporary: temporary.handle(),
        transport: Arc::clone(&shared.transport),
        service: OnceLock::new(),
        journal: Arc::clone(&shared.queue),
        segments: Arc::clone(&segments),
        status: Arc::clone(&shared.status),
        space: Arc::clone(&space),
        stop,
        workers: Mutex::default(),
    };

    let mut parts = BTreeMap::new();
    let mut writers = BTreeMap::from([(temporary.id(), temporary_segments)]);
    for (id, opened) in opened.shards {
        let OpenedShard { shard, writer, checkpoint, log, dropped } = opened;
        if let Some(Dropped { after, .. }) = dropped {
            let truncated = shared.queue.push(Request::Truncate { shard: id, after }).await;
            truncated.map_err(|error| StartError::Raft { shard: id, why: error.to_string() })?;
        }
        let gate = Arc::new(Gate::new(
            shared.options.admission_bytes_max,
            Arc::clone(&space),
            Arc::clone(&shared.status),
        ));
        let signal = SegmentSignal::new(id, Arc::clone(&segments));
        let (view, gate_of_writer, signal_of_writer) = (shard.view(), Arc::clone(&gate), signal.clone());
        writers.insert(id, ShardSegments { writer, view, gate: gate_of_writer, signal: signal_of_writer });
        parts.insert(id, Parts { shard, log, checkpoint, gate, signal });
    }
    let writers = SegmentDriver {
        shards: writers,
        journal: Arc::clone(&shared.queue),
        waiting: BTreeSet::new(),
        on_fatal: shared.options.on_fatal.clone(),
    };
    let workers = node.workers.get_mut();
    workers.journal = Some(drive_journal(journal, &shared, drive)?);
    workers.segments = Some(drive_segments(writers, segments, drive)?);
    workers.tasks.push(tokio::spawn(temporary.run(shared.stop.clone())));
    workers.tasks.push(tokio::spawn(poll_disk(disk, Arc::clone(&space), shared.options.clone(), blocking)));

    for (id, parts) in parts {
        let running = start_shard(id, parts, &shared, &space, node.workers.get_mut()).await?;
        let (handle, view) = (running.handle.clone(), running.replica.view.clone());
        let (options, stop) = (&shared.options, &shared.stop);
        let mender = options.has_others().then(|| Mender {
            own: options.node,
            shard: handle.clone(),
            snapshots: running.snapshots.clone(),
            transport: Arc::clone(&shared.transport),
            blocking,
            pace: Arc::clone(&shared.pace),
            failed: BTreeMap::new(),
        });
        node.workers.get_mut().tasks.extend([
            tokio::spawn(vigilance::compare_digests(handle, options.digest_interval, stop.clone())),
            tokio::spawn(vigilance::watch_segments(
                view,
                mender,
                options.scrub_interval,
                drive,
                blocking,
                stop.clone(),
            )),
        ]);
        node.shards.insert(id, running);
    }
    Ok(node)
}

/// Reads everything from the disk. Blocks.
fn open(options: &NodeOptions, disk: &Arc<dyn Disk>) -> Result<Opened, StartError> {
    let directory = options.data_dir.join("journal");
    let mut recoveries: BTreeMap<ShardId, LogRecovery> = BTreeMap::new();
    let mut unreadable = None;
    let shards_dir = options.data_dir.join("shards");
    // What cannot be read here is met again, and said, when the shard is opened.
    let has_checkpoint = |shard: ShardId| {
        let dir = shards_dir.join(shard.to_string());
        checkpointed_index(Arc::clone(disk), &dir, shard).is_ok_and(|index| index > 0)
    };
    let must_exist = options.journal.must_exist || (0..=options.data_shards).map(ShardId).any(has_checkpoint);
    let journal_options =
        JournalOptions { journal_bytes_max: journal_limit(options), must_exist, ..options.journal };
    let (journal, report) = Journal::open(Arc::clone(disk), &directory, journal_options, &mut |record| {
        let recovery = recoveries.entry(record.shard).or_default();
        if let Err(why) = recovery.take(&record) {
            let at = record.position;
            unreadable.get_or_insert((record.shard, format!("{why} (at position {at})")));
        }
    })?;
    if let Some((shard, why)) = unreadable {
        return Err(StartError::JournalRecord { directory, shard, why });
    }
    // Whatever the operator accepts: one that forgot its votes must not vote again beside others.
    if must_exist && options.has_others() && recoveries.is_empty() {
        return Err(StartError::Journal(JournalError::Gone(directory)));
    }
    tracing::info!(
        files = report.files,
        records = report.records,
        end = journal.end().0,
        "the journal is open"
    );
    disk.create_dir_all(&shards_dir)?;
    check_shards(options, &**disk, &shards_dir, recoveries.keys().copied())?;

    let loss_accepted = options.journal.accept_loss_from.is_some() || !report.accepted_losses.is_empty();
    let mut shards = BTreeMap::new();
    for id in (0..=options.data_shards).map(ShardId) {
        let recovery = recoveries.remove(&id).unwrap_or_default();
        shards.insert(id, open_shard(options, disk, &shards_dir, id, recovery, loss_accepted)?);
    }
    Ok(Opened { journal, shards })
}

/// What the journal may take beyond what is let in: everything that may be on its way when nothing
/// more is let in, twice, because a follower's leader has other bounds, and files begun for it.
fn journal_limit(options: &NodeOptions) -> u64 {
    let shards = u64::from(options.data_shards) + 1;
    let on_its_way = shards.saturating_mul(2 * options.admission_bytes_max as u64);
    options
        .journal
        .journal_bytes_max
        .saturating_add(on_its_way)
        .saturating_add(4 * options.journal.file_bytes)
}

fn open_shard(
    options: &NodeOptions,
    disk: &Arc<dyn Disk>,
    shards_dir: &Path,
    id: ShardId,
    mut recovery: LogRecovery,
    loss_accepted: bool,
) -> Result<OpenedShard, StartError> {
    let failed = |why: String| StartError::Shard { shard: id, why };
    let dir: PathBuf = shards_dir.join(id.to_string());
    let opened = Shard::open(Arc::clone(disk), dir, id, options.shard);
    let (shard, writer, recovered) = opened.map_err(|error| match error {
        ShardError::Disk(error) => StartError::Disk(error),
        error => failed(error.to_string()),
    })?;
    let checkpoint = checkpoint_of(&recovered).map_err(failed)?;
    let log = Arc::new(ShardLog::new(id, options.log_cache_bytes));
    let covered: Option<LogId> = checkpoint.as_ref().and_then(|meta| meta.last_log_id);
    if let Some(covered) = covered.filter(|_| !recovery.has_vote())
        && options.journal.accept_loss_from.is_none()
    {
        let directory = options.data_dir.join("journal");
        return Err(StartError::MissingVote { directory, shard: id, applied: covered.index });
    }
    // Others may have what is lost here; a replica of theirs must not go on with less than it has said.
    let accepts = !options.has_others() && options.journal.accept_loss_from.is_some();
    let dropped = if accepts { recovery.drop_behind_loss(covered) } else { None };
    if let Some(Dropped { from, to, .. }) = dropped {
        tracing::error!(shard = %id, from, to, "entries are lost or follow on lost ones, and are dropped");
    }
    let missing = |(from, to)| StartError::MissingEntries { shard: id, from, to };
    if let Some(range) = recovery.lacks_committed(covered).filter(|_| !loss_accepted) {
        return Err(missing(range));
    }
    recovery.finish(&log, covered).map_err(missing)?;
    Ok(OpenedShard { shard, writer, checkpoint, log, dropped })
}

/// What a shard's checkpoint is to the consensus library. A shard that never had an entry has none.
fn checkpoint_of(recovered: &Recovered) -> Result<Option<SnapshotMeta>, String> {
    if recovered.raft_meta.is_empty() {
        return Ok(None);
    }
    let last_membership =
        decode_stored_membership(recovered.raft_meta.clone()).map_err(|error| error.to_string())?;
    let last_log_id = Some(log_id(recovered.applied_term, recovered.applied_index));
    Ok(Some(SnapshotMeta { last_log_id, last_membership }))
}

/// Shards cannot be taken away: what is in them would be out of reach.
fn check_shards(
    options: &NodeOptions,
    disk: &dyn Disk,
    shards_dir: &Path,
    in_journal: impl Iterator<Item = ShardId>,
) -> Result<(), StartError> {
    let in_dir = disk.list(shards_dir)?;
    let in_dir = in_dir.iter().filter_map(|entry| entry.name.parse().ok()).map(ShardId);
    match in_dir.chain(in_journal).max() {
        Some(highest) if highest.0 > options.data_shards => Err(StartError::Options(format!(
            "{} holds shard {highest}, but only {} data shards are asked for; a shard cannot be taken away",
            options.data_dir.display(),
            options.data_shards
        ))),
        _ => Ok(()),
    }
}

fn drive_journal(driver: JournalDriver, shared: &Shared, drive: Drive) -> Result<Worker, StartError> {
    let queue = Arc::clone(&shared.queue);
    let (idle, on_fatal) = (shared.options.journal_idle, shared.options.on_fatal.clone());
    match sync_latency(drive) {
        None => spawn_thread("journal", move || driver::run_thread(driver, &queue, idle, &on_fatal)),
        Some(latency) => {
            Ok(Worker::Task(tokio::spawn(driver::run_task(driver, queue, idle, latency, on_fatal))))
        }
    }
}

fn drive_segments(
    driver: SegmentDriver,
    queue: Arc<SegmentQueue>,
    drive: Drive,
) -> Result<Worker, StartError> {
    match drive {
        Drive::Threads => spawn_thread("segments", move || driver.run_thread(&queue)),
        Drive::Tasks { .. } => Ok(Worker::Task(tokio::spawn(driver.run_task(queue)))),
    }
}

/// Keeps asking how much space there is.
async fn poll_disk(disk: Arc<dyn Disk>, space: Arc<DiskSpace>, options: NodeOptions, blocking: Blocking) {
    let mut was_refusing = false;
    loop {
        tokio::time::sleep(options.disk_poll).await;
        let refusing = space.is_refusing();
        if refusing != was_refusing {
            let reserve = space.reserve();
            match refusing {
                true => {
                    tracing::warn!(reserve, "records are refused: the disk has only what is kept in reserve")
                }
                false => tracing::info!("records are taken again: the disk has room for them"),
            }
            was_refusing = refusing;
        }
        space.begin_poll();
        let (disk, dir) = (Arc::clone(&disk), options.data_dir.clone());
        match blocking.run(move || disk.available_space(&dir)).await {
            Ok(Ok(available)) => space.end_poll(available),
            Ok(Err(error)) => tracing::warn!(%error, "the free space is not known"),
            Err(_) => return,
        }
    }
}

async fn start_shard(
    id: ShardId,
    parts: Parts,
    shared: &Shared,
    space: &Arc<DiskSpace>,
    workers: &mut Workers,
) -> Result<Running, StartError> {
    let Parts { shard, log, checkpoint, gate, signal } = parts;
    let options = &shared.options;
    let failed = |why: String| StartError::Raft { shard: id, why };
    let member = |node, incarnation| {
        Member::new(node, incarnation).ok_or_else(|| failed(format!("node {node} has too high a number")))
    };
    let own = member(options.node, options.incarnation)?;
    let view = shard.view();
    let pristine = log.is_pristine();
    let log_ends_at = log.last_index();
    let snapshots = shard.snapshots();
    let snapshots_of_shard = snapshots.clone();
    let machine_status = Arc::new(MachineStatus::new(checkpoint));
    // Alone a node always leads, and brings its commands to nobody.
    let (ear, hearing) = options.has_others().then(|| relay::ear(options.node)).unzip();
    let machine = StateMachine::new(
        shard,
        Arc::clone(&log),
        Arc::clone(&machine_status),
        signal.clone(),
        ear,
        2 * options.admission_bytes_max,
        Installing {
            queue: Arc::clone(&shared.queue),
            blocking: shared.blocking,
            on_fatal: options.on_fatal.clone(),
        },
    );
    let mut store =
        LogStore::new(Arc::clone(&log), Arc::clone(&shared.queue), shared.reader.clone(), shared.blocking);
    let snapshot_receiver =
        SnapshotReceiver::new(id, snapshots.clone(), view.clone(), shared.blocking, shared.stop.clone());
    let network = Network {
        own,
        shard: id,
        transport: Arc::clone(&shared.transport),
        sender: SnapshotSender { snapshots, blocking: shared.blocking, pace: Arc::clone(&shared.pace) },
    };
    if options.abandons_others && (!pristine || options.incarnation != Incarnation::FIRST) {
        be_the_only_voter(id, &mut store, own).await.map_err(failed)?;
    }
    let config = raft_config(id, options)?;
    let raft = RaftHandle::new(own.raft_id(), Arc::new(config), network, store, machine)
        .await
        .map_err(|error| failed(error.to_string()))?;
    // A later incarnation has no membership of its own: it waits until a leader has taken it in.
    let founds = pristine && options.incarnation == Incarnation::FIRST;
    if founds && options.voters.contains(&options.node) {
        let mut members = BTreeMap::new();
        for node in &options.voters {
            members.insert(member(*node, Incarnation::FIRST)?.raft_id(), EmptyNode::new());
        }
        match raft.initialize(members).await {
            // Another voter was faster.
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
            Err(error) => return Err(failed(error.to_string())),
        }
    }
    elect_if_alone(&raft).await;

    let (submitted, receiver) = mpsc::channel(COMMANDS_WAITING_MAX);
    let leadership = Arc::new(watch::channel(Leadership::default()).0);
    let in_flight = Arc::new(Semaphore::new(options.proposals_in_flight_max));
    let (relayed, to_be_brought) = mpsc::channel(COMMANDS_WAITING_MAX);
    let replica = Arc::new(Replica {
        shard: id,
        agreement: Agreement::Group {
            raft: raft.clone(),
            machine: Arc::clone(&machine_status),
            transport: Arc::clone(&shared.transport),
        },
        view: view.clone(),
        gate: Arc::clone(&gate),
        submitted,
        relayed: hearing.is_some().then_some(relayed),
        leadership: Arc::clone(&leadership),
        command_bytes_max: command_bytes_max(options),
        closed: Mutex::default(),
    });
    let proposer = Proposer {
        node: options.node,
        raft: raft.clone(),
        clock: Arc::clone(&shared.clock),
        gate,
        submitted: receiver,
        leadership: leadership.subscribe(),
        leading: leadership,
        in_flight: Arc::clone(&in_flight),
        entry_bytes_max: ENTRY_BYTES_MAX.min(replica.command_bytes_max),
        last_time: view.entry_time(),
        held: None,
    };
    let checkpointer = Checkpointer {
        raft: raft.clone(),
        log,
        machine: machine_status,
        segments: signal,
        journal: Arc::clone(&shared.status),
        blocking: shared.blocking,
        turn: Arc::clone(&shared.turn),
        checkpoint_bytes: options.checkpoint_bytes,
        view,
        space: Arc::clone(space),
        queue: Arc::clone(&shared.queue),
        on_fatal: options.on_fatal.clone(),
    };
    let relayed_in_flight = Arc::new(AtomicUsize::new(0));
    if let Some(hearing) = hearing {
        let relay = Relay {
            node: options.node,
            replica: Arc::clone(&replica),
            transport: Arc::clone(&shared.transport),
            submitted: to_be_brought,
            hearing,
            in_flight: Arc::clone(&relayed_in_flight),
            draw_token: draw_tokens(options, id, shared.clock.now_ms(), log_ends_at),
            run_bytes_max: relay::run_bytes_max(replica.command_bytes_max),
        };
        workers.tasks.push(tokio::spawn(relay.run()));
    }
    workers.tasks.extend([
        tokio::spawn(watch_leadership(raft.clone(), Arc::clone(&replica))),
        tokio::spawn(proposer.run()),
        tokio::spawn(checkpointer.clone().run(shared.stop.clone())),
    ]);
    Ok(Running {
        handle: ShardHandle::new(Arc::clone(&replica)),
        replica,
        raft,
        snapshot_receiver,
        snapshots: snapshots_of_shard,
        checkpointer,
        in_flight,
        in_flight_max: options.proposals_in_flight_max,
        relayed_in_flight,
    })
}

/// What tells a node's lines to a shard apart, those of its earlier processes included: each has brought entries into the
/// log, or lost all that it had.
fn draw_tokens(
    options: &NodeOptions,
    shard: ShardId,
    now: TimestampMs,
    log_ends_at: u64,
) -> Box<dyn FnMut() -> u64 + Send> {
    let started = now.cast_unsigned().rotate_left(20) ^ log_ends_at.rotate_left(40);
    let began = u64::from(options.incarnation.0).rotate_left(32);
    let mut random = StdRng::seed_from_u64(options.seed ^ started ^ began ^ (u64::from(shard.0) << 48));
    Box::new(move || random.random())
}

/// Bytes of a command that fits the journal.
pub(crate) fn command_bytes_max(options: &NodeOptions) -> usize {
    options.journal.group_bytes_max.saturating_sub(RECORD_SPARE_BYTES)
}

fn raft_config(id: ShardId, options: &NodeOptions) -> Result<openraft::Config, StartError> {
    let ms = |duration: std::time::Duration| duration.as_millis() as u64;
    let config = openraft::Config {
        cluster_name: format!("shard {id}"),
        heartbeat_interval: ms(options.timing.heartbeat),
        election_timeout_min: ms(options.timing.election_min),
        election_timeout_max: ms(options.timing.election_max),
        // Time for one append to be sent, written and synced; a follower that is busy is not dead.
        install_snapshot_timeout: 60_000,
        max_payload_entries: APPEND_ENTRIES_MAX,
        // Checkpoints and purges are decided on by bytes.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        replication_lag_threshold: u64::MAX,
        enable_pre_vote: Some(true),
        // A leader that restarts may lack entries that it had sent and that others have committed:
        // going on in the same term it would give their places to other entries.
        enable_leader_restore: Some(false),
        ..openraft::Config::default()
    };
    config.validate().map_err(|error| StartError::Raft { shard: id, why: error.to_string() })
}

/// The only voter need not wait for anybody to be silent.
async fn elect_if_alone(raft: &RaftHandle) {
    let metrics = raft.server_metrics().borrow_watched().clone();
    let mut voters = metrics.membership_config.voter_ids();
    if voters.next() == Some(metrics.id) && voters.next().is_none() {
        let _ = raft.trigger().elect(false).await;
    }
}

/// Shows every change of leadership, for as long as the replica runs.
async fn watch_leadership(raft: RaftHandle, replica: Arc<Replica>) {
    let mut metrics = raft.server_metrics();
    loop {
        let (leader, is_leader, term) = {
            let now = metrics.borrow_watched();
            let leader = now.current_leader.map(|id| Member::of(id).node());
            (leader, now.state == ServerState::Leader, now.vote.leader_id.term)
        };
        replica.leadership.send_if_modified(|leadership| {
            let ready = is_leader && leadership.ready && leadership.term == term;
            let now = Leadership { leader, is_leader, ready, term };
            let changed = *leadership != now;
            *leadership = now;
            changed
        });
        if metrics.changed().await.is_err() {
            break;
        }
    }
    let why = raft.metrics().borrow_watched().running_state.clone();
    let why = why.err().map_or_else(|| "it has stopped".to_owned(), |fatal| fatal.to_string());
    // At a planned stop every replica stops, and nobody needs to be alarmed.
    if replica.closed() != Some(ProposeError::ShuttingDown) {
        tracing::error!(shard = %replica.shard, why, "a replica has stopped");
    }
    replica.close(ProposeError::Stopped(why));
    replica.leadership.send_replace(Leadership::default());
}
