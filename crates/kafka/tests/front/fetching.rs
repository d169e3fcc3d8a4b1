//! Fetching: limits, waiting, sessions. Where time matters it stands still unless nothing else can
//! happen, and the connection is a pipe in memory.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use weir_broker::Piece;
use weir_kafka_wire::messages::fetch::ForgottenTopic;
use weir_kafka_wire::{ErrorCode, FetchRequest, RequestMessage};

use crate::common::{Served, batch, fetch, partitions, serve, texts, values};

fn waiting(mut request: FetchRequest, max_wait_ms: i32) -> FetchRequest {
    request.max_wait_ms = max_wait_ms;
    request
}

/// Clients seek to any offset and pass over what they did not ask for.
#[tokio::test]
async fn trap_an_offset_inside_a_batch_gives_the_whole_batch() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    client.append("t", 0, batch(&["a", "b", "c"])).await;
    client.append("t", 0, batch(&["d"])).await;
    let data = client.fetch("t", 0, 1).await;
    assert_eq!(values(&data).first(), Some(&(0, "a".into())));
    assert_eq!(texts(&data).len(), 4);
}

#[tokio::test]
async fn offsets_outside_the_log_are_out_of_range() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    client.append("t", 0, batch(&["a"])).await;
    for offset in [-1, 2, i64::MAX] {
        let data = client.fetch("t", 0, offset).await;
        assert_eq!(data.error_code, ErrorCode::OFFSET_OUT_OF_RANGE, "offset {offset}");
        assert_eq!((data.high_watermark, data.records.unwrap().len()), (-1, 0));
    }
    assert_eq!(client.fetch("t", 0, 1).await.error_code, ErrorCode::NONE, "the end is no error");
}

#[tokio::test]
async fn an_answer_keeps_its_limits_but_never_stands_still() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 3, &[]).await;
    let one = batch(&[&"x".repeat(1000)]);
    for partition in 0..3 {
        for _ in 0..5 {
            client.append("t", partition, one.clone()).await;
        }
    }
    let sizes = |response| -> Vec<usize> {
        partitions(response).iter().map(|(_, data)| data.records.as_ref().map_or(0, |r| r.len())).collect()
    };
    let mut request = fetch(&[("t", 0, 0), ("t", 1, 0), ("t", 2, 0)]);
    request.max_bytes = 1;
    assert_eq!(sizes(client.call(12, &request).await), [one.len(), 0, 0], "the first batch always");
    request.max_bytes = (one.len() * 7 + 10) as i32;
    assert_eq!(sizes(client.call(12, &request).await), [one.len() * 5, one.len() * 2, 0]);
    request.max_bytes = i32::MAX;
    for topic in &mut request.topics {
        topic.partitions[0].partition_max_bytes = (one.len() * 2 + 1) as i32;
    }
    assert_eq!(sizes(client.call(12, &request).await), [one.len() * 2; 3]);
}

/// Where the segment file is at hand, the frame has gaps that are filled on the way to the socket: over several
/// partitions, beside records from memory, errors and partitions without records.
#[tokio::test]
async fn records_of_segment_files_come_out_in_their_places() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 3, &[]).await;
    let value = |partition: i32, index: i64| format!("{partition}-{index}-").repeat(200);
    for partition in 0..3 {
        for index in 0..100 {
            client.append("t", partition, batch(&[&value(partition, index)])).await;
        }
    }
    for partition in 0..3 {
        wait_until_stored(&served, "t", partition).await;
    }
    client.append("t", 1, batch(&["in memory or not"])).await;
    let mut request = fetch(&[
        ("t", 2, 7),
        ("t", 0, 100),
        ("t", 7, 0),
        ("t", 1, 0),
        ("t", 0, 50),
        ("t", 2, 0),
        ("t", 1, 99),
    ]);
    request.session_epoch = -1;
    for (version, in_memory) in [(12, false), (12, true), (4, false)] {
        let mut client = if in_memory { served.connect_in_memory() } else { served.connect().await };
        let answer = partitions(client.call(version, &request).await);
        let found: Vec<_> = answer.iter().map(|(_, data)| (data.error_code, values(data))).collect();
        let range = |partition: i32, from: i64, to: i64| -> Vec<(i64, String)> {
            (from..to).map(|index| (index, value(partition, index))).collect()
        };
        let with_last = |from| [range(1, from, 100), vec![(100, "in memory or not".into())]].concat();
        assert_eq!(found[0], (ErrorCode::NONE, range(2, 7, 100)));
        assert_eq!(found[1], (ErrorCode::NONE, vec![]));
        assert_eq!(found[2], (ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, vec![]));
        assert!(found[3].1 == with_last(0) || found[3].1 == range(1, 0, 100));
        assert_eq!(found[4], (ErrorCode::NONE, range(0, 50, 100)));
        assert_eq!(found[5], (ErrorCode::NONE, range(2, 0, 100)));
        assert_eq!(found[6].1, with_last(99));
    }
}

