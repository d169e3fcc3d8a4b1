//! The client against a broker that breaks connections, loses answers and refuses: every record is stored
//! once, in order, and is read once.

mod broker;

use std::collections::BTreeMap;
use std::time::Duration;

use broker::{Broker, Fault};
use futures_util::StreamExt;
use weir_client::{Client, ClientError, ErrorCode, ProducerOptions, Record, StartAt};

const PARTITIONS: usize = 3;

async fn connect(broker: &Broker) -> Client {
    let connection = format!("weir://{}?request_timeout_ms=2000&retry_timeout_ms=20000", broker.address());
    Client::connect(&connection).await.expect("the broker listens")
}

/// Sends numbered records by key and checks that each is stored once, in the order of its key.
async fn send_through(faults: Vec<Fault>, records: u64, batch_bytes: usize) {
    let broker = Broker::start(PARTITIONS, faults).await;
    let client = connect(&broker).await;
    let options = ProducerOptions { batch_bytes, linger: Duration::from_millis(1), ..Default::default() };
    let producer = client.producer("t").options(options).open().await.unwrap();
    let mut deliveries = Vec::new();
    for number in 0..records {
        let key = format!("key {}", number % 7);
        deliveries.push((number, producer.send(Record::new(number.to_string()).key(key)).await.unwrap()));
    }
    for (number, delivery) in deliveries {
        let delivered = delivery.await.unwrap_or_else(|error| panic!("record {number}: {error}"));
        let stored = broker.value(delivered.partition, delivered.offset);
        assert_eq!(stored, number.to_string(), "record {number} is where its delivery says");
    }
    let mut stored: Vec<u64> = Vec::new();
    for partition in 0..PARTITIONS {
        let numbers: Vec<u64> =
            broker.values(partition).iter().map(|value| value.parse().expect("a number")).collect();
        let mut last_of_key = BTreeMap::new();
        for number in &numbers {
            if let Some(last) = last_of_key.insert(number % 7, *number) {
                assert!(last < *number, "{last} stands before {number} in partition {partition}");
            }
        }
        stored.extend(numbers);
    }
    stored.sort_unstable();
    assert_eq!(stored, (0..records).collect::<Vec<_>>(), "each once");
}

#[tokio::test]
async fn nothing_is_lost_or_doubled_without_faults() {
    send_through(Vec::new(), 5000, 4096).await;
}

#[tokio::test]
async fn nothing_is_lost_when_connections_break_before_anything_is_stored() {
    send_through(every(3, Fault::CloseBeforeStoring), 2000, 1024).await;
}

#[tokio::test]
async fn nothing_is_doubled_when_answers_are_lost() {
    send_through(every(3, Fault::CloseAfterStoring), 2000, 1024).await;
}

#[tokio::test]
async fn order_holds_when_one_batch_of_several_is_refused_for_a_while() {
    send_through(every(2, Fault::Refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER)), 2000, 512).await;
    send_through(every(4, Fault::Refuse(ErrorCode::KAFKA_STORAGE_ERROR)), 2000, 512).await;
}

#[tokio::test]
async fn faults_of_all_kinds_together() {
    let kinds = [
        Fault::CloseBeforeStoring,
        Fault::None,
        Fault::Refuse(ErrorCode::NOT_LEADER_OR_FOLLOWER),
        Fault::CloseAfterStoring,
        Fault::None,
        Fault::Refuse(ErrorCode::REQUEST_TIMED_OUT),
        Fault::CloseAfterStoring,
        Fault::None,
    ];
    send_through(kinds.into_iter().cycle().take(64).collect(), 3000, 700).await;
}

/// A fault at every nth produce request of the first hundred.
fn every(n: usize, fault: Fault) -> Vec<Fault> {
    (1..=100).map(|index| if index % n == 0 { fault } else { Fault::None }).collect()
}

