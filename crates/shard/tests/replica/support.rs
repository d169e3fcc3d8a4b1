//! A replica with its disk, its journal, and a naive record of what must be readable.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use weir_log::disk::{Disk, OpenMode, SimDisk};
use weir_model::batch::{BatchBuilder, BatchHeader, StoredBatch};
use weir_model::command::{Command, GroupMembership, OffsetCommit, Outcome};
use weir_model::entry::Entry;
use weir_model::settings::PartitionSettings;
use weir_model::subscription::{Disposition, Settlement};
use weir_model::{NodeId, Offset, PartitionId, ShardId, SubscriptionId, TopicId};
use weir_shard::{
    CheckpointDone, CheckpointError, PartitionView, Progress, Recovered, SegmentWriter, Shard, ShardError,
    ShardOptions, WriteError,
};

pub const SHARD: ShardId = ShardId(3);
pub const TERM: u64 = 1;

/// Small enough that a few batches make several writes, and several writes a run.
pub const OPTIONS: ShardOptions =
    ShardOptions { write_bytes_max: 600, run_bytes_max: 2_000, open_files_max: 4, dirty_files_max: 12 };

pub fn shard_dir() -> PathBuf {
    PathBuf::from("/data/shards/3")
}

pub fn open(disk: &SimDisk) -> Result<(Shard, SegmentWriter, Recovered), ShardError> {
    Shard::open(disk.shared(), shard_dir(), SHARD, OPTIONS)
}

pub fn batch(records: usize, value: usize, timestamp: i64, producer: Option<(i64, i16, i32)>) -> Bytes {
    let (id, epoch, sequence) = producer.unwrap_or((-1, -1, -1));
    let mut builder = BatchBuilder::new().producer(id, epoch, sequence);
    for index in 0..records {
        let value = vec![b'a' + (index % 26) as u8; value];
        builder.push(timestamp + index as i64, Some(b"key"), Some(&value), &[]);
    }
    builder.build()
}

pub fn append(partition: u64, batch: Bytes) -> Command {
    Command::Append { partition: PartitionId(partition), batch }
}

pub fn open_partition(partition: u64, segment_bytes: u32) -> Command {
    let settings = PartitionSettings { segment_bytes, segment_ms: 5_000, ..PartitionSettings::default() };
    Command::OpenPartition { partition: PartitionId(partition), settings, epoch_base: 0 }
}

pub fn trim(partition: u64, log_start: Offset) -> Command {
    Command::Trim { partition: PartitionId(partition), log_start }
}

pub fn close(partition: u64) -> Command {
    Command::ClosePartition { partition: PartitionId(partition) }
}

/// What must be readable of one partition.
#[derive(Clone, Debug, Default)]
pub struct Expected {
    pub log_start: Offset,
    pub next_offset: Offset,
    pub batches: Vec<StoredBatch>,
    /// Batches that segments were to be written anew without: there until that is done.
    pub let_go: Vec<StoredBatch>,
}

impl Expected {
    /// All batches from the one with `offset` in it, in one piece.
    pub fn bytes_from(&self, offset: Offset) -> Vec<u8> {
        let behind = self.batches.iter().filter(|batch| batch.last_offset >= offset);
        behind.flat_map(|batch| batch.to_contiguous()).collect()
    }

    /// Lets go of the batches that begin at these offsets.
    pub fn let_go(&mut self, bases: &[Offset]) {
        let (gone, kept) = std::mem::take(&mut self.batches)
            .into_iter()
            .partition(|batch| bases.contains(&batch.base_offset));
        self.let_go.extend::<Vec<_>>(gone);
        self.batches = kept;
    }
}

pub type Expectations = BTreeMap<PartitionId, Expected>;

/// Notes what an entry did, by its outcomes alone.
pub fn expect(expected: &mut Expectations, entry: &Entry, outcomes: &[Outcome]) {
    for (command, outcome) in entry.commands.iter().zip(outcomes) {
        match (command, outcome) {
            (Command::OpenPartition { partition, .. }, Outcome::Done) => {
                expected.entry(*partition).or_default();
            }
            (Command::ClosePartition { partition }, Outcome::Done) => {
                expected.remove(partition);
            }
            (Command::Append { partition, batch }, Outcome::Appended(at)) if !at.duplicate => {
                let header = BatchHeader::parse(batch).unwrap();
                let stored = StoredBatch::place(&header, batch.clone(), at.base_offset, at.leader_epoch);
                let log = expected.get_mut(partition).unwrap();
                assert_eq!(stored.base_offset, log.next_offset, "offsets are dense");
                log.next_offset = stored.last_offset + 1;
                log.batches.push(stored);
            }
            (Command::Trim { partition, log_start }, Outcome::Done) => {
                let log = expected.get_mut(partition).unwrap();
                log.log_start = log.log_start.max((*log_start).min(log.next_offset));
            }
            _ => {}
        }
    }
}