/// Waits until a partition's records can be sent from where they are stored.
async fn wait_until_stored(served: &Served, topic: &str, partition: i32) {
    let topic = served.broker.topic(topic).expect("the topic is there");
    let partition = served.broker.partition(&topic, partition).expect("the partition is there");
    loop {
        let read = partition.read(0, 1 << 20).await.expect("readable");
        if matches!(read.pieces[..], [Piece::Stored(_)]) && read.next_offset == partition.next_offset() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_fetch_waits_for_records_and_no_longer() {
    let served = serve().await;
    let mut reader = served.connect_in_memory();
    let mut writer = served.connect_in_memory();
    writer.create_topic("t", 2, &[]).await;
    let began = Instant::now();
    let response = reader.call(12, &waiting(fetch(&[("t", 0, 0)]), 5_000)).await;
    assert!(texts(&response.responses[0].partitions[0]).is_empty());
    assert!(began.elapsed() >= Duration::from_secs(5), "it waited its time: {:?}", began.elapsed());

    let began = Instant::now();
    let waits = reader.send(12, &waiting(fetch(&[("t", 0, 0), ("t", 1, 0)]), 600_000)).await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    writer.append("t", 1, batch(&["now"])).await;
    let response = reader.receive::<FetchRequest>(12, waits).await;
    assert_eq!(texts(&partitions(response)[1].1), ["now"]);
    assert!(began.elapsed() < Duration::from_secs(62), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_fetch_waits_for_as_many_bytes_as_it_wants() {
    let served = serve().await;
    let mut reader = served.connect_in_memory();
    let mut writer = served.connect_in_memory();
    writer.create_topic("t", 1, &[]).await;
    let one = batch(&["some value"]);
    let mut request = waiting(fetch(&[("t", 0, 0)]), 600_000);
    request.min_bytes = (one.len() * 3) as i32;
    let waits = reader.send(12, &request).await;
    let began = Instant::now();
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        writer.append("t", 0, one.clone()).await;
    }
    let response = reader.receive::<FetchRequest>(12, waits).await;
    assert_eq!(texts(&response.responses[0].partitions[0]).len(), 3);
    assert!(began.elapsed() < Duration::from_secs(32), "{:?}", began.elapsed());

    // Fewer than wanted, but the time is up: what there is.
    request.max_wait_ms = 1_000;
    request.min_bytes = i32::MAX;
    let response = reader.call(12, &request).await;
    assert_eq!(texts(&response.responses[0].partitions[0]).len(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_is_told_without_waiting() {
    let served = serve().await;
    let mut client = served.connect_in_memory();
    client.create_topic("t", 1, &[]).await;
    let began = Instant::now();
    let request = waiting(fetch(&[("t", 0, 0), ("no-such-topic", 0, 0), ("t", 5, 0)]), 600_000);
    let read = partitions(client.call(12, &request).await);
    let codes: Vec<_> = read.iter().map(|(_, data)| data.error_code).collect();
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(codes, [ErrorCode::NONE, unknown, unknown]);
    let mut by_id = waiting(fetch(&[("", 0, 0)]), 600_000);
    by_id.topics[0].topic_id = weir_kafka_wire::Uuid::from(77);
    let response = client.call(13, &by_id).await;
    assert_eq!(response.responses[0].partitions[0].error_code, ErrorCode::UNKNOWN_TOPIC_ID);
    assert!(began.elapsed() < Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn deleting_a_topic_ends_the_waits_for_it() {
    let served = serve().await;
    let mut reader = served.connect_in_memory();
    let mut admin = served.connect_in_memory();
    admin.create_topic("t", 1, &[]).await;
    let waits = reader.send(12, &waiting(fetch(&[("t", 0, 0)]), 600_000)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    let delete = weir_kafka_wire::DeleteTopicsRequest { topic_names: vec!["t".into()], ..Default::default() };
    assert_eq!(admin.call(5, &delete).await.responses[0].error_code, ErrorCode::NONE);
    let response = reader.receive::<FetchRequest>(12, waits).await;
    assert_eq!(response.responses[0].partitions[0].error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

/// Without transactions nothing is ever aborted: none for readers of committed records, and no list at
/// all for others, who take one for an error.
#[tokio::test]
async fn trap_aborted_transactions_are_listed_for_readers_of_committed_records_only() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    client.append("t", 0, batch(&["a"])).await;
    let mut request = fetch(&[("t", 0, 0)]);
    let response = client.call(11, &request).await;
    assert_eq!(response.responses[0].partitions[0].aborted_transactions, None);
    request.isolation_level = 1;
    let response = client.call(11, &request).await;
    assert_eq!(response.responses[0].partitions[0].aborted_transactions, Some(Vec::new()));
    assert_eq!(texts(&response.responses[0].partitions[0]), ["a"]);
}

/// A fetch whose session is up to date names no partition. It is no empty fetch: it waits like any other,
/// and is woken by every partition of the session.
#[tokio::test(start_paused = true)]
async fn trap_an_empty_incremental_fetch_waits_for_everything_in_its_session() {
    let served = serve().await;
    let mut reader = served.connect_in_memory();
    let mut writer = served.connect_in_memory();
    writer.create_topic("t", 2, &[]).await;
    let mut full = fetch(&[("t", 0, 0), ("t", 1, 0)]);
    full.session_epoch = 0;
    let session_id = reader.call(12, &full).await.session_id;
    assert!(session_id > 0);
    let incremental =
        |session_epoch, max_wait_ms| FetchRequest { session_id, session_epoch, max_wait_ms, ..fetch(&[]) };
    let began = Instant::now();
    let response = reader.call(12, &incremental(1, 5_000)).await;
    assert!(began.elapsed() >= Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!((response.session_id, response.responses.len()), (session_id, 0));

    let waits = reader.send(12, &incremental(2, 600_000)).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    writer.append("t", 1, batch(&["now"])).await;
    let read = partitions(reader.receive::<FetchRequest>(12, waits).await);
    assert_eq!(read.len(), 1, "only the partition that has something to say");
    assert_eq!(texts(&read[0].1), ["now"]);
}

#[tokio::test]
async fn a_session_is_changed_refused_and_ended() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 2, &[]).await;
    client.append("t", 0, batch(&["a"])).await;
    client.append("t", 1, batch(&["b"])).await;
    let mut full = fetch(&[("t", 0, 0)]);
    full.session_epoch = 0;
    let response = client.call(12, &full).await;
    let session_id = response.session_id;
    // Partition 1 joins, partition 0 leaves.
    let mut change = FetchRequest { session_id, session_epoch: 1, ..fetch(&[("t", 1, 0)]) };
    change.forgotten_topics_data =
        vec![ForgottenTopic { topic: "t".into(), partitions: vec![0], ..Default::default() }];
    let read = partitions(client.call(12, &change).await);
    assert_eq!(read.len(), 1);
    assert_eq!((read[0].1.partition_index, texts(&read[0].1)), (1, vec!["b".to_owned()]));

    let again = FetchRequest { session_id, session_epoch: 1, ..fetch(&[]) };
    assert_eq!(client.call(12, &again).await.error_code, ErrorCode::INVALID_FETCH_SESSION_EPOCH);
    let unknown = FetchRequest { session_id: session_id ^ 1, session_epoch: 1, ..fetch(&[]) };
    assert_eq!(client.call(12, &unknown).await.error_code, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
    let end = FetchRequest { session_id, session_epoch: -1, ..fetch(&[("t", 0, 0)]) };
    let response = client.call(12, &end).await;
    assert_eq!((response.session_id, response.responses.len()), (0, 1));
    let gone = FetchRequest { session_id, session_epoch: 2, ..fetch(&[]) };
    assert_eq!(client.call(12, &gone).await.error_code, ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
}

/// Counts how often a future is polled.
struct Polls<F> {
    future: Pin<Box<F>>,
    count: Arc<AtomicU64>,
}

impl<F: Future> Future for Polls<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        self.count.fetch_add(1, Ordering::Relaxed);
        self.future.as_mut().poll(context)
    }
}

/// Ten thousand consumers that wait cost nothing: while nothing is appended, not one of their
/// connections is so much as looked at, and an append wakes those alone that wait for it.
#[tokio::test(start_paused = true)]
async fn ten_thousand_waiting_fetches_are_woken_by_appends_alone() {
    const CONSUMERS: usize = 10_000;
    const PARTITIONS: i32 = 10;
    let served = serve().await;
    let mut admin = served.connect_in_memory();
    admin.create_topic("t", PARTITIONS, &[]).await;
    let polls = Arc::new(AtomicU64::new(0));
    let mut pipes = Vec::with_capacity(CONSUMERS);
    for consumer in 0..CONSUMERS {
        let (mut client, server) = tokio::io::duplex(512);
        let peer = SocketAddr::from(([127, 0, 0, 1], consumer as u16));
        let serving = served.in_memory.serve_stream(server, served.addr, peer);
        tokio::spawn(Polls { future: Box::pin(serving), count: polls.clone() });
        let request = waiting(fetch(&[("t", consumer as i32 % PARTITIONS, 0)]), 3_600_000);
        let frame = request.encode_request(12, 1, None).unwrap().into_contiguous();
        tokio::io::AsyncWriteExt::write_all(&mut client, &frame).await.unwrap();
        pipes.push(client);
    }
    // The idle limit of connections is ten minutes; none of these is idle.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let begun = polls.load(Ordering::Relaxed);
    assert!(begun >= CONSUMERS as u64, "all of them were begun");
    tokio::time::sleep(Duration::from_secs(300)).await;
    assert_eq!(polls.load(Ordering::Relaxed), begun, "nobody is woken while nothing happens");

    admin.append("t", 3, batch(&["for a tenth of them"])).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let woken = polls.load(Ordering::Relaxed) - begun;
    let concerned = CONSUMERS as u64 / PARTITIONS as u64;
    assert!((concerned..=concerned * 4).contains(&woken), "{woken} polls for {concerned} waiters");
    let mut length = [0; 4];
    for (consumer, pipe) in pipes.iter_mut().enumerate().filter(|(consumer, _)| consumer % 10 == 3) {
        let read = tokio::io::AsyncReadExt::read_exact(pipe, &mut length).await;
        assert!(read.is_ok(), "consumer {consumer} is answered");
    }
}
