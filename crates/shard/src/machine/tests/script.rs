//! Commands as lines of text. `tests/transcripts/README.md` lists them.

use std::collections::BTreeMap;
use std::str::FromStr;

use bytes::Bytes;
use weir_model::access::{
    AccessChange, NamespaceMeta, PasswordAlgorithm, PasswordHash, PermissionMeta, TopicPermissionMeta,
    UserMeta,
};
use weir_model::command::{Command, GroupMember, GroupMembership, OffsetCommit};
use weir_model::node::{HostPort, NodeMeta};
use weir_model::policy::{ApplyTo, PolicyKey, PolicyMeta};
use weir_model::queue::QueueMeta;
use weir_model::routing::{ArgumentValue, ExchangeMeta};
use weir_model::settings::PartitionSettings;
use weir_model::subscription::{DeadReason, Disposition, Settlement};
use weir_model::timer::TimerRow;
use weir_model::unique::{UniqueKey, WindowKind};
use weir_model::{NodeId, PartitionId, SegmentId, ShardId, SubscriptionId, TimestampMs, TopicId};

use super::batches::batch;

fn policy_key(words: &Words) -> PolicyKey {
    let operator = words.text(0).contains("operator");
    PolicyKey { namespace: words.text(1).into(), operator, name: words.text(2).into() }
}

/// The words of one line: those without `=` in order, and those with it by name.
struct Words<'a> {
    line: &'a str,
    plain: Vec<&'a str>,
    named: BTreeMap<&'a str, &'a str>,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Words<'a> {
        let (named, plain): (Vec<_>, Vec<_>) = line.split_whitespace().partition(|word| word.contains('='));
        let named = named.into_iter().filter_map(|word| word.split_once('=')).collect();
        Words { line, plain, named }
    }

    fn text(&self, at: usize) -> &'a str {
        self.plain.get(at).unwrap_or_else(|| panic!("word {at} is missing in '{}'", self.line))
    }

    fn number<T: FromStr>(&self, at: usize) -> T {
        parse(self.text(at), self.line)
    }

    fn partition(&self) -> PartitionId {
        PartitionId(self.number(1))
    }

    fn option<T: FromStr>(&self, name: &str, default: T) -> T {
        self.named.get(name).map_or(default, |text| parse(text, self.line))
    }

    fn config(&self) -> BTreeMap<String, String> {
        let settings = self.named.iter().filter(|(name, _)| name.contains('.'));
        settings.map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    fn settings(&self) -> PartitionSettings {
        let mut settings = PartitionSettings::default();
        settings.segment_bytes = self.option("segment.bytes", settings.segment_bytes);
        settings.segment_ms = self.option("segment.ms", settings.segment_ms);
        settings
    }

    fn shards(&self) -> Vec<ShardId> {
        let shards = self.named.get("shards").copied().unwrap_or_default();
        shards.split(',').filter(|s| !s.is_empty()).map(|s| ShardId(parse(s, self.line))).collect()
    }
}

fn parse<T: FromStr>(text: &str, line: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("'{text}' in '{line}' is not what is expected there"))
}

fn topic_id(text: &str, line: &str) -> TopicId {
    TopicId([parse(text, line); 16])
}

/// `5/0/7`: producer 5, epoch 0, sequence 7.
fn producer(text: &str, line: &str) -> (i64, i16, i32) {
    let mut parts = text.split('/');
    let mut next = || parts.next().unwrap_or_else(|| panic!("'{text}' in '{line}' is not id/epoch/sequence"));
    (parse(next(), line), parse(next(), line), parse(next(), line))
}

/// `3/0`: partition 0 of topic 3.
fn place(text: &str, line: &str) -> (TopicId, i32) {
    let (topic, partition) = text.split_once('/').unwrap_or_else(|| panic!("'{text}' in '{line}'"));
    (topic_id(topic, line), parse(partition, line))
}

