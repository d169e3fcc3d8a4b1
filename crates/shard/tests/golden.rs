//! The formats of `docs/formats.md`, held to files that were written once: they can be read for ever, and what
//! is written now is still the same. With `UPDATE=1` in the environment they are written anew, which is
//! right only together with a new version of the format.

use std::collections::BTreeMap;
use std::io::IoSlice;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use weir_log::disk::{Disk, OpenMode, SimDisk};
use weir_model::batch::BatchBuilder;
use weir_model::command::{Command, GroupMember, GroupMembership, OffsetCommit};
use weir_model::entry::Entry;
use weir_model::settings::PartitionSettings;
use weir_model::{NodeId, PartitionId, ShardId, TopicId};
use weir_shard::{Machine, Shard, ShardOptions};

const SHARD: ShardId = ShardId(3);
const RAFT_META: &[u8] = b"membership";

/// Of the state after [`entries`]: whatever reads the golden checkpoint must come to this.
const DIGEST: u64 = 0x5eb3_9b12_e487_3f55;

fn golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name)
}

fn shard_dir() -> PathBuf {
    PathBuf::from("/shard")
}

fn check_same(name: &str, bytes: &[u8]) {
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(golden(name), bytes).unwrap();
    }
    let written = std::fs::read(golden(name)).unwrap();
    assert!(written == bytes, "{name} is written in another way than it was");
}

/// Every command, so that every kind of state is there.
fn entries() -> Vec<Entry> {
    let topic = |number| TopicId([number; 16]);
    let config: BTreeMap<_, _> = [("retention.ms".to_owned(), "5".to_owned())].into();
    let partition = PartitionId;
    let batch = |producer: (i64, i16, i32), value: &[u8]| {
        let mut builder = BatchBuilder::new().producer(producer.0, producer.1, producer.2);
        builder.push(1_000, Some(b"key"), Some(value), &[]);
        builder.push(2_000, None, None, &[]);
        builder.build()
    };
    let none = (-1, -1, -1);
    let small = PartitionSettings { segment_bytes: 1_024, ..PartitionSettings::default() };
    let member = GroupMember {
        member_id: "m-1".into(),
        instance_id: Some("static".into()),
        client_id: "client".into(),
        client_host: "10.0.0.1".into(),
        session_timeout_ms: 45_000,
        rebalance_timeout_ms: 300_000,
        protocols: vec![("range".into(), Bytes::from_static(b"subscription"))],
        assignment: Bytes::from_static(b"assignment"),
    };
    let membership = GroupMembership {
        generation: 3,
        protocol_type: "consumer".into(),
        protocol: Some("range".into()),
        leader: Some("m-1".into()),
        members: vec![member],
        changed_at: 0,
    };
    let commit = |partition| OffsetCommit {
        topic_id: topic(1),
        partition,
        offset: 44,
        leader_epoch: 2,
        metadata: "note".into(),
        committed_at: 0,
    };
    let shards = |shards: &[u32]| shards.iter().copied().map(ShardId).collect();
    let create = |name: &str, number, placement| Command::CreateTopic {
        name: name.into(),
        topic_id: topic(number),
        placement,
        config: config.clone(),
    };
    let first = vec![
        Command::SetMachineVersion { version: 1 },
        Command::Lead { node: NodeId(2) },
        create("orders", 1, shards(&[1, 2])),
        create("gone", 2, shards(&[1])),
        create("going", 3, shards(&[1])),
        Command::AddPartitions { topic_id: topic(1), expected: 2, placement: shards(&[3]) },
        Command::ConfigureTopic { topic_id: topic(1), config: config.clone() },
        Command::DeleteTopic { topic_id: topic(2) },
        Command::ForgetTopic { topic_id: topic(2) },
        Command::DeleteTopic { topic_id: topic(3) },
        Command::AllocateProducerIds { count: 1_000 },
        Command::OpenPartition { partition: partition(5), settings: small.clone(), epoch_base: 7 },
        Command::OpenPartition { partition: partition(70), settings: small.clone(), epoch_base: 0 },
        Command::OpenPartition { partition: partition(6), settings: small.clone(), epoch_base: 0 },
        Command::ConfigurePartition { partition: partition(70), settings: PartitionSettings::default() },
        Command::ClosePartition { partition: partition(6) },
        Command::StoreGroup { group: "readers".into(), membership },
        Command::CommitOffsets { group: "readers".into(), offsets: vec![commit(0), commit(1), commit(70)] },
        Command::DeleteOffsets { group: "readers".into(), partitions: vec![(topic(1), 1)] },
        Command::CommitOffsets { group: "others".into(), offsets: vec![commit(0)] },
        Command::DeleteGroup { group: "others".into() },
        Command::DropTopicOffsets { topic_id: topic(2) },
        Command::TakeDigest,
    ];
    let second = vec![
        Command::Append { partition: partition(5), batch: batch((7, 0, 0), &[b'v'; 600]) },
        Command::Append { partition: partition(5), batch: batch((7, 0, 2), &[b'v'; 600]) },
        Command::Lead { node: NodeId(1) },
        Command::Append { partition: partition(5), batch: batch((7, 1, 0), b"value") },
        Command::Append { partition: partition(70), batch: batch(none, b"value") },
        Command::Trim { partition: partition(5), log_start: 3 },
    ];
    vec![Entry { time: 1_000, commands: first }, Entry { time: 5_000, commands: second }]
}

