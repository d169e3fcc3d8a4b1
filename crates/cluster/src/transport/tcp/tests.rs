//! Frames and handshakes byte by byte, and connections over pipes by a clock that only moves when all wait.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use proptest::prelude::*;
use rand::rngs::SmallRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};
use weir_model::{Incarnation, NodeId, ShardId};

use super::answers::{CallHandler, answer_calls};
use super::calls::Calls;
use super::frame::{FrameError, HEAD_BYTES, Kind, frame_bytes, head, take_frame};
use super::handshake::{
    Hello, MessageError, Purpose, Reason, Refusal, Reply, judge, judge_incarnation, take_message,
};
use super::wire::{FrameReader, PING_AFTER, SILENCE_MAX, WireError};
use crate::identity::{Identity, Phase};
use crate::transport::{Line, RPC_BYTES_MAX, TransportError};

const LINE: Line = Line::Shard(ShardId(3));

fn run<T>(scenario: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    runtime.expect("a runtime").block_on(scenario)
}

fn frame(kind: Kind, call: u64, line: Line, payload: &[u8]) -> Vec<u8> {
    let payload = Bytes::copy_from_slice(payload);
    let head = head(kind, call, line, std::slice::from_ref(&payload));
    [&head[..], &payload[..]].concat()
}

fn identity(node: u64, phase: Phase, cluster: &str) -> Identity {
    let founders = (1..=3).map(NodeId).collect();
    let incarnation = Incarnation::FIRST;
    Identity { node: NodeId(node), phase, cluster: cluster.to_owned(), founders, incarnation, shards: 8 }
}

proptest! {
    #[test]
    fn frames_come_out_as_they_went_in_wherever_they_are_cut(
        payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 1..5),
        step in 1usize..30,
    ) {
        let line = |index: usize| if index.is_multiple_of(2) { LINE } else { Line::Service };
        let bytes: Vec<u8> = payloads
            .iter()
            .enumerate()
            .flat_map(|(index, payload)| frame(Kind::Call, index as u64, line(index), payload))
            .collect();
        let mut buffer = BytesMut::new();
        let mut taken = Vec::new();
        for piece in bytes.chunks(step) {
            buffer.extend_from_slice(piece);
            while let Some(frame) = take_frame(&mut buffer).unwrap() {
                prop_assert_eq!(frame.call, taken.len() as u64);
                prop_assert_eq!(frame.line, line(taken.len()));
                taken.push(frame.payload.to_vec());
            }
        }
        prop_assert!(buffer.is_empty());
        prop_assert_eq!(taken, payloads);
    }

    #[test]
    fn a_frame_with_any_byte_changed_does_not_come_out(at in 4usize..40, change in 1u8..) {
        let mut bytes = frame(Kind::Answer, 7, LINE, b"eighteen bytes....");
        bytes[at] ^= change;
        let taken = take_frame(&mut BytesMut::from(&bytes[..]));
        let is_refused = matches!(taken, Err(FrameError::Checksum { .. }));
        prop_assert!(is_refused, "{:?}", taken);
    }

    #[test]
    fn handshakes_with_any_byte_changed_do_not_come_out(at in 0usize..60, change in 1u8..) {
        let hello = Hello::new(&identity(1, Phase::Formed, "lake"), NodeId(2), Purpose::Service);
        let mut bytes = BytesMut::from(&hello.encode()[..]);
        let at = at % bytes.len();
        bytes[at] ^= change;
        // A length that is too large but allowed waits for more.
        prop_assert!(!matches!(take_message(&mut bytes), Ok(Some(_))));
    }
}

