//! A list of commands as it stands in a Raft log: what one shard gathered while the previous entry
//! was on its way.
//!
//! ```text
//! entry    = version u8 (1), time i64, count u32, command*
//! command  = kind u8, version u8, length u32, body
//! ```
//!
//! A batch inside an `Append` or `AppendToAll` is the last field of its body and is kept as a chunk of its
//! own, so that it goes from the socket's buffer to the journal without being copied. A reader that meets a
//! kind or version that it does not know must stop: going on would leave this replica with another
//! state than the others.

use std::collections::BTreeMap;

use bytes::{Buf, Bytes, BytesMut};

use crate::access::AccessChange;
use crate::command::{Command, GroupMember, GroupMembership, OffsetCommit, PartitionMeta, TopicMeta};
use crate::node::NodeMeta;
use crate::policy::{PolicyKey, PolicyMeta};
use crate::queue::QueueMeta;
use crate::routing::{BindingMeta, ExchangeMeta};
use crate::settings::PartitionSettings;
use crate::subscription::Settlement;
use crate::timer::TimerRow;
use crate::unique::UniqueKey;
use crate::wire::{DecodeError, Reader, Writer};
use crate::{NodeId, PartitionId, SegmentId, ShardId, SubscriptionId, TimestampMs, TopicId};

const ENTRY_VERSION: u8 = 1;
const COMMAND_VERSION: u8 = 1;

/// Kinds of commands that have others in them.
const RELAYED: u8 = 6;
const TOGETHER: u8 = 43;
const MOVE_RECORDS: u8 = 45;

/// Bytes that a shard gathers into one entry before it closes it. One larger batch may go alone.
pub const ENTRY_BYTES_MAX: usize = 1 << 20;

/// Commands in one entry.
pub const ENTRY_COMMANDS_MAX: usize = 65_536;

/// Partitions that one batch is appended to by one command.
pub const FAN_OUT_MAX: usize = 4_096;

/// Commands that may be tied together.
pub const TOGETHER_MAX: usize = 16_384;

/// Segments that are written anew as one.
pub const REWRITTEN_SEGMENTS_MAX: usize = 256;