pub(super) fn command(line: &str) -> Command {
    let words = Words::of(line);
    let topic = || topic_id(words.text(1), line);
    let name = || words.text(1).to_string();
    match words.text(0) {
        "lead" => Command::Lead { node: NodeId(words.number(1)) },
        "take-digest" => Command::TakeDigest,

        "create-topic" => Command::CreateTopic {
            name: name(),
            topic_id: topic_id(words.text(2), line),
            placement: words.shards(),
            config: words.config(),
        },
        "delete-topic" => Command::DeleteTopic { topic_id: topic() },
        "forget-topic" => Command::ForgetTopic { topic_id: topic() },
        "configure-topic" => Command::ConfigureTopic { topic_id: topic(), config: words.config() },
        "add-partitions" => Command::AddPartitions {
            topic_id: topic(),
            expected: words.option("expected", 0),
            placement: words.shards(),
        },
        "create-queue" => Command::CreateQueue {
            name: words.text(1).replace('|', "\0"),
            topic_id: topic_id(words.text(2), line),
            placement: words.shards(),
            config: words.config(),
            queue: QueueMeta { lanes: vec![0], durable: true, ..QueueMeta::default() },
        },
        "exchange" => Command::DeclareExchange {
            exchange: ExchangeMeta::declared(
                words.text(1).into(),
                words.text(2).into(),
                "fanout",
                Vec::new(),
            )
            .unwrap(),
        },
        "namespace"
        | "new-namespace"
        | "delete-namespace"
        | "user"
        | "new-user"
        | "delete-user"
        | "permission"
        | "delete-permission"
        | "topic-permission"
        | "delete-topic-permission" => Command::ChangeAccess { change: access_change(&words) },
        "policy" | "operator-policy" => Command::PutPolicy {
            policy: PolicyMeta {
                key: policy_key(&words),
                pattern: words.text(3).into(),
                apply_to: ApplyTo::from_name(words.named.get("for").unwrap_or(&"all")).unwrap(),
                priority: words.option("priority", 0),
                definition: vec![(words.text(4).into(), ArgumentValue::Integer(words.number(5)))],
            },
        },
        "delete-policy" | "delete-operator-policy" => Command::DeletePolicy { key: policy_key(&words) },
        "register" => Command::RegisterNode { node: node(&words) },
        what @ ("drain" | "undrain") => {
            Command::SetDraining { node: NodeId(words.number(1)), draining: what == "drain" }
        }
        "incarnate" => Command::NewIncarnation { node: NodeId(words.number(1)), token: words.number(2) },
        "admit" => Command::AdmitNode { node: node(&words), token: words.option("token", 0) },
        what @ ("leave" | "stay") => {
            Command::SetLeaving { node: NodeId(words.number(1)), leaving: what == "leave" }
        }
        "forget" => Command::ForgetNode { node: NodeId(words.number(1)) },
        "producer-ids" => Command::AllocateProducerIds { count: words.number(1) },

        "open" => Command::OpenPartition {
            partition: words.partition(),
            settings: words.settings(),
            epoch_base: words.option("epoch", 0),
        },
        "configure" => {
            Command::ConfigurePartition { partition: words.partition(), settings: words.settings() }
        }
        "close" => Command::ClosePartition { partition: words.partition() },
        "append" => Command::Append { partition: words.partition(), batch: batch_of(&words) },
        "rewrite" => Command::RewriteSegments {
            partition: words.partition(),
            segments: words.plain[2..].iter().map(|text| segment_id(text, line)).collect(),
            kept: words
                .named
                .get("keep")
                .map_or(Vec::new(), |runs| runs.split(',').map(|text| run(text, line)).collect()),
            bytes: words.option("bytes", 0),
            max_timestamp: words.option("newest", -1),
        },
        "trim" => Command::Trim { partition: words.partition(), log_start: words.number(2) },

        "append-to-all" => Command::AppendToAll {
            partitions: words.text(1).split(',').map(|id| PartitionId(parse(id, line))).collect(),
            batch: batch_of(&words),
        },
        "append-timed" => Command::AppendTimed {
            partition: words.partition(),
            deadlines: words.plain[2..]
                .iter()
                .filter(|text| text.contains('@'))
                .map(|text| deadline(text, line))
                .collect(),
            batch: batch_of(&words),
        },
        "remove-timers" => Command::RemoveTimers {
            partition: words.partition(),
            rows: words.plain[2..]
                .iter()
                .map(|text| deadline::<i64>(text, line))
                .map(|(offset, at)| TimerRow { at, offset })
                .collect(),
        },
        "open-relay" => Command::OpenRelay { node: NodeId(words.number(1)), token: words.number(2) },
        "relayed" => {
            let (head, commands) = line.split_once(':').unwrap_or_else(|| panic!("no ':' in '{line}'"));
            let words = Words::of(head);
            Command::Relayed {
                node: NodeId(words.number(1)),
                token: words.number(2),
                sequence: words.number(3),
                commands: commands.split('&').map(command).collect(),
            }
        }
        "together" => {
            let commands = line.trim_start().trim_start_matches("together").split('&');
            Command::Together { commands: commands.map(command).collect() }
        }
        "append-unique" => Command::AppendUnique {
            partition: words.partition(),
            keys: words.plain[2..]
                .iter()
                .filter(|text| text.contains(':'))
                .map(|text| unique_key(text, &words))
                .collect(),
            batch: batch_of(&words),
        },
        "move" => {
            let mut parts = line.split('&');
            let words = Words::of(parts.next().unwrap_or_default());
            let (deadlines, runs): (Vec<&str>, Vec<&str>) =
                words.plain[3..].iter().copied().partition(|text| text.contains('@'));
            Command::MoveRecords {
                partition: words.partition(),
                subscription: SubscriptionId(words.number(2)),
                records: runs.iter().map(|text| run(text, line)).collect(),
                deadlines: deadlines
                    .iter()
                    .map(|text| deadline::<i64>(text, line))
                    .map(|(offset, at)| TimerRow { at, offset })
                    .collect(),
                appends: parts.map(command).collect(),
            }
        }
        "subscribe" => Command::OpenSubscription {
            partition: words.partition(),
            subscription: SubscriptionId(words.number(2)),
            start: words.option("start", 0),
        },
        "unsubscribe" => Command::CloseSubscription {
            partition: words.partition(),
            subscription: SubscriptionId(words.number(2)),
        },
        "settle" => Command::Settle {
            partition: words.partition(),
            subscription: SubscriptionId(words.number(2)),
            handed_out: words.option("handed-out", 0),
            settlements: words.plain[3..].iter().map(|text| settlement(text, line)).collect(),
        },

        "store-group" => Command::StoreGroup { group: name(), membership: membership(&words) },
        "commit" => {
            let commit = |(place_text, offset): (&&str, &&str)| {
                let (topic_id, partition) = place(place_text, line);
                let offset = parse(offset, line);
                let metadata = String::new();
                OffsetCommit { topic_id, partition, offset, leader_epoch: 0, metadata, committed_at: 0 }
            };
            Command::CommitOffsets { group: name(), offsets: words.named.iter().map(commit).collect() }
        }
        "delete-offsets" => Command::DeleteOffsets {
            group: name(),
            partitions: words.plain[2..].iter().map(|text| place(text, line)).collect(),
        },
        "delete-group" => Command::DeleteGroup { group: name() },
        "drop-topic-offsets" => Command::DropTopicOffsets { topic_id: topic() },
        other => panic!("there is no command '{other}'"),
    }
}

