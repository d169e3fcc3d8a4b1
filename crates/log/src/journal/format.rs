//! Groups and records as bytes. `docs/formats.md`, "Journal", draws them.

use weir_model::ShardId;

/// Groups begin at multiples of this, so that writing one never touches the sectors of another,
/// and so that whole pages are overwritten without being read first.
pub(super) const ALIGNMENT: u64 = 4096;

/// Bytes of a group before its first record.
pub(super) const GROUP_HEADER_BYTES: usize = 64;

/// Bytes of a record before its payload.
pub(super) const RECORD_HEADER_BYTES: usize = 20;

/// Longest group that any version writes; what claims more is no group.
pub(super) const GROUP_BYTES_LIMIT: usize = 64 << 20;

/// No journal gets that far, so that arithmetic on positions never overflows.
const POSITION_LIMIT: u64 = i64::MAX as u64;

/// The shard number under which the journal keeps records of its own.
pub(super) const JOURNAL_SHARD: ShardId = ShardId(u32::MAX);

/// Kind of the journal's own record that lists accepted losses.
pub(super) const KIND_ACCEPTED_LOSSES: u8 = 1;

const MAGIC: [u8; 4] = *b"WJG\x01";
const FLAG_FIRST: u32 = 1;
const FLAG_REPEATED: u32 = 2;
const FLAGS_KNOWN: u32 = FLAG_FIRST | FLAG_REPEATED;

/// Rounds up to where the next group may begin.
pub(super) fn align(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGNMENT)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct GroupHeader {
    pub identity: u64,
    pub generation: u64,
    pub position: u64,
    pub durable: u64,
    pub first: u64,
    pub length: u32,
    pub record_count: u32,
    pub records_crc: u32,
    /// First group of its file.
    pub begins_file: bool,
    /// Its records stand in earlier files too.
    pub repeated: bool,
}

impl GroupHeader {
    pub(super) fn encode(&self) -> [u8; GROUP_HEADER_BYTES] {
        let flags =
            if self.begins_file { FLAG_FIRST } else { 0 } | if self.repeated { FLAG_REPEATED } else { 0 };
        let mut out = [0; GROUP_HEADER_BYTES];
        out[0..4].copy_from_slice(&MAGIC);
        out[8..16].copy_from_slice(&self.identity.to_le_bytes());
        out[16..24].copy_from_slice(&self.generation.to_le_bytes());
        out[24..32].copy_from_slice(&self.position.to_le_bytes());
        out[32..40].copy_from_slice(&self.durable.to_le_bytes());
        out[40..48].copy_from_slice(&self.first.to_le_bytes());
        out[48..52].copy_from_slice(&self.length.to_le_bytes());
        out[52..56].copy_from_slice(&self.record_count.to_le_bytes());
        out[56..60].copy_from_slice(&self.records_crc.to_le_bytes());
        out[60..64].copy_from_slice(&flags.to_le_bytes());
        let crc = crc32c::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header at the start of `bytes`, if there is one whose fields agree with each other.
    pub(super) fn decode(bytes: &[u8]) -> Option<GroupHeader> {
        let bytes: &[u8; GROUP_HEADER_BYTES] = bytes.first_chunk()?;
        if bytes[0..4] != MAGIC || u32_at(bytes, 4) != crc32c::crc32c(&bytes[8..]) {
            return None;
        }
        let flags = u32_at(bytes, 60);
        let header = GroupHeader {
            identity: u64_at(bytes, 8),
            generation: u64_at(bytes, 16),
            position: u64_at(bytes, 24),
            durable: u64_at(bytes, 32),
            first: u64_at(bytes, 40),
            length: u32_at(bytes, 48),
            record_count: u32_at(bytes, 52),
            records_crc: u32_at(bytes, 56),
            begins_file: flags & FLAG_FIRST != 0,
            repeated: flags & FLAG_REPEATED != 0,
        };
        let body = (header.length as usize).checked_sub(GROUP_HEADER_BYTES)?;
        let plausible = flags & !FLAGS_KNOWN == 0
            && header.first <= header.durable
            && header.durable <= header.position
            && header.position.is_multiple_of(ALIGNMENT)
            && header.position <= POSITION_LIMIT
            && header.length as usize <= GROUP_BYTES_LIMIT
            && body / RECORD_HEADER_BYTES >= header.record_count as usize;
        plausible.then_some(header)
    }

    /// Bytes from the group's start to where the next may begin.
    pub(super) fn padded_bytes(&self) -> u64 {
        align(u64::from(self.length))
    }

    /// Position behind the group.
    pub(super) fn end(&self) -> u64 {
        self.position.saturating_add(self.padded_bytes())
    }
}

/// Whether the bytes at a file's start are of a version that this code does not know.
pub(super) fn newer_version(bytes: &[u8]) -> Option<u8> {
    let magic: &[u8; 4] = bytes.first_chunk()?;
    (magic[..3] == MAGIC[..3] && magic[3] > MAGIC[3]).then_some(magic[3])
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordHeader {
    pub length: u32,
    pub shard: ShardId,
    pub kind: u8,
    pub payload_crc: u32,
}

impl RecordHeader {
    pub(super) fn encode(&self, position: u64) -> [u8; RECORD_HEADER_BYTES] {
        let mut out = [0; RECORD_HEADER_BYTES];
        out[0..4].copy_from_slice(&self.length.to_le_bytes());
        out[4..8].copy_from_slice(&self.shard.0.to_le_bytes());
        out[8] = self.kind;
        out[12..16].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = check(&out, position);
        out[16..20].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// The header at the start of `bytes`, if it is that of the record at `position`.
    pub(super) fn decode(bytes: &[u8], position: u64) -> Option<RecordHeader> {
        let bytes: &[u8; RECORD_HEADER_BYTES] = bytes.first_chunk()?;
        if u32_at(bytes, 16) != check(bytes, position) || bytes[9..12] != [0; 3] {
            return None;
        }
        Some(RecordHeader {
            length: u32_at(bytes, 0),
            shard: ShardId(u32_at(bytes, 4)),
            kind: bytes[8],
            payload_crc: u32_at(bytes, 12),
        })
    }
}

fn check(header: &[u8; RECORD_HEADER_BYTES], position: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&header[..16]), &position.to_le_bytes())
}

/// A record within a whole group.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordInGroup {
    pub header: RecordHeader,
    /// Where its header begins, from the group's start.
    pub at: usize,
}

