//! An entry of a shard's log. What was read can be written, and reads the same again.

use bytes::Bytes;
use std::collections::BTreeMap;
use weir_model::batch::BatchBuilder;
use weir_model::access::{AccessChange, NamespaceMeta, PermissionMeta, TopicPermissionMeta, UserMeta};
use weir_model::command::{Command, GroupMember, GroupMembership, OffsetCommit};
use weir_model::entry::Entry;
use weir_model::node::{HostPort, NodeMeta};
use weir_model::policy::{PolicyKey, PolicyMeta};
use weir_model::routing::ArgumentValue;
use weir_model::settings::PartitionSettings;
use weir_model::subscription::{Disposition, Settlement};
use weir_model::timer::TimerRow;
use weir_model::unique::{UniqueKey, WindowKind};
use weir_model::{NodeId, PartitionId, ShardId, SubscriptionId, TopicId};

pub fn run(data: &[u8]) {
    if let Ok(entry) = Entry::decode(Bytes::copy_from_slice(data)) {
        let written = entry.encode();
        assert_eq!(Entry::decode_chunks(&written), Ok(entry));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let each = commands().into_iter().map(|command| vec![command]);
    let entries = each.chain([Vec::new(), commands()]).map(|commands| Entry { time: 1_000, commands });
    entries.map(|entry| entry.encode().concat()).collect()
}

/// One of each kind.
pub(super) fn commands() -> Vec<Command> {
    let change = |change| Command::ChangeAccess { change };
    let topic_id = TopicId([9; 16]);
    let partition = PartitionId(5);
    let settings = PartitionSettings::default;
    let config: BTreeMap<_, _> = [("retention.ms".to_owned(), "5".to_owned())].into();
    let mut batch = BatchBuilder::new().producer(7, 0, 0);
    batch.push(1_000, Some(b"key"), Some(b"value"), &[]);
    let mut several = BatchBuilder::new();
    (0..4).for_each(|_| several.push(1_000, None, Some(b"value"), &[]));
    let (batch, several) = (batch.build(), several.build());
    let member = GroupMember {
        member_id: "m-1".into(),
        instance_id: Some("i".into()),
        protocols: vec![("range".into(), Bytes::from_static(b"data"))],
        ..GroupMember::default()
    };
    let membership = GroupMembership { generation: 3, members: vec![member], ..GroupMembership::default() };
    let key = |window| UniqueKey { window, hash: [7; 16], expires_at: 9_000, keys_max: 3, until_settled: true };
    let (offset, metadata) = (44, "note".to_owned());
    let commit =
        OffsetCommit { topic_id, partition: 3, offset, leader_epoch: -1, metadata, committed_at: 0 };
    vec![
        Command::Lead { node: NodeId(3) },
        Command::SetMachineVersion { version: 1 },
        Command::OpenRelay { node: NodeId(3), token: 9 },
        Command::Relayed { node: NodeId(3), token: 9, sequence: 1, commands: vec![Command::TakeDigest] },
        Command::CreateTopic {
            name: "orders".into(),
            topic_id,
            placement: vec![ShardId(1)],
            config: config.clone(),
        },
        Command::AddPartitions { topic_id, expected: 1, placement: vec![ShardId(2)] },
        Command::ConfigureTopic { topic_id, config },
        Command::AllocateProducerIds { count: 10 },
        change(AccessChange::PutNamespace {
            namespace: NamespaceMeta { name: "shop".into(), ..NamespaceMeta::default() },
            new: true,
        }),
        change(AccessChange::PutUser {
            user: UserMeta { name: "ann".into(), ..UserMeta::initial() },
            new: true,
        }),
        change(AccessChange::PutPermission { permission: PermissionMeta::everything("ann", "shop") }),
        change(AccessChange::PutTopicPermission {
            permission: TopicPermissionMeta {
                user: "ann".into(),
                namespace: "shop".into(),
                exchange: "amq.topic".into(),
                write: "^a".into(),
                read: "^b".into(),
            },
        }),
        change(AccessChange::DeleteUser { name: "bob".into() }),
        Command::PutPolicy {
            policy: PolicyMeta {
                key: PolicyKey { namespace: "/".into(), operator: false, name: "ttl".into() },
                pattern: "^q".into(),
                definition: vec![("message-ttl".into(), ArgumentValue::Integer(9))],
                ..PolicyMeta::default()
            },
        },
        Command::DeletePolicy { key: PolicyKey { name: "none".into(), ..PolicyKey::default() } },
        Command::RegisterNode {
            node: NodeMeta {
                id: NodeId(4),
                advertised: [("kafka".to_owned(), HostPort { host: "h".into(), port: 9092 })].into(),
                ..NodeMeta::default()
            },
        },
        Command::SetDraining { node: NodeId(4), draining: true },
        Command::NewIncarnation { node: NodeId(4), token: 9 },
        Command::AdmitNode { node: NodeMeta { id: NodeId(4), ..NodeMeta::default() }, token: 9 },
        Command::SetLeaving { node: NodeId(4), leaving: true },
        Command::ForgetNode { node: NodeId(4) },
        Command::OpenPartition { partition, settings: settings(), epoch_base: 2 },
        Command::ConfigurePartition { partition, settings: settings() },
        Command::Append { partition, batch: batch.clone() },
        Command::AppendToAll { partitions: vec![partition, PartitionId(6)], batch: several.clone() },
        Command::OpenSubscription { partition, subscription: SubscriptionId::QUEUE, start: 0 },
        Command::Settle {
            partition,
            subscription: SubscriptionId::QUEUE,
            handed_out: 3,
            settlements: vec![
                Settlement { from: 1, to: 1, disposition: Disposition::Accept },
                Settlement { from: 0, to: 0, disposition: Disposition::Release { failed: true } },
            ],
        },
        Command::AppendTimed { partition, deadlines: vec![(0, 5_000), (3, 4_000)], batch: several.clone() },
        Command::RemoveTimers { partition, rows: vec![TimerRow { at: 4_000, offset: 8 }] },
        Command::Together {
            commands: vec![
                Command::Append { partition, batch: batch.clone() },
                Command::Trim { partition, log_start: 0 },
            ],
        },
        Command::AppendUnique { partition, keys: vec![key(WindowKind::Business)], batch: several.clone() },
        Command::MoveRecords {
            partition,
            subscription: SubscriptionId::QUEUE,
            records: vec![(6, 7)],
            deadlines: vec![TimerRow { at: 5_000, offset: 5 }],
            appends: vec![
                Command::Append { partition: PartitionId(6), batch: several.clone() },
                Command::AppendUnique {
                    partition,
                    keys: WindowKind::ALL.map(key).to_vec(),
                    batch: several.clone(),
                },
            ],
        },
        Command::OpenSubscription { partition, subscription: SubscriptionId(1), start: 0 },
        Command::CloseSubscription { partition, subscription: SubscriptionId(1) },
        Command::Trim { partition, log_start: 0 },
        Command::StoreGroup { group: "readers".into(), membership },
        Command::CommitOffsets { group: "readers".into(), offsets: vec![commit] },
        Command::TakeDigest,
        Command::CompareDigest { index: 7, digest: 8 },
        Command::DeleteOffsets { group: "readers".into(), partitions: vec![(topic_id, 9)] },
        Command::DropTopicOffsets { topic_id: TopicId([1; 16]) },
        Command::DeleteGroup { group: "others".into() },
        Command::ClosePartition { partition: PartitionId(6) },
        Command::DeleteTopic { topic_id },
        Command::ForgetTopic { topic_id: TopicId([2; 16]) },
    ]
}
