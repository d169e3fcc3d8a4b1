//! Manifests and state files as bytes. `docs/formats.md`, "Checkpoint", draws them.

use bytes::Bytes;
use weir_model::ShardId;
use weir_model::wire::{DecodeError, Reader, Writer};

use crate::machine::{ChunkId, ChunkKind};

const MANIFEST_MAGIC: [u8; 4] = *b"WSM\x01";
const STATE_MAGIC: [u8; 4] = *b"WSC\x01";

/// Bytes of a state file before its first chunk.
pub(super) const STATE_HEADER_BYTES: u64 = 8;

/// Bytes of a chunk in a state file before its content.
pub(super) const CHUNK_HEADER_BYTES: usize = 20;

/// Longest manifest that is read: a hundred times what the bounds of the state allow.
pub(crate) const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// What a durable checkpoint consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Manifest {
    pub shard: ShardId,
    pub applied_index: u64,
    pub applied_term: u64,
    pub machine_version: u32,
    /// Files from this number on belong to no checkpoint.
    pub next_file: u64,
    /// The caller's own.
    pub raft_meta: Bytes,
    /// All chunks, by kind and key.
    pub chunks: Vec<(ChunkId, ChunkPlace)>,
}

/// Where a chunk lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChunkPlace {
    /// Number of the state file.
    pub file: u64,
    /// Of its header.
    pub position: u64,
    /// Of its content.
    pub length: u32,
    pub crc: u32,
}

impl ChunkPlace {
    /// Bytes that it takes in its file.
    pub(crate) fn bytes(&self) -> u64 {
        CHUNK_HEADER_BYTES as u64 + u64::from(self.length)
    }
}

impl Manifest {
    pub(crate) fn encode(&self) -> Bytes {
        let mut body = Writer::new();
        body.u32(self.shard.0);
        body.u64(self.applied_index);
        body.u64(self.applied_term);
        body.u32(self.machine_version);
        body.u64(self.next_file);
        body.bytes(&self.raft_meta);
        body.list(&self.chunks, |out, (id, place)| {
            out.u8(id.kind as u8);
            out.u64(id.key);
            out.u64(place.file);
            out.u64(place.position);
            out.u32(place.length);
            out.u32(place.crc);
        });
        let body = body.finish();
        let mut out = Writer::new();
        out.raw(&MANIFEST_MAGIC);
        out.u32(crc32c::crc32c(&body));
        out.raw(&body);
        out.finish()
    }

    pub(crate) fn decode(bytes: Bytes) -> Result<Manifest, DecodeError> {
        let mut r = Reader::new("a checkpoint's manifest", bytes);
        let magic: [u8; 4] = r.array()?;
        if magic != MANIFEST_MAGIC {
            return Err(r.error(if magic[..3] == MANIFEST_MAGIC[..3] {
                "its format is of another version"
            } else {
                "it is none"
            }));
        }
        let crc = r.u32()?;
        let body = r.raw(r.remaining())?;
        if crc32c::crc32c(&body) != crc {
            return Err(r.error("its checksum does not fit"));
        }
        let mut r = Reader::new("a checkpoint's manifest", body);
        let manifest = Manifest {
            shard: ShardId(r.u32()?),
            applied_index: r.u64()?,
            applied_term: r.u64()?,
            machine_version: r.u32()?,
            next_file: r.u64()?,
            raft_meta: Bytes::copy_from_slice(&r.bytes()?),
            chunks: r.list(33, decode_place)?,
        };
        let rising = manifest.chunks.windows(2).all(|pair| pair[0].0 < pair[1].0);
        let numbered = manifest.chunks.iter().all(|(_, place)| place.file < manifest.next_file);
        if !rising || !numbered {
            return Err(r.error("its chunks are out of order"));
        }
        r.finish()?;
        Ok(manifest)
    }
}

fn decode_place(r: &mut Reader) -> Result<(ChunkId, ChunkPlace), DecodeError> {
    let Some(kind) = ChunkKind::from_number(r.u8()?) else {
        return Err(r.error("a chunk's kind is not known"));
    };
    let id = ChunkId { kind, key: r.u64()? };
    Ok((id, ChunkPlace { file: r.u64()?, position: r.u64()?, length: r.u32()?, crc: r.u32()? }))
}

/// What a state file begins with.
pub(super) fn state_header() -> [u8; STATE_HEADER_BYTES as usize] {
    let mut header = [0; STATE_HEADER_BYTES as usize];
    header[..4].copy_from_slice(&STATE_MAGIC);
    header
}

/// A chunk's header in front of `content`, and the CRC of both.
pub(super) fn chunk_header(id: ChunkId, content: &[u8]) -> ([u8; CHUNK_HEADER_BYTES], u32) {
    let mut header = [0; CHUNK_HEADER_BYTES];
    header[4..8].copy_from_slice(&(content.len() as u32).to_le_bytes());
    header[8] = id.kind as u8;
    header[12..20].copy_from_slice(&id.key.to_le_bytes());
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header[4..]), content);
    header[..4].copy_from_slice(&crc.to_le_bytes());
    (header, crc)
}

/// The content of the chunk that the manifest places at the start of `bytes`.
pub(super) fn chunk_content(id: ChunkId, place: &ChunkPlace, bytes: &Bytes) -> Result<Bytes, &'static str> {
    if bytes.len() as u64 != place.bytes() {
        return Err("the file is too short");
    }
    let content = bytes.slice(CHUNK_HEADER_BYTES..);
    let (header, crc) = chunk_header(id, &content);
    if crc != place.crc || header != bytes[..CHUNK_HEADER_BYTES] {
        return Err("a chunk's checksum does not fit");
    }
    Ok(content)
}
