//! What the cluster of a run is declared with: a topic of streams, queues of every kind that behaves differently, an
//! exchange, and the lots in which records are parked. Segments are small, so that a run sees them go.

use std::collections::BTreeMap;

use bytes::Bytes;
use weir_broker::topology::QueueArguments;
use weir_model::command::Command;
use weir_model::queue::{DEFAULT_NAMESPACE, HIDDEN_NAMESPACE, QueueKind, QueueMeta, full_name};
use weir_model::routing::{ArgumentValue, Arguments, BindingMeta, Destination, ExchangeMeta};
use weir_model::{ShardId, TopicId};

use crate::scenario::{PARTITIONS, SHARDS};

/// The topic of the streams.
pub const STREAMS: &str = "streams";

/// The exchange that leads to [`LATER`] and to [`ELSEWHERE`], which lie in different shards.
pub const BOTH: &str = "both";

/// The broker's own name for the topic of lots.
const LOTS: &str = "weir.parking";

/// Bytes of a stream's segment.
const STREAM_SEGMENT_BYTES: u32 = 64 << 10;

/// Bytes of a queue's segment: a few dozen records.
const QUEUE_SEGMENT_BYTES: u32 = 16 << 10;

/// Largest batch of a queue, in bytes.
const QUEUE_BATCH_BYTES_MAX: u32 = 1 << 20;

/// A queue, by its place in [`QUEUES`].
pub type QueueNumber = u8;

/// What comes back has its original position; consumers take turns.
pub const WORK: QueueNumber = 0;
/// What comes back is handed out again in the order in which it came back, before everything else; to one consumer.
pub const TURNS: QueueNumber = 1;
/// As [`WORK`], to one consumer.
pub const PLACES: QueueNumber = 2;
/// What fails too often, or is rejected, goes to [`DEAD`].
pub const DYING: QueueNumber = 3;
/// Gets what died.
pub const DEAD: QueueNumber = 4;
/// Takes no key twice within a time.
pub const UNIQUE: QueueNumber = 5;
/// Takes no key twice while its first record waits.
pub const WAITING: QueueNumber = 6;
/// Gets what was parked.
pub const LATER: QueueNumber = 7;
/// Gets what was parked for [`BOTH`], and lies in another shard than [`LATER`].
pub const ELSEWHERE: QueueNumber = 8;

/// How long a business key is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys {
    /// There are none.
    Ignored,
    /// For so many milliseconds.
    ForMs(i64),
    /// Until its record is settled.
    WhileWaiting,
}

/// A queue and its rules, by which it is declared and judged.
#[derive(Clone, Copy, Debug)]
pub struct QueueRules {
    /// Name.
    pub name: &'static str,
    /// Kind; in a quorum queue what comes back is handed out in turn.
    pub kind: QueueKind,
    /// Where it lies.
    pub shard: u32,
    /// One consumer gets everything, so that its deliveries show the order of all.
    pub alone: bool,
    /// Failed deliveries that a record survives.
    pub failures_max: Option<u16>,
    /// Where dead records go; without that they are settled.
    pub dead_go_to: Option<QueueNumber>,
    /// How long keys are known.
    pub keys: Keys,
}

const CLASSIC: QueueRules = QueueRules {
    name: "work",
    kind: QueueKind::Classic,
    shard: 1,
    alone: false,
    failures_max: None,
    dead_go_to: None,
    keys: Keys::Ignored,
};

/// All queues of a run.
pub const QUEUES: [QueueRules; 9] = [
    CLASSIC,
    QueueRules { name: "turns", kind: QueueKind::Quorum, shard: 2, alone: true, ..CLASSIC },
    QueueRules { name: "places", alone: true, ..CLASSIC },
    // Both lie in one shard: a leader of the one then leads the other, to which it publishes.
    QueueRules {
        name: "dying",
        kind: QueueKind::Quorum,
        shard: 2,
        failures_max: Some(3),
        dead_go_to: Some(DEAD),
        ..CLASSIC
    },
    QueueRules { name: "dead", shard: 2, ..CLASSIC },
    QueueRules { name: "unique", keys: Keys::ForMs(2_500), ..CLASSIC },
    QueueRules { name: "waiting", shard: 2, keys: Keys::WhileWaiting, ..CLASSIC },
    QueueRules { name: "later", ..CLASSIC },
    QueueRules { name: "elsewhere", shard: 2, ..CLASSIC },
];

/// The rules of a queue.
pub fn rules(queue: QueueNumber) -> &'static QueueRules {
    &QUEUES[usize::from(queue)]
}

