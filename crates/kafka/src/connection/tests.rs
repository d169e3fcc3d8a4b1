use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use weir_broker::Piece;

use super::{Closed, ConnectionLimits, Protocol, serve};
use crate::pipeline::{Answer, Begun, InFlightLimits, Lane};
use crate::request_memory::RequestMemory;
use crate::socket::Copying;

/// A request that is answered when the test releases it.
type Held = (Bytes, oneshot::Sender<()>);

/// Speaks a protocol for tests: the first byte of a frame says what happens to it.
///
/// `e` echoes it, `p` is a produce that is answered when the test releases it, `w` waits likewise,
/// `n` has no answer, `x` closes.
#[derive(Clone, Default)]
struct Script {
    begun: Arc<Mutex<Vec<Bytes>>>,
    held: Arc<Mutex<Vec<Held>>>,
}

impl Script {
    fn begun(&self) -> Vec<Bytes> {
        self.begun.lock().clone()
    }

    fn release(&self, frame: &str) {
        let mut held = self.held.lock();
        let index = held.iter().position(|(name, _)| name == frame).expect("such a frame is held");
        let _ = held.remove(index).1.send(());
    }
}

impl Protocol for Script {
    fn lane(&self, frame: &Bytes) -> Lane {
        match frame.first() {
            Some(b'p' | b'n') => Lane::Produce,
            Some(b'w') => Lane::Wait,
            _ => Lane::Alone,
        }
    }

    fn begin(&mut self, frame: Bytes) -> Begun {
        self.begun.lock().push(frame.clone());
        match frame.first() {
            Some(b'p' | b'w') => {
                let (sender, receiver) = oneshot::channel();
                self.held.lock().push((frame.clone(), sender));
                Begun::Running(Box::pin(async move {
                    let _ = receiver.await;
                    echo(frame)
                }))
            }
            Some(b'n') => Begun::Done(Answer::Nothing),
            Some(b'x') => Begun::Done(Answer::Close("x".into())),
            _ => Begun::Done(echo(frame)),
        }
    }
}

fn echo(frame: Bytes) -> Answer {
    let length = Bytes::copy_from_slice(&(frame.len() as i32).to_be_bytes());
    Answer::Frame(vec![Piece::Memory(length), Piece::Memory(frame)], None)
}

struct Peer {
    stream: DuplexStream,
    script: Script,
    drain: CancellationToken,
    server: tokio::task::JoinHandle<Closed>,
}

fn connect_with(limits: ConnectionLimits, pipe_bytes: usize) -> Peer {
    connect_sharing(RequestMemory::new(1 << 30), limits, pipe_bytes)
}

fn connect_sharing(memory: Arc<RequestMemory>, limits: ConnectionLimits, pipe_bytes: usize) -> Peer {
    let (stream, served) = tokio::io::duplex(pipe_bytes);
    let script = Script::default();
    let drain = CancellationToken::new();
    let server = tokio::spawn(serve(Copying(served), script.clone(), limits, memory, drain.clone()));
    Peer { stream, script, drain, server }
}

fn connect() -> Peer {
    connect_with(LIMITS, 1 << 20)
}

const LIMITS: ConnectionLimits = ConnectionLimits {
    frame_bytes_max: 1 << 20,
    in_flight: InFlightLimits { requests: 8, bytes: 4 << 20 },
    idle: Duration::from_secs(600),
};

impl Peer {
    async fn send(&mut self, frame: &[u8]) {
        self.stream.write_all(&(frame.len() as i32).to_be_bytes()).await.unwrap();
        self.stream.write_all(frame).await.unwrap();
    }

    async fn receive(&mut self) -> Bytes {
        let length = self.stream.read_i32().await.unwrap();
        let mut frame = vec![0; length as usize];
        self.stream.read_exact(&mut frame).await.unwrap();
        frame.into()
    }

