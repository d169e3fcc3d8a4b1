//! A list of commands as it stands in a Raft log: what one shard gathered while the previous entry
//! was on its way.
//!
//! ```text
//! entry    = version u8 (1), time i64, count u32, command*
//! command  = kind u8, version u8, length u32, body
//! ```
//!
//! A batch inside an `Append` is the last field of its body and is kept as a chunk of its own, so
//! that it goes from the socket's buffer to the journal without being copied. A reader that meets a
//! kind or version that it does not know must stop: going on would leave this replica with another
//! state than the others.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};

use crate::command::{Command, GroupMember, GroupMembership, OffsetCommit, PartitionMeta, TopicMeta};
use crate::settings::PartitionSettings;
use crate::wire::{DecodeError, Reader, Writer};
use crate::{NodeId, PartitionId, ShardId, TimestampMs, TopicId};

const ENTRY_VERSION: u8 = 1;
const COMMAND_VERSION: u8 = 1;

/// Bytes that a shard gathers into one entry before it closes it. One larger batch may go alone.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Commands in one entry.
pub const ENTRY_COMMANDS_MAX: usize = 65_536;

/// What one Raft log entry carries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// The leader's clock when it closed the entry. `apply` never goes back in time: the time of an
    /// entry is the larger of this and its predecessor's.
    pub time: TimestampMs,
    /// The commands in order.
    pub commands: Vec<Command>,
}

impl Entry {
    /// The entry as chunks to be written behind each other. Batches are chunks of their own, shared.
    pub fn encode(&self) -> Vec<Bytes> {
        let mut chunks = Vec::with_capacity(2 * self.commands.len().min(64) + 1);
        let mut out = Writer::new();
        out.u8(ENTRY_VERSION);
        out.i64(self.time);
        out.u32(self.commands.len() as u32);
        for command in &self.commands {
            encode_command(command, &mut out, &mut chunks);
        }
        if !out.is_empty() {
            chunks.push(out.finish());
        }
        chunks
    }

    /// Reads an entry. Batches are slices of `bytes`, shared.
    pub fn decode(bytes: Bytes) -> Result<Entry, DecodeError> {
        let mut reader = Reader::new("an entry", bytes);
        if reader.u8()? != ENTRY_VERSION {
            return Err(reader.error("its version is not known to this binary"));
        }
        let time = reader.i64()?;
        let commands = reader.list(6, decode_command)?;
        reader.finish()?;
        Ok(Entry { time, commands })
    }

    /// Reads an entry from the chunks that [`Entry::encode`] made.
    pub fn decode_chunks(chunks: &[Bytes]) -> Result<Entry, DecodeError> {
        match chunks {
            [one] => Entry::decode(one.clone()),
            many => {
                let mut all = BytesMut::with_capacity(many.iter().map(Bytes::len).sum());
                many.iter().for_each(|chunk| all.extend_from_slice(chunk.chunk()));
                Entry::decode(all.freeze())
            }
        }
    }
}

impl Command {
    /// About how many bytes the command takes in an entry; what admission counts.
    pub fn approximate_bytes(&self) -> usize {
        match self {
            Command::Append { batch, .. } => 24 + batch.len(),
            Command::StoreGroup { group, membership } => {
                64 + group.len()
                    + membership
                        .members
                        .iter()
                        .map(|m| {
                            96 + m.member_id.len()
                                + m.client_id.len()
                                + m.assignment.len()
                                + m.protocols.iter().map(|(n, d)| 8 + n.len() + d.len()).sum::<usize>()
                        })
                        .sum::<usize>()
            }
            Command::CommitOffsets { group, offsets } => {
                32 + group.len() + offsets.iter().map(|o| 48 + o.metadata.len()).sum::<usize>()
            }
            Command::CreateTopic { name, placement, config, .. } => {
                64 + name.len() + 4 * placement.len() + config_bytes(config)
            }
            Command::ConfigureTopic { config, .. } => 64 + config_bytes(config),
            _ => 64,
        }
    }