/// Runs of batches that one rewrite keeps, of 16 bytes each in its command. Where more would stay, some of what is
/// settled between them stays as well.
pub const KEPT_RUNS_MAX: usize = 16_384;

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
    /// About how many bytes the command takes in an entry.
    pub fn approximate_bytes(&self) -> usize {
        match self {
            Command::Append { batch, .. } => 24 + batch.len(),
            Command::AppendToAll { partitions, batch } => 24 + 8 * partitions.len() + batch.len(),
            Command::AppendTimed { deadlines, batch, .. } => 32 + 12 * deadlines.len() + batch.len(),
            Command::RemoveTimers { rows, .. } => 32 + rows.len() * TimerRow::ENCODED_BYTES,
            Command::AppendUnique { keys, batch, .. } => {
                32 + UniqueKey::ENCODED_BYTES * keys.len() + batch.len()
            }
            Command::Together { commands } => {
                16 + commands.iter().map(Command::approximate_bytes).sum::<usize>()
            }
            Command::Relayed { commands, .. } => {
                40 + commands.iter().map(Command::approximate_bytes).sum::<usize>()
            }
            Command::MoveRecords { records, deadlines, appends, .. } => {
                moved_bytes(records.len(), deadlines.len())
                    + appends.iter().map(Command::approximate_bytes).sum::<usize>()
            }
            Command::RewriteSegments { segments, kept, .. } => 48 + 12 * segments.len() + 16 * kept.len(),
            Command::Settle { settlements, .. } => 40 + settlements.len() * Settlement::ENCODED_BYTES,
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
            Command::CreateQueue { .. }
            | Command::AddLanes { .. }
            | Command::DeclareExchange { .. }
            | Command::Bind { .. }
            | Command::Unbind { .. }
            | Command::ChangeAccess { .. }
            | Command::PutPolicy { .. }
            | Command::DeletePolicy { .. }
            | Command::RegisterNode { .. } => {
                // Few and small: what they take is found by writing them.
                let mut body = Writer::new();
                encode_body(self, &mut body);
                16 + body.len()
            }
            _ => 64,
        }
    }

    /// About how many bytes the command takes until all of it is stored; what admission counts. A batch for several
    /// partitions stands once in the entry, but in the segment of each.
    pub fn admitted_bytes(&self) -> usize {
        match self {
            Command::AppendToAll { partitions, batch } => 24 + partitions.len() * (8 + batch.len()),
            Command::Together { commands } => {
                16 + commands.iter().map(Command::admitted_bytes).sum::<usize>()
            }
            Command::Relayed { commands, .. } => {
                40 + commands.iter().map(Command::admitted_bytes).sum::<usize>()
            }
            Command::MoveRecords { records, deadlines, appends, .. } => {
                moved_bytes(records.len(), deadlines.len())
                    + appends.iter().map(Command::admitted_bytes).sum::<usize>()
            }
            other => other.approximate_bytes(),
        }
    }

    /// Whether the command brings records.
    pub fn is_append(&self) -> bool {
        match self {
            Command::Append { .. }
            | Command::AppendToAll { .. }
            | Command::AppendTimed { .. }
            | Command::AppendUnique { .. } => true,
            Command::Together { commands }
            | Command::Relayed { commands, .. }
            | Command::MoveRecords { appends: commands, .. } => commands.iter().any(Command::is_append),
            _ => false,
        }
    }

    /// The command's kind in the encoding; never reused for another.
    fn kind(&self) -> u8 {
        match self {
            Command::Lead { .. } => 1,
            Command::SetMachineVersion { .. } => 2,
            Command::TakeDigest => 3,
            Command::CompareDigest { .. } => 4,
            Command::OpenRelay { .. } => 5,
            Command::Relayed { .. } => RELAYED,
            Command::CreateTopic { .. } => 16,
            Command::DeleteTopic { .. } => 17,
            Command::ForgetTopic { .. } => 18,
            Command::ConfigureTopic { .. } => 19,
            Command::AddPartitions { .. } => 20,
            Command::AllocateProducerIds { .. } => 21,
            Command::CreateQueue { .. } => 22,
            Command::AddLanes { .. } => 23,
            Command::DeclareExchange { .. } => 24,
            Command::DeleteExchange { .. } => 25,
            Command::Bind { .. } => 26,
            Command::Unbind { .. } => 27,
            Command::ChangeAccess { .. } => 28,
            Command::PutPolicy { .. } => 29,
            Command::DeletePolicy { .. } => 30,
            Command::OpenPartition { .. } => 32,
            Command::ConfigurePartition { .. } => 33,
            Command::ClosePartition { .. } => 34,
            Command::Append { .. } => 35,
            Command::Trim { .. } => 36,
            Command::AppendToAll { .. } => 37,
            Command::AppendTimed { .. } => 38,
            Command::RemoveTimers { .. } => 39,
            Command::OpenSubscription { .. } => 40,
            Command::CloseSubscription { .. } => 41,
            Command::Settle { .. } => 42,
            Command::Together { .. } => TOGETHER,
            Command::AppendUnique { .. } => 44,
            Command::MoveRecords { .. } => MOVE_RECORDS,
            Command::RewriteSegments { .. } => 46,
            Command::StoreGroup { .. } => 48,
            Command::CommitOffsets { .. } => 49,
            Command::DeleteOffsets { .. } => 50,
            Command::DeleteGroup { .. } => 51,
            Command::DropTopicOffsets { .. } => 52,
            Command::RegisterNode { .. } => 64,
            Command::SetDraining { .. } => 65,
            Command::NewIncarnation { .. } => 66,
            Command::AdmitNode { .. } => 67,
            Command::SetLeaving { .. } => 68,
            Command::ForgetNode { .. } => 69,
        }
    }
}

/// About how many bytes a command takes that moves records, beside what it appends.
fn moved_bytes(runs: usize, deadlines: usize) -> usize {
    48 + 16 * runs + TimerRow::ENCODED_BYTES * deadlines
}

fn config_bytes(config: &BTreeMap<String, String>) -> usize {
    config.iter().map(|(name, value)| 8 + name.len() + value.len()).sum()
}

