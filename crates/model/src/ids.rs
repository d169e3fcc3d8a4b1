//! Identities. Each is a type of its own, so that one cannot be taken for another.

use std::fmt;

/// A record's position within its partition: dense, from 0, never given out twice.
pub type Offset = i64;

/// Milliseconds since 1970-01-01 UTC, as in Kafka's records. Negative means "none".
pub type TimestampMs = i64;

/// A node of the cluster, chosen by the operator, never reused for another machine's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u64);

/// How often a node has begun with nothing: 0 with the data that it had from the start, and one more each time that it came
/// back without.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

impl Incarnation {
    /// With the data that it had from the start.
    pub const FIRST: Incarnation = Incarnation(0);
}

/// A Raft group and the state machine that it drives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub u32);

impl ShardId {
    /// The meta shard: topics, placement, settings and everything else that every node must know.
    pub const META: ShardId = ShardId(0);

    /// Numbers from here on are those of nodes' temporary shards.
    const TEMPORARY: u32 = 1 << 31;

    /// The temporary shard of a node, which no other node has a replica of, and which is gone with the node. None for
    /// a node whose number is not below 2^31 - 1.
    pub fn temporary(node: NodeId) -> Option<ShardId> {
        let number = u32::try_from(node.0).ok().filter(|number| *number < Self::TEMPORARY - 1)?;
        Some(ShardId(Self::TEMPORARY + number))
    }

    /// Whose temporary shard it is; none if it is a replicated one.
    pub fn temporary_of(self) -> Option<NodeId> {
        let number = self.0.checked_sub(Self::TEMPORARY).filter(|number| *number < Self::TEMPORARY - 1)?;
        Some(NodeId(u64::from(number)))
    }
}

/// A partition, unique in the cluster for ever: minted by the meta shard, never reused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartitionId(pub u64);

/// One segment of a partition's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId {
    /// Offset of its first record when it was first written.
    pub base: Offset,
    /// 0 as appended; raised when its records are written anew into another file.
    pub generation: u32,
}

/// A topic's identity, which a topic deleted and created again under the same name does not share.
/// Kafka's topic id: a version 4 UUID, of which all zeroes means "none".
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// "No topic id".
    pub const NONE: TopicId = TopicId([0; 16]);
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.temporary_of() {
            None => write!(f, "{}", self.0),
            Some(node) => write!(f, "temporary-{node}"),
        }
    }
}

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for SegmentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.base, self.generation)
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
