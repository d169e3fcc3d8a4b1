//! Expiry of committed positions: those of a group without members some time after it lost the last
//! one, and those of topics that are gone.

use weir_model::command::{Command, OffsetCommit};
use weir_model::{ShardId, TimestampMs, TopicId};
use weir_shard::{Catalog, GroupState};

use crate::admin::ready;
use crate::broker::Broker;
use crate::errors::{AdminError, Unavailable};

/// Positions that go in one command.
const POSITIONS_PER_COMMAND: usize = 4_096;

impl Broker {
    /// One look at every group of a shard that this node leads.
    pub(crate) async fn expire_offsets(&self, shard: ShardId) -> Result<(), AdminError> {
        let handle = self.shard(shard)?;
        if ready(handle).is_err() {
            return Ok(());
        }
        self.forget_idle_cells(shard);
        for name in handle.view().groups() {
            let Ok(Some(cell)) = self.known_cell(&name) else { continue };
            // Put in line while the group is held, so that no commit comes in between.
            let submitted = cell.while_vacant(|| {
                let state = handle.view().group(&name)?;
                let catalog = self.meta().ok()?.view().catalog();
                let command = self.what_expired(&name, &state, &catalog)?;
                Some(handle.submit(command))
            });
            if let Some(pending) = submitted {
                pending.map_err(Unavailable::from)?.await.map_err(Unavailable::from)?;
            }
        }
        self.forget_idle_cells(shard);
        Ok(())
    }

    /// The command that lets go what has expired of a group without members; none if nothing has.
    fn what_expired(&self, name: &str, state: &GroupState, catalog: &Catalog) -> Option<Command> {
        let now = self.clock.now_ms();
        let retention_ms = self.options.offsets_retention_ms;
        let emptied_at = state.membership().map(|membership| membership.changed_at);
        let expired = |commit: &&OffsetCommit| {
            let since: TimestampMs = emptied_at.unwrap_or(commit.committed_at).max(commit.committed_at);
            now.saturating_sub(since) > retention_ms || catalog.topic_by_id(commit.topic_id).is_none()
        };
        let partitions: Vec<(TopicId, i32)> =
            state.offsets().filter(expired).map(|commit| (commit.topic_id, commit.partition)).collect();
        let group = name.to_owned();
        if partitions.len() == state.offset_count() {
            // Nothing is left of it but, for a while, the number of its generation.
            let fresh = emptied_at.is_some_and(|at| now.saturating_sub(at) <= retention_ms);
            return match (fresh, partitions.is_empty()) {
                (false, _) => Some(Command::DeleteGroup { group }),
                (true, true) => None,
                (true, false) => Some(Command::DeleteOffsets { group, partitions }),
            };
        }
        let partitions: Vec<_> = partitions.into_iter().take(POSITIONS_PER_COMMAND).collect();
        (!partitions.is_empty()).then_some(Command::DeleteOffsets { group, partitions })
    }
}