    /// The command's kind in the encoding; never reused for another.
    fn kind(&self) -> u8 {
        match self {
            Command::Lead { .. } => 1,
            Command::SetMachineVersion { .. } => 2,
            Command::TakeDigest => 3,
            Command::CompareDigest { .. } => 4,
            Command::CreateTopic { .. } => 16,
            Command::DeleteTopic { .. } => 17,
            Command::ForgetTopic { .. } => 18,
            Command::ConfigureTopic { .. } => 19,
            Command::AddPartitions { .. } => 20,
            Command::AllocateProducerIds { .. } => 21,
            Command::OpenPartition { .. } => 32,
            Command::ConfigurePartition { .. } => 33,
            Command::ClosePartition { .. } => 34,
            Command::Append { .. } => 35,
            Command::Trim { .. } => 36,
            Command::StoreGroup { .. } => 48,
            Command::CommitOffsets { .. } => 49,
            Command::DeleteOffsets { .. } => 50,
            Command::DeleteGroup { .. } => 51,
            Command::DropTopicOffsets { .. } => 52,
        }
    }
}

fn config_bytes(config: &BTreeMap<String, String>) -> usize {
    config.iter().map(|(name, value)| 8 + name.len() + value.len()).sum()
}

fn encode_command(command: &Command, out: &mut Writer, chunks: &mut Vec<Bytes>) {
    out.u8(command.kind());
    out.u8(COMMAND_VERSION);
    if let Command::Append { partition, batch } = command {
        out.u32((8 + batch.len()) as u32);
        out.u64(partition.0);
        chunks.push(out.take());
        chunks.push(batch.clone());
        return;
    }
    let mut body = Writer::new();
    encode_body(command, &mut body);
    out.bytes(&body.finish());
}

fn encode_body(command: &Command, out: &mut Writer) {
    match command {
        Command::Lead { node } => out.u64(node.0),
        Command::SetMachineVersion { version } => out.u32(*version),
        Command::TakeDigest => {}
        Command::CompareDigest { index, digest } => {
            out.u64(*index);
            out.u64(*digest);
        }
        Command::CreateTopic { name, topic_id, placement, config } => {
            out.str(name);
            out.raw(&topic_id.0);
            out.list(placement, |out, shard| out.u32(shard.0));
            encode_config(config, out);
        }
        Command::DeleteTopic { topic_id }
        | Command::ForgetTopic { topic_id }
        | Command::DropTopicOffsets { topic_id } => out.raw(&topic_id.0),
        Command::ConfigureTopic { topic_id, config } => {
            out.raw(&topic_id.0);
            encode_config(config, out);
        }
        Command::AddPartitions { topic_id, expected, placement } => {
            out.raw(&topic_id.0);
            out.u32(*expected);
            out.list(placement, |out, shard| out.u32(shard.0));
        }
        Command::AllocateProducerIds { count } => out.u32(*count),
        Command::OpenPartition { partition, settings, epoch_base } => {
            out.u64(partition.0);
            settings.encode(out);
            out.i32(*epoch_base);
        }
        Command::ConfigurePartition { partition, settings } => {
            out.u64(partition.0);
            settings.encode(out);
        }
        Command::ClosePartition { partition } => out.u64(partition.0),
        Command::Append { .. } => unreachable!("written by encode_command, which shares the batch"),
        Command::Trim { partition, log_start } => {
            out.u64(partition.0);
            out.i64(*log_start);
        }
        Command::StoreGroup { group, membership } => {
            out.str(group);
            membership.encode(out);
        }
        Command::CommitOffsets { group, offsets } => {
            out.str(group);
            out.list(offsets, |out, offset| offset.encode(out));
        }
        Command::DeleteOffsets { group, partitions } => {
            out.str(group);
            out.list(partitions, |out, (topic, partition)| {
                out.raw(&topic.0);
                out.i32(*partition);
            });
        }
        Command::DeleteGroup { group } => out.str(group),
    }
}

fn decode_command(reader: &mut Reader) -> Result<Command, DecodeError> {
    let kind = reader.u8()?;
    let version = reader.u8()?;
    let body = reader.bytes()?;
    if version != COMMAND_VERSION {
        return Err(reader.error("a command's version is not known to this binary"));
    }
    let mut body = Reader::new("a command", body);
    let command = decode_body(kind, &mut body)?;
    body.finish()?;
    Ok(command)
}

