//! What a front may ask for: topics, publishing, reading, groups, producers, administration.
//!
//! Fronts see only this crate and `weir-model`: never a file, a Raft type or another front. The
//! broker itself keeps nothing that must survive: what it decides becomes a command to the shard
//! that owns the matter, and is answered when that command is applied.
//!
//! * [`Broker`]: the one value that fronts hold.
//! * [`Broker::access`], [`Broker::authenticate`]: who a client is, and what it may do.
//! * [`Topic`], [`PartitionRef`]: what records go to and come from.
//! * [`FetchWait`]: waiting for records on many partitions at once.
//! * [`queues`]: topics whose records are settled one by one.
//! * [`parking`]: records that nobody is to see before a certain time.
//! * [`Broker::cluster`], [`Broker::shards`]: the nodes, and who leads what.
//! * [`sessions`]: who is connected, as the fronts tell.
//! * [`streams`]: reading topics record by record, by offset.
//! * [`groups`]: the classic group protocol as a state machine without I/O, and its driver.
//! * [`errors`]: one type per operation, told apart by cause.
//! * [`options`]: what an operator may set.

mod access;
mod admin;
mod balance;
mod blocking;
mod broker;
mod configs;
pub mod errors;
pub mod groups;
mod ids;
mod info;
mod listeners;
mod metrics;
mod moving;
mod nodes;
mod offsets;
mod opening;
pub mod options;
pub mod parking;
#[doc(hidden)]
pub mod peers;
mod producers;
mod publish;
pub mod queues;
mod read;
mod reconcile;
mod retention;
mod rewriting;
pub mod sessions;
pub mod streams;
mod topics;
pub mod topology;
mod upkeep;
mod wait;

pub use access::AccessError;
pub use admin::CreateTopic;
pub use broker::{Broker, StartError};
pub use configs::{ConfigEntry, ConfigSource};
pub use errors::{AdminError, GroupError, LookupError, OffsetError, PublishError, ReadError, Unavailable};
pub use info::{ClusterInfo, NodeInfo, PartitionInfo, ShardInfo};
pub use listeners::ListenerInfo;
pub use metrics::{FrontMetrics, Metrics, RequestMetrics};
pub use options::{BROKER_SETTINGS, BrokerOptions, BrokerSetting, GroupOptions, HostPort, SettingKind};
pub use publish::{Acks, Published, Publishing};
pub use read::{ListedOffset, OffsetQuery, PartitionRef, Piece, Records};
pub use topics::Topic;
pub use wait::{ArrivalMark, FetchWait};
pub use weir_access::{
    Access, AccessOptions, Action, Denied, Forbidden, Identity, Operation, Parties, Pass, Peer,
    ScramCredential, ScramHash,
};
pub use weir_shard::FileRange;
