//! Every method and every property against the `amq-protocol` crate, an independent implementation generated from
//! RabbitMQ's own description of the protocol: what we write it must read, and write back to the same bytes.
//!
//! It keeps tables in maps and strings as text, so what is made for it has names in order, once each, in UTF-8, and
//! no tag `L`, which it writes as `l`.

use crate::methods::basic;
use crate::*;
use amq_protocol::frame::{WriteContext, gen_frame, parse_frame};
use amq_protocol::protocol::{AMQPHardError, AMQPSoftError};
use proptest::prelude::*;

/// The frames as the other crate reads and writes them.
fn theirs(mut frames: &[u8]) -> Vec<u8> {
    let mut written = Vec::new();
    while !frames.is_empty() {
        let (rest, frame) = parse_frame(frames).unwrap_or_else(|error| panic!("{error:?}"));
        frames = rest;
        let context = gen_frame(&frame)(WriteContext::from(written)).unwrap();
        written = context.into_inner().0;
    }
    written
}

/// Gives the two fields that the other crate takes for reserved, and we do not, the values that it writes.
fn restrict(method: &mut Method) {
    match method {
        Method::AccessRequestOk(request_ok) => request_ok.ticket = 1,
        Method::BasicQos(qos) => qos.prefetch_size = 0,
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_method(seed: u64) {
        for mut method in Method::generate_each(&mut Source::plain(seed)) {
            restrict(&mut method);
            let mut writer = Writer::new(0);
            writer.method(7, method.clone()).unwrap();
            let ours = writer.into_contiguous();
            prop_assert_eq!(theirs(&ours), ours, "{:?}", method);
        }
    }

    #[test]
    fn every_property(seed: u64) {
        let mut source = Source::plain(seed);
        let properties = BasicProperties::generate(&mut source);
        let mut writer = Writer::new(0);
        writer.content(7, &basic::Publish::default(), &properties, &source.bytes()).unwrap();
        let ours = writer.into_contiguous();
        prop_assert_eq!(theirs(&ours), ours, "{:?}", properties);
    }
}

#[test]
fn heartbeats_and_headers_agree() {
    let mut writer = Writer::new(0);
    writer.protocol_header(ProtocolHeader::SUPPORTED);
    writer.heartbeat();
    let ours = writer.into_contiguous();
    assert_eq!(theirs(&ours), ours);
}

#[test]
fn reply_codes_agree() {
    for number in 0..1_000 {
        let scope = ReplyCode::from_number(number).map(ReplyCode::scope);
        assert_eq!(AMQPSoftError::from_id(number).is_some(), scope == Some(Scope::Channel), "{number}");
        assert_eq!(AMQPHardError::from_id(number).is_some(), scope == Some(Scope::Connection), "{number}");
    }
}
