//! Every key that can be set, in one table: flags, environment variables, the file, `weir config show`
//! and the reference in the user's guide are all made from it, so that none can know a key that another
//! does not.

use weir_model::settings::{MESSAGE_BYTES_MAX, SEGMENT_BYTES_MIN};

/// What a key's value may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Any text.
    Text,
    /// `true` or `false`; as a flag it may stand alone.
    Switch,
    /// A whole number between two bounds, both allowed.
    Number(i64, i64),
    /// A size in bytes between two bounds; `KiB`, `MiB` and `GiB` may follow the number.
    Size(i64, i64),
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// Any number of texts: a repeated flag, commas in the environment, an array in the file.
    List,
}

/// One thing that can be set.
#[derive(Debug)]
pub struct Key {
    /// Its name: the flag without dashes, and the name in the file.
    pub name: &'static str,
    /// What its value may be.
    pub kind: Kind,
    /// Its value where nobody sets it; commas separate the values of a list.
    pub default: &'static str,
    /// What a value looks like, for help.
    pub value_name: &'static str,
    /// What it does.
    pub doc: &'static str,
}

impl Key {
    /// The environment variable that sets it.
    pub fn variable(&self) -> String {
        variable(self.name)
    }
}

/// The environment variable for a key's name.
pub fn variable(name: &str) -> String {
    let mut variable = String::from("WEIR_");
    variable.extend(name.chars().map(|c| match c {
        '-' | '.' => '_',
        c => c.to_ascii_uppercase(),
    }));
    variable
}

/// Another name for a key, in a coarser unit.
#[derive(Debug)]
pub struct CoarserKey {
    /// The other name.
    pub name: &'static str,
    /// The key that it sets. Within one source the key itself wins, then the finer unit.
    pub of: &'static str,
    /// What its value is multiplied by.
    pub factor: i64,
}

const MIB: i64 = 1 << 20;
const GIB: i64 = 1 << 30;
const HOUR_MS: i64 = 3_600_000;
const YEAR_MS: i64 = 366 * 24 * HOUR_MS;

