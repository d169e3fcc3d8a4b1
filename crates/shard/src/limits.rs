//! Every bound of the state machine. They are part of its behaviour: all replicas must agree on
//! them, so a change of one is a new machine version.

use weir_model::TimestampMs;

/// Highest machine version that this binary can run.
pub const MACHINE_VERSION_MAX: u32 = 1;

/// Nodes whose lines of commands a shard knows, of 24 bytes each.
pub const RELAYS_MAX: usize = 1_024;

/// Topics in the cluster, those being deleted included. Their names and settings are in memory on
/// every node.
pub const TOPICS_MAX: usize = 100_000;

/// Partitions of one topic.
pub const PARTITIONS_PER_TOPIC_MAX: usize = 10_000;

/// Overrides of one topic; there are far fewer settings than this.
pub const CONFIG_ENTRIES_PER_TOPIC_MAX: usize = 100;

/// Partitions that one shard carries.
pub const PARTITIONS_PER_SHARD_MAX: usize = 100_000;

/// Individual subscriptions of one partition: a queue has one, and topics one for each group or durable
/// subscriber whose records are settled one by one.
pub const SUBSCRIPTIONS_PER_PARTITION_MAX: usize = 10_000;

/// Deadlines of one partition's records, of 16 bytes each.
pub const TIMERS_PER_PARTITION_MAX: usize = 10_000_000;

/// Keys of one window of a partition, of some hundred bytes each; the oldest go when there are more.
pub const KEYS_PER_WINDOW_MAX: usize = 1_000_000;

/// Exchanges in the cluster. All are in memory on every node.
pub const EXCHANGES_MAX: usize = 100_000;

/// Bindings in the cluster. All are in memory on every node, at some hundred bytes each.
pub const BINDINGS_MAX: usize = 5_000_000;

/// Groups that one shard carries.
pub const GROUPS_PER_SHARD_MAX: usize = 100_000;

/// Members of one group.
pub const MEMBERS_PER_GROUP_MAX: usize = 10_000;

/// Committed positions of one group.
pub const OFFSETS_PER_GROUP_MAX: usize = 100_000;

/// Bytes of what a client may keep with a committed position.
pub const OFFSET_METADATA_BYTES_MAX: usize = 32 << 10;

/// Producers remembered per partition. The longest idle ones make room for new ones: a producer that
/// was forgotten is taken for a new one, as in Kafka.
pub const PRODUCERS_PER_PARTITION_MAX: usize = 8_192;

/// Batches remembered per producer, in which a repeat is found: a client has at most this many on
/// their way (KIP-98 and KIP-185).
pub const BATCHES_PER_PRODUCER_MAX: usize = 5;

/// A producer unheard of for this long, in entry time, is forgotten; Kafka's
/// `producer.id.expiration.ms`.
pub const PRODUCER_EXPIRY_MS: TimestampMs = 24 * 3600 * 1000;

/// How often, in entry time, expired producers of a partition are looked for.
pub const PRODUCER_SWEEP_MS: TimestampMs = 3600 * 1000;

/// Leader epochs remembered per partition; the oldest go first.
pub const EPOCHS_PER_PARTITION_MAX: usize = 4_096;

/// Digests remembered for comparison.
pub const DIGESTS_MAX: usize = 16;

/// Closed partitions that are remembered one by one, so that a late repeat of an open does not bring
/// one back.
pub const CLOSED_PARTITIONS_MAX: usize = 65_536;
