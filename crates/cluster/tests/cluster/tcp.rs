//! Calls over real connections, and what becomes of them when the other side misbehaves.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep, timeout};
use weir_cluster::{Identity, Line, Transport, TransportError};
use weir_model::{NodeId, ShardId};

use crate::network::{
    ANYWHERE, Echo, LINE, LONG, Mode, Papers, Wire, addresses, call, call_until_answered, listen, member,
    run, transport, wait_for_nodes,
};

/// Nobody listens here.
const NOWHERE: &str = "127.0.0.1:9";

/// Two nodes that know each other.
async fn pair() -> (Echo, Echo) {
    let first = Echo::start(member(1), &[(2, NOWHERE.into())]).await;
    let second = Echo::start(member(2), &[(1, first.address.clone())]).await;
    first.transport.set_peers(addresses(&[(2, second.address.clone())]));
    (first, second)
}

#[test]
fn calls_of_a_line_arrive_in_their_order_and_lines_do_not_mix() {
    run(async {
        let (first, second) = pair().await;
        let lines = [Line::Shard(ShardId(0)), Line::Shard(ShardId(7)), Line::Service];
        let calls = (0..3000u32).map(|number| {
            let line = lines[number as usize % 3];
            let request = vec![Bytes::copy_from_slice(&number.to_be_bytes()), Bytes::from(vec![0; 500])];
            first.transport.call(NodeId(2), line, request)
        });
        let answers = join_all(calls).await;
        for (number, answer) in answers.iter().enumerate() {
            assert_eq!(answer.as_ref().expect("an answer")[..4], (number as u32).to_be_bytes());
        }
        let seen = second.seen.lock().clone();
        assert_eq!(seen.len(), 3000);
        for (index, line) in lines.into_iter().enumerate() {
            let of_line = seen.iter().filter(|(from, other, _)| *from == NodeId(1) && *other == line);
            let numbers: Vec<u32> = of_line
                .map(|(_, _, bytes)| u32::from_be_bytes(*bytes.first_chunk().expect("four")))
                .collect();
            let expected: Vec<u32> = (0..3000).filter(|number| *number as usize % 3 == index).collect();
            assert_eq!(numbers, expected, "{line:?}");
        }
        first.stop().await;
        second.stop().await;
    });
}

#[test]
fn a_call_of_64_mib_holds_up_no_call_to_the_service() {
    run(async {
        let (first, second) = pair().await;
        let request: Vec<Bytes> = (0..16u8).map(|chunk| Bytes::from(vec![chunk; 4 << 20])).collect();
        let large = first.transport.call(NodeId(2), LINE, request.clone());
        let small = async {
            for _ in 0..20 {
                let answer =
                    first.transport.call(NodeId(2), Line::Service, vec![Bytes::from_static(b"small")]);
                assert_eq!(answer.await.expect("an answer"), "small");
            }
            Instant::now()
        };
        let large = async { (large.await.expect("an answer"), Instant::now()) };
        let ((answer, large_at), small_at) = tokio::join!(large, small);
        assert_eq!(answer, request.concat());
        assert!(small_at < large_at, "the small ones were done first");
        first.stop().await;
        second.stop().await;
    });
}

/// Sends bytes and reads until the other side ends the connection.
async fn say(address: &str, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).await.expect("a connection");
    stream.write_all(bytes).await.expect("it takes them");
    let mut answer = Vec::new();
    let _ = timeout(LONG, stream.read_to_end(&mut answer)).await.expect("it ends");
    answer
}

fn message(body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u32).to_le_bytes();
    [b"weirpeer", &length[..], &crc32c::crc32c(body).to_le_bytes(), body].concat()
}

fn hello(versions: (u16, u16), purpose: u8, from: u64, to: u64, cluster: &str) -> Vec<u8> {
    let (oldest, newest) = versions;
    let cluster_length = (cluster.len() as u32).to_le_bytes();
    let body: &[&[u8]] = &[
        &oldest.to_le_bytes(),
        &newest.to_le_bytes(),
        &[purpose],
        &from.to_le_bytes(),
        &to.to_le_bytes(),
        &cluster_length,
        cluster.as_bytes(),
    ];
    message(&body.concat())
}