#[test]
fn no_length_beyond_the_bounds_is_believed() {
    let longest = (HEAD_BYTES - 4 + RPC_BYTES_MAX) as u32;
    assert_eq!(frame_bytes(&longest.to_le_bytes()), Ok(Some(HEAD_BYTES + RPC_BYTES_MAX)));
    for length in [0, HEAD_BYTES as u32 - 5, longest + 1, u32::MAX] {
        assert_eq!(frame_bytes(&length.to_le_bytes()), Err(FrameError::Length(length)));
    }
    assert_eq!(frame_bytes(&[0, 0, 0]), Ok(None));
    let mut message = BytesMut::from(&b"weirpeer\xff\xff\xff\xff\0\0\0\0"[..]);
    assert_eq!(take_message(&mut message), Err(MessageError::Length(u32::MAX)));
    assert_eq!(take_message(&mut BytesMut::from(&b"G"[..])), Err(MessageError::Magic));
}

fn returned(node: u64, incarnation: u32) -> Identity {
    Identity { incarnation: Incarnation(incarnation), ..identity(node, Phase::Formed, "lake") }
}

#[test]
fn what_was_said_before_there_were_incarnations_is_read_as_that_of_the_first() {
    let hello = Hello::new(&identity(1, Phase::Formed, "lake"), NodeId(2), Purpose::Shards);
    let before = b"\x01\0\x01\0\x01\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x04\0\0\0lake";
    assert_eq!(Hello::decode(Bytes::from_static(before)), Ok(hello.clone()));
    assert_eq!(hello.encode()[16..], before[..]);
    let expected = Reply::Accept {
        version: 1,
        identity: Some(Identity { shards: 0, ..identity(2, Phase::Formed, "lake") }),
        peers: BTreeMap::new(),
    };
    // Without the shards, and without the incarnation.
    for missing in [4, 8] {
        let mut reply = expected.encode()[16..].to_vec();
        reply.truncate(reply.len() - missing);
        assert_eq!(Reply::decode(reply.into()), Ok(expected.clone()));
    }
}

#[test]
fn an_incarnation_that_was_replaced_is_refused_by_whoever_knows() {
    let own = returned(2, 1);
    let hello = Hello::new(&returned(1, 3), NodeId(2), Purpose::Shards);
    let known = |to_incarnation| Hello { to_incarnation: Incarnation(to_incarnation), ..hello.clone() };
    assert_eq!(judge(&known(1), &own, true), Ok(1));
    let refusal = judge(&known(2), &own, true).unwrap_err();
    assert_eq!(refusal.reason, Reason::Outdated);
    assert!(
        refusal.words.contains("node 2 is that of its incarnation 1, which was replaced by incarnation 2"),
        "{refusal:?}"
    );
    assert_eq!(judge_incarnation(&hello, Incarnation(3)), Ok(()));
    assert_eq!(judge_incarnation(&hello, Incarnation(2)), Ok(()), "others may know less");
    let refusal = judge_incarnation(&hello, Incarnation(4)).unwrap_err();
    assert!(refusal.words.contains("node 1 is that of its incarnation 3"), "{refusal:?}");
    // One that has nothing may ask what it is, if it is a peer.
    let asks = Hello::new(&identity(1, Phase::Empty, ""), NodeId(2), Purpose::Incarnation);
    assert_eq!(judge(&asks, &own, true), Ok(1));
    assert_eq!(judge(&asks, &own, false).unwrap_err().reason, Reason::UnknownNode);
    let other = Hello { cluster: "sea".into(), ..asks };
    assert_eq!(judge(&other, &own, true).unwrap_err().reason, Reason::OtherCluster);
}