fn access_change(words: &Words) -> AccessChange {
    let text = |at: usize| words.text(at).to_owned();
    match words.text(0) {
        what @ ("namespace" | "new-namespace") => AccessChange::PutNamespace {
            namespace: NamespaceMeta { name: text(1), ..NamespaceMeta::default() },
            new: what == "new-namespace",
        },
        "delete-namespace" => AccessChange::DeleteNamespace { name: text(1) },
        what @ ("user" | "new-user") => AccessChange::PutUser { user: user(words), new: what == "new-user" },
        "delete-user" => AccessChange::DeleteUser { name: text(1) },
        "permission" => AccessChange::PutPermission {
            permission: PermissionMeta {
                user: text(1),
                namespace: text(2),
                configure: text(3),
                write: text(4),
                read: text(5),
            },
        },
        "delete-permission" => AccessChange::DeletePermission { user: text(1), namespace: text(2) },
        "topic-permission" => AccessChange::PutTopicPermission {
            permission: TopicPermissionMeta {
                user: text(1),
                namespace: text(2),
                exchange: text(3),
                write: text(4),
                read: text(5),
            },
        },
        _ => AccessChange::DeleteTopicPermission {
            user: text(1),
            namespace: text(2),
            exchange: words.plain.get(3).map(|exchange| exchange.to_string()),
        },
    }
}