fn decode_body(kind: u8, r: &mut Reader) -> Result<Command, DecodeError> {
    Ok(match kind {
        1 => Command::Lead { node: NodeId(r.u64()?) },
        2 => Command::SetMachineVersion { version: r.u32()? },
        3 => Command::TakeDigest,
        4 => Command::CompareDigest { index: r.u64()?, digest: r.u64()? },
        16 => Command::CreateTopic {
            name: r.str()?,
            topic_id: TopicId(r.array()?),
            placement: r.list(4, |r| Ok(ShardId(r.u32()?)))?,
            config: decode_config(r)?,
        },
        17 => Command::DeleteTopic { topic_id: TopicId(r.array()?) },
        18 => Command::ForgetTopic { topic_id: TopicId(r.array()?) },
        19 => Command::ConfigureTopic { topic_id: TopicId(r.array()?), config: decode_config(r)? },
        20 => Command::AddPartitions {
            topic_id: TopicId(r.array()?),
            expected: r.u32()?,
            placement: r.list(4, |r| Ok(ShardId(r.u32()?)))?,
        },
        21 => Command::AllocateProducerIds { count: r.u32()? },
        32 => Command::OpenPartition {
            partition: PartitionId(r.u64()?),
            settings: PartitionSettings::decode(r)?,
            epoch_base: r.i32()?,
        },
        33 => Command::ConfigurePartition {
            partition: PartitionId(r.u64()?),
            settings: PartitionSettings::decode(r)?,
        },
        34 => Command::ClosePartition { partition: PartitionId(r.u64()?) },
        35 => {
            let partition = PartitionId(r.u64()?);
            let rest = r.remaining();
            Command::Append { partition, batch: r.raw(rest)? }
        }
        36 => Command::Trim { partition: PartitionId(r.u64()?), log_start: r.i64()? },
        48 => Command::StoreGroup { group: r.str()?, membership: GroupMembership::decode(r)? },
        49 => Command::CommitOffsets { group: r.str()?, offsets: r.list(44, OffsetCommit::decode)? },
        50 => Command::DeleteOffsets {
            group: r.str()?,
            partitions: r.list(20, |r| Ok((TopicId(r.array()?), r.i32()?)))?,
        },
        51 => Command::DeleteGroup { group: r.str()? },
        52 => Command::DropTopicOffsets { topic_id: TopicId(r.array()?) },
        _ => return Err(r.error("its kind is not known to this binary")),
    })
}

fn encode_config(config: &BTreeMap<String, String>, out: &mut Writer) {
    out.u32(config.len() as u32);
    for (name, value) in config {
        out.str(name);
        out.str(value);
    }
}

fn decode_config(reader: &mut Reader) -> Result<BTreeMap<String, String>, DecodeError> {
    Ok(reader.list(8, |r| Ok((r.str()?, r.str()?)))?.into_iter().collect())
}

impl OffsetCommit {
    /// Writes the commit, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.raw(&self.topic_id.0);
        out.i32(self.partition);
        out.i64(self.offset);
        out.i32(self.leader_epoch);
        out.str(&self.metadata);
        out.i64(self.committed_at);
    }

    /// Reads what [`OffsetCommit::encode`] wrote.
    pub fn decode(r: &mut Reader) -> Result<OffsetCommit, DecodeError> {
        Ok(OffsetCommit {
            topic_id: TopicId(r.array()?),
            partition: r.i32()?,
            offset: r.i64()?,
            leader_epoch: r.i32()?,
            metadata: r.str()?,
            committed_at: r.i64()?,
        })
    }
}

impl GroupMembership {
    /// Writes the membership, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.i32(self.generation);
        out.str(&self.protocol_type);
        out.opt_str(self.protocol.as_deref());
        out.opt_str(self.leader.as_deref());
        out.list(&self.members, |out, member| {
            out.str(&member.member_id);
            out.opt_str(member.instance_id.as_deref());
            out.str(&member.client_id);
            out.str(&member.client_host);
            out.i32(member.session_timeout_ms);
            out.i32(member.rebalance_timeout_ms);
            out.list(&member.protocols, |out, (name, data)| {
                out.str(name);
                out.bytes(data);
            });
            out.bytes(&member.assignment);
        });
        out.i64(self.changed_at);
    }

    /// Reads what [`GroupMembership::encode`] wrote.
    pub fn decode(r: &mut Reader) -> Result<GroupMembership, DecodeError> {
        Ok(GroupMembership {
            generation: r.i32()?,
            protocol_type: r.str()?,
            protocol: r.opt_str()?,
            leader: r.opt_str()?,
            members: r.list(29, |r| {
                Ok(GroupMember {
                    member_id: r.str()?,
                    instance_id: r.opt_str()?,
                    client_id: r.str()?,
                    client_host: r.str()?,
                    session_timeout_ms: r.i32()?,
                    rebalance_timeout_ms: r.i32()?,
                    protocols: r.list(8, |r| Ok((r.str()?, r.bytes()?)))?,
                    assignment: r.bytes()?,
                })
            })?,
            changed_at: r.i64()?,
        })
    }
}