#[test]
fn hellos_and_replies_come_out_as_they_went_in() {
    let member = identity(1, Phase::Formed, "lake");
    for purpose in [Purpose::Shards, Purpose::Service, Purpose::Formation] {
        let hello = Hello::new(&member, NodeId(2), purpose);
        let body = take_message(&mut BytesMut::from(&hello.encode()[..])).unwrap().unwrap();
        assert_eq!(Hello::decode(body), Ok(hello));
    }
    let asked = Hello {
        token: 1 << 40,
        ..Hello::new(&identity(1, Phase::Empty, ""), NodeId(2), Purpose::Incarnation)
    };
    let known =
        Hello { to_incarnation: Incarnation(4), ..Hello::new(&returned(1, 3), NodeId(2), Purpose::Shards) };
    for hello in [asked, known] {
        let body = take_message(&mut BytesMut::from(&hello.encode()[..])).unwrap().unwrap();
        assert_eq!(Hello::decode(body), Ok(hello));
    }
    let refusal = |code| Refusal { reason: Reason::Other(code), words: "no".into() };
    let replies = [
        Reply::Accept { version: 3, identity: None, peers: BTreeMap::new() },
        Reply::Accept { version: 1, identity: Some(identity(9, Phase::Empty, "")), peers: BTreeMap::new() },
        Reply::Accept { version: 1, identity: Some(member), peers: BTreeMap::new() },
        Reply::Accept { version: 1, identity: Some(returned(2, 7)), peers: BTreeMap::new() },
        Reply::Refuse(Refusal { reason: Reason::Replaced, words: "it was replaced".into() }),
        Reply::Refuse(Refusal { reason: Reason::NoIncarnation, words: "not now".into() }),
        Reply::Refuse(Refusal { reason: Reason::OtherCluster, words: "another".into() }),
        Reply::Refuse(refusal(200)),
    ];
    for reply in replies {
        let body = take_message(&mut BytesMut::from(&reply.encode()[..])).unwrap().unwrap();
        assert_eq!(Reply::decode(body), Ok(reply));
    }
    // Words are cut where a character ends.
    let long = Reply::Refuse(Refusal { reason: Reason::NotFormed, words: "ü".repeat(300) });
    let body = take_message(&mut BytesMut::from(&long.encode()[..])).unwrap().unwrap();
    let Ok(Reply::Refuse(cut)) = Reply::decode(body) else { panic!("it is a refusal") };
    assert_eq!(cut.words, "ü".repeat(256));
}

#[test]
fn who_does_not_belong_is_refused_with_words() {
    let own = identity(2, Phase::Formed, "lake");
    let hello = Hello::new(&identity(1, Phase::Formed, "lake"), NodeId(2), Purpose::Shards);
    let reason = |hello: &Hello, own: &Identity, is_known| {
        judge(hello, own, is_known).map_err(|refusal| {
            assert!(!refusal.words.is_empty());
            refusal.reason
        })
    };
    assert_eq!(reason(&hello, &own, true), Ok(1));
    assert_eq!(reason(&Hello { newest: 9, ..hello.clone() }, &own, true), Ok(1));
    assert_eq!(
        reason(&Hello { oldest: 2, newest: 9, ..hello.clone() }, &own, true),
        Err(Reason::NoCommonVersion)
    );
    assert_eq!(
        reason(&Hello { oldest: 0, newest: 0, ..hello.clone() }, &own, true),
        Err(Reason::NoCommonVersion)
    );
    assert_eq!(reason(&Hello { to: NodeId(3), ..hello.clone() }, &own, true), Err(Reason::OtherNode));
    assert_eq!(reason(&Hello { from: NodeId(2), ..hello.clone() }, &own, true), Err(Reason::OtherNode));
    assert_eq!(
        reason(&Hello { cluster: "sea".into(), ..hello.clone() }, &own, true),
        Err(Reason::OtherCluster)
    );
    assert_eq!(reason(&hello, &own, false), Err(Reason::UnknownNode));
    let forming = identity(2, Phase::Forming, "lake");
    assert_eq!(reason(&hello, &forming, true), Err(Reason::NotFormed));
    // Whoever asks how to form a cluster is answered, whatever he has.
    let question = Hello { purpose: Purpose::Formation, cluster: String::new(), ..hello };
    assert_eq!(reason(&question, &own, false), Ok(1));
}

/// What answers calls with what is in them, and notes them.
fn echo(seen: Arc<Mutex<Vec<Bytes>>>) -> CallHandler {
    Arc::new(move |_, _, request| {
        seen.lock().push(request.clone());
        Box::pin(async move { request })
    })
}

