//! Framing: heads, ends, limits and pieces; and the writer's chunks.

use super::hex;
use crate::methods::{basic, queue};
use crate::*;
use bytes::{Bytes, BytesMut};

/// What the first frame of these bytes is, the same from either kind of buffer.
fn parse(bytes: &Bytes, frame_max: u32) -> Result<Parsed, FrameError> {
    let mut shared = bytes.clone();
    let mut own = BytesMut::from(&bytes[..]);
    let parsed = Frame::parse(&mut shared, frame_max);
    assert_eq!(Frame::parse(&mut own, frame_max), parsed);
    assert_eq!(own, shared);
    parsed
}

fn frame(frame_type: FrameType, channel: u16, payload: &Bytes) -> Frame {
    Frame { frame_type, channel, payload: payload.clone() }
}

/// A frame with a payload of zeros.
fn zeros(frame_type: u8, channel: u16, payload_bytes: usize) -> Bytes {
    let mut frame = vec![frame_type];
    frame.extend_from_slice(&channel.to_be_bytes());
    frame.extend_from_slice(&(payload_bytes as u32).to_be_bytes());
    frame.resize(frame.len() + payload_bytes, 0);
    frame.push(0xce);
    frame.into()
}

#[test]
fn a_frame_shares_the_buffer() {
    let bytes = hex("01 0007 00000004 00280033 ce 08");
    let mut rest = bytes.clone();
    let Ok(Parsed::Frame(parsed)) = Frame::parse(&mut rest, 4096) else { panic!() };
    assert_eq!(parsed, frame(FrameType::Method, 7, &hex("00280033")));
    assert_eq!(parsed.payload.as_ptr(), bytes[7..].as_ptr());
    assert_eq!(rest, hex("08"));
}

#[test]
fn what_is_missing_is_told() {
    let bytes = hex("03 0001 00000005 68656c6c6f ce");
    let missing = [8, 7, 6, 5, 4, 3, 2, 6, 5, 4, 3, 2, 1];
    for (length, missing) in missing.into_iter().enumerate() {
        assert_eq!(parse(&bytes.slice(..length), 4096), Ok(Parsed::Missing(missing)), "{length}");
    }
    assert_eq!(parse(&bytes, 4096), Ok(Parsed::Frame(frame(FrameType::Body, 1, &hex("68656c6c6f")))));
}

#[test]
fn frames_may_be_eight_bytes_too_large() {
    let payload = |bytes| parse(&zeros(3, 1, bytes), 4096);
    for bytes in [0, 4088, 4089, 4096] {
        assert!(matches!(payload(bytes), Ok(Parsed::Frame(_))), "{bytes}");
    }
    assert_eq!(payload(4097), Err(FrameError::TooLarge { payload_bytes: 4097, frame_max: 4096 }));
    // The head is enough to refuse it, and without a limit nothing is too large.
    let head = hex("03 0001 ffffffff");
    assert_eq!(parse(&head, 4096), Err(FrameError::TooLarge { payload_bytes: u32::MAX, frame_max: 4096 }));
    assert_eq!(parse(&head, 0), Ok(Parsed::Missing(u32::MAX as usize + 1)));
}

#[test]
fn an_unknown_type_is_refused_by_its_octet() {
    for octet in [0, 4, 7, 9, b'A', 0xce, 0xff] {
        let error = parse(&Bytes::from(vec![octet]), 4096).unwrap_err();
        assert_eq!(error, FrameError::UnknownType(octet));
        assert_eq!(error.reply_code(), ReplyCode::FrameError);
    }
}

#[test]
fn a_wrong_end_is_refused() {
    let error = parse(&hex("03 0001 00000001 68 cf"), 4096).unwrap_err();
    assert_eq!((error, error.reply_code()), (FrameError::BadEnd(0xcf), ReplyCode::FrameError));
    assert_eq!(error.to_string(), "a frame ends with the octet 0xcf instead of 0xce");
}

#[test]
fn a_heartbeat_is_empty_and_on_channel_0() {
    let mut writer = Writer::new(4096);
    writer.heartbeat();
    let bytes = writer.into_contiguous();
    assert_eq!(bytes, hex("08 0000 00000000 ce"));
    assert_eq!(parse(&bytes, 4096), Ok(Parsed::Frame(frame(FrameType::Heartbeat, 0, &Bytes::new()))));
    let error = parse(&hex("08 0001 00000000 ce"), 4096).unwrap_err();
    assert_eq!((error, error.reply_code()), (FrameError::HeartbeatChannel(1), ReplyCode::UnexpectedFrame));
    let error = parse(&hex("08 0000 00000001 00 ce"), 4096).unwrap_err();
    assert_eq!((error, error.reply_code()), (FrameError::HeartbeatPayload(1), ReplyCode::FrameError));
}

#[test]
fn channel_0_has_no_content() {
    for content in ["02 0000 00000000", "03 0000 00000000"] {
        let error = parse(&hex(content), 4096).unwrap_err();
        assert_eq!(
            (error, error.reply_code()),
            (FrameError::ContentOnChannelZero, ReplyCode::UnexpectedFrame)
        );
    }
}