/// A replica in a process that may die.
pub struct Replica {
    pub disk: SimDisk,
    pub shard: Shard,
    pub writer: SegmentWriter,
    /// Entry 1 first.
    pub journal: Vec<Entry>,
    pub expected: Expectations,
    time: i64,
}

impl Replica {
    pub fn new(seed: u64) -> Replica {
        let disk = SimDisk::new(seed);
        let (shard, writer, recovered) = open(&disk).unwrap();
        assert_eq!(recovered, Recovered::default());
        Replica { disk, shard, writer, journal: Vec::new(), expected: BTreeMap::new(), time: 1_000 }
    }

    /// Applies commands as one entry, a second after the one before.
    pub fn apply(&mut self, commands: Vec<Command>) -> Vec<Outcome> {
        self.time += 1_000;
        self.apply_entry(Entry { time: self.time, commands })
    }

    pub fn apply_entry(&mut self, entry: Entry) -> Vec<Outcome> {
        let index = self.journal.len() as u64 + 1;
        let outcomes = self.shard.apply(index, TERM, &entry).unwrap();
        expect(&mut self.expected, &entry, &outcomes);
        self.journal.push(entry);
        outcomes
    }

    /// Writes all that waits.
    pub fn write(&mut self) -> Result<Progress, WriteError> {
        write_all(&mut self.writer)
    }

    pub fn checkpoint(&mut self) -> Result<CheckpointDone, CheckpointError> {
        self.write().map_err(|error| CheckpointError::Stopped(error.to_string()))?;
        self.shard.begin_checkpoint(Bytes::from_static(b"raft")).run()
    }

    pub fn partition(&self, id: u64) -> std::sync::Arc<PartitionView> {
        self.shard.view().partition(PartitionId(id)).unwrap()
    }

    pub fn digest(&self) -> u64 {
        self.shard.machine().clone().digest()
    }

    /// The process dies; the next one opens the shard and applies the journal's tail again.
    pub fn reopen(&mut self) {
        self.disk.kill_process();
        let (shard, writer, recovered) = open(&self.disk).unwrap();
        (self.shard, self.writer) = (shard, writer);
        replay(&mut self.shard, &self.journal, recovered.applied_index);
    }

    /// Everything that must be readable is, and nothing else.
    pub fn check(&self) {
        check_reads(&self.shard, &self.expected);
    }
}

pub fn write_all(writer: &mut SegmentWriter) -> Result<Progress, WriteError> {
    let mut total = Progress::default();
    loop {
        let progress = writer.run_once()?;
        total.bytes += progress.bytes;
        total.batches += progress.batches;
        if !progress.more {
            return Ok(total);
        }
    }
}

/// Applies what the journal has behind an index.
pub fn replay(shard: &mut Shard, journal: &[Entry], applied_index: u64) {
    for (entry, index) in journal.iter().zip(1..).skip(applied_index as usize) {
        shard.apply(index, TERM, entry).unwrap();
    }
}

/// What must be readable is; what was let go may still be.
pub fn check_reads(shard: &Shard, expected: &Expectations) {
    check_reads_but(shard, expected, |log, read| {
        let mut wanted = Vec::new();
        for batch in batches_of(read) {
            if !log.let_go.iter().any(|gone| gone.to_contiguous() == batch) {
                wanted.extend_from_slice(batch);
            }
        }
        wanted
    });
}

/// What must be readable is, and nothing else.
pub fn check_reads_exactly(shard: &Shard, expected: &Expectations) {
    check_reads_but(shard, expected, |_, read| read.to_vec());
}

/// Whole batches, one by one.
fn batches_of(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut batches = Vec::new();
    while !bytes.is_empty() {
        let (batch, rest) = bytes.split_at(BatchHeader::parse(bytes).unwrap().total_bytes());
        batches.push(batch);
        bytes = rest;
    }
    batches
}

fn check_reads_but(
    shard: &Shard,
    expected: &Expectations,
    that_counts: impl Fn(&Expected, &[u8]) -> Vec<u8>,
) {
    let view = shard.view();
    let ids: Vec<PartitionId> = view.partitions().iter().map(|partition| partition.id()).collect();
    assert_eq!(ids, expected.keys().copied().collect::<Vec<_>>());
    for (id, log) in expected {
        let partition = view.partition(*id).unwrap();
        assert_eq!(partition.offsets(), (log.log_start, log.next_offset), "partition {id}");
        let read = that_counts(log, &read_all(&partition, log.log_start, 700));
        assert!(read == log.bytes_from(log.log_start), "partition {id} reads something else");
    }
}

/// All bytes from an offset to the end, read in pieces.
pub fn read_all(partition: &PartitionView, mut offset: Offset, piece: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let read = partition.read(offset, piece, false).unwrap();
        assert_eq!(read.chunks.iter().map(Bytes::len).sum::<usize>(), read.bytes);
        if read.batches == 0 {
            assert_eq!(offset, partition.next_offset());
            return bytes;
        }
        assert!(read.batches == 1 || read.bytes <= piece);
        assert!(read.next_offset > offset);
        read.chunks.iter().for_each(|chunk| bytes.extend_from_slice(chunk));
        offset = read.next_offset;
    }
}

