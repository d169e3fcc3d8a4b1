//! What a shard's checkpoint is read from: its manifest, and its chunks of state. The first byte says which of
//! them the rest is. What was read can be written, and is written the same when it is read again.

use super::entry;
use bytes::Bytes;
use weir_model::command::Command;
use weir_model::entry::Entry;
use weir_shard::{Machine, decoding};

/// First byte of a manifest; others are the kind of a chunk.
const MANIFEST: u8 = 0;

/// Bytes of a manifest up to what its checksum covers, which stands right in front of that.
const MANIFEST_CRC_END: usize = 8;

pub fn run(data: &[u8]) {
    let Some((&kind, rest)) = data.split_first() else { return };
    if kind == MANIFEST {
        let read = |bytes| decoding::manifest(with_checksum(bytes));
        if let Ok(written) = read(rest.to_vec()) {
            assert_eq!(read(written.to_vec()), Ok(written));
        }
    } else if let Some((key, content)) = rest.split_first_chunk() {
        let key = u64::from_le_bytes(*key);
        if let Ok(written) = decoding::chunk(kind, key, Bytes::copy_from_slice(content)) {
            // A chunk without elements is none.
            if !written.is_empty() {
                assert_eq!(decoding::chunk(kind, key, written.clone()), Ok(written));
            }
        }
    }
}

/// Mutated bytes would never get past their checksum.
fn with_checksum(mut manifest: Vec<u8>) -> Bytes {
    if let Some((head, body)) = manifest.split_at_mut_checked(MANIFEST_CRC_END) {
        head[4..].copy_from_slice(&crc32c::crc32c(body).to_le_bytes());
    }
    manifest.into()
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut machine = Machine::new();
    let is_last = |command: &Command| matches!(command, Command::CompareDigest { .. });
    let commands = entry::commands().into_iter().filter(|command| !is_last(command)).collect();
    machine.apply(1, 1, &Entry { time: 1_000, commands }, &mut Vec::new()).expect("every command is known");
    let chunk = |(kind, key, content): (u8, u64, Bytes)| [&[kind][..], &key.to_le_bytes(), &content].concat();
    let mut seeds: Vec<Vec<u8>> = decoding::chunks(&machine).into_iter().map(chunk).collect();
    seeds.push([&[MANIFEST][..], &manifest()].concat());
    seeds
}

/// As `docs/formats.md` draws it, with the root alone in it.
fn manifest() -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&3u32.to_le_bytes());
    body.extend_from_slice(&900u64.to_le_bytes());
    body.extend_from_slice(&4u64.to_le_bytes());
    body.extend_from_slice(&1u32.to_le_bytes());
    body.extend_from_slice(&6u64.to_le_bytes());
    body.extend_from_slice(&[4, 0, 0, 0]);
    body.extend_from_slice(b"raft");
    body.extend_from_slice(&1u32.to_le_bytes());
    body.push(1);
    body.extend_from_slice(&[0; 8]);
    body.extend_from_slice(&5u64.to_le_bytes());
    body.extend_from_slice(&8u64.to_le_bytes());
    body.extend_from_slice(&57u32.to_le_bytes());
    body.extend_from_slice(&7u32.to_le_bytes());
    [b"WSM\x01\0\0\0\0", &body[..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_seeds_are_what_they_look_like() {
        for seed in seeds() {
            let (kind, rest) = seed.split_first().unwrap();
            if *kind == MANIFEST {
                decoding::manifest(with_checksum(rest.to_vec())).unwrap();
            } else {
                let (key, content) = rest.split_first_chunk().unwrap();
                decoding::chunk(*kind, u64::from_le_bytes(*key), Bytes::copy_from_slice(content)).unwrap();
            }
        }
    }
}
