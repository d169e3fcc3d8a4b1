//! Readers of what lies on disk, for whoever throws bytes at them.

use bytes::Bytes;
use weir_model::wire::DecodeError;

use crate::checkpoint::Manifest;
use crate::machine::{ChunkId, ChunkKind, Machine};

/// Reads a checkpoint's manifest, and writes it again.
pub fn manifest(bytes: Bytes) -> Result<Bytes, DecodeError> {
    Manifest::decode(bytes).map(|manifest| manifest.encode())
}

/// Reads the content of a chunk of state, and writes it again.
pub fn chunk(kind: u8, key: u64, content: Bytes) -> Result<Bytes, DecodeError> {
    let Some(kind) = ChunkKind::from_number(kind) else {
        return Err(DecodeError::new("a chunk of state", "its kind is not known"));
    };
    let id = ChunkId { kind, key };
    let mut machine = Machine::new();
    machine.load_chunk(id, content, 1)?;
    Ok(machine.encode_chunk(id))
}

/// All chunks of a state: kind, key and content.
pub fn chunks(machine: &Machine) -> Vec<(u8, u64, Bytes)> {
    machine.chunk_ids().into_iter().map(|(id, _)| (id.kind as u8, id.key, machine.encode_chunk(id))).collect()
}
