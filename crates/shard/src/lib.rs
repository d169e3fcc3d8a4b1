//! The replicated state machine of one shard, and the replica around it.
//!
//! [`Machine`] is the deterministic part: `apply(entry)` gives outcomes and effects and touches memory
//! only. A [`Shard`] is one replica of it: it shows what is applied in a [`ShardView`], which everybody
//! else reads; its [`SegmentWriter`] drains the batches from memory into segment files; and a
//! [`CheckpointTask`] makes the state of one index durable, so that the journal before it may be
//! recycled. `Shard` is owned by the worker that applies and never touches a disk; the other two run
//! beside it and may block.
//!
//! What is deliberately absent: a network, a clock, threads, randomness, and configuration that
//! changes what `apply` does.

mod checkpoint;
#[doc(hidden)]
pub mod decoding;
mod files;
pub mod limits;
mod machine;
mod shard;
mod snapshot;
mod state;
mod view;
mod writer;

pub use checkpoint::{
    CheckpointDone, CheckpointError, CheckpointSurvey, CheckpointTask, checkpointed_index, survey_checkpoint,
};
pub use machine::{ApplyError, Effect, Machine};
pub use shard::{InstallError, InstallTask, Installed, Recovered, Shard, ShardError, ShardOptions};
pub use snapshot::{
    CHECKSUM_BYTES_MAX, Mending, PIECE_BYTES_MAX, SnapshotError, SnapshotFile, SnapshotId, SnapshotSource,
    SnapshotWanted, Snapshots, StagedSnapshot, Staging,
};
pub use state::accounts::Accounts;
pub use state::catalog::Catalog;
pub use state::group::GroupState;
pub use state::nodes::Nodes;
pub use state::partition::SegmentInfo;
pub use state::subscription::Subscription;
pub use state::timers::Timers;
pub use state::topology::Topology;
pub use view::{AppendObserver, BatchPosition, ObserverGuard, PartitionView, ReadError, ReadOut, ShardView};
/// Records that are sent from where they lie.
pub use weir_log::disk::FileRange;
/// What is still wanted of a segment.
pub use weir_log::partition::Stretch;
pub use writer::{Progress, SegmentWriter, WriteError};