fn encode_command(command: &Command, out: &mut Writer, chunks: &mut Vec<Bytes>) {
    out.u8(command.kind());
    out.u8(COMMAND_VERSION);
    match command {
        Command::Append { partition, batch } => {
            out.u32((8 + batch.len()) as u32);
            out.u64(partition.0);
            share(batch, out, chunks);
        }
        Command::AppendToAll { partitions, batch } => {
            out.u32((4 + 8 * partitions.len() + batch.len()) as u32);
            out.list(partitions, |out, partition| out.u64(partition.0));
            share(batch, out, chunks);
        }
        Command::AppendTimed { partition, deadlines, batch } => {
            out.u32((12 + 12 * deadlines.len() + batch.len()) as u32);
            out.u64(partition.0);
            out.list(deadlines, |out, (record, at)| {
                out.u32(*record);
                out.i64(*at);
            });
            share(batch, out, chunks);
        }
        Command::AppendUnique { partition, keys, batch } => {
            out.u32((12 + UniqueKey::ENCODED_BYTES * keys.len() + batch.len()) as u32);
            out.u64(partition.0);
            out.list(keys, |out, key| key.encode(out));
            share(batch, out, chunks);
        }
        Command::Together { commands } => encode_several(Writer::new(), commands, out, chunks),
        Command::Relayed { node, token, sequence, commands } => {
            let mut body = Writer::new();
            body.u64(node.0);
            body.u64(*token);
            body.u64(*sequence);
            encode_several(body, commands, out, chunks);
        }
        Command::MoveRecords { partition, subscription, records, deadlines, appends } => {
            let mut body = Writer::new();
            body.u64(partition.0);
            body.u64(subscription.0);
            body.list(records, |out, (from, to)| {
                out.i64(*from);
                out.i64(*to);
            });
            body.list(deadlines, |out, row| row.encode(out));
            encode_several(body, appends, out, chunks);
        }
        other => {
            let mut body = Writer::new();
            encode_body(other, &mut body);
            out.bytes(&body.finish());
        }
    }
}

/// Ends the body of a command with the commands that it has in it.
fn encode_several(mut body: Writer, commands: &[Command], out: &mut Writer, chunks: &mut Vec<Bytes>) {
    let mut within = Vec::new();
    body.u32(commands.len() as u32);
    commands.iter().for_each(|command| encode_command(command, &mut body, &mut within));
    within.push(body.finish());
    out.u32(within.iter().map(Bytes::len).sum::<usize>() as u32);
    chunks.push(out.take());
    chunks.extend(within.into_iter().filter(|chunk| !chunk.is_empty()));
}

