//! Manifests and chunks from any bytes: read back as they were, or refused.

use bytes::Bytes;
use proptest::prelude::*;
use weir_model::ShardId;

use super::format::{ChunkPlace, Manifest};
use crate::machine::{ChunkId, ChunkKind, Machine};

fn manifest() -> Manifest {
    let place = |file| ChunkPlace { file, position: 8, length: 20, crc: 7 };
    Manifest {
        shard: ShardId(3),
        applied_index: 900,
        applied_term: 4,
        machine_version: 1,
        next_file: 6,
        raft_meta: Bytes::from_static(b"opaque"),
        chunks: vec![
            (ChunkId { kind: ChunkKind::Root, key: 0 }, place(5)),
            (ChunkId { kind: ChunkKind::Partitions, key: 2 }, place(1)),
            (ChunkId { kind: ChunkKind::Partitions, key: 9 }, place(5)),
        ],
    }
}

#[test]
fn a_manifest_is_read_back() {
    assert_eq!(Manifest::decode(manifest().encode()), Ok(manifest()));
}

#[test]
fn a_manifest_whose_chunks_are_out_of_order_or_from_the_future_is_refused() {
    let mut twice = manifest();
    twice.chunks[2].0 = twice.chunks[1].0;
    Manifest::decode(twice.encode()).unwrap_err();
    let mut future = manifest();
    future.next_file = 5;
    Manifest::decode(future.encode()).unwrap_err();
}

#[test]
fn a_manifest_that_is_cut_or_longer_is_refused() {
    let bytes = manifest().encode();
    for length in 0..bytes.len() {
        Manifest::decode(bytes.slice(..length)).unwrap_err();
    }
    let longer: Vec<u8> = bytes.iter().copied().chain([0]).collect();
    Manifest::decode(longer.into()).unwrap_err();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn decoders_are_total(kind in 0u8..7, key in 0u64..3, bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let _ = Manifest::decode(bytes.clone().into());
        if let Some(kind) = ChunkKind::from_number(kind) {
            let _ = Machine::new().load_chunk(ChunkId { kind, key }, bytes.into(), 1);
        }
    }
}
