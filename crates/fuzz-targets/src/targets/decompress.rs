//! A compressed record section, behind a byte that says the codec and one that says the limit. Never more comes
//! out than the limit, and what came out can be compressed and comes out again.

use weir_compression::{compress, decompress};
use weir_model::batch::Compression;

/// A unit of the limit that the second byte gives, so that limits lie below and above what seeds hold.
const LIMIT_UNIT: usize = 4 * 1024;

pub fn run(data: &[u8]) {
    let Some((&[codec, limit], compressed)) = data.split_first_chunk() else { return };
    let Some(codec) = Compression::from_attributes(i16::from(codec)) else { return };
    let limit = usize::from(limit) * LIMIT_UNIT;
    let Ok(content) = decompress(codec, compressed, limit) else { return };
    assert!(content.len() <= limit, "{} bytes came out of {codec:?}, allowed were {limit}", content.len());
    let again = compress(codec, None, &content).expect("content can be compressed");
    assert_eq!(decompress(codec, &again, limit).as_ref(), Ok(&content));
}

pub fn seeds() -> Vec<Vec<u8>> {
    let contents = [&b""[..], b"content", &b"content that comes again ".repeat(100), &[7; 200 * 1024]];
    let codecs = (0..=4).filter_map(|bits| Compression::from_attributes(bits).map(|codec| (bits as u8, codec)));
    let mut seeds = Vec::new();
    for (bits, codec) in codecs {
        for content in contents {
            let compressed = compress(codec, None, content).expect("content can be compressed");
            for limit in [1, 255] {
                let mut seed = vec![bits, limit];
                seed.extend_from_slice(&compressed);
                seeds.push(seed);
            }
        }
    }
    seeds
}
