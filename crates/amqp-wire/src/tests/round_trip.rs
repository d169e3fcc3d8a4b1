//! What is written reads the same again, for random values of every method and every property.
//!
//! Equality is that of the bytes: a table may hold a number that is not equal to itself.

use super::{frame_payload, payload};
use crate::methods::basic;
use crate::*;
use bytes::Bytes;
use proptest::prelude::*;

fn header(properties: &BasicProperties, body: &Bytes) -> (Bytes, Body) {
    let mut writer = Writer::new(0);
    writer.content(1, &basic::Publish::default(), properties, body).unwrap();
    let mut bytes = writer.into_contiguous();
    let mut header = Bytes::new();
    let mut whole = Body::new();
    while !bytes.is_empty() {
        let Ok(Parsed::Frame(frame)) = Frame::parse(&mut bytes, 0) else { panic!() };
        match frame.frame_type {
            FrameType::Header => header = frame.payload,
            FrameType::Body => whole.push(frame.payload),
            _ => {}
        }
    }
    (header, whole)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_method(seed: u64) {
        for method in Method::generate_each(&mut Source::new(seed)) {
            let written = payload(method.clone());
            let read = Method::decode(written.clone());
            let read = read.unwrap_or_else(|error| panic!("{error}: {method:?}"));
            prop_assert_eq!(read.name(), method.name());
            prop_assert_eq!(format!("{read:?}"), format!("{method:?}"));
            prop_assert_eq!(payload(read), written);
        }
    }

    #[test]
    fn every_property(seed: u64) {
        let mut source = Source::new(seed);
        let properties = BasicProperties::generate(&mut source);
        let body = source.bytes();
        let (written, whole) = header(&properties, &body);
        prop_assert_eq!(whole, Body::from(body.clone()));
        let read = ContentHeader::decode(written.clone()).unwrap();
        prop_assert_eq!(read.body_bytes, body.len() as u64);
        prop_assert_eq!(format!("{:?}", read.properties), format!("{properties:?}"));
        prop_assert_eq!(header(&read.properties, &body).0, written);
    }

    #[test]
    fn tables(seed: u64) {
        let table = Source::new(seed).table();
        let written = table.encode();
        let read = Table::decode(written.clone()).unwrap();
        prop_assert_eq!(format!("{read:?}"), format!("{table:?}"));
        prop_assert_eq!(read.encode(), written);
    }

    #[test]
    fn a_stream_of_frames_in_pieces_of_any_size(seed: u64, cuts in prop::collection::vec(1usize..200, 1..50)) {
        let methods = Method::generate_each(&mut Source::new(seed));
        let mut writer = Writer::new(0);
        for method in &methods {
            writer.method(3, method.clone()).unwrap();
            writer.heartbeat();
        }
        let sent = writer.into_contiguous();
        let mut received = bytes::BytesMut::new();
        let mut place = 0;
        let mut came = Vec::new();
        for cut in cuts.iter().cycle() {
            let end = (place + cut).min(sent.len());
            received.extend_from_slice(&sent[place..end]);
            place = end;
            loop {
                match Frame::parse(&mut received, 0).unwrap() {
                    Parsed::Missing(bytes) => {
                        prop_assert!(bytes > 0);
                        break;
                    }
                    Parsed::Frame(frame) if frame.frame_type == FrameType::Method => came.push(frame.payload),
                    Parsed::Frame(frame) => prop_assert_eq!(frame.frame_type, FrameType::Heartbeat),
                }
            }
            if place == sent.len() {
                break;
            }
        }
        prop_assert!(received.is_empty());
        prop_assert_eq!(came, methods.into_iter().map(payload).collect::<Vec<_>>());
    }
}

#[test]
fn all_methods_have_ids_of_their_own() {
    let methods = Method::generate_each(&mut Source::new(0));
    let ids: std::collections::BTreeSet<_> =
        methods.iter().map(|method| (method.class_id(), method.method_id())).collect();
    assert_eq!(ids.len(), methods.len());
    assert_eq!(methods.len(), 66);
    let with_content = methods.iter().filter(|method| method.has_content()).map(Method::name);
    let expected = ["basic.publish", "basic.return", "basic.deliver", "basic.get-ok"];
    assert_eq!(with_content.collect::<Vec<_>>(), expected);
}

#[test]
fn a_frame_of_a_method_is_its_payload_in_a_frame() {
    let mut writer = Writer::new(0);
    writer.method(1, basic::RecoverOk {}).unwrap();
    assert_eq!(frame_payload(writer.into_contiguous()), super::hex("003c 006f"));
}