/// The names in a directory; none if it is not there.
pub fn names(disk: &SimDisk, dir: &str) -> Vec<String> {
    let listed = disk.list(&shard_dir().join(dir)).unwrap_or_default();
    listed.into_iter().map(|entry| entry.name).collect()
}

pub fn content(disk: &SimDisk, path: &str) -> Vec<u8> {
    let file = disk.open(&shard_dir().join(path), OpenMode::Read).unwrap();
    let mut bytes = vec![0; file.len().unwrap() as usize];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

/// Draws entries that make everything happen sooner or later.
pub struct Traffic {
    random: SmallRng,
    opened: u64,
    open: Vec<u64>,
    /// What comes next.
    pending: Vec<Command>,
    sequences: BTreeMap<(u64, i64), i32>,
    time: i64,
}

impl Traffic {
    pub fn new(seed: u64) -> Traffic {
        Traffic {
            random: SmallRng::seed_from_u64(seed),
            opened: 0,
            open: Vec::new(),
            pending: Vec::new(),
            sequences: BTreeMap::new(),
            time: 10_000,
        }
    }

    pub fn entry(&mut self) -> Entry {
        self.time += self.random.random_range(0..1_500);
        let count = self.random.random_range(1..5);
        Entry { time: self.time, commands: (0..count).map(|_| self.command()).collect() }
    }

    fn command(&mut self) -> Command {
        if let Some(pending) = self.pending.pop() {
            return pending;
        }
        if self.open.len() < 2 {
            return self.open_partition();
        }
        let partition = self.open[self.random.random_range(0..self.open.len())];
        match self.random.random_range(0..40) {
            0 => self.open_partition(),
            1 if self.open.len() > 3 => {
                self.open.retain(|open| *open != partition);
                close(partition)
            }
            2 | 3 => Command::Lead { node: NodeId(self.random.random_range(1..4)) },
            4..=6 => trim(partition, self.random.random_range(0..120)),
            7 | 8 => self.commit(),
            9 => Command::StoreGroup { group: self.group(), membership: GroupMembership::default() },
            10 => Command::DeleteGroup { group: self.group() },
            11 => Command::DropTopicOffsets { topic_id: self.topic() },
            12 => Command::AllocateProducerIds { count: 10 },
            13..=16 => self.settle(partition),
            17..=22 => self.append_numbered(partition),
            _ => {
                let (records, value) = (self.random.random_range(1..4), self.random.random_range(0..200));
                append(partition, batch(records, value, self.time, None))
            }
        }
    }

    fn open_partition(&mut self) -> Command {
        self.opened += 1;
        self.open.push(self.opened * 37);
        self.pending.push(Command::OpenSubscription {
            partition: PartitionId(self.opened * 37),
            subscription: SubscriptionId::QUEUE,
            start: 0,
        });
        open_partition(self.opened * 37, self.random.random_range(1..4) * 1024)
    }

    fn settle(&mut self, partition: u64) -> Command {
        let from = self.random.random_range(0..100);
        let to = from + self.random.random_range(0..12);
        Command::Settle {
            partition: PartitionId(partition),
            subscription: SubscriptionId::QUEUE,
            handed_out: 0,
            settlements: vec![Settlement { from, to, disposition: Disposition::Accept }],
        }
    }

    /// Of a producer that sometimes repeats itself.
    fn append_numbered(&mut self, partition: u64) -> Command {
        let id = self.random.random_range(0..4);
        let next = self.sequences.entry((partition, id)).or_default();
        let repeats = *next > 0 && self.random.random_range(0..3) == 0;
        let sequence = if repeats { *next - 1 } else { *next };
        *next = sequence + 1;
        append(partition, batch(1, 50, self.time, Some((id, 0, sequence))))
    }

    fn commit(&mut self) -> Command {
        let offset = OffsetCommit {
            topic_id: self.topic(),
            partition: self.random.random_range(0..100),
            offset: self.random.random_range(0..1000),
            leader_epoch: 0,
            metadata: String::new(),
            committed_at: 0,
        };
        Command::CommitOffsets { group: self.group(), offsets: vec![offset] }
    }

    fn group(&mut self) -> String {
        format!("group-{}", self.random.random_range(0..5))
    }

    fn topic(&mut self) -> TopicId {
        TopicId([self.random.random_range(1..4); 16])
    }

    /// Whether something that happens once in `times` happens now.
    pub fn chance(&mut self, times: u32) -> bool {
        self.random.random_range(0..times) == 0
    }

    pub fn below(&mut self, bound: i64) -> i64 {
        self.random.random_range(0..bound)
    }
}