    /// Lets the connection do all that it can do now. Time stands still meanwhile.
    async fn settle(&self) {
        for _ in 0..20 {
            tokio::task::yield_now().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_are_answered_in_order() {
    let mut peer = connect();
    peer.send(b"p1").await;
    peer.send(b"p2").await;
    peer.send(b"e3").await;
    peer.settle().await;
    assert_eq!(peer.script.begun(), ["p1", "p2"], "what is no produce waits for those before it");
    peer.script.release("p2");
    peer.settle().await;
    peer.script.release("p1");
    for expected in ["p1", "p2", "e3"] {
        assert_eq!(peer.receive().await, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_without_an_answer_leaves_no_gap() {
    let mut peer = connect();
    peer.send(b"n1").await;
    peer.send(b"e2").await;
    assert_eq!(peer.receive().await, "e2");
}

#[tokio::test(start_paused = true)]
async fn a_frame_over_the_limit_closes_after_the_answers_before_it() {
    let mut peer = connect();
    peer.send(b"e1").await;
    peer.stream.write_all(&i32::MAX.to_be_bytes()).await.unwrap();
    assert_eq!(peer.receive().await, "e1");
    assert_eq!(peer.stream.read(&mut [0; 8]).await.unwrap(), 0);
    assert!(
        matches!(peer.server.await.unwrap(), Closed::Protocol(why) if why.contains("socket.request.max.bytes"))
    );
}

#[tokio::test(start_paused = true)]
async fn appends_that_were_sent_before_the_peer_closed_are_carried_out() {
    let mut peer = connect();
    peer.send(b"w1").await;
    peer.settle().await;
    for frame in ["n2", "p3", "e4", "n5"] {
        peer.send(frame.as_bytes()).await;
    }
    drop(peer.stream);
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
    assert_eq!(peer.script.begun(), ["w1", "n2", "p3", "n5"]);
    peer.script.release("p3");
    assert!(matches!(peer.server.await.unwrap(), Closed::ByPeer));
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_when_the_peer_goes() {
    let mut peer = connect();
    peer.send(b"w1").await;
    peer.settle().await;
    drop(peer.stream);
    assert!(matches!(peer.server.await.unwrap(), Closed::ByPeer));
    assert!(peer.script.held.lock().iter().all(|(_, sender)| sender.is_closed()));
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_does_not_read_its_answers_is_not_read_from() {
    let mut peer = connect_with(LIMITS, 64 << 10);
    let mut frame = vec![b'e'; 1 << 20];
    let mut sent = 0;
    // Until neither the pipe nor the connection takes any more.
    while tokio::time::timeout(Duration::from_millis(1), peer.send(&frame)).await.is_ok() {
        sent += 1;
        assert!(sent < 50, "answers pile up without bound");
    }
    // The rest of the interrupted frame is lost, so only whole ones are asked for.
    for _ in 0..sent {
        assert_eq!(peer.receive().await.len(), frame.len());
    }
    frame.clear();
}

#[tokio::test(start_paused = true)]
async fn an_idle_connection_is_closed_and_a_waiting_one_is_not() {
    let peer = connect();
    let started = tokio::time::Instant::now();
    assert!(matches!(peer.server.await.unwrap(), Closed::Idle));
    assert!(started.elapsed() >= LIMITS.idle);

    let mut peer = connect();
    peer.send(b"w1").await;
    tokio::time::sleep(LIMITS.idle * 3).await;
    peer.script.release("w1");
    assert_eq!(peer.receive().await, "w1");
    assert!(matches!(peer.server.await.unwrap(), Closed::Idle));
}

#[tokio::test(start_paused = true)]
async fn a_frame_that_trickles_in_too_slowly_is_given_up() {
    let mut peer = connect();
    peer.stream.write_all(&100i32.to_be_bytes()).await.unwrap();
    assert!(matches!(peer.server.await.unwrap(), Closed::Idle));
}

#[tokio::test(start_paused = true)]
async fn draining_finishes_what_is_under_way_and_begins_nothing() {
    let mut peer = connect();
    peer.send(b"p1").await;
    peer.settle().await;
    peer.drain.cancel();
    peer.settle().await;
    peer.send(b"p2").await;
    peer.settle().await;
    assert_eq!(peer.script.begun(), ["p1"]);
    peer.script.release("p1");
    assert_eq!(peer.receive().await, "p1");
    assert!(matches!(peer.server.await.unwrap(), Closed::Draining));
}

#[tokio::test(start_paused = true)]
async fn a_request_that_ends_the_connection_is_the_last_one() {
    let mut peer = connect();
    peer.send(b"e1").await;
    peer.send(b"x2").await;
    peer.send(b"e3").await;
    assert_eq!(peer.receive().await, "e1");
    assert_eq!(peer.stream.read(&mut [0; 8]).await.unwrap(), 0);
    assert_eq!(peer.script.begun(), ["e1", "x2"]);
    assert!(matches!(peer.server.await.unwrap(), Closed::Protocol(why) if why == "x"));
}

#[tokio::test(start_paused = true)]
async fn large_frames_keep_their_bytes_whatever_the_cuts() {
    let mut peer = connect_with(LIMITS, 5_000);
    let frame: Vec<u8> = std::iter::once(b'e').chain((0..300_000u32).map(|i| (i * 7) as u8)).collect();
    let (mut reader, mut writer) = tokio::io::split(peer.stream);
    let sent = frame.clone();
    let writing = tokio::spawn(async move {
        for _ in 0..3 {
            writer.write_i32(sent.len() as i32).await.unwrap();
            writer.write_all(&sent).await.unwrap();
        }
        writer
    });
    for _ in 0..3 {
        let length = reader.read_i32().await.unwrap();
        let mut received = vec![0; length as usize];
        reader.read_exact(&mut received).await.unwrap();
        assert_eq!(received, frame);
    }
    peer.stream = reader.unsplit(writing.await.unwrap());
}

/// A part of a frame that is larger than what a connection may always have.
async fn begin_large(peer: &mut Peer, bytes: usize) -> Vec<u8> {
    let frame: Vec<u8> = std::iter::once(b'e').chain((1..1_000_000u32).map(|i| i as u8)).collect();
    peer.stream.write_all(&(frame.len() as i32).to_be_bytes()).await.unwrap();
    peer.stream.write_all(&frame[..bytes]).await.unwrap();
    frame[bytes..].to_vec()
}

#[tokio::test(start_paused = true)]
async fn large_requests_take_turns_when_together_they_are_too_many() {
    let memory = RequestMemory::new(1_200_000);
    let mut peers = Vec::new();
    for _ in 0..3 {
        let mut peer = connect_sharing(memory.clone(), LIMITS, 16 << 10);
        let rest = begin_large(&mut peer, 450_000).await;
        peers.push((peer, rest));
    }
    // Small requests pass meanwhile.
    let mut small = connect_sharing(memory.clone(), LIMITS, 1 << 20);
    small.send(b"e1").await;
    assert_eq!(small.receive().await, "e1");
    // All of them get finished, one after the other: a rest that nobody reads keeps its writer waiting.
    let writing: Vec<_> = peers
        .into_iter()
        .map(|(mut peer, rest)| {
            tokio::spawn(async move {
                peer.stream.write_all(&rest).await.unwrap();
                peer.receive().await.len()
            })
        })
        .collect();
    for written in writing {
        assert_eq!(written.await.unwrap(), 1_000_000);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_never_comes_loses_its_turn_and_frees_the_others() {
    let memory = RequestMemory::new(1_000_000);
    let mut silent = Vec::new();
    for _ in 0..3 {
        let mut peer = connect_sharing(memory.clone(), LIMITS, 16 << 10);
        begin_large(&mut peer, 400_000).await;
        silent.push(peer);
    }
    let mut honest = connect_sharing(memory.clone(), LIMITS, 16 << 10);
    let began = tokio::time::Instant::now();
    let rest = begin_large(&mut honest, 1).await;
    honest.stream.write_all(&rest).await.unwrap();
    assert_eq!(honest.receive().await.len(), 1_000_000);
    assert!(began.elapsed() < Duration::from_secs(60), "{:?}", began.elapsed());
    let cut = silent.iter().filter(|peer| peer.server.is_finished()).count();
    assert!(cut >= 1, "the silent ones paid for it");
}
