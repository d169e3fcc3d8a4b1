//! The words that every other crate uses: names, ids, record batches, commands and their outcomes.
//!
//! This crate does no I/O, reads no clock and depends on nothing else of the project. What crosses
//! a boundary of the house (socket to shard, shard to journal, node to node) is a value of a type
//! that is defined here.
//!
//! * [`ids`]: nodes, shards, topics, partitions.
//! * [`names`]: what may be the name of a topic, a group, a namespace or a user.
//! * [`batch`]: the record batch, the only form in which records are stored.
//! * [`settings`]: what can be set on a topic, with bounds and defaults.
//! * [`queue`], [`routing`]: queues, exchanges and bindings.
//! * [`access`]: namespaces, users and permissions as they are stored.
//! * [`node`]: nodes as they say of themselves.
//! * [`command`]: what a shard can be asked to do, and what comes of it.
//! * [`subscription`]: what is said of records that are settled one by one.
//! * [`timer`]: deadlines of stored records.
//! * [`unique`]: keys by which a repeat is known.
//! * [`entry`]: a list of commands as it stands in the journal.
//! * [`wire`]: the bounded little-endian encoding that entries and checkpoints share.

pub mod access;
pub mod batch;
pub mod command;
pub mod entry;
pub mod ids;
pub mod names;
pub mod node;
pub mod policy;
pub mod queue;
pub mod routing;
pub mod settings;
pub mod subscription;
pub mod timer;
pub mod unique;
pub mod wire;

pub use ids::{Incarnation, NodeId, Offset, PartitionId, SegmentId, ShardId, TimestampMs, TopicId};
pub use subscription::SubscriptionId;