#[test]
fn protocol_headers_are_told_apart() {
    let parse = |bytes: &[u8]| ProtocolHeader::parse(bytes);
    assert_eq!(parse(b"AMQP\0\0\x09"), None);
    assert_eq!(parse(b"AMQP\0\0\x09\x01\x01"), Some(ProtocolHeader::Amqp091));
    assert_eq!(parse(b"AMQP\x01\x01\0\x09"), Some(ProtocolHeader::Amqp09));
    assert_eq!(parse(b"AMQP\0\x01\0\0"), Some(ProtocolHeader::Amqp10(Amqp10Layer::Amqp)));
    assert_eq!(parse(b"AMQP\x02\x01\0\0"), Some(ProtocolHeader::Amqp10(Amqp10Layer::Tls)));
    assert_eq!(parse(b"AMQP\x03\x01\0\0"), Some(ProtocolHeader::Amqp10(Amqp10Layer::Sasl)));
    assert_eq!(parse(b"GET / HTTP/1.1"), Some(ProtocolHeader::Other(*b"GET / HT")));
    assert_eq!(parse(&ProtocolHeader::SUPPORTED), Some(ProtocolHeader::Amqp091));
    let mut writer = Writer::new(0);
    writer.protocol_header(ProtocolHeader::SUPPORTED);
    assert_eq!(writer.into_contiguous(), hex("414d5150 00000901"));
}

/// Type and payload length of each frame of a published body of so many bytes.
fn published(body_bytes: usize, frame_max: u32) -> Vec<(FrameType, usize)> {
    let mut writer = Writer::new(frame_max);
    let body = Bytes::from(vec![7; body_bytes]);
    writer.content(1, &basic::Publish::default(), &BasicProperties::default(), &body).unwrap();
    let length = writer.len();
    let mut bytes = writer.into_contiguous();
    assert_eq!(bytes.len(), length);
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let Ok(Parsed::Frame(frame)) = Frame::parse(&mut bytes, 0) else { panic!("{frames:?}") };
        frames.push((frame.frame_type, frame.payload.len()));
    }
    frames
}

#[test]
fn a_body_is_cut_eight_bytes_below_frame_max() {
    let (method, header) = ((FrameType::Method, 9), (FrameType::Header, 14));
    let body = |bytes| (FrameType::Body, bytes);
    assert_eq!(published(0, 4096), [method, header], "an empty body has no frame");
    assert_eq!(published(1, 4096), [method, header, body(1)]);
    assert_eq!(published(4088, 4096), [method, header, body(4088)]);
    assert_eq!(published(4089, 4096), [method, header, body(4088), body(1)]);
    assert_eq!(published(8176, 4096), [method, header, body(4088), body(4088)]);
    assert_eq!(published(1_000_000, 0), [method, header, body(1_000_000)]);
    // What every peer must take is not cut further, however little was negotiated.
    assert_eq!(published(4088, 10), [method, header, body(4088)]);
}

#[test]
fn a_delivery_is_written_byte_by_byte() {
    let deliver = basic::Deliver {
        consumer_tag: ShortStr::from_static("c"),
        delivery_tag: 1,
        redelivered: false,
        exchange: ShortStr::new(),
        routing_key: ShortStr::from_static("q"),
    };
    let properties = BasicProperties { delivery_mode: Some(2), ..Default::default() };
    let mut writer = Writer::new(4096);
    writer.content(5, &deliver, &properties, &Bytes::from_static(b"hello")).unwrap();
    let frames = "01 0005 00000012 003c 003c 01 63 0000000000000001 00 00 01 71 ce
         02 0005 0000000f 003c 0000 0000000000000005 1000 02 ce
         03 0005 00000005 68656c6c6f ce";
    assert_eq!(writer.into_contiguous(), hex(frames));
}

#[test]
fn large_bodies_are_chunks_and_small_ones_are_copied() {
    let stored = Bytes::from(vec![7; 10_000]);
    let mut writer = Writer::new(131_072);
    for body in [stored.slice(..100), stored.slice(100..9_000), stored.slice(9_000..9_100)] {
        let publish = basic::Publish::default();
        writer.content(1, &publish, &BasicProperties::default(), &body).unwrap();
    }
    let length = writer.len();
    let chunks = writer.take();
    // Small frames, the large body where it lies, its end with the frames behind it.
    let [first, body, last] = &chunks[..] else { panic!("{} chunks", chunks.len()) };
    assert_eq!(body.as_ptr(), stored[100..].as_ptr());
    assert_eq!(body.len(), 8_900);
    assert_eq!(last[0], 0xce);
    assert_eq!(first.len() + body.len() + last.len(), length);
    assert!(writer.is_empty());
    assert!(writer.take().is_empty());
}

#[test]
fn what_does_not_fit_in_a_frame_leaves_no_trace() {
    let mut writer = Writer::new(4096);
    writer.heartbeat();
    let long = Value::from("x".repeat(5_000));
    let arguments: Table = [(ShortStr::new(), long.clone())].into_iter().collect();
    let declare = queue::Declare { arguments: arguments.clone(), ..Default::default() };
    let error = writer.method(1, declare).unwrap_err();
    assert_eq!(error, EncodeError { what: "queue.declare", payload_bytes: 5_018, payload_bytes_max: 4_088 });
    let properties = BasicProperties { headers: Some(arguments), ..Default::default() };
    let error = writer.content(1, &basic::Publish::default(), &properties, &Bytes::from_static(b"x"));
    assert_eq!(error.unwrap_err().what, "content header");
    assert_eq!(writer.len(), 8);
    // With larger frames it goes through.
    writer.set_frame_max(131_072);
    assert_eq!(writer.content(1, &basic::Publish::default(), &properties, &Bytes::from_static(b"x")), Ok(()));
}