impl TopicMeta {
    /// Writes the topic, for checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.str(&self.name);
        out.raw(&self.id.0);
        out.list(&self.partitions, |out, partition| {
            out.u64(partition.id.0);
            out.u32(partition.shard.0);
        });
        encode_config(&self.config, out);
        out.i64(self.created_at);
    }

    /// Reads what [`TopicMeta::encode`] wrote.
    pub fn decode(r: &mut Reader) -> Result<TopicMeta, DecodeError> {
        Ok(TopicMeta {
            name: r.str()?,
            id: TopicId(r.array()?),
            partitions: r
                .list(12, |r| Ok(PartitionMeta { id: PartitionId(r.u64()?), shard: ShardId(r.u32()?) }))?,
            config: decode_config(r)?,
            created_at: r.i64()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn commands() -> Vec<Command> {
        let member = GroupMember {
            member_id: "m".into(),
            instance_id: Some("i".into()),
            protocols: vec![("range".into(), Bytes::from_static(b"x"))],
            ..GroupMember::default()
        };
        let id = TopicId([9; 16]);
        let config: BTreeMap<_, _> = [("retention.ms".to_string(), "5".to_string())].into();
        let offset = OffsetCommit {
            topic_id: id,
            partition: 3,
            offset: 44,
            leader_epoch: -1,
            metadata: "note".into(),
            committed_at: 0,
        };
        vec![
            Command::Lead { node: NodeId(3) },
            Command::SetMachineVersion { version: 2 },
            Command::TakeDigest,
            Command::CompareDigest { index: 7, digest: 8 },
            Command::CreateTopic {
                name: "t".into(),
                topic_id: id,
                placement: vec![ShardId(1), ShardId(2)],
                config: config.clone(),
            },
            Command::DeleteTopic { topic_id: id },
            Command::ForgetTopic { topic_id: id },
            Command::ConfigureTopic { topic_id: id, config },
            Command::AddPartitions { topic_id: id, expected: 2, placement: vec![ShardId(1)] },
            Command::AllocateProducerIds { count: 1000 },
            Command::OpenPartition {
                partition: PartitionId(5),
                settings: PartitionSettings::default(),
                epoch_base: 0,
            },
            Command::ConfigurePartition { partition: PartitionId(5), settings: PartitionSettings::default() },
            Command::ClosePartition { partition: PartitionId(5) },
            Command::Append { partition: PartitionId(5), batch: Bytes::from_static(b"batch bytes") },
            Command::Trim { partition: PartitionId(5), log_start: 12 },
            Command::StoreGroup {
                group: "g".into(),
                membership: GroupMembership {
                    generation: 4,
                    protocol: Some("range".into()),
                    members: vec![member],
                    ..GroupMembership::default()
                },
            },
            Command::CommitOffsets { group: "g".into(), offsets: vec![offset] },
            Command::DeleteOffsets { group: "g".into(), partitions: vec![(id, 3)] },
            Command::DeleteGroup { group: "g".into() },
            Command::DropTopicOffsets { topic_id: id },
        ]
    }

    #[test]
    fn every_command_comes_back_as_it_went() {
        let entry = Entry { time: 123, commands: commands() };
        assert_eq!(Entry::decode_chunks(&entry.encode()), Ok(entry));
    }

    #[test]
    fn a_batch_is_shared_and_not_copied() {
        let batch = Bytes::from(vec![1u8; 100]);
        let entry = Entry {
            time: 0,
            commands: vec![Command::Append { partition: PartitionId(1), batch: batch.clone() }],
        };
        assert!(entry.encode().iter().any(|chunk| chunk.as_ptr() == batch.as_ptr()));
    }

    #[test]
    fn an_unknown_kind_is_an_error() {
        let mut bytes = Entry { time: 0, commands: vec![Command::TakeDigest] }.encode()[0].to_vec();
        bytes[13] = 200;
        assert!(Entry::decode(bytes.into()).is_err());
    }

    proptest! {
        #[test]
        fn any_damage_is_an_error_or_another_entry_and_never_a_panic(
            at in 0usize..600, byte in any::<u8>(), cut in 0usize..600,
        ) {
            let entry = Entry { time: 1, commands: commands() };
            let mut all: Vec<u8> = entry.encode().concat();
            if at < all.len() { all[at] = byte; }
            all.truncate(cut.max(1));
            let _ = Entry::decode(all.into());
        }
    }
}
