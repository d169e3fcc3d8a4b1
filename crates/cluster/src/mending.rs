//! Mending segment files that are not what was written, with what other replicas have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_log::partition::SegmentEntry;
use weir_model::{NodeId, PartitionId, SegmentId};
use weir_shard::{Mending, PartitionView, Snapshots};

use crate::blocking::Blocking;
use crate::handle::ShardHandle;
use crate::raft::rpc::{Answer, Request};
use crate::raft::snapshot::Pace;
use crate::transport::{Line, Transport};

/// How long another node may take to send a piece.
const PIECE_MAX: Duration = Duration::from_secs(10);

/// A segment that could not be mended is not tried again for this long: somebody may read it again and again.
const AGAIN_AFTER: Duration = Duration::from_secs(60);

/// Segments that are remembered as ones that could not be mended; those beyond are tried whenever they are met.
const FAILED_MAX: usize = 1_000;

/// Mends the segments of a shard, one at a time.
pub(crate) struct Mender {
    pub own: NodeId,
    pub shard: ShardHandle,
    pub snapshots: Snapshots,
    pub transport: Arc<dyn Transport>,
    pub blocking: Blocking,
    /// What is fetched counts like what is sent to replicas that are behind.
    pub pace: Arc<Pace>,
    /// When which segment could not be mended.
    pub failed: BTreeMap<(PartitionId, SegmentId), Instant>,
}

impl Mender {
    /// Mends one segment, if another replica has all of it.
    pub(crate) async fn mend(&mut self, partition: &PartitionView, entry: SegmentEntry) {
        let (partition, segment) = (partition.id(), id_of(&entry));
        self.failed.retain(|_, at| at.elapsed() < AGAIN_AFTER);
        if entry.bytes == 0 || self.failed.contains_key(&(partition, segment)) {
            return;
        }
        let shard = self.shard.id();
        let mut reasons = Vec::new();
        for from in self.others() {
            match self.mend_from(from, partition, entry).await {
                Ok(0) => {
                    tracing::info!(
                        %shard, %partition, base = entry.base, node = %from,
                        "a segment that was in doubt is the same as another node's, and sound"
                    );
                    return;
                }
                Ok(bytes) => {
                    tracing::warn!(
                        %shard, %partition, base = entry.base, node = %from, bytes,
                        "a segment that was not what was written was mended with what another node has"
                    );
                    return;
                }
                Err(why) => reasons.push(format!("node {from}: {why}")),
            }
        }
        let why = if reasons.is_empty() { "no other node has it".to_owned() } else { reasons.join("; ") };
        tracing::error!(
            %shard, %partition, base = entry.base, why,
            "a segment that is not what was written could not be mended; it is tried again"
        );
        if self.failed.len() < FAILED_MAX {
            self.failed.insert((partition, segment), Instant::now());
        }
    }

    /// Whom to ask: the leader has all, the others may.
    fn others(&self) -> Vec<NodeId> {
        let leader = self.shard.leadership().leader;
        let others = leader.into_iter().chain(self.shard.voters()).chain(self.shard.listening());
        let mut asked = Vec::new();
        for node in others.filter(|node| *node != self.own) {
            if !asked.contains(&node) {
                asked.push(node);
            }
        }
        asked
    }

    async fn mend_from(
        &self,
        from: NodeId,
        partition: PartitionId,
        entry: SegmentEntry,
    ) -> Result<u64, String> {
        let snapshots = self.snapshots.clone();
        let begun = self.blocking.run(move || snapshots.mend(partition, entry)).await?;
        let mut mending: Mending = begun.map_err(|error| error.to_string())?;
        while let Some((at, to)) = mending.wanted() {
            let bytes = self.fetch(from, partition, id_of(&entry), at, to).await?;
            self.pace.take(bytes.len()).await;
            let taken = move || mending.take(&bytes).map(|()| mending);
            mending = self.blocking.run(taken).await?.map_err(|error| error.to_string())?;
        }
        self.blocking.run(move || mending.finish()).await?.map_err(|error| error.to_string())
    }

    async fn fetch(
        &self,
        from: NodeId,
        partition: PartitionId,
        segment: SegmentId,
        at: u64,
        to: u64,
    ) -> Result<bytes::Bytes, String> {
        let request = Request::Segment { partition, segment, from: at, to };
        let call = self.transport.call(from, Line::Shard(self.shard.id()), request.encode());
        let answer =
            tokio::time::timeout(PIECE_MAX, call).await.map_err(|_| "it does not answer".to_owned())?;
        let answer = Answer::decode(answer.map_err(|error| error.to_string())?);
        match answer.map_err(|error| error.to_string())? {
            Answer::Segment { crc, bytes } if crc32c::crc32c(&bytes) != crc => {
                Err("what it sends is not what it has read".to_owned())
            }
            Answer::Segment { bytes, .. } if bytes.len() as u64 == to - at => Ok(bytes),
            Answer::Segment { .. } => Err("it does not have all of the segment, or not yet".to_owned()),
            Answer::Refused(why) => Err(why),
            _ => Err("its answer is not one to what was asked".to_owned()),
        }
    }
}

fn id_of(entry: &SegmentEntry) -> SegmentId {
    SegmentId { base: entry.base, generation: entry.generation }
}
