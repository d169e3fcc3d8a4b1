//! Entries are written as ever, and whatever is read is an error or an entry.

use proptest::prelude::*;

use super::*;
use crate::node::HostPort;
use crate::policy::ApplyTo;
use crate::routing::ArgumentValue;
use crate::subscription::{DeadReason, Disposition};
use crate::unique::WindowKind;

fn unique_key(window: WindowKind) -> UniqueKey {
    UniqueKey { window, hash: [7; 16], expires_at: 99, keys_max: 5, until_settled: true }
}

fn dispositions() -> Vec<Disposition> {
    use DeadReason::{DeliveryLimit, Expired, MaxLength, Rejected};
    let reject = [Rejected, Expired, MaxLength, DeliveryLimit].map(|reason| Disposition::Reject { reason });
    let release = [true, false].map(|failed| Disposition::Release { failed });
    [[Disposition::Accept].as_slice(), &release, &reject].concat()
}

fn commands() -> Vec<Command> {
    let member = GroupMember {
        member_id: "m".into(),
        instance_id: Some("i".into()),
        protocols: vec![("range".into(), Bytes::from_static(b"x"))],
        ..GroupMember::default()
    };
    let id = TopicId([9; 16]);
    let config: BTreeMap<_, _> = [("retention.ms".to_string(), "5".to_string())].into();
    let offset = OffsetCommit {
        topic_id: id,
        partition: 3,
        offset: 44,
        leader_epoch: -1,
        metadata: "note".into(),
        committed_at: 0,
    };
    vec![
        Command::OpenRelay { node: NodeId(2), token: 77 },
        Command::Relayed {
            node: NodeId(2),
            token: 77,
            sequence: 3,
            commands: vec![
                Command::Append { partition: PartitionId(1), batch: Bytes::from_static(b"brought") },
                Command::DeleteGroup { group: "g".into() },
                Command::Together {
                    commands: vec![Command::Append {
                        partition: PartitionId(1),
                        batch: Bytes::from_static(b"tied"),
                    }],
                },
            ],
        },
        Command::AppendToAll {
            partitions: vec![PartitionId(3), PartitionId(9)],
            batch: Bytes::from_static(b"for both"),
        },
        Command::AppendTimed {
            partition: PartitionId(3),
            deadlines: vec![(0, 1_000), (4, -1)],
            batch: Bytes::from_static(b"later"),
        },
        Command::RemoveTimers { partition: PartitionId(3), rows: vec![TimerRow { at: 1_000, offset: 7 }] },
        Command::Together {
            commands: vec![
                Command::Trim { partition: PartitionId(3), log_start: 2 },
                Command::Append { partition: PartitionId(3), batch: Bytes::from_static(b"one") },
                Command::TakeDigest,
                Command::Append { partition: PartitionId(4), batch: Bytes::from_static(b"two") },
            ],
        },
        Command::Together { commands: vec![] },
        Command::ChangeAccess {
            change: AccessChange::DeleteTopicPermission {
                user: "ann".into(),
                namespace: "/".into(),
                exchange: None,
            },
        },
        Command::PutPolicy {
            policy: PolicyMeta {
                key: PolicyKey { namespace: "/".into(), operator: true, name: "most".into() },
                pattern: "^q".into(),
                apply_to: ApplyTo::QuorumQueues,
                priority: 7,
                definition: vec![("max-length".into(), ArgumentValue::Integer(10))],
            },
        },
        Command::DeletePolicy {
            key: PolicyKey { namespace: "/".into(), operator: false, name: "ttl".into() },
        },
        Command::RegisterNode {
            node: NodeMeta {
                id: NodeId(3),
                advertised: [("kafka".to_owned(), HostPort { host: "h".into(), port: 9092 })].into(),
                zone: Some("east".into()),
                version: "1.2.3".into(),
            },
        },
        Command::SetDraining { node: NodeId(3), draining: true },
        Command::NewIncarnation { node: NodeId(3), token: 1 << 40 },
        Command::AdmitNode { node: NodeMeta { id: NodeId(4), ..NodeMeta::default() }, token: 1 << 41 },
        Command::SetLeaving { node: NodeId(4), leaving: true },
        Command::ForgetNode { node: NodeId(4) },
        Command::AppendUnique {
            partition: PartitionId(3),
            keys: WindowKind::ALL.map(unique_key).to_vec(),
            batch: Bytes::from_static(b"once"),
        },
        Command::MoveRecords {
            partition: PartitionId(3),
            subscription: SubscriptionId::QUEUE,
            records: vec![(3, 3), (7, 9)],
            deadlines: vec![TimerRow { at: 1_000, offset: 7 }],
            appends: vec![
                Command::Append { partition: PartitionId(4), batch: Bytes::from_static(b"there") },
                Command::AppendUnique {
                    partition: PartitionId(5),
                    keys: vec![unique_key(WindowKind::Moved)],
                    batch: Bytes::from_static(b"and there"),
                },
            ],
        },
        Command::MoveRecords {
            partition: PartitionId(3),
            subscription: SubscriptionId(9),
            records: vec![],
            deadlines: vec![],
            appends: vec![],
        },
        Command::OpenSubscription { partition: PartitionId(3), subscription: SubscriptionId(2), start: 77 },
        Command::CloseSubscription { partition: PartitionId(3), subscription: SubscriptionId(2) },
        Command::Settle {
            partition: PartitionId(3),
            subscription: SubscriptionId::QUEUE,
            handed_out: 80,
            settlements: dispositions()
                .into_iter()
                .map(|disposition| Settlement { from: 3, to: 9, disposition })
                .collect(),
        },
        Command::Lead { node: NodeId(3) },
        Command::SetMachineVersion { version: 2 },
        Command::TakeDigest,
        Command::CompareDigest { index: 7, digest: 8 },
        Command::CreateTopic {
            name: "t".into(),
            topic_id: id,
            placement: vec![ShardId(1), ShardId(2)],
            config: config.clone(),
        },
        Command::DeleteTopic { topic_id: id },
        Command::ForgetTopic { topic_id: id },
        Command::ConfigureTopic { topic_id: id, config },
        Command::AddPartitions { topic_id: id, expected: 2, placement: vec![ShardId(1)] },
        Command::AllocateProducerIds { count: 1000 },
        Command::OpenPartition {
            partition: PartitionId(5),
            settings: PartitionSettings::default(),
            epoch_base: 0,
        },
        Command::ConfigurePartition { partition: PartitionId(5), settings: PartitionSettings::default() },
        Command::ClosePartition { partition: PartitionId(5) },
        Command::Append { partition: PartitionId(5), batch: Bytes::from_static(b"batch bytes") },
        Command::Trim { partition: PartitionId(5), log_start: 12 },
        Command::RewriteSegments {
            partition: PartitionId(5),
            segments: vec![SegmentId { base: 12, generation: 0 }, SegmentId { base: 40, generation: 3 }],
            kept: vec![(12, 14), (40, 40)],
            bytes: 900,
            max_timestamp: -1,
        },
        Command::StoreGroup {
            group: "g".into(),
            membership: GroupMembership {
                generation: 4,
                protocol: Some("range".into()),
                members: vec![member],
                ..GroupMembership::default()
            },
        },
        Command::CommitOffsets { group: "g".into(), offsets: vec![offset] },
        Command::DeleteOffsets { group: "g".into(), partitions: vec![(id, 3)] },
        Command::DeleteGroup { group: "g".into() },
        Command::DropTopicOffsets { topic_id: id },
    ]
}

