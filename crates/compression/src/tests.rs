//! Round trips, foreign forms, bombs and garbage.

use crate::{CompressionError, compress, decompress};
use proptest::prelude::*;
use std::io::Write;
use weir_model::batch::Compression;

const CODECS: [Compression; 5] =
    [Compression::None, Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd];
const MIB: usize = 1024 * 1024;

/// Compresses, decompresses with exactly enough room, and checks that a byte less is refused.
fn check_round_trip(content: &[u8]) {
    for codec in CODECS {
        let compressed = compress(codec, None, content).unwrap();
        assert_eq!(decompress(codec, &compressed, content.len()).unwrap(), content, "{codec:?}");
        assert_eq!(decompress(codec, &compressed, usize::MAX).unwrap(), content, "{codec:?}");
        if let Some(less) = content.len().checked_sub(1) {
            let refused = decompress(codec, &compressed, less);
            assert_eq!(refused, Err(CompressionError::TooLarge { codec: codec.name(), limit: less }));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn round_trip(content in prop::collection::vec(any::<u8>(), 0..5_000), times in 1usize..40) {
        check_round_trip(&content.repeat(times));
    }

    #[test]
    fn garbage(data in prop::collection::vec(any::<u8>(), 0..2_000), limit in 0usize..10_000) {
        for codec in CODECS {
            if let Ok(content) = decompress(codec, &data, limit) {
                prop_assert!(content.len() <= limit);
            }
        }
    }

    #[test]
    fn damaged(
        content in prop::collection::vec(0u8..4, 1..3_000),
        at: prop::sample::Index,
        with: u8,
        cut: prop::sample::Index,
    ) {
        for codec in CODECS {
            let mut compressed = compress(codec, None, &content).unwrap().to_vec();
            let at = at.index(compressed.len());
            compressed[at] = with;
            for damaged in [&compressed[..], &compressed[..cut.index(compressed.len())]] {
                if let Ok(content) = decompress(codec, damaged, 4_096) {
                    prop_assert!(content.len() <= 4_096);
                }
            }
        }
    }
}

#[test]
fn larger_than_every_block_and_window() {
    let mut state = 1u32;
    let content: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8 & 0x0f
    })
    .take(9 * MIB)
    .collect();
    check_round_trip(&content);
}

#[test]
fn every_level() {
    let content = b"content ".repeat(100);
    for level in 1..=9 {
        let compressed = compress(Compression::Gzip, Some(level), &content).unwrap();
        assert_eq!(decompress(Compression::Gzip, &compressed, 1_000).unwrap(), content);
    }
    for level in [-5, 1, 3, 19, 22] {
        let compressed = compress(Compression::Zstd, Some(level), &content).unwrap();
        assert_eq!(decompress(Compression::Zstd, &compressed, 1_000).unwrap(), content);
    }
    let refused = compress(Compression::Gzip, Some(10), &content).unwrap_err();
    assert_eq!(refused.to_string(), "gzip has levels 1 to 9, not 10");
    assert!(matches!(compress(Compression::Zstd, Some(23), &content), Err(CompressionError::Level { .. })));
}

#[test]
fn bombs() {
    let zeros = vec![0; 64 * MIB];
    for codec in CODECS {
        let bomb = compress(codec, None, &zeros).unwrap();
        let refused = decompress(codec, &bomb, MIB);
        assert_eq!(refused, Err(CompressionError::TooLarge { codec: codec.name(), limit: MIB }));
    }
}

#[test]
fn a_snappy_length_is_not_believed() {
    // One byte of block that announces a gibibyte.
    let lie = [0x80, 0x80, 0x80, 0x80, 0x04, 0x00];
    let refused = decompress(Compression::Snappy, &lie, usize::MAX).unwrap_err();
    assert_eq!(refused.to_string(), "the bytes are not valid snappy: 6 bytes cannot hold 1073741824");
}