#[tokio::test]
async fn a_batch_that_is_refused_for_good_fails_alone() {
    let faults = vec![Fault::None, Fault::Refuse(ErrorCode::MESSAGE_TOO_LARGE)];
    let broker = Broker::start(1, faults).await;
    let client = connect(&broker).await;
    let options = ProducerOptions { batch_bytes: 1, ..Default::default() };
    let producer = client.producer("t").options(options).open().await.unwrap();
    let mut results = Vec::new();
    let mut deliveries = Vec::new();
    for number in 0..20 {
        deliveries.push(producer.send(Record::new(number.to_string())).await.unwrap());
    }
    for delivery in deliveries {
        results.push(delivery.await);
    }
    let failed: Vec<&ClientError> = results.iter().filter_map(|result| result.as_ref().err()).collect();
    assert_eq!(failed.len(), 1, "{failed:?}");
    assert_eq!(failed[0].code(), Some(ErrorCode::MESSAGE_TOO_LARGE));
    assert!(!failed[0].is_retryable());
    let expected: Vec<String> =
        results.iter().enumerate().filter(|(_, r)| r.is_ok()).map(|(number, _)| number.to_string()).collect();
    assert_eq!(broker.values(0), expected, "the others are stored once, in order");
}

#[tokio::test]
async fn a_reader_goes_on_where_it_was_when_its_connection_breaks() {
    let broker = Broker::start(PARTITIONS, Vec::new()).await;
    let client = connect(&broker).await;
    let producer = client.producer("t").open().await.unwrap();
    let mut reader = client.reader("t").start(StartAt::Start).open().await.unwrap();
    let mut read = Vec::new();
    for round in 0..5u64 {
        for number in round * 100..(round + 1) * 100 {
            drop(producer.send(Record::new(number.to_string())).await.unwrap());
        }
        producer.flush().await;
        for _ in 0..100 {
            let record = reader.next().await.expect("the reader goes on").expect("a record");
            let value = String::from_utf8(record.value.expect("a value").to_vec()).expect("text");
            read.push(value.parse::<u64>().expect("a number"));
        }
        broker.close_connections();
    }
    read.sort_unstable();
    assert_eq!(read, (0..500).collect::<Vec<_>>(), "each once");
}

#[tokio::test]
async fn places_are_found_by_offset_end_and_time() {
    let broker = Broker::start(1, Vec::new()).await;
    let client = connect(&broker).await;
    let producer = client.producer("t").open().await.unwrap();
    for number in 0..10i64 {
        let record = Record::new(number.to_string()).timestamp_ms(1000 + number);
        producer.send(record).await.unwrap().await.unwrap();
    }
    for (place, first) in
        [(StartAt::Start, 0), (StartAt::Offset(4), 4), (StartAt::Time(1007), 7), (StartAt::Offset(100), 0)]
    {
        let mut reader = client.reader("t").start(place).open().await.unwrap();
        let record = reader.next().await.unwrap().unwrap();
        assert_eq!(record.offset, first, "{place}");
    }
    let ends = client.offsets("t", StartAt::End).await.unwrap();
    assert_eq!(ends, BTreeMap::from([(0, 10)]));
}

#[tokio::test]
async fn a_topic_that_does_not_exist_is_told_at_once() {
    let broker = Broker::start(1, Vec::new()).await;
    let client = connect(&broker).await;
    let error = client.reader("missing").open().await.unwrap_err();
    assert_eq!(error.code(), Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION));
}

#[tokio::test]
async fn nobody_listening_is_unreachable() {
    let error = Client::connect("127.0.0.1:1").await.unwrap_err();
    assert!(matches!(error, ClientError::Unreachable { .. }), "{error:?}");
    assert!(error.is_retryable());
}

#[tokio::test]
async fn an_older_broker_is_asked_for_its_versions_again_in_the_oldest_layout() {
    let broker = Broker::start(1, Vec::new()).await;
    broker.only_oldest_api_versions();
    let client = connect(&broker).await;
    assert_eq!(client.partitions("t").await.unwrap(), 1);
}
