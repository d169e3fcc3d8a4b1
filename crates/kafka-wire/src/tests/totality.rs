//! Whatever the bytes, decoding ends with a message or an error, and never with more memory than the bytes justify.

use crate::generate::Source;
use crate::*;
use bytes::Bytes;
use proptest::prelude::*;

fn decode_everything(data: &Bytes) {
    for &api in ApiKey::ALL {
        for version in api.versions() {
            if let Ok(request) = Request::decode(api as i16, version, data.clone()) {
                // What was read can be written, and reads the same again.
                let frame = request.encode(version, 1, None).unwrap().into_contiguous();
                let mut body = frame.slice(4..);
                RequestHeader::decode(&mut body).unwrap();
                assert_eq!(Request::decode(api as i16, version, body).unwrap(), request);
            }
            let _ = Response::decode(api as i16, version, data.clone());
        }
    }
    let _ = RequestHeader::decode(&mut data.clone());
    let _ = ConsumerProtocolSubscription::decode(data.clone());
    let _ = ConsumerProtocolAssignment::decode(data.clone());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn arbitrary_bytes(data in prop::collection::vec(any::<u8>(), 0..200)) {
        decode_everything(&data.into());
    }

    /// Small values are lengths that fit, so that decoding gets further.
    #[test]
    fn arbitrary_small_bytes(data in prop::collection::vec(0u8..6, 0..300)) {
        decode_everything(&data.into());
    }

    #[test]
    fn cut_and_flipped_messages(seed: u64, cut: prop::sample::Index, flip: prop::sample::Index, value: u8) {
        let mut source = Source::new(seed);
        let api = ApiKey::Fetch;
        for version in api.versions() {
            let message: FetchResponse = source.message(version).unwrap();
            let mut frame = message.encode_response(version, 9).unwrap().into_contiguous().slice(4..).to_vec();
            let whole = Response::decode(api as i16, version, frame.clone().into());
            prop_assert!(whole.is_ok());
            let short = Bytes::copy_from_slice(&frame[..cut.index(frame.len())]);
            prop_assert!(Response::decode(api as i16, version, short).is_err(), "a cut message must not decode");
            let at = flip.index(frame.len());
            frame[at] = value;
            let _ = Response::decode(api as i16, version, frame.into());
        }
    }
}

#[test]
fn consumer_protocol_round_trip() {
    for seed in 0..200 {
        for number in 0..=3 {
            let mut source = Source::new(seed);
            let message = ConsumerProtocolSubscription::random(number, &mut source);
            let mut data = message.encode(number).unwrap().to_vec();
            assert_eq!(ConsumerProtocolSubscription::decode(data.clone().into()).unwrap(), message);
            // A newer version only appends.
            data.extend_from_slice(b"more");
            assert_eq!(ConsumerProtocolSubscription::decode(data.into()).unwrap(), message);
            let message = ConsumerProtocolAssignment::random(number, &mut source);
            let data = message.encode(number).unwrap();
            assert_eq!(ConsumerProtocolAssignment::decode(data).unwrap(), message);
        }
    }
    assert!(ConsumerProtocolSubscription::decode(Bytes::from_static(&[0xff, 0xff, 0, 0, 0, 0])).is_err());
}

#[test]
fn a_list_is_not_believed() {
    // Two billion topics in eleven bytes, in the old layout and the new.
    let why = |version, data: &[u8]| {
        MetadataRequest::decode(version, Bytes::copy_from_slice(data))
            .map_err(|error| (error.what, error.at, error.why))
    };
    assert_eq!(
        why(1, &[0x7f, 0xff, 0xff, 0xff, 0, 0]),
        Err(("MetadataRequest.topics", 0, Why::TooManyElements { count: 0x7fff_ffff, most: 1 }))
    );
    assert_eq!(
        why(9, &[0xff, 0xff, 0xff, 0xff, 0x0f, 1, 0, 1, 0, 0, 0]),
        Err(("MetadataRequest.topics", 0, Why::TooManyElements { count: 0xffff_fffe, most: 3 }))
    );
    // Ten thousand and one tags, each of which would need two bytes.
    let mut tags = vec![0x91, 0x4e];
    tags.resize(30_000, 0);
    let mut data = vec![0, 0, 0, 0];
    data.extend(&tags);
    assert_eq!(why(9, &data).unwrap_err().2, Why::TooManyTags(10_001));
}

#[test]
fn more_elements_than_allowed() {
    let count = ARRAY_ELEMENTS_MAX + 1;
    let mut data = (count as u32).to_be_bytes().to_vec();
    data.resize(4 + 2 * count, 0);
    let error = DeleteGroupsRequest::decode(0, data.into()).unwrap_err();
    assert_eq!(error.why, Why::TooManyElements { count, most: ARRAY_ELEMENTS_MAX });
}

#[test]
fn more_elements_in_all_than_allowed() {
    // Two topics with half a million partitions each: the topics are elements as well.
    let partitions = ARRAY_ELEMENTS_MAX / 2;
    let topic = |data: &mut Vec<u8>| {
        data.extend([0, 0]);
        data.extend((partitions as u32).to_be_bytes());
        data.resize(data.len() + 12 * partitions, 0);
    };
    let mut data = vec![0, 0, 0, 2];
    topic(&mut data);
    topic(&mut data);
    data.extend([0; 4]);
    let error = DeleteRecordsRequest::decode(0, data.into()).unwrap_err();
    assert_eq!(error.why, Why::TooManyElements { count: partitions, most: partitions - 2 });
}