#[test]
fn a_zstd_size_is_not_believed() {
    // A frame that announces 2^40 bytes, and one that announces a byte more than it has.
    let mut lie = vec![0x28, 0xb5, 0x2f, 0xfd, 0xe0];
    lie.extend((1u64 << 40).to_le_bytes());
    lie.extend([0x01, 0x00, 0x00]);
    assert!(decompress(Compression::Zstd, &lie, usize::MAX).is_err());
    let mut short = compress(Compression::Zstd, None, b"content").unwrap().to_vec();
    assert_eq!(short[4..6], [0x20, 7]);
    short[5] = 8;
    assert!(matches!(decompress(Compression::Zstd, &short, 100), Err(CompressionError::Corrupt { .. })));
}

#[test]
fn snappy_in_all_forms() {
    let content = b"abcdefgh".repeat(10_000);
    let raw = snap::raw::Encoder::new().compress_vec(&content).unwrap();
    assert_eq!(decompress(Compression::Snappy, &raw, MIB).unwrap(), content);

    let framed = compress(Compression::Snappy, None, &content).unwrap();
    assert_eq!(framed[..16], *b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01");
    let joined = [&framed[..], &framed[..]].concat();
    assert_eq!(decompress(Compression::Snappy, &joined, MIB).unwrap(), content.repeat(2));
    assert!(matches!(
        decompress(Compression::Snappy, &joined, content.len()),
        Err(CompressionError::TooLarge { .. })
    ));
    // Nothing in a frame is nothing; a frame that ends within a block, a length or the header is damaged.
    assert_eq!(decompress(Compression::Snappy, &framed[..16], MIB).unwrap(), "");
    for cut in [8, 15, 18, 100, framed.len() - 1] {
        let refused = decompress(Compression::Snappy, &framed[..cut], MIB).unwrap_err();
        assert!(matches!(refused, CompressionError::Corrupt { .. }), "{cut}");
    }
}

#[test]
fn lz4_as_java_reads_it() {
    let compressed = compress(Compression::Lz4, None, b"content").unwrap();
    // Magic; version 1, independent blocks, no checksums, no size; blocks of 64 KiB.
    assert_eq!(compressed[..6], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40]);
    assert_eq!(compressed[compressed.len() - 4..], [0; 4]);
}

#[test]
fn lz4_with_linked_blocks_and_checksums() {
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    let content = b"some content that comes again ".repeat(20_000);
    let frame = FrameInfo::new()
        .block_mode(BlockMode::Linked)
        .block_size(BlockSize::Max256KB)
        .block_checksums(true)
        .content_checksum(true)
        .content_size(Some(content.len() as u64));
    let mut encoder = FrameEncoder::with_frame_info(frame, Vec::new());
    encoder.write_all(&content).unwrap();
    let mut compressed = encoder.finish().unwrap();
    assert_eq!(decompress(Compression::Lz4, &compressed, content.len()).unwrap(), content);
    // The checksum stands behind the content; it is looked at also where the content fills the limit.
    *compressed.last_mut().unwrap() ^= 1;
    assert!(matches!(
        decompress(Compression::Lz4, &compressed, content.len()),
        Err(CompressionError::Corrupt { .. })
    ));
}

#[test]
fn gzip_of_several_members() {
    let one = compress(Compression::Gzip, None, b"first, ").unwrap();
    let two = compress(Compression::Gzip, None, b"second").unwrap();
    let joined = [&one[..], &two[..]].concat();
    assert_eq!(decompress(Compression::Gzip, &joined, 100).unwrap(), "first, second");
    assert!(decompress(Compression::Gzip, &joined[..joined.len() - 1], 100).is_err());
}

#[test]
fn zstd_without_a_size_and_with_a_large_window() {
    let content = b"some content that comes again ".repeat(100_000);
    let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), 3).unwrap();
    encoder.window_log(27).unwrap();
    encoder.include_contentsize(false).unwrap();
    encoder.write_all(&content).unwrap();
    let compressed = encoder.finish().unwrap();
    assert!(matches!(zstd::zstd_safe::get_frame_content_size(&compressed), Ok(None)));
    assert_eq!(decompress(Compression::Zstd, &compressed, content.len()).unwrap(), content);
    let joined = [&compressed[..], &compress(Compression::Zstd, None, &content).unwrap()].concat();
    assert_eq!(decompress(Compression::Zstd, &joined, 2 * content.len()).unwrap(), content.repeat(2));
    assert!(matches!(
        decompress(Compression::Zstd, &joined, content.len() + 1),
        Err(CompressionError::TooLarge { .. })
    ));
}