fn reader(stream: tokio::io::ReadHalf<DuplexStream>) -> FrameReader<tokio::io::ReadHalf<DuplexStream>> {
    FrameReader::new(stream, BytesMut::new())
}

async fn carry(calls: Arc<Calls>, stream: DuplexStream) -> WireError {
    let (read, write) = tokio::io::split(stream);
    let error = calls.carry(reader(read), write).await;
    calls.end(TransportError::Failed { to: NodeId(2), why: error.to_string() });
    error
}

async fn answer(stream: DuplexStream, handler: CallHandler) -> WireError {
    let (read, write) = tokio::io::split(stream);
    answer_calls(reader(read), write, NodeId(1), |_| true, &handler).await
}

/// Calls whose other side answers by `handler`.
fn connected(handler: CallHandler) -> Arc<Calls> {
    let (near, far) = duplex(64 << 10);
    let calls = Calls::new(NodeId(2));
    tokio::spawn(carry(Arc::clone(&calls), near));
    tokio::spawn(async move { answer(far, handler).await });
    calls
}

#[test]
fn a_connection_on_which_nothing_is_heard_is_given_up_and_its_calls_fail() {
    run(async {
        let (near, far) = duplex(64 << 10);
        let calls = Calls::new(NodeId(2));
        let began = Instant::now();
        let carrying = tokio::spawn(carry(Arc::clone(&calls), near));
        let failed = calls.call(LINE, vec![Bytes::from_static(b"anybody?")]).await;
        assert!(matches!(failed, Err(TransportError::Failed { to: NodeId(2), .. })), "{failed:?}");
        assert!(matches!(carrying.await.unwrap(), WireError::Silence));
        assert_eq!(began.elapsed(), SILENCE_MAX);
        // Calls made later are told the same.
        assert_eq!(calls.call(LINE, vec![]).await, failed);
        drop(far);
    });
}

#[test]
fn a_quiet_connection_is_kept_by_pings() {
    run(async {
        let calls = connected(echo(Arc::default()));
        sleep(Duration::from_secs(600)).await;
        assert_eq!(calls.call(LINE, vec![Bytes::from_static(b"still there")]).await.unwrap(), "still there");
    });
}

#[test]
fn a_ping_comes_when_there_was_nothing_else() {
    run(async {
        let (near, mut far) = duplex(64 << 10);
        tokio::spawn(carry(Calls::new(NodeId(2)), near));
        let began = Instant::now();
        let mut bytes = [0; HEAD_BYTES];
        far.read_exact(&mut bytes).await.unwrap();
        assert_eq!(began.elapsed(), PING_AFTER);
        assert_eq!(bytes[..], frame(Kind::Ping, 0, Line::Service, b""));
    });
}

#[test]
fn a_frame_that_trickles_in_is_not_silence() {
    run(async {
        let (near, mut far) = duplex(64 << 10);
        let calls = Calls::new(NodeId(2));
        tokio::spawn(carry(Arc::clone(&calls), near));
        let slow = tokio::spawn(async move {
            let mut bytes = vec![0; HEAD_BYTES + 5];
            far.read_exact(&mut bytes).await.unwrap();
            for byte in frame(Kind::Answer, 0, Line::Service, b"slowly") {
                sleep(SILENCE_MAX - Duration::from_millis(1)).await;
                far.write_all(&[byte]).await.unwrap();
            }
            far
        });
        assert_eq!(calls.call(LINE, vec![Bytes::from_static(b"hello")]).await.unwrap(), "slowly");
        drop(slow.await);
    });
}

#[test]
fn calls_arrive_in_the_order_in_which_they_were_made() {
    run(async {
        let seen = Arc::default();
        let calls = connected(echo(Arc::clone(&seen)));
        let all = (0..5000u32).map(|number| {
            // Some are larger than what is copied together.
            let padding = if number % 100 == 0 { 20_000 } else { 3 };
            let request = vec![Bytes::copy_from_slice(&number.to_be_bytes()), Bytes::from(vec![0; padding])];
            calls.call(LINE, request)
        });
        let answers = futures_util::future::join_all(all).await;
        let numbers = |all: &[Bytes]| -> Vec<u32> {
            all.iter().map(|bytes| u32::from_be_bytes(*bytes.first_chunk().unwrap())).collect()
        };
        let answers: Vec<Bytes> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(numbers(&answers), (0..5000).collect::<Vec<_>>());
        assert_eq!(numbers(&seen.lock()), (0..5000).collect::<Vec<_>>());
    });
}

