//! The Rust client against a real server: groups that share, hand over and go on, and a producer that
//! outlives the server it writes to.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures_util::StreamExt;
use weir_client::{Client, ConsumedRecord, Consumer, Record};

use crate::support::Server;

const PARTITIONS: usize = 6;

/// Longest that a test waits for a record: far beyond what any takes.
const PATIENCE: Duration = Duration::from_secs(60);

async fn client(server: &Server) -> Client {
    Client::connect(&format!("{}?retry_timeout_ms=60000", server.kafka)).await.unwrap()
}

async fn next(consumer: &mut Consumer) -> ConsumedRecord {
    let next = tokio::time::timeout(PATIENCE, consumer.next()).await.expect("a record comes in time");
    next.expect("the consumer goes on").expect("a record")
}

fn number(record: &ConsumedRecord) -> u64 {
    let value = std::str::from_utf8(record.value.as_deref().expect("a value")).expect("text");
    value.parse().expect("a number")
}

async fn send(client: &Client, numbers: std::ops::Range<u64>) {
    let producer = client.producer("t").open().await.unwrap();
    let mut deliveries = Vec::new();
    for number in numbers {
        let record = Record::new(number.to_string()).partition((number % PARTITIONS as u64) as i32);
        deliveries.push(producer.send(record).await.unwrap());
    }
    for delivery in deliveries {
        delivery.await.unwrap();
    }
}

async fn create_topic(client: &Client) {
    client.create_topic("t", Some(PARTITIONS as u32), &BTreeMap::new()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn members_share_the_partitions_and_hand_them_over() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = client(&server).await;
    create_topic(&client).await;
    let mut first = client.consumer("t", "g").open().await.unwrap();
    send(&client, 0..60).await;
    let mut read = BTreeSet::new();
    for _ in 0..60 {
        let record = next(&mut first).await;
        assert!(first.ack(&record));
        assert!(read.insert(number(&record)), "each once while nobody else comes");
    }
    first.commit().await.unwrap();
    assert_eq!(first.assignment().len(), PARTITIONS);

    // A second member comes; what the first has committed is not read again by anybody.
    let mut second = client.consumer("t", "g").open().await.unwrap();
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while first.assignment().len() != 3 || second.assignment().len() != 3 {
        assert!(tokio::time::Instant::now() < deadline, "{:?} {:?}", first.assignment(), second.assignment());
        // Members only notice a rebalance at their next heartbeat.
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    send(&client, 60..120).await;
    let mut by_second = BTreeSet::new();
    for _ in 0..30 {
        let record = next(&mut first).await;
        assert!(first.ack(&record) && read.insert(number(&record)));
        let record = next(&mut second).await;
        assert!(second.ack(&record) && read.insert(number(&record)));
        by_second.insert(number(&record));
    }
    assert_eq!(read, (0..120).collect());

    // The first leaves with everything committed; the second goes on with all partitions, at the same place.
    first.close().await.unwrap();
    while second.assignment().len() != PARTITIONS {
        assert!(tokio::time::Instant::now() < deadline, "{:?}", second.assignment());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    send(&client, 120..180).await;
    for _ in 0..60 {
        let record = next(&mut second).await;
        assert!(second.ack(&record));
        assert!(read.insert(number(&record)), "{} is read again", number(&record));
    }
    second.close().await.unwrap();
    assert_eq!(read, (0..180).collect());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_not_acknowledged_is_read_again() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(dir.path());
    let client = client(&server).await;
    create_topic(&client).await;
    send(&client, 0..12).await;
    let mut consumer = client.consumer("t", "g").open().await.unwrap();
    let mut acknowledged = BTreeSet::new();
    for _ in 0..12 {
        let record = next(&mut consumer).await;
        if record.offset == 0 {
            assert!(consumer.ack(&record));
            acknowledged.insert(number(&record));
        }
    }
    consumer.close().await.unwrap();
    assert_eq!(acknowledged.len(), PARTITIONS);
    let mut consumer = client.consumer("t", "g").open().await.unwrap();
    let mut again = BTreeSet::new();
    for _ in 0..12 - PARTITIONS {
        again.insert(number(&next(&mut consumer).await));
    }
    assert!(again.is_disjoint(&acknowledged), "{again:?} {acknowledged:?}");
    assert_eq!(again.len(), 12 - PARTITIONS);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_and_a_group_outlive_the_server() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = Server::start(dir.path());
    let port = server.kafka.rsplit_once(':').expect("a port").1.to_owned();
    let client = client(&server).await;
    create_topic(&client).await;
    let sending = client.clone();
    let sender = tokio::spawn(async move {
        let producer = sending.producer("t").open().await.unwrap();
        let mut deliveries = Vec::new();
        for number in 0..3000u64 {
            let record = Record::new(number.to_string()).partition((number % PARTITIONS as u64) as i32);
            deliveries.push(producer.send(record).await.unwrap());
            if number % 100 == 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
        for delivery in deliveries {
            delivery.await.expect("it is stored in the end");
        }
    });
    let mut consumer = client.consumer("t", "g").open().await.unwrap();
    let mut read: BTreeMap<i32, Vec<u64>> = BTreeMap::new();
    let mut distinct = BTreeSet::new();
    let mut kills = 0;
    while distinct.len() < 3000 {
        let record = next(&mut consumer).await;
        consumer.ack(&record);
        distinct.insert(number(&record));
        read.entry(record.partition).or_default().push(number(&record));
        if distinct.len() > 700 * (kills + 1) && kills < 3 {
            kills += 1;
            server.end("KILL");
            server = Server::start_on(dir.path(), &port);
        }
    }
    sender.await.unwrap();
    drop(consumer);
    assert_eq!(kills, 3);
    // The log itself has each record once, in order: no retry of the producer's was stored twice.
    let mut reader = client.reader("t").open().await.unwrap();
    let mut stored: BTreeMap<i32, Vec<u64>> = BTreeMap::new();
    for _ in 0..3000 {
        let record = next(&mut reader).await;
        stored.entry(record.partition).or_default().push(number(&record));
    }
    for (partition, numbers) in stored {
        let expected: Vec<u64> = (0..3000).filter(|n| n % PARTITIONS as u64 == partition as u64).collect();
        assert_eq!(numbers, expected, "partition {partition}");
    }
}