impl RecordInGroup {
    pub(super) fn payload(&self) -> std::ops::Range<usize> {
        let start = self.at + RECORD_HEADER_BYTES;
        start..start + self.header.length as usize
    }
}

/// Checks a whole group, padding excluded, and lists its records.
pub(super) fn check_group(header: &GroupHeader, group: &[u8]) -> Result<Vec<RecordInGroup>, &'static str> {
    if group.len() != header.length as usize {
        return Err("the group is cut short");
    }
    // The header was checked: its count fits its length, which fits the bytes at hand.
    let mut records = Vec::with_capacity(header.record_count as usize);
    let mut records_crc = 0;
    let mut at = GROUP_HEADER_BYTES;
    for _ in 0..header.record_count {
        let bytes = &group[at.min(group.len())..];
        let Some(record) = RecordHeader::decode(bytes, header.position + at as u64) else {
            return Err("a record's header does not fit its CRC");
        };
        records_crc = crc32c::crc32c_append(records_crc, &bytes[..RECORD_HEADER_BYTES]);
        let record = RecordInGroup { header: record, at };
        let Some(payload) = group.get(record.payload()) else {
            return Err("a record is longer than its group");
        };
        if crc32c::crc32c(payload) != record.header.payload_crc {
            return Err("a record's payload does not fit its CRC");
        }
        at = record.payload().end;
        records.push(record);
    }
    if at != group.len() || records_crc != header.records_crc {
        return Err("the records do not add up to the group");
    }
    Ok(records)
}

/// Shards whose records can still be told in a group that does not pass [`check_group`].
pub(super) fn legible_shards(header: &GroupHeader, group: &[u8]) -> Vec<ShardId> {
    let mut shards = Vec::new();
    let mut at = GROUP_HEADER_BYTES;
    while let Some(record) =
        group.get(at..).and_then(|bytes| RecordHeader::decode(bytes, header.position + at as u64))
    {
        if !shards.contains(&record.shard) {
            shards.push(record.shard);
        }
        at += RECORD_HEADER_BYTES + record.length as usize;
    }
    shards
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