#[test]
fn entries_are_written_and_read_as_ever() {
    for (number, entry) in entries().into_iter().enumerate() {
        let name = format!("entry-1-{number}.bin");
        check_same(&name, &entry.encode().concat());
        let bytes = std::fs::read(golden(&name)).unwrap();
        assert_eq!(Entry::decode(bytes.into()), Ok(entry));
    }
}

#[test]
fn a_checkpoint_is_written_as_ever() {
    let disk = SimDisk::new(1);
    let (mut shard, mut writer, _) =
        Shard::open(disk.shared(), shard_dir(), SHARD, ShardOptions::default()).unwrap();
    for (entry, index) in entries().iter().zip(11..) {
        shard.apply(index, 4, entry).unwrap();
    }
    while writer.run_once().unwrap().more {}
    shard.begin_checkpoint(Bytes::from_static(RAFT_META)).run().unwrap();
    let checkpoint = shard_dir().join("checkpoint");
    for entry in disk.list(&checkpoint).unwrap() {
        let file = disk.open(&checkpoint.join(&entry.name), OpenMode::Read).unwrap();
        let mut bytes = vec![0; entry.len as usize];
        file.read_at(&mut bytes, 0).unwrap();
        check_same(&format!("checkpoint-1-{}", entry.name), &bytes);
    }
}

#[test]
fn a_checkpoint_is_read_as_ever() {
    let disk = SimDisk::new(1);
    // Segment files are held to files of their own; here only their lengths count.
    for (name, len) in [("5/00000000000000000002.log", 847), ("70/00000000000000000000.log", 90)] {
        let path = shard_dir().join(name);
        disk.create_dir_all(path.parent().unwrap()).unwrap();
        disk.open(&path, OpenMode::Create).unwrap().set_len(len).unwrap();
    }
    let prefix = "checkpoint-1-";
    disk.create_dir_all(&shard_dir().join("checkpoint")).unwrap();
    for file in std::fs::read_dir(golden("")).unwrap() {
        let path = file.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if let Some(name) = name.strip_prefix(prefix) {
            let copy = disk.open(&shard_dir().join("checkpoint").join(name), OpenMode::CreateNew).unwrap();
            copy.write_at(&[IoSlice::new(&std::fs::read(&path).unwrap())], 0).unwrap();
        }
    }
    let (shard, _, recovered) =
        Shard::open(disk.shared(), shard_dir(), SHARD, ShardOptions::default()).unwrap();
    assert_eq!((recovered.applied_index, recovered.applied_term), (12, 4));
    assert_eq!(recovered.raft_meta, RAFT_META);
    let mut machine: Machine = shard.machine().clone();
    assert_eq!(format!("{:016x}", machine.digest()), format!("{DIGEST:016x}"));
}
