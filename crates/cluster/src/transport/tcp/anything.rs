//! What reads bytes of other nodes, given any bytes: for fuzzing. Each function panics if a promise is broken.

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use weir_model::{Incarnation, NodeId, ShardId};

use super::frame::{Frame, HEAD_BYTES, Kind, head, take_frame};
use super::handshake::{
    Hello, Purpose, Reason, Refusal, Reply, WHOEVER_IS_THERE, judge, judge_incarnation, take_message,
};
use crate::identity::{Identity, Phase};
use crate::transport::Line;

/// Bytes of the handshake in front of a body, and where its checksum is.
const MESSAGE_HEAD_BYTES: usize = 16;
const MESSAGE_CRC_AT: usize = 12;

/// Frames come out the same however the bytes are cut, and what came out can be written and read again.
pub(crate) fn read_frames(bytes: &[u8]) {
    frames_are_the_same(bytes);
    // Most of what is changed at random does not get past the checksum.
    if bytes.len() > HEAD_BYTES {
        let mut mended = bytes.to_vec();
        mended[..4].copy_from_slice(&(bytes.len() as u32 - 4).to_le_bytes());
        let crc = crc32c::crc32c(&mended[8..]);
        mended[4..8].copy_from_slice(&crc.to_le_bytes());
        frames_are_the_same(&mended);
    }
}

fn frames_are_the_same(bytes: &[u8]) {
    let whole = frames(bytes, bytes.len().max(1));
    assert_eq!(frames(bytes, 7), whole, "frames differ by where they are cut");
    for frame in whole.0 {
        let payload = [frame.payload.clone()];
        let head = head(frame.kind, frame.call, frame.line, &payload);
        let mut again = BytesMut::from(&[&head[..], &frame.payload].concat()[..]);
        assert_eq!(take_frame(&mut again), Ok(Some(frame)));
    }
}

/// All frames, and whether the rest is none.
fn frames(bytes: &[u8], step: usize) -> (Vec<Frame>, bool) {
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    for piece in bytes.chunks(step) {
        buffer.extend_from_slice(piece);
        loop {
            match take_frame(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_) => return (frames, true),
            }
        }
    }
    (frames, false)
}

/// Whatever is a hello or a reply can be written and read again, and judged.
pub(crate) fn read_handshake(bytes: &[u8]) {
    message_reads_the_same(bytes);
    if bytes.len() > MESSAGE_HEAD_BYTES {
        let mut mended = bytes.to_vec();
        let body_bytes = (bytes.len() - MESSAGE_HEAD_BYTES) as u32;
        mended[8..12].copy_from_slice(&body_bytes.to_le_bytes());
        let crc = crc32c::crc32c(&mended[MESSAGE_HEAD_BYTES..]);
        mended[MESSAGE_CRC_AT..MESSAGE_HEAD_BYTES].copy_from_slice(&crc.to_le_bytes());
        message_reads_the_same(&mended);
    }
}

fn message_reads_the_same(bytes: &[u8]) {
    let Ok(Some(body)) = take_message(&mut BytesMut::from(bytes)) else { return };
    if let Ok(hello) = Hello::decode(body.clone()) {
        assert_eq!(Hello::decode(body_of(&hello.encode())), Ok(hello.clone()));
        let _ = judge(&hello, &identity(Phase::Formed), true);
        let _ = judge_incarnation(&hello, Incarnation(1));
    }
    if let Ok(reply) = Reply::decode(body) {
        assert_eq!(Reply::decode(body_of(&reply.encode())), Ok(reply));
    }
}

fn body_of(message: &Bytes) -> Bytes {
    message.slice(MESSAGE_HEAD_BYTES..)
}

fn identity(phase: Phase) -> Identity {
    let cluster = if phase == Phase::Empty { String::new() } else { "lake".to_owned() };
    let founders = (1..=3).map(NodeId).collect();
    Identity { node: NodeId(1), phase, cluster, founders, incarnation: Incarnation::FIRST, shards: 8 }
}

/// Valid frames, each by itself and two behind each other.
pub(crate) fn frame_seeds() -> Vec<Vec<u8>> {
    let payload = [Bytes::from_static(b"a payload")];
    let frame = |kind, call, line| [&head(kind, call, line, &payload)[..], &payload[0]].concat();
    let ping = head(Kind::Ping, 0, Line::Service, &[]).to_vec();
    let call = frame(Kind::Call, 7, Line::Shard(ShardId(3)));
    let both = [&ping[..], &call].concat();
    vec![
        ping,
        call,
        both,
        frame(Kind::Answer, 7, Line::Service),
        frame(Kind::Failure, u64::MAX, Line::Service),
    ]
}

/// Valid messages of the handshake.
pub(crate) fn handshake_seeds() -> Vec<Vec<u8>> {
    let own = identity(Phase::Forming);
    let hello = |purpose| Hello::new(&own, NodeId(2), purpose).encode();
    let returned = Identity { incarnation: Incarnation(3), ..identity(Phase::Formed) };
    let asked =
        Hello { token: 1 << 60, ..Hello::new(&identity(Phase::Empty), NodeId(2), Purpose::Incarnation) };
    let joins = Hello {
        token: 7,
        address: "d.example:9348".to_owned(),
        ..Hello::new(&identity(Phase::Empty), WHOEVER_IS_THERE, Purpose::Admission)
    };
    let peers =
        BTreeMap::from([(NodeId(2), "b.example:9348".to_owned()), (NodeId(4), "d.example:1".to_owned())]);
    let refusal = Refusal { reason: Reason::OtherNode, words: "this is node 2".to_owned() };
    let messages = [
        hello(Purpose::Shards),
        hello(Purpose::Service),
        hello(Purpose::Formation),
        asked.encode(),
        joins.encode(),
        Hello::new(&returned, NodeId(2), Purpose::Shards).encode(),
        Reply::Accept { version: 1, identity: Some(returned), peers: BTreeMap::new() }.encode(),
        Reply::Accept { version: 1, identity: None, peers: BTreeMap::new() }.encode(),
        Reply::Accept { version: 1, identity: Some(identity(Phase::Empty)), peers: peers.clone() }.encode(),
        Reply::Accept { version: 1, identity: Some(own.clone()), peers }.encode(),
        Reply::Refuse(refusal).encode(),
    ];
    messages.iter().map(|message| message.to_vec()).collect()
}
