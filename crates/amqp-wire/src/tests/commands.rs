//! Frames that become commands, and frames that come where others were due.

use crate::methods::{basic, queue};
use crate::*;
use bytes::Bytes;

const BODY_BYTES_MAX: u64 = 100_000;

fn frames(mut bytes: Bytes) -> Vec<Frame> {
    let mut frames = Vec::new();
    while !bytes.is_empty() {
        let Ok(Parsed::Frame(frame)) = Frame::parse(&mut bytes, 4096) else { panic!("{frames:?}") };
        frames.push(frame);
    }
    frames
}

fn publish(body: &Bytes) -> Vec<Frame> {
    let mut writer = Writer::new(4096);
    let properties = BasicProperties { priority: Some(3), ..Default::default() };
    writer.content(1, &basic::Publish::default(), &properties, body).unwrap();
    frames(writer.into_contiguous())
}

fn method(method: impl Into<Method>) -> Frame {
    let mut writer = Writer::new(4096);
    writer.method(1, method).unwrap();
    frames(writer.into_contiguous()).remove(0)
}

fn body(bytes: &'static [u8]) -> Frame {
    Frame { frame_type: FrameType::Body, channel: 1, payload: Bytes::from_static(bytes) }
}

#[test]
fn messages_and_methods_follow_each_other() {
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    for length in [0, 1, 4088, 4089, 50_000] {
        let whole = Bytes::from(vec![7; length]);
        let mut sent = publish(&whole);
        let last = sent.pop().unwrap();
        for frame in sent {
            assert_eq!(assembler.push(frame), Ok(None));
            assert!(!assembler.is_idle());
        }
        let command = assembler.push(last).unwrap().unwrap();
        assert_eq!(command.method, basic::Publish::default().into());
        let content = command.content.unwrap();
        assert_eq!(content.properties.priority, Some(3));
        assert_eq!(content.body.len(), length);
        assert_eq!(content.body.into_contiguous(), whole);

        let declare = Method::from(queue::Declare::default());
        let command = assembler.push(method(declare.clone())).unwrap().unwrap();
        assert_eq!(command, Command { method: declare, content: None });
    }
}

#[test]
fn a_body_is_never_copied_unless_it_is_cut_small() {
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    let [first, header, only] = <[Frame; 3]>::try_from(publish(&Bytes::from_static(b"body"))).unwrap();
    let place = only.payload.as_ptr();
    assembler.push(first).unwrap();
    assembler.push(header).unwrap();
    let command = assembler.push(only).unwrap().unwrap();
    let body = command.content.unwrap().body.into_contiguous();
    assert_eq!((body.as_ptr(), body.len()), (place, 4));

    let mut body = Body::new();
    let large = Bytes::from(vec![1; 5_000]);
    body.push(large.clone());
    for _ in 0..3_000 {
        body.push(Bytes::from_static(b"x"));
    }
    body.push(large.clone());
    let pieces: Vec<&[u8]> = body.pieces().collect();
    assert_eq!(pieces.iter().map(|piece| piece.len()).collect::<Vec<_>>(), [5_000, 3_000, 5_000]);
    assert_eq!(pieces[0].as_ptr(), large.as_ptr());
    assert_eq!(pieces[2].as_ptr(), large.as_ptr());
    assert_eq!(body.clone().into_contiguous().len(), 13_000);
    assert_eq!(body, Body::from(body.clone().into_contiguous()));
}

#[test]
fn frames_out_of_order_are_unexpected() {
    let check = |sent: Vec<Frame>, due, came| {
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let mut outcome = Ok(None);
        for frame in sent {
            assert!(outcome.is_ok());
            outcome = assembler.push(frame);
        }
        let error = outcome.unwrap_err();
        assert_eq!(error, AssemblyError::Unexpected { due, came });
        assert_eq!(error.reply_code(), ReplyCode::UnexpectedFrame);
        assembler.method_ids()
    };
    let [publish, header, body] = <[Frame; 3]>::try_from(publish(&Bytes::from_static(b"body"))).unwrap();
    let method = method(queue::Declare::default());
    use FrameType::{Body, Header, Method};
    // The method at fault is the one whose content was due.
    let (none, publishing) = ((0, 0), (60, 40));
    assert_eq!(check(vec![header.clone()], Method, Header), none);
    assert_eq!(check(vec![method.clone(), body.clone()], Method, Body), none);
    assert_eq!(check(vec![publish.clone(), method.clone()], Header, Method), publishing);
    assert_eq!(check(vec![publish.clone(), body.clone()], Header, Body), publishing);
    assert_eq!(check(vec![publish.clone(), header.clone(), method], Body, Method), publishing);
    assert_eq!(check(vec![publish, header.clone(), header], Body, Header), publishing);
}

#[test]
fn a_body_is_as_long_as_its_header_says() {
    let mut assembler = Assembler::new(BODY_BYTES_MAX);
    let mut sent = publish(&Bytes::from_static(b"body"));
    sent.pop();
    for frame in sent {
        assembler.push(frame).unwrap();
    }
    // Empty frames are allowed and change nothing.
    assert_eq!(assembler.push(body(b"")), Ok(None));
    assert_eq!(assembler.push(body(b"bo")), Ok(None));
    assert_eq!(assembler.push(body(b"")), Ok(None));
    let error = assembler.push(body(b"dy!")).unwrap_err();
    assert_eq!(error, AssemblyError::BodyOverrun { bytes: 3, left: 2 });
    assert_eq!(error.reply_code(), ReplyCode::UnexpectedFrame);
}

#[test]
fn a_body_beyond_the_limit_is_passed_over_and_refused_when_it_has_come() {
    let mut assembler = Assembler::new(3);
    let [first, header, only] = <[Frame; 3]>::try_from(publish(&Bytes::from_static(b"body"))).unwrap();
    assert_eq!(assembler.push(first), Ok(None));
    assert_eq!(assembler.push(header), Ok(None));
    let error = assembler.push(only).unwrap_err();
    assert_eq!(error, AssemblyError::BodyTooLarge { bytes: 4, bytes_max: 3 });
    assert_eq!(error.reply_code(), ReplyCode::PreconditionFailed);
    assert_eq!(assembler.method_ids(), (60, 40));
}

#[test]
fn a_method_that_cannot_be_read_has_ids_all_the_same() {
    for (payload, ids) in [("0032 000a 00", (50, 10)), ("0063 000a", (99, 10)), ("003c", (0, 0))] {
        let mut assembler = Assembler::new(BODY_BYTES_MAX);
        let frame = Frame { frame_type: FrameType::Method, channel: 1, payload: super::hex(payload) };
        assert!(assembler.push(frame).is_err());
        assert_eq!(assembler.method_ids(), ids);
    }
}
