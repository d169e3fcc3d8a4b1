//! Whatever the bytes, decoding ends with a value or an error; and what was read can be written and reads the same.

use super::payload;
use crate::*;
use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

fn decode_everything(data: &Bytes) {
    if let Ok(method) = Method::decode(data.clone()) {
        let written = payload(method);
        assert_eq!(payload(Method::decode(written.clone()).unwrap()), written);
    }
    if let Ok(table) = Table::decode(data.clone()) {
        let written = table.encode();
        assert_eq!(Table::decode(written.clone()).unwrap().encode(), written);
    }
    let _ = ContentHeader::decode(data.clone());
    let _ = ProtocolHeader::parse(data);
    for frame_max in [0, 4096] {
        frames(BytesMut::from(&data[..]), frame_max);
    }
}

fn frames(mut buffer: BytesMut, frame_max: u32) {
    let mut assembler = Assembler::new(1_000);
    loop {
        let before = buffer.len();
        match Frame::parse(&mut buffer, frame_max) {
            Ok(Parsed::Frame(frame)) => {
                assert_eq!(before - buffer.len(), frame.payload.len() + FRAME_OVERHEAD_BYTES);
                if assembler.push(frame).is_err() {
                    assembler = Assembler::new(1_000);
                }
            }
            Ok(Parsed::Missing(bytes)) => {
                assert!(bytes > 0 && before == buffer.len());
                return;
            }
            Err(_) => return,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn arbitrary_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
        decode_everything(&data.into());
    }

    /// Small values are lengths that fit, and tags among them let tables get further.
    #[test]
    fn arbitrary_bytes_that_are_plausible(data in prop::collection::vec(
        prop_oneof![Just(0u8), 0u8..12, prop::sample::select(b"tbBsuIilLfdDSTFAVx".to_vec())], 0..200,
    )) {
        decode_everything(&data.into());
    }

    #[test]
    fn cut_and_flipped_methods(seed: u64, cut: prop::sample::Index, flip: prop::sample::Index, value: u8) {
        for method in Method::generate_each(&mut Source::new(seed)) {
            let mut written = payload(method).to_vec();
            let short = Bytes::copy_from_slice(&written[..cut.index(written.len())]);
            prop_assert!(Method::decode(short).is_err(), "a cut method must not decode");
            let at = flip.index(written.len());
            written[at] = value;
            decode_everything(&written.into());
        }
    }
}