/// Every key, in the order in which they are listed.
pub const KEYS: &[Key] = &[
    Key {
        name: "data-dir",
        kind: Kind::Text,
        default: "weir-data",
        value_name: "DIR",
        doc: "Directory that holds everything the node knows. It is created if it is missing.",
    },
    Key {
        name: "listen",
        kind: Kind::List,
        default: "kafka=127.0.0.1:9092,http=127.0.0.1:9347",
        value_name: "PROTOCOL=ADDRESS",
        doc: "Where to listen. With any given, only those named are opened. Port 0 takes a free one.",
    },
    Key {
        name: "advertise",
        kind: Kind::List,
        default: "",
        value_name: "PROTOCOL=HOST:PORT",
        doc: "What clients of a protocol are told of this node; without it, the local address of their connection.",
    },
    Key {
        name: "insecure",
        kind: Kind::Switch,
        default: "false",
        value_name: "BOOL",
        doc: "Allow listeners that other machines can reach although nobody has to authenticate.",
    },
    Key {
        name: "tls-certificate",
        kind: Kind::Text,
        default: "",
        value_name: "FILE",
        doc: "Certificate of the listeners over TLS, in PEM, with those behind it that vouch for it. Read again on SIGHUP.",
    },
    Key {
        name: "tls-key",
        kind: Kind::Text,
        default: "",
        value_name: "FILE",
        doc: "Private key of the certificate, in PEM, without a passphrase.",
    },
    Key {
        name: "tls-client-ca",
        kind: Kind::Text,
        default: "",
        value_name: "FILE",
        doc: "Certificates in PEM by which clients over TLS must be vouched for; without it they need none.",
    },
    Key {
        name: "loopback-users",
        kind: Kind::List,
        default: "guest",
        value_name: "NAME",
        doc: "Users who may connect only from the same machine.",
    },
    Key {
        name: "node-id",
        kind: Kind::Number(1, i32::MAX as i64 - 1),
        default: "1",
        value_name: "ID",
        doc: "This node's id in the cluster. A data directory keeps the id that it was created with.",
    },
    Key {
        name: "shards",
        kind: Kind::Number(1, 256),
        default: "8",
        value_name: "COUNT",
        doc: "Number of data shards. A data directory keeps the number that it was created with.",
    },
    Key {
        name: "peers",
        kind: Kind::List,
        default: "",
        value_name: "ID=HOST:PORT",
        doc: "The nodes that found a cluster, this one among them: the same ids on each, reached as it reaches them. Checked from then on; addresses may change.",
    },
    Key {
        name: "join",
        kind: Kind::List,
        default: "",
        value_name: "HOST:PORT",
        doc: "Nodes of a cluster that this one is to join when its data directory is empty. Later they are only asked where the others are.",
    },
    Key {
        name: "cluster-tls-certificate",
        kind: Kind::Text,
        default: "",
        value_name: "FILE",
        doc: "Certificate by which the other nodes know this one, in PEM, with those behind it that vouch for it. Read again on SIGHUP.",
    },
    Key {
        name: "cluster-tls-key",
        kind: Kind::Text,
        default: "",
        value_name: "FILE",
        doc: "Private key of that certificate, in PEM, without a passphrase.",
    },
    Key {
        name: "cluster-tls-ca",
        kind: Kind::Text,
        default: "",
        value_name: "FILE",
        doc: "Certificates in PEM by which every node's must be vouched for.",
    },
    Key {
        name: "zone",
        kind: Kind::Text,
        default: "",
        value_name: "NAME",
        doc: "Where this node stands, as clients are told: Kafka's broker.rack.",
    },
    Key {
        name: "log-format",
        kind: Kind::OneOf(&["text", "json"]),
        default: "text",
        value_name: "FORMAT",
        doc: "How the log on standard error is written.",
    },
    Key {
        name: "log-level",
        kind: Kind::Text,
        default: "info",
        value_name: "LEVEL",
        doc: "error, warn, info, debug or trace, for all or by module as in info,weir_kafka=debug.",
    },
    Key {
        name: "drain-timeout-ms",
        kind: Kind::Number(0, HOUR_MS),
        default: "30000",
        value_name: "MS",
        doc: "How long requests under way may take to finish when the server is asked to stop.",
    },
    Key {
        name: "auto.create.topics.enable",
        kind: Kind::Switch,
        default: "true",
        value_name: "BOOL",
        doc: "Create a topic when a client asks for one that does not exist.",
    },
    Key {
        name: "num.partitions",
        kind: Kind::Number(1, 10_000),
        default: "1",
        value_name: "COUNT",
        doc: "Partitions of a topic that is created without saying how many.",
    },
    Key {
        name: "log.retention.ms",
        kind: Kind::Number(-1, i64::MAX),
        default: "604800000",
        value_name: "MS",
        doc: "Drop segments whose newest record is older than this; -1 keeps them for ever. Default of retention.ms.",
    },
    Key {
        name: "log.retention.bytes",
        kind: Kind::Size(-1, i64::MAX),
        default: "-1",
        value_name: "BYTES",
        doc: "Drop a partition's oldest segments beyond this size; -1 is without limit. Default of retention.bytes.",
    },
    Key {
        name: "log.segment.bytes",
        kind: Kind::Size(SEGMENT_BYTES_MIN as i64, i32::MAX as i64),
        default: "1073741824",
        value_name: "BYTES",
        doc: "Close a segment before it grows beyond this size. Default of segment.bytes.",
    },
    Key {
        name: "log.roll.ms",
        kind: Kind::Number(1, i64::MAX),
        default: "604800000",
        value_name: "MS",
        doc: "Close a segment whose first record is older than this. Default of segment.ms.",
    },
    Key {
        name: "message.max.bytes",
        kind: Kind::Size(1, MESSAGE_BYTES_MAX as i64),
        default: "1048588",
        value_name: "BYTES",
        doc: "Largest record batch that is accepted. Default of max.message.bytes.",
    },
    Key {
        name: "log.message.timestamp.type",
        kind: Kind::OneOf(&["CreateTime", "LogAppendTime"]),
        default: "CreateTime",
        value_name: "TYPE",
        doc: "Keep the producer's timestamps, or replace them by the broker's. Default of message.timestamp.type.",
    },
    Key {
        name: "weir.durability",
        kind: Kind::OneOf(&["sync", "async"]),
        default: "sync",
        value_name: "WHEN",
        doc: "Answer producers when a majority has the record on stable storage, or when the leader has queued it. Default of the topic setting of the same name.",
    },
    Key {
        name: "log.cleanup.policy",
        kind: Kind::OneOf(&["delete"]),
        default: "delete",
        value_name: "POLICY",
        doc: "How old records are removed. Without effect: only delete is supported.",
    },
    Key {
        name: "compression.type",
        kind: Kind::OneOf(&["producer"]),
        default: "producer",
        value_name: "TYPE",
        doc: "Without effect: batches are kept as they were sent.",
    },
    Key {
        name: "min.insync.replicas",
        kind: Kind::OneOf(&["1"]),
        default: "1",
        value_name: "COUNT",
        doc: "Without effect: every acknowledged record is on a majority of the nodes.",
    },
    Key {
        name: "log.retention.check.interval.ms",
        kind: Kind::Number(1, YEAR_MS),
        default: "300000",
        value_name: "MS",
        doc: "How often to look for segments that retention lets go; queues are looked at every ten seconds at least.",
    },
    Key {
        name: "group.min.session.timeout.ms",
        kind: Kind::Number(1, i32::MAX as i64),
        default: "6000",
        value_name: "MS",
        doc: "Shortest session timeout that a group's member may ask for.",
    },
    Key {
        name: "group.max.session.timeout.ms",
        kind: Kind::Number(1, i32::MAX as i64),
        default: "1800000",
        value_name: "MS",
        doc: "Longest session timeout that a group's member may ask for.",
    },
    Key {
        name: "group.initial.rebalance.delay.ms",
        kind: Kind::Number(0, 600_000),
        default: "150",
        value_name: "MS",
        doc: "How long an empty group's first rebalance waits for further members.",
    },
    Key {
        name: "group.max.size",
        kind: Kind::Number(1, 10_000),
        default: "10000",
        value_name: "COUNT",
        doc: "Most members of one group.",
    },
    Key {
        name: "offset.metadata.max.bytes",
        kind: Kind::Size(0, 32 << 10),
        default: "4096",
        value_name: "BYTES",
        doc: "Largest metadata that a client may commit with an offset.",
    },
    Key {
        name: "offsets.retention.minutes",
        kind: Kind::Number(1, i32::MAX as i64),
        default: "10080",
        value_name: "MINUTES",
        doc: "Forget committed offsets of a group this long after its last member left.",
    },
    Key {
        name: "offsets.retention.check.interval.ms",
        kind: Kind::Number(1, YEAR_MS),
        default: "600000",
        value_name: "MS",
        doc: "How often to look for committed offsets that may go.",
    },
    Key {
        name: "connections.max.idle.ms",
        kind: Kind::Number(1000, i64::MAX / 2_000_000),
        default: "600000",
        value_name: "MS",
        doc: "Close a connection over which nothing was asked for this long.",
    },
    Key {
        name: "socket.request.max.bytes",
        kind: Kind::Size(1024, i32::MAX as i64),
        default: "104857600",
        value_name: "BYTES",
        doc: "Largest request that is read from a connection.",
    },
    Key {
        name: "max.connections",
        kind: Kind::Number(1, 1_000_000),
        default: "50000",
        value_name: "COUNT",
        doc: "Connections of a listener at once; one more is closed as soon as it is accepted, over AMQP with 530 once it is known who it is.",
    },
    Key {
        name: "amqp.consumer.timeout.ms",
        kind: Kind::Number(0, 31_622_400_000),
        default: "1800000",
        value_name: "MS",
        doc: "How long an AMQP delivery may wait for its acknowledgement before it comes to others, where neither its consumer nor its queue says; 0 is for ever.",
    },
    Key {
        name: "fetch.max.bytes",
        kind: Kind::Size(1024, 1 << 30),
        default: "57671680",
        value_name: "BYTES",
        doc: "Largest answer to a fetch, unless its first batch is larger.",
    },
    Key {
        name: "max.incremental.fetch.session.cache.slots",
        kind: Kind::Number(0, 1_000_000),
        default: "1000",
        value_name: "COUNT",
        doc: "Fetch sessions at once; consumers beyond it repeat their partitions in every fetch.",
    },
    Key {
        name: "journal-file-bytes",
        // A group, which a batch must fit into, may take half a file.
        kind: Kind::Size(16 * MIB, 4 * GIB),
        default: "67108864",
        value_name: "BYTES",
        doc: "Size of one journal file; each is preallocated and recycled. A batch may take half of it, and 20 MiB.",
    },
    Key {
        name: "journal-bytes",
        kind: Kind::Size(16 * MIB, 1024 * GIB),
        default: "2147483648",
        value_name: "BYTES",
        doc: "Most that all journal files together take; near it checkpoints are forced.",
    },
    Key {
        name: "journal-accept-loss-from",
        kind: Kind::Text,
        default: "",
        value_name: "POSITION",
        doc: "Start although the journal has lost durable records from this position on. Only after reading what a refused start says is lost.",
    },
    Key {
        name: "checkpoint-bytes",
        kind: Kind::Size(MIB, 64 * GIB),
        default: "134217728",
        value_name: "BYTES",
        doc: "Checkpoint a shard when its oldest entry without one lies this far back in the journal; a restart reads about as much, and more where checkpoints cannot keep up.",
    },
    Key {
        name: "admission-bytes",
        kind: Kind::Size(MIB, GIB),
        default: "67108864",
        value_name: "BYTES",
        doc: "Bytes that a shard accepts before they are in segment files; beyond it producers wait.",
    },
    Key {
        name: "disk-reserve-bytes",
        kind: Kind::Size(0, 1024 * GIB),
        default: "536870912",
        value_name: "BYTES",
        doc: "Refuse records while the data directory's disk has less than this free. Reading, committing and deleting go on.",
    },
];

/// Other names for some of the keys, in coarser units.
pub const COARSER_KEYS: &[CoarserKey] = &[
    CoarserKey { name: "log.retention.minutes", of: "log.retention.ms", factor: 60_000 },
    CoarserKey { name: "log.retention.hours", of: "log.retention.ms", factor: HOUR_MS },
    CoarserKey { name: "log.roll.hours", of: "log.roll.ms", factor: HOUR_MS },
];

/// The key of this name.
pub fn find(name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.name == name)
}