impl QueueRules {
    fn arguments(&self) -> Arguments {
        let text = |text: &str| ArgumentValue::Bytes(Bytes::copy_from_slice(text.as_bytes()));
        let mut arguments = Arguments::new();
        let mut put = |name: &str, value| arguments.push((name.to_owned(), value));
        if self.alone {
            put("x-single-active-consumer", ArgumentValue::Bool(true));
        }
        if self.kind == QueueKind::Quorum {
            let limit = self.failures_max.map_or(-1, i64::from);
            put("x-delivery-limit", ArgumentValue::Integer(limit));
        }
        if let Some(dead) = self.dead_go_to {
            put("x-dead-letter-exchange", text(""));
            put("x-dead-letter-routing-key", text(rules(dead).name));
        }
        if self.keys != Keys::Ignored {
            put("x-message-deduplication", ArgumentValue::Bool(true));
        }
        if let Keys::ForMs(ms) = self.keys {
            put("x-cache-ttl", ArgumentValue::Integer(ms));
        }
        arguments
    }

    /// What its arguments come to, as the broker reads them.
    pub fn read_arguments(&self) -> Option<QueueArguments> {
        QueueArguments::read(DEFAULT_NAMESPACE, self.name, self.kind, &self.arguments()).ok()
    }

    fn command(&self, topic_id: TopicId) -> Option<Command> {
        // Without a limit of its own a quorum queue would let records die that somebody must get.
        let lanes = vec![self.read_arguments()?.lane(None)];
        let queue = QueueMeta {
            kind: self.kind,
            durable: true,
            arguments: self.arguments(),
            lanes,
            ..QueueMeta::default()
        };
        Some(Command::CreateQueue {
            name: full_name(DEFAULT_NAMESPACE, self.name),
            topic_id,
            placement: vec![ShardId(self.shard)],
            config: settings_of_queue(),
            queue,
        })
    }
}

fn settings_of_queue() -> BTreeMap<String, String> {
    let settings = [
        // What is settled goes as soon as it can.
        ("retention.ms", "0".to_owned()),
        ("segment.bytes", QUEUE_SEGMENT_BYTES.to_string()),
        ("max.message.bytes", QUEUE_BATCH_BYTES_MAX.to_string()),
    ];
    settings.map(|(name, value)| (name.to_owned(), value)).into()
}

/// The name by which the catalog knows the topic of lots.
pub fn lots_name() -> String {
    full_name(HIDDEN_NAMESPACE, LOTS)
}

/// Commands of the meta shard that create everything, each of which may be repeated.
pub fn topics() -> Vec<Command> {
    let id = |number: u8| TopicId([number + 1; 16]);
    let streams = Command::CreateTopic {
        name: full_name(DEFAULT_NAMESPACE, STREAMS),
        topic_id: id(100),
        placement: (0..PARTITIONS).map(|number| ShardId(1 + number as u32 % SHARDS)).collect(),
        config: [
            ("segment.bytes".to_owned(), STREAM_SEGMENT_BYTES.to_string()),
            // Every record is looked at in the end.
            ("retention.ms".to_owned(), "-1".to_owned()),
        ]
        .into(),
    };
    let lots = Command::CreateTopic {
        name: lots_name(),
        topic_id: id(101),
        placement: (1..=SHARDS).map(ShardId).collect(),
        config: settings_of_queue(),
    };
    let mut queues: Vec<(u8, &QueueRules)> = (0..).zip(&QUEUES).collect();
    // What dies before there is a queue for it goes nowhere: where the dead go is there first.
    queues.sort_by_key(|(_, queue)| queue.dead_go_to.is_some());
    let queues = queues.into_iter().filter_map(|(number, queue)| queue.command(id(number)));
    [streams, lots].into_iter().chain(queues).collect()
}

/// The exchange [`BOTH`], and its bindings.
pub fn exchange() -> Option<(ExchangeMeta, Vec<BindingMeta>)> {
    let namespace = || DEFAULT_NAMESPACE.to_owned();
    let exchange = ExchangeMeta::declared(namespace(), BOTH.to_owned(), "fanout", Vec::new()).ok()?;
    let bind = |queue| {
        let destination = Destination::Queue(rules(queue).name.to_owned());
        BindingMeta::new(namespace(), BOTH.to_owned(), destination, Bytes::new(), Vec::new())
    };
    Some((exchange, [LATER, ELSEWHERE].map(bind).into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_broker_reads_of_the_arguments_what_the_rules_say() {
        for rules in &QUEUES {
            let read = rules.read_arguments().expect("arguments that can be read");
            assert_eq!(read.failures_max, rules.failures_max, "{}", rules.name);
            assert_eq!(read.single_active, rules.alone, "{}", rules.name);
            assert_eq!(read.dead_letters.is_some(), rules.dead_go_to.is_some(), "{}", rules.name);
            let ttl_ms = read.unique.as_ref().map(|unique| unique.ttl_ms);
            let expected = match rules.keys {
                Keys::Ignored => None,
                Keys::ForMs(ms) => Some(Some(ms)),
                Keys::WhileWaiting => Some(None),
            };
            assert_eq!(ttl_ms, expected, "{}", rules.name);
        }
        assert_eq!(topics().len(), QUEUES.len() + 2);
        assert_eq!(exchange().expect("it can be declared").1.len(), 2);
    }
}