fn frame(kind: u8, call: u64, payload: &[u8]) -> Vec<u8> {
    let shard = 1u32.to_le_bytes();
    let rest = [&[kind][..], &call.to_le_bytes(), &[1], &shard, payload].concat();
    let length = (rest.len() as u32 + 4).to_le_bytes();
    [&length[..], &crc32c::crc32c(&rest).to_le_bytes(), &rest].concat()
}

#[test]
fn hostile_bytes_end_their_own_connection_and_no_other() {
    run(async {
        let (first, second) = pair().await;
        call_until_answered(&first.transport, 2, "before").await;
        let seen = second.seen.lock().len();
        let known = hello((1, 1), 1, 3, 2, "lake");
        // Node 3 has to be known to get further than the handshake.
        second.transport.set_peers(addresses(&[(1, first.address.clone()), (3, NOWHERE.into())]));
        let mut wrong_sum = frame(1, 0, b"damaged");
        *wrong_sum.last_mut().expect("bytes") ^= 1;
        let mut wrong_line = frame(1, 0, b"for the service");
        wrong_line[17] = 0;
        let sum = crc32c::crc32c(&wrong_line[8..]).to_le_bytes();
        wrong_line[4..8].copy_from_slice(&sum);
        let hostile = [
            b"GET / HTTP/1.1\r\n\r\n".to_vec(),
            vec![0; 1000],
            vec![0xff; 100_000],
            [b"weirpeer", &[0xff; 8][..]].concat(),
            message(b""),
            message(&[9; 100]),
            [&known[..], &u32::MAX.to_le_bytes()].concat(),
            [&known[..], &(200u32 << 20).to_le_bytes()].concat(),
            [&known[..], &[0; 4]].concat(),
            [&known[..], &wrong_sum].concat(),
            [&known[..], &wrong_line].concat(),
            [&known[..], &frame(9, 0, b"of no kind")].concat(),
            [&known[..], &frame(2, 0, b"an answer to nothing")].concat(),
        ];
        for bytes in &hostile {
            say(&second.address, bytes).await;
            assert_eq!(call(&first.transport, 2, "between").await.expect("an answer"), "between");
        }
        let calls = second.seen.lock()[seen..].iter().filter(|(from, ..)| *from != NodeId(1)).count();
        assert_eq!(calls, 0, "nothing of that became a call");
        first.stop().await;
        second.stop().await;
    });
}

#[test]
fn who_connects_and_says_nothing_is_not_waited_for() {
    run(async {
        let (first, second) = pair().await;
        let began = Instant::now();
        let silent = join_all((0..50).map(|_| say(&second.address, b"weirpe")));
        let others = async {
            sleep(Duration::from_millis(200)).await;
            call_until_answered(&first.transport, 2, "meanwhile").await;
            began.elapsed()
        };
        let (answers, others) = tokio::join!(silent, others);
        assert!(answers.iter().all(Vec::is_empty), "a stranger is told nothing");
        assert!(others < Duration::from_secs(4), "{others:?}");
        let silent = began.elapsed();
        assert!(silent >= Duration::from_secs(5) && silent < Duration::from_secs(15), "{silent:?}");
        first.stop().await;
        second.stop().await;
    });
}

#[test]
fn who_does_not_belong_is_refused_with_words() {
    run(async {
        let (first, second) = pair().await;
        let says =
            async |bytes: Vec<u8>| String::from_utf8_lossy(&say(&second.address, &bytes).await).into_owned();
        let words = says(hello((1, 1), 1, 1, 2, "sea")).await;
        assert!(words.contains("node 1 is of the cluster sea, and node 2 of lake"), "{words}");
        let words = says(hello((1, 1), 1, 1, 3, "lake")).await;
        assert!(words.contains("this is node 2, and node 1 meant node 3"), "{words}");
        let words = says(hello((1, 1), 1, 9, 2, "lake")).await;
        assert!(words.contains("node 9 is not among the peers of node 2"), "{words}");
        let words = says(hello((7, 9), 1, 1, 2, "lake")).await;
        assert!(words.contains("node 1 speaks versions 7 to 9"), "{words}");
        first.stop().await;
        second.stop().await;
    });
}