/// Lets a batch follow as a chunk of its own.
fn share(batch: &Bytes, out: &mut Writer, chunks: &mut Vec<Bytes>) {
    chunks.push(out.take());
    chunks.push(batch.clone());
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
        Command::OpenRelay { node, token } => {
            out.u64(node.0);
            out.u64(*token);
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
        Command::CreateQueue { name, topic_id, placement, config, queue } => {
            out.str(name);
            out.raw(&topic_id.0);
            out.list(placement, |out, shard| out.u32(shard.0));
            encode_config(config, out);
            queue.encode(out);
        }
        Command::AddLanes { topic_id, expected, placement, lanes } => {
            out.raw(&topic_id.0);
            out.u32(*expected);
            out.list(placement, |out, shard| out.u32(shard.0));
            out.bytes(lanes);
        }
        Command::DeclareExchange { exchange } => exchange.encode(out),
        Command::DeleteExchange { namespace, name, if_unused } => {
            out.str(namespace);
            out.str(name);
            out.u8(u8::from(*if_unused));
        }
        Command::Bind { binding } | Command::Unbind { binding } => binding.encode(out),
        Command::ChangeAccess { change } => change.encode(out),
        Command::PutPolicy { policy } => policy.encode(out),
        Command::DeletePolicy { key } => key.encode(out),
        Command::RegisterNode { node } => node.encode(out),
        Command::SetDraining { node, draining } => {
            out.u64(node.0);
            out.u8(u8::from(*draining));
        }
        Command::NewIncarnation { node, token } => {
            out.u64(node.0);
            out.u64(*token);
        }
        Command::AdmitNode { node, token } => {
            out.u64(*token);
            node.encode(out);
        }
        Command::SetLeaving { node, leaving } => {
            out.u64(node.0);
            out.u8(u8::from(*leaving));
        }
        Command::ForgetNode { node } => out.u64(node.0),
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
        Command::Append { .. }
        | Command::AppendToAll { .. }
        | Command::AppendTimed { .. }
        | Command::AppendUnique { .. }
        | Command::MoveRecords { .. }
        | Command::Relayed { .. }
        | Command::Together { .. } => unreachable!("written by encode_command, which shares the batches"),
        Command::RemoveTimers { partition, rows } => {
            out.u64(partition.0);
            out.list(rows, |out, row| row.encode(out));
        }
        Command::OpenSubscription { partition, subscription, start } => {
            out.u64(partition.0);
            out.u64(subscription.0);
            out.i64(*start);
        }
        Command::CloseSubscription { partition, subscription } => {
            out.u64(partition.0);
            out.u64(subscription.0);
        }
        Command::Settle { partition, subscription, handed_out, settlements } => {
            out.u64(partition.0);
            out.u64(subscription.0);
            out.i64(*handed_out);
            out.list(settlements, |out, settlement| settlement.encode(out));
        }
        Command::Trim { partition, log_start } => {
            out.u64(partition.0);
            out.i64(*log_start);
        }
        Command::RewriteSegments { partition, segments, kept, bytes, max_timestamp } => {
            out.u64(partition.0);
            out.list(segments, |out, segment| {
                out.i64(segment.base);
                out.u32(segment.generation);
            });
            out.list(kept, |out, (from, to)| {
                out.i64(*from);
                out.i64(*to);
            });
            out.u64(*bytes);
            out.i64(*max_timestamp);
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
    let command = match kind {
        RELAYED => Command::Relayed {
            node: NodeId(body.u64()?),
            token: body.u64()?,
            sequence: body.u64()?,
            commands: body.list(6, decode_relayed)?,
        },
        TOGETHER | MOVE_RECORDS => decode_several(kind, &mut body)?,
        _ => decode_body(kind, &mut body)?,
    };
    body.finish()?;
    Ok(command)
}

/// A command that others are tied together in.
fn decode_several(kind: u8, body: &mut Reader) -> Result<Command, DecodeError> {
    if kind == TOGETHER {
        return Ok(Command::Together { commands: body.list(6, decode_single)? });
    }
    Ok(Command::MoveRecords {
        partition: PartitionId(body.u64()?),
        subscription: SubscriptionId(body.u64()?),
        records: body.list(16, |r| Ok((r.i64()?, r.i64()?)))?,
        deadlines: body.list(TimerRow::ENCODED_BYTES, TimerRow::decode)?,
        appends: body.list(6, decode_single)?,
    })
}

/// A command that another node has brought: any but one that brings others itself.
fn decode_relayed(reader: &mut Reader) -> Result<Command, DecodeError> {
    let kind = reader.u8()?;
    let version = reader.u8()?;
    let mut body = Reader::new("a command", reader.bytes()?);
    if version != COMMAND_VERSION {
        return Err(reader.error("a command's version is not known to this binary"));
    }
    let command = match kind {
        TOGETHER | MOVE_RECORDS => decode_several(kind, &mut body)?,
        _ => decode_body(kind, &mut body)?,
    };
    body.finish()?;
    Ok(command)
}

/// A command that has no others in it, so that they do not nest.
fn decode_single(reader: &mut Reader) -> Result<Command, DecodeError> {
    let kind = reader.u8()?;
    let version = reader.u8()?;
    let mut body = Reader::new("a command", reader.bytes()?);
    if version != COMMAND_VERSION {
        return Err(reader.error("a command's version is not known to this binary"));
    }
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
        5 => Command::OpenRelay { node: NodeId(r.u64()?), token: r.u64()? },
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
        22 => Command::CreateQueue {
            name: r.str()?,
            topic_id: TopicId(r.array()?),
            placement: r.list(4, |r| Ok(ShardId(r.u32()?)))?,
            config: decode_config(r)?,
            queue: QueueMeta::decode(r)?,
        },
        23 => Command::AddLanes {
            topic_id: TopicId(r.array()?),
            expected: r.u32()?,
            placement: r.list(4, |r| Ok(ShardId(r.u32()?)))?,
            lanes: r.bytes()?.to_vec(),
        },
        24 => Command::DeclareExchange { exchange: ExchangeMeta::decode(r)? },
        25 => Command::DeleteExchange { namespace: r.str()?, name: r.str()?, if_unused: r.bool()? },
        26 => Command::Bind { binding: BindingMeta::decode(r)? },
        27 => Command::Unbind { binding: BindingMeta::decode(r)? },
        28 => Command::ChangeAccess { change: AccessChange::decode(r)? },
        29 => Command::PutPolicy { policy: PolicyMeta::decode(r)? },
        30 => Command::DeletePolicy { key: PolicyKey::decode(r)? },
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
        37 => {
            let partitions = r.list(8, |r| Ok(PartitionId(r.u64()?)))?;
            let rest = r.remaining();
            Command::AppendToAll { partitions, batch: r.raw(rest)? }
        }
        38 => {
            let partition = PartitionId(r.u64()?);
            let deadlines = r.list(12, |r| Ok((r.u32()?, r.i64()?)))?;
            let rest = r.remaining();
            Command::AppendTimed { partition, deadlines, batch: r.raw(rest)? }
        }
        39 => Command::RemoveTimers {
            partition: PartitionId(r.u64()?),
            rows: r.list(TimerRow::ENCODED_BYTES, TimerRow::decode)?,
        },
        40 => Command::OpenSubscription {
            partition: PartitionId(r.u64()?),
            subscription: SubscriptionId(r.u64()?),
            start: r.i64()?,
        },
        41 => Command::CloseSubscription {
            partition: PartitionId(r.u64()?),
            subscription: SubscriptionId(r.u64()?),
        },
        42 => Command::Settle {
            partition: PartitionId(r.u64()?),
            subscription: SubscriptionId(r.u64()?),
            handed_out: r.i64()?,
            settlements: r.list(Settlement::ENCODED_BYTES, Settlement::decode)?,
        },
        44 => {
            let partition = PartitionId(r.u64()?);
            let keys = r.list(UniqueKey::ENCODED_BYTES, UniqueKey::decode)?;
            let rest = r.remaining();
            Command::AppendUnique { partition, keys, batch: r.raw(rest)? }
        }
        46 => Command::RewriteSegments {
            partition: PartitionId(r.u64()?),
            segments: r.list(12, |r| Ok(SegmentId { base: r.i64()?, generation: r.u32()? }))?,
            kept: r.list(16, |r| Ok((r.i64()?, r.i64()?)))?,
            bytes: r.u64()?,
            max_timestamp: r.i64()?,
        },
        48 => Command::StoreGroup { group: r.str()?, membership: GroupMembership::decode(r)? },
        49 => Command::CommitOffsets { group: r.str()?, offsets: r.list(44, OffsetCommit::decode)? },
        50 => Command::DeleteOffsets {
            group: r.str()?,
            partitions: r.list(20, |r| Ok((TopicId(r.array()?), r.i32()?)))?,
        },
        51 => Command::DeleteGroup { group: r.str()? },
        52 => Command::DropTopicOffsets { topic_id: TopicId(r.array()?) },
        64 => Command::RegisterNode { node: NodeMeta::decode(r)? },
        65 => Command::SetDraining { node: NodeId(r.u64()?), draining: r.bool()? },
        66 => Command::NewIncarnation { node: NodeId(r.u64()?), token: r.u64()? },
        67 => {
            let token = r.u64()?;
            Command::AdmitNode { node: NodeMeta::decode(r)?, token }
        }
        68 => Command::SetLeaving { node: NodeId(r.u64()?), leaving: r.bool()? },
        69 => Command::ForgetNode { node: NodeId(r.u64()?) },
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
mod tests;
