//! What the scenarios share: a disk, a clock, nodes, and batches to be told apart.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use weir_cluster::{
    Clock, Drive, NoTransport, Node, NodeOptions, OnFatal, ProposeError, ShardHandle, Transport,
};
use weir_log::disk::SimDisk;
use weir_log::journal::JournalOptions;
use weir_model::batch::BatchBuilder;
use weir_model::command::{Command, Outcome};
use weir_model::settings::PartitionSettings;
use weir_model::{NodeId, Offset, PartitionId, ShardId, TimestampMs};

/// The partition that scenarios append to.
pub const PARTITION: PartitionId = PartitionId(7);

/// Its shard.
pub const SHARD: ShardId = ShardId(1);

/// A clock that stands still unless it is told otherwise.
#[derive(Default)]
pub struct TestClock(AtomicI64);

impl Clock for TestClock {
    fn now_ms(&self) -> TimestampMs {
        1_700_000_000_000 + self.0.load(Ordering::Relaxed)
    }
}

/// One machine: what survives its processes.
#[derive(Clone)]
pub struct Machine {
    pub id: NodeId,
    pub disk: SimDisk,
    pub voters: Vec<NodeId>,
    /// Why its processes ended.
    pub fatal: Arc<Mutex<Vec<String>>>,
    pub tune: Arc<dyn Fn(&mut NodeOptions) + Send + Sync>,
}

impl Machine {
    pub fn alone(seed: u64) -> Machine {
        Machine {
            id: NodeId(1),
            disk: SimDisk::new(seed),
            voters: vec![NodeId(1)],
            fatal: Arc::default(),
            tune: Arc::new(|_| {}),
        }
    }

    pub fn tuned(mut self, tune: impl Fn(&mut NodeOptions) + Send + Sync + 'static) -> Machine {
        self.tune = Arc::new(tune);
        self
    }

    pub fn options(&self) -> NodeOptions {
        let fatal = Arc::clone(&self.fatal);
        let on_fatal = OnFatal::new(move |reason| fatal.lock().push(reason.to_owned()));
        let mut options = NodeOptions::new(self.id, "/data", on_fatal);
        options.data_shards = 2;
        options.voters = self.voters.clone();
        options.journal = small_journal();
        options.disk_reserve_bytes = 0;
        options.seed = self.id.0;
        (self.tune)(&mut options);
        options
    }

    pub async fn try_start(&self, transport: Arc<dyn Transport>) -> Result<Arc<Node>, String> {
        let drive = Drive::Tasks { sync_latency: Duration::from_micros(200) };
        let clock = Arc::new(TestClock::default());
        Node::start(self.options(), self.disk.shared(), transport, clock, drive)
            .await
            .map_err(|error| error.to_string())
    }

    pub async fn start(&self) -> Arc<Node> {
        let node = self.try_start(Arc::new(NoTransport)).await.expect("the node starts");
        node.ready().await.expect("the node becomes ready");
        node
    }
}

/// A journal that is small enough to be recycled in a test.
pub fn small_journal() -> JournalOptions {
    JournalOptions {
        file_bytes: 256 << 10,
        group_bytes_max: 64 << 10,
        journal_bytes_max: 4 << 20,
        spare_files_max: 2,
        identity: 42,
        accept_loss_from: None,
        must_exist: false,
    }
}

/// Runs a scenario in one thread, in which time passes only when everybody waits.
pub fn run<T>(scenario: impl Future<Output = T>) -> T {
    // Shows what happens, if asked to: WEIR_LOG=weir_cluster=debug
    let filter = tracing_subscriber::EnvFilter::from_env("WEIR_LOG");
    let _ = tracing_subscriber::fmt().with_env_filter(filter).with_test_writer().try_init();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(scenario)
}

/// A batch of one record with that value.
pub fn batch(value: &str) -> Bytes {
    let mut builder = BatchBuilder::new();
    builder.push(1_700_000_000_000, None, Some(value.as_bytes()), &[]);
    builder.build()
}

pub fn append(value: &str) -> Command {
    Command::Append { partition: PARTITION, batch: batch(value) }
}

pub async fn open_partition(shard: &ShardHandle) {
    let open = Command::OpenPartition {
        partition: PARTITION,
        settings: PartitionSettings::default(),
        epoch_base: 0,
    };
    assert_eq!(shard.propose(open).await, Ok(Outcome::Done));
}

/// Appends one record and returns its offset.
pub async fn put(shard: &ShardHandle, value: &str) -> Result<Offset, ProposeError> {
    match shard.propose(append(value)).await? {
        Outcome::Appended(appended) => Ok(appended.base_offset),
        other => panic!("an append came to {other:?}"),
    }
}

/// The values of all records of the partition, from its start.
pub fn values(shard: &ShardHandle) -> Vec<String> {
    let partition = shard.view().partition(PARTITION).expect("the partition is open");
    let (mut offset, end) = partition.offsets();
    let mut values = Vec::new();
    while offset < end {
        let read = partition.read(offset, 1 << 20, false).expect("what is there can be read");
        assert!(read.next_offset > offset);
        offset = read.next_offset;
        let bytes: Bytes = read.chunks.concat().into();
        for (header, batch) in weir_model::batch::split_batches(&bytes).expect("whole batches") {
            let section = batch.slice(weir_model::batch::BATCH_HEADER_BYTES..);
            for record in weir_model::batch::decode_records(&header, section) {
                let value = record.expect("a record").value.expect("a value");
                values.push(String::from_utf8(value.to_vec()).expect("text"));
            }
        }
    }
    values
}