#[test]
fn nodes_of_different_clusters_do_not_reach_each_other() {
    run(async {
        let second = Echo::start(member(2), &[(1, NOWHERE.into())]).await;
        let stranger = Identity { cluster: "sea".into(), ..member(1) };
        let stranger = transport(stranger, &[(2, second.address.clone()), (3, second.address.clone())], None);
        for node in [2, 3] {
            let answer = call(&stranger, node, "hello").await;
            assert_eq!(answer, Err(TransportError::Unreachable(NodeId(node))));
        }
        // Nor is anybody reached who is not a peer.
        assert_eq!(call(&stranger, 8, "hello").await, Err(TransportError::Unreachable(NodeId(8))));
        assert!(second.seen.lock().is_empty());
        second.stop().await;
    });
}

#[test]
fn a_peer_that_restarts_on_its_port_is_reached_again() {
    run(async {
        let (first, second) = pair().await;
        wait_for_nodes(&first.transport, &[2]).await;
        call_until_answered(&first.transport, 2, "before").await;
        let address = second.address.clone();
        second.stop().await;
        // Nobody is there: a call fails, soon or at once, and is not waited for.
        let began = Instant::now();
        while call(&first.transport, 2, "nobody").await.is_ok() {}
        let failed = call(&first.transport, 2, "nobody").await;
        assert!(
            failed.is_err() && began.elapsed() < Duration::from_secs(3),
            "{failed:?} {:?}",
            began.elapsed()
        );
        wait_for_nodes(&first.transport, &[]).await;
        let peers = [(1, first.address.clone())];
        let second = Echo::start_on(listen(&address, None).await, member(2), &peers, None);
        call_until_answered(&first.transport, 2, "after").await;
        call_until_answered(&second.transport, 1, "and back").await;
        wait_for_nodes(&first.transport, &[2]).await;
        first.stop().await;
        second.stop().await;
    });
}

#[test]
fn the_first_call_waits_for_the_connection() {
    run(async {
        let second = Echo::start(member(2), &[(1, NOWHERE.into())]).await;
        for _ in 0..20 {
            let first = transport(member(1), &[(2, second.address.clone())], None);
            let calls = (0..10).map(|_| call(&first, 2, "first"));
            assert!(join_all(calls).await.iter().all(Result::is_ok), "a call did not wait");
        }
        second.stop().await;
    });
}

#[test]
fn a_peer_that_takes_connections_and_never_answers_is_unreachable() {
    run(async {
        // The kernel takes the connections.
        let silent = TcpListener::bind(ANYWHERE).await.expect("a port");
        let address = silent.local_addr().expect("its address").to_string();
        let first = transport(member(1), &[(2, address)], None);
        let began = Instant::now();
        assert_eq!(call(&first, 2, "anybody?").await, Err(TransportError::Unreachable(NodeId(2))));
        let waited = began.elapsed();
        assert!(waited >= Duration::from_millis(400) && waited < Duration::from_secs(3), "{waited:?}");
        // From here on nobody waits.
        let began = Instant::now();
        for _ in 0..100 {
            assert_eq!(call(&first, 2, "anybody?").await, Err(TransportError::Unreachable(NodeId(2))));
        }
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    });
}

#[test]
fn a_peer_that_is_cut_off_without_a_word_is_given_up_and_comes_back() {
    run(async {
        let second = Echo::start(member(2), &[(1, NOWHERE.into())]).await;
        let wire = Wire::to(second.address.parse().expect("an address")).await;
        let first = transport(member(1), &[(2, wire.address.clone())], None);
        assert_eq!(call(&first, 2, "before").await.expect("an answer"), "before");
        wait_for_nodes(&first, &[2]).await;
        wait_for_nodes(&second.transport, &[1]).await;
        wire.set(Mode::Hold);
        let began = Instant::now();
        let failed = call(&first, 2, "cut off").await;
        assert!(matches!(failed, Err(TransportError::Failed { .. })), "{failed:?}");
        let waited = began.elapsed();
        assert!(waited > Duration::from_secs(2) && waited < Duration::from_secs(10), "{waited:?}");
        // Both sides notice.
        wait_for_nodes(&first, &[]).await;
        wait_for_nodes(&second.transport, &[]).await;
        wire.set(Mode::Pass);
        call_until_answered(&first, 2, "after").await;
        wait_for_nodes(&second.transport, &[1]).await;
        second.stop().await;
    });
}