/// With a password unless it says `locked`.
fn user(words: &Words) -> UserMeta {
    let tags = words.named.get("tags").copied().unwrap_or_default();
    let hash = PasswordHash { algorithm: PasswordAlgorithm::RabbitSha256, bytes: vec![7; 36] };
    UserMeta {
        name: words.text(1).to_owned(),
        passwords: if words.plain.contains(&"locked") { vec![] } else { vec![hash] },
        tags: tags.split(',').filter(|tag| !tag.is_empty()).map(str::to_owned).collect(),
        ..UserMeta::default()
    }
}

/// What has a port in it is advertised.
fn node(words: &Words) -> NodeMeta {
    let endpoint = |(protocol, at): (&&str, &&str)| {
        let (host, port) = at.split_once(':')?;
        Some((protocol.to_string(), HostPort { host: host.into(), port: parse(port, words.line) }))
    };
    let long = words.named.get("zone-bytes").map(|bytes| "z".repeat(parse(bytes, words.line)));
    NodeMeta {
        id: NodeId(words.number(1)),
        advertised: words.named.iter().filter_map(endpoint).collect(),
        zone: long.or(words.named.get("zone").map(|zone| zone.to_string())),
        version: words.option("version", "1.0".to_owned()),
    }
}

/// `3@1000`: record 3 at time 1000.
fn deadline<T: FromStr>(text: &str, line: &str) -> (T, TimestampMs) {
    let (record, at) = text.split_once('@').unwrap_or_else(|| panic!("'{text}' in '{line}'"));
    (parse(record, line), parse(at, line))
}

/// `business:a` or `moved:7`: a key, with what the line says of all of them.
fn unique_key(text: &str, words: &Words) -> UniqueKey {
    let (kind, name) = text.split_once(':').unwrap_or_else(|| panic!("'{text}' in '{}'", words.line));
    let window = match kind {
        "business" => WindowKind::Business,
        "moved" => WindowKind::Moved,
        _ => panic!("'{kind}' in '{}' is no window", words.line),
    };
    let mut hash = [0; 16];
    hash.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
    UniqueKey {
        window,
        hash,
        expires_at: words.option("expires", i64::MAX),
        keys_max: words.option("keys", 100),
        until_settled: words.option("until-settled", false),
    }
}

/// `12.0`: where a segment begins, and its generation.
fn segment_id(text: &str, line: &str) -> SegmentId {
    let (base, generation) = text.split_once('.').unwrap_or_else(|| panic!("'{text}' in '{line}'"));
    SegmentId { base: parse(base, line), generation: parse(generation, line) }
}

/// `3` or `3-7`: a record, or a run of them.
fn run(text: &str, line: &str) -> (i64, i64) {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    (parse(from, line), parse(to, line))
}

/// `accept:3` or `release:3-7`: what becomes of a record, or of a run of them.
fn settlement(text: &str, line: &str) -> Settlement {
    let (what, run) = text.split_once(':').unwrap_or_else(|| panic!("'{text}' in '{line}'"));
    let (from, to) = self::run(run, line);
    let reject = |reason| Disposition::Reject { reason };
    let disposition = match what {
        "accept" => Disposition::Accept,
        "release" => Disposition::Release { failed: false },
        "fail" => Disposition::Release { failed: true },
        "reject" => reject(DeadReason::Rejected),
        "expire" => reject(DeadReason::Expired),
        "drop" => reject(DeadReason::MaxLength),
        "give-up" => reject(DeadReason::DeliveryLimit),
        _ => panic!("nothing is done by '{what}' in '{line}'"),
    };
    Settlement { from, to, disposition }
}

fn batch_of(words: &Words) -> Bytes {
    if words.plain.contains(&"garbage") {
        return Bytes::from_static(b"these bytes are not a record batch");
    }
    let producer = words.named.get("producer").map(|text| producer(text, words.line));
    batch(words.option("records", 1), words.option("value", 10), words.option("timestamp", 0), producer)
}

fn membership(words: &Words) -> GroupMembership {
    let members = words.named.get("members").copied().unwrap_or_default();
    let member = |name: &str| GroupMember { member_id: name.into(), ..GroupMember::default() };
    GroupMembership {
        generation: words.option("generation", 1),
        protocol_type: "consumer".into(),
        members: members.split(',').filter(|name| !name.is_empty()).map(member).collect(),
        ..GroupMembership::default()
    }
}
