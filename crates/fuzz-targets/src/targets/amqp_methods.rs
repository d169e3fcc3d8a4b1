//! The payload of an AMQP method frame, or of a content header frame. What was read can be written, and reads the
//! same again; the same is meant of the bytes, because a table may hold a number that is not equal to itself.

use bytes::Bytes;
use weir_amqp_wire::methods::basic;
use weir_amqp_wire::{BasicProperties, ContentHeader, Frame, FrameType, Method, Parsed, Source, Writer};

pub fn run(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    if let Ok(method) = Method::decode(data.clone()) {
        let written = write_method(method);
        let again = Method::decode(written.clone()).expect("what was written can be read");
        assert_eq!(write_method(again), written);
    }
    if let Ok(header) = ContentHeader::decode(data) {
        let written = write_properties(&header.properties);
        let again = ContentHeader::decode(written.clone()).expect("what was written can be read");
        assert_eq!(write_properties(&again.properties), written);
    }
}

fn write_method(method: Method) -> Bytes {
    let mut writer = Writer::new(0);
    writer.method(1, method).expect("what was read can be written");
    payload(writer, FrameType::Method)
}

/// A content header for an empty body.
fn write_properties(properties: &BasicProperties) -> Bytes {
    let mut writer = Writer::new(0);
    let written = writer.content(1, &basic::Publish::default(), properties, &Bytes::new());
    written.expect("what was read can be written");
    payload(writer, FrameType::Header)
}

fn payload(writer: Writer, frame_type: FrameType) -> Bytes {
    let mut frames = writer.into_contiguous();
    loop {
        match Frame::parse(&mut frames, 0) {
            Ok(Parsed::Frame(frame)) if frame.frame_type == frame_type => return frame.payload,
            Ok(Parsed::Frame(_)) => {}
            other => panic!("{other:?} where a {frame_type} frame was written"),
        }
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut source = Source::new(85);
    let mut seeds = Vec::new();
    for _ in 0..5 {
        seeds.extend(Method::generate_each(&mut source).into_iter().map(|method| write_method(method).to_vec()));
        seeds.push(write_properties(&BasicProperties::generate(&mut source)).to_vec());
    }
    seeds
}