#[test]
fn lines_take_turns() {
    run(async {
        let seen = Arc::default();
        let (near, far) = duplex(64 << 10);
        let calls = Calls::new(NodeId(2));
        let line = |number| Line::Shard(ShardId(number));
        let make =
            |number, request: &'static [u8]| calls.call(line(number), vec![Bytes::from_static(request)]);
        let mut many: Vec<_> = [
            make(1, b"1a"),
            make(1, b"1b"),
            make(1, b"1c"),
            make(1, b"1d"),
            make(2, b"2a"),
            make(2, b"2b"),
            make(3, b"3a"),
            make(4, b"4a"),
        ]
        .into_iter()
        .map(Box::pin)
        .collect();
        for call in &mut many {
            assert!(futures_util::poll!(call).is_pending());
        }
        // One that is taken back leaves its line in order, and others as well.
        drop(many.remove(7));
        drop(many.remove(1));
        let fourth = make(4, b"4b");
        tokio::spawn(carry(Arc::clone(&calls), near));
        let handler = echo(Arc::clone(&seen));
        tokio::spawn(async move { answer(far, handler).await });
        let (answers, last) = tokio::join!(futures_util::future::join_all(many), fourth);
        assert!(answers.iter().all(Result::is_ok) && last.is_ok());
        let seen: Vec<Bytes> = seen.lock().clone();
        assert_eq!(seen, ["1a", "2a", "3a", "4b", "1c", "2b", "1d"]);
    });
}

#[test]
fn no_bytes_break_what_reads_them() {
    let seeds = [super::anything::frame_seeds(), super::anything::handshake_seeds()].concat();
    assert!(seeds.len() > 8);
    let mut random = SmallRng::seed_from_u64(11);
    for round in 0..3000usize {
        let mut bytes = seeds[round % seeds.len()].clone();
        for _ in 0..random.random_range(0..4) {
            let at = random.random_range(0..bytes.len());
            bytes[at] = random.random();
        }
        bytes.truncate(random.random_range(1..=bytes.len()));
        super::anything::read_frames(&bytes);
        super::anything::read_handshake(&bytes);
    }
}

#[test]
fn a_call_that_nobody_waits_for_is_not_sent_and_its_late_answer_finds_nobody() {
    run(async {
        let calls = Calls::new(NodeId(2));
        let mut first = Box::pin(calls.call(LINE, vec![Bytes::from_static(b"first")]));
        let mut second = Box::pin(calls.call(LINE, vec![Bytes::from_static(b"second")]));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        let (near, mut far) = duplex(64 << 10);
        tokio::spawn(carry(Arc::clone(&calls), near));
        let mut bytes = vec![0; HEAD_BYTES + 6];
        far.read_exact(&mut bytes).await.unwrap();
        assert_eq!(bytes, frame(Kind::Call, 1, LINE, b"second"));
        drop(second);
        let third = calls.call(LINE, vec![Bytes::from_static(b"third!")]);
        let answers = async {
            far.read_exact(&mut bytes).await.unwrap();
            assert_eq!(bytes, frame(Kind::Call, 2, LINE, b"third!"));
            far.write_all(&frame(Kind::Answer, 1, Line::Service, b"late")).await.unwrap();
            far.write_all(&frame(Kind::Failure, 2, Line::Service, b"it is tired")).await.unwrap();
        };
        let (failed, ()) = tokio::join!(third, answers);
        let why = "it is tired".to_owned();
        assert_eq!(failed, Err(TransportError::Failed { to: NodeId(2), why }));
    });
}