#[test]
fn every_command_comes_back_as_it_went() {
    let entry = Entry { time: 123, commands: commands() };
    assert_eq!(Entry::decode_chunks(&entry.encode()), Ok(entry));
}

#[test]
fn a_batch_is_shared_and_not_copied() {
    let batch = Bytes::from(vec![1u8; 100]);
    let entry = Entry {
        time: 0,
        commands: vec![Command::Append { partition: PartitionId(1), batch: batch.clone() }],
    };
    assert!(entry.encode().iter().any(|chunk| chunk.as_ptr() == batch.as_ptr()));
}

#[test]
fn an_unknown_kind_is_an_error() {
    let mut bytes = Entry { time: 0, commands: vec![Command::TakeDigest] }.encode()[0].to_vec();
    bytes[13] = 200;
    assert!(Entry::decode(bytes.into()).is_err());
}

proptest! {
    #[test]
    fn any_damage_is_an_error_or_another_entry_and_never_a_panic(
        at in 0usize..1000, byte in any::<u8>(), cut in 0usize..1000,
    ) {
        let entry = Entry { time: 1, commands: commands() };
        let mut all: Vec<u8> = entry.encode().concat();
        if at < all.len() { all[at] = byte; }
        all.truncate(cut.max(1));
        let _ = Entry::decode(all.into());
    }
}