#[test]
fn a_peer_that_moves_is_reached_where_it_is_and_one_that_is_gone_is_not() {
    run(async {
        let old = Echo::start(member(2), &[(1, NOWHERE.into())]).await;
        let new = Echo::start(member(2), &[(1, NOWHERE.into())]).await;
        let first = transport(member(1), &[(2, old.address.clone())], None);
        call_until_answered(&first, 2, "at the old place").await;
        first.set_peers(addresses(&[(2, new.address.clone())]));
        assert_eq!(call(&first, 2, "at the new").await.expect("an answer"), "at the new");
        assert_eq!((old.seen.lock().len(), new.seen.lock().len()), (1, 1));
        first.set_peers(addresses(&[]));
        assert_eq!(call(&first, 2, "gone").await, Err(TransportError::Unreachable(NodeId(2))));
        // The one that it called lets go of it as well.
        let third = transport(member(3), &[(2, new.address.clone())], None);
        assert_eq!(call(&third, 2, "unknown").await, Err(TransportError::Unreachable(NodeId(2))));
        old.stop().await;
        new.stop().await;
    });
}

#[test]
fn a_call_that_is_dropped_harms_no_other() {
    run(async {
        let (first, second) = pair().await;
        call_until_answered(&first.transport, 2, "before").await;
        for _ in 0..200 {
            let dropped = first.transport.call(NodeId(2), LINE, vec![Bytes::from(vec![1; 100_000])]);
            drop(timeout(Duration::from_micros(50), dropped).await);
            assert_eq!(call(&first.transport, 2, "kept").await.expect("an answer"), "kept");
        }
        first.stop().await;
        second.stop().await;
    });
}

#[test]
fn over_tls_both_sides_show_a_certificate() {
    run(async {
        let (papers, others) = (Papers::new(), Papers::new());
        let tls = |name: &str| Some(papers.issue(name, "localhost", &papers));
        let listening = listen(ANYWHERE, tls("second")).await;
        let address = format!("localhost:{}", listening.local_addr().port());
        let second = Echo::start_on(listening, member(2), &[(1, NOWHERE.into())], tls("second-too"));
        let peers = [(2, address.clone())];

        let first = transport(member(1), &peers, tls("first"));
        let large: Vec<Bytes> = (0..4u8).map(|chunk| Bytes::from(vec![chunk; 1 << 20])).collect();
        let answer = first.call(NodeId(2), LINE, large.clone()).await.expect("an answer");
        assert_eq!(answer, large.concat());

        let unreachable = Err(TransportError::Unreachable(NodeId(2)));
        // Without TLS, with a certificate of another authority, and by a name that the certificate has not.
        let plain = transport(member(1), &peers, None);
        assert_eq!(call(&plain, 2, "plain").await, unreachable);
        let stranger = transport(member(1), &peers, Some(others.issue("stranger", "localhost", &papers)));
        assert_eq!(call(&stranger, 2, "stranger").await, unreachable);
        let deceived = transport(member(1), &peers, Some(papers.issue("deceived", "localhost", &others)));
        assert_eq!(call(&deceived, 2, "deceived").await, unreachable);
        let address = address.replace("localhost", "127.0.0.1");
        let misled = transport(member(1), &[(2, address)], tls("misled"));
        assert_eq!(call(&misled, 2, "misled").await, unreachable);

        assert_eq!(second.seen.lock().len(), 1);
        assert_eq!(call(&first, 2, "still").await.expect("an answer"), "still");
        second.stop().await;
    });
}

#[test]
fn a_listener_without_tls_does_not_talk_to_one_that_expects_it() {
    run(async {
        let papers = Papers::new();
        let second = Echo::start(member(2), &[(1, NOWHERE.into())]).await;
        let tls = papers.issue("first", "127.0.0.1", &papers);
        let first = transport(member(1), &[(2, second.address.clone())], Some(Arc::clone(&tls)));
        assert_eq!(call(&first, 2, "secret").await, Err(TransportError::Unreachable(NodeId(2))));
        second.stop().await;
    });
}