#[test]
fn frames_that_have_no_place_end_the_connection() {
    let wrong = [
        frame(Kind::Call, 0, LINE, b"a call to one that calls"),
        frame(Kind::Answer, 5, Line::Service, b"an answer to what nobody asked"),
    ];
    for bytes in wrong {
        run(async {
            let (near, mut far) = duplex(64 << 10);
            far.write_all(&bytes).await.unwrap();
            assert!(matches!(carry(Calls::new(NodeId(2)), near).await, WireError::Unexpected));
        });
    }
    run(async {
        let (near, mut far) = duplex(64 << 10);
        far.write_all(&frame(Kind::Answer, 0, LINE, b"an answer to one that does not ask")).await.unwrap();
        assert!(matches!(answer(near, echo(Arc::default())).await, WireError::Unexpected));
    });
}

#[test]
fn a_call_whose_answer_is_given_up_fails() {
    run(async {
        let calls = connected(Arc::new(|_, _, request: Bytes| {
            Box::pin(async move {
                tokio::task::yield_now().await;
                assert_ne!(request, "panic", "as asked for");
                if request == "huge" { Bytes::from(vec![0; RPC_BYTES_MAX + 1]) } else { request }
            })
        }));
        for request in ["panic", "huge"] {
            let failed = calls.call(LINE, vec![Bytes::from_static(request.as_bytes())]).await;
            assert!(matches!(failed, Err(TransportError::Failed { .. })), "{failed:?}");
        }
        assert_eq!(calls.call(LINE, vec![Bytes::from_static(b"fine")]).await.unwrap(), "fine");
    });
}

#[test]
fn who_answers_slowly_reads_no_more_than_he_may() {
    run(async {
        let (seen, go) = (Arc::new(Mutex::new(0usize)), Arc::new(Notify::new()));
        let handler: CallHandler = {
            let (seen, go) = (Arc::clone(&seen), Arc::clone(&go));
            Arc::new(move |_, _, request| {
                *seen.lock() += request.len();
                let go = Arc::clone(&go);
                Box::pin(async move {
                    go.notified().await;
                    go.notify_one();
                    Bytes::new()
                })
            })
        };
        let calls = connected(handler);
        let request = Bytes::from(vec![1; 1 << 20]);
        let all = tokio::spawn(async move {
            let all = (0..100).map(|_| calls.call(LINE, vec![request.clone()]));
            futures_util::future::join_all(all).await
        });
        // Silence is not counted while nothing is read.
        sleep(Duration::from_secs(20)).await;
        assert_eq!(*seen.lock(), 32 << 20);
        go.notify_one();
        let answers = all.await.unwrap();
        assert!(answers.iter().all(|answer| *answer == Ok(Bytes::new())), "{answers:?}");
        assert_eq!(*seen.lock(), 100 << 20);
    });
}

#[test]
fn a_call_that_is_too_long_is_not_sent() {
    run(async {
        let calls = connected(echo(Arc::default()));
        let half = Bytes::from(vec![0; RPC_BYTES_MAX / 2]);
        let failed = calls.call(LINE, vec![half.clone(), half, Bytes::from_static(b"!")]).await;
        assert!(matches!(failed, Err(TransportError::Failed { .. })), "{failed:?}");
        assert_eq!(calls.call(LINE, vec![Bytes::from_static(b"fine")]).await.unwrap(), "fine");
    });
}

#[test]
fn nodes_are_live_from_their_first_connection_to_the_end_of_their_last() {
    let liveness = super::liveness::Liveness::new();
    let nodes = liveness.subscribe();
    let now = || nodes.borrow().clone();
    let first = liveness.enter(NodeId(2));
    let second = liveness.enter(NodeId(2));
    let other = liveness.enter(NodeId(3));
    assert_eq!(now(), BTreeSet::from([NodeId(2), NodeId(3)]));
    drop((first, other));
    assert_eq!(now(), BTreeSet::from([NodeId(2)]));
    drop(second);
    assert!(now().is_empty());
}
