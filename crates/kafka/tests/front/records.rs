//! Producing, and finding offsets.

use weir_compression::compress;
use weir_kafka_wire::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use weir_kafka_wire::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use weir_kafka_wire::messages::metadata::MetadataRequestTopic;
use weir_kafka_wire::messages::offset_for_leader_epoch::{OffsetForLeaderPartition, OffsetForLeaderTopic};
use weir_kafka_wire::{
    DeleteRecordsRequest, ErrorCode, InitProducerIdRequest, ListOffsetsRequest, MetadataRequest,
    OffsetForLeaderEpochRequest, ProduceRequest, Uuid,
};
use weir_model::batch::{BatchBuilder, Compression};

use crate::common::{
    Client, NOW_MS, Setup, batch, batch_at, fetch, numbered_batch, only_partition, produce, serve,
    serve_with, texts, values,
};

fn list_offsets(topic: &str, partition_index: i32, timestamp: i64) -> ListOffsetsRequest {
    ListOffsetsRequest {
        topics: vec![ListOffsetsTopic {
            name: topic.into(),
            partitions: vec![ListOffsetsPartition { partition_index, timestamp, ..Default::default() }],
        }],
        ..Default::default()
    }
}

/// What is found: error, offset, timestamp, leader epoch.
async fn found(client: &mut Client, version: i16, topic: &str, timestamp: i64) -> (ErrorCode, i64, i64, i32) {
    let response = client.call(version, &list_offsets(topic, 0, timestamp)).await;
    let one = &response.topics[0].partitions[0];
    (one.error_code, one.offset, one.timestamp, one.leader_epoch)
}

async fn init_producer(client: &mut Client) -> (i64, i16) {
    let response = client.call(4, &InitProducerIdRequest::default()).await;
    assert_eq!(response.error_code, ErrorCode::NONE);
    (response.producer_id, response.producer_epoch)
}

#[tokio::test]
async fn what_is_produced_is_fetched_at_its_offsets() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 2, &[]).await;
    assert_eq!(client.append("t", 1, batch(&["a", "b"])).await, 0);
    assert_eq!(client.append("t", 1, batch(&["c"])).await, 2);
    let data = client.fetch("t", 1, 0).await;
    assert_eq!(values(&data), [(0, "a".into()), (1, "b".into()), (2, "c".into())]);
    assert_eq!((data.high_watermark, data.last_stable_offset, data.log_start_offset), (3, 3, 0));
    assert!(texts(&client.fetch("t", 0, 0).await).is_empty());
}

#[tokio::test]
async fn every_version_of_produce_and_fetch_carries_records() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    let topic_id = topic_id(&mut client, "t").await;
    for version in 3..=13 {
        let mut request = produce("t", 0, -1, batch(&["x"]));
        request.topic_data[0].topic_id = topic_id;
        let produced = only_partition(&mut client.call(version, &request).await);
        assert_eq!(produced.error_code, ErrorCode::NONE, "version {version}");
        assert_eq!(produced.base_offset, i64::from(version - 3));
    }
    for version in 4..=18 {
        let mut request = fetch(&[("t", 0, 5)]);
        request.topics[0].topic_id = topic_id;
        let response = client.call(version, &request).await;
        assert_eq!(texts(&response.responses[0].partitions[0]).len(), 6, "version {version}");
    }
}

async fn topic_id(client: &mut Client, name: &str) -> Uuid {
    let topics = Some(vec![MetadataRequestTopic { name: Some(name.into()), ..Default::default() }]);
    client.call(12, &MetadataRequest { topics, ..Default::default() }).await.topics[0].topic_id
}

/// The timeout of a producer is for other replicas. Where there are none Kafka does not wait, and some
/// clients send 0.
#[tokio::test]
async fn a_timeout_of_nothing_is_time_enough() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    for acks in [1, -1] {
        let request = ProduceRequest { timeout_ms: 0, ..produce("t", 0, acks, batch(&["x"])) };
        assert_eq!(only_partition(&mut client.call(9, &request).await).error_code, ErrorCode::NONE);
    }
}

/// Clients split a batch that is told to be too large; any other code makes them drop or repeat it.
#[tokio::test]
async fn trap_a_batch_above_the_limit_is_told_to_be_too_large() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    let limit = 1_048_588;
    let overhead = batch(&[&"x".repeat(1 << 19)]).len() - (1 << 19);
    let largest = batch(&[&"x".repeat(limit - overhead)]);
    assert_eq!(largest.len(), limit);
    assert_eq!(client.append("t", 0, largest).await, 0);
    let refused = client.produce("t", 0, batch(&[&"x".repeat(limit - overhead + 1)])).await;
    assert_eq!(refused.error_code, ErrorCode::MESSAGE_TOO_LARGE);
}

/// Some brokers answer all the same, and clients take that answer for the next request's.
#[tokio::test]
async fn trap_acks_0_gets_no_answer() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    for _ in 0..10 {
        client.send(9, &produce("t", 0, 0, batch(&["unanswered"]))).await;
    }
    assert_eq!(client.append("t", 0, batch(&["answered"])).await, 10);
}

#[tokio::test]
async fn a_failure_with_acks_0_is_told_by_the_end_of_the_connection() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.send(9, &produce("no-such-topic", 0, 0, batch(&["x"]))).await;
    assert!(client.is_closed().await);
}

#[tokio::test]
async fn records_sent_with_acks_0_before_closing_are_stored() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    let mut sender = served.connect().await;
    for _ in 0..50 {
        sender.send(9, &produce("t", 0, 0, batch(&["x"]))).await;
    }
    drop(sender);
    let mut request = fetch(&[("t", 0, 0)]);
    request.max_wait_ms = 20_000;
    request.min_bytes = 50 * batch(&["x"]).len() as i32;
    let response = client.call(12, &request).await;
    assert_eq!(texts(&response.responses[0].partitions[0]).len(), 50);
}

#[tokio::test]
async fn each_refusal_has_its_own_code() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[("max.message.bytes", "500")]).await;
    let good = batch(&["x"]);
    let mut corrupt = good.to_vec();
    *corrupt.last_mut().unwrap() ^= 1;
    let mut old = good.to_vec();
    old[16] = 1;
    let mut control = BatchBuilder::new();
    control.push(NOW_MS, None, None, &[]);
    let mut control = control.build().to_vec();
    control[22] |= 0x20;
    let crc = crc32c(&control[21..]);
    control[17..21].copy_from_slice(&crc.to_be_bytes());
    let cases = [
        ("no-such-topic", 0, good.clone(), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, good.clone(), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, good.clone(), ErrorCode::UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 0, corrupt.into(), ErrorCode::CORRUPT_MESSAGE),
        ("t", 0, good.slice(..good.len() - 1), ErrorCode::CORRUPT_MESSAGE),
        ("t", 0, old.into(), ErrorCode::INVALID_RECORD),
        ("t", 0, control.into(), ErrorCode::INVALID_RECORD),
        ("t", 0, [good.clone(), good.clone()].concat().into(), ErrorCode::INVALID_RECORD),
        ("t", 0, Default::default(), ErrorCode::INVALID_RECORD),
        ("t", 0, batch(&[&"x".repeat(600)]), ErrorCode::MESSAGE_TOO_LARGE),
    ];
    for (topic, partition, bytes, expected) in cases {
        let produced = client.produce(topic, partition, bytes).await;
        assert_eq!(produced.error_code, expected, "{topic} {partition}: {:?}", produced.error_message);
        assert_eq!(produced.base_offset, -1);
        assert!(produced.error_message.is_some_and(|words| !words.is_empty()), "{expected}");
    }
    let acks = only_partition(&mut client.call(9, &produce("t", 0, 2, good.clone())).await);
    assert_eq!(acks.error_code, ErrorCode::INVALID_REQUIRED_ACKS);
    let mut by_id = produce("", 0, -1, good.clone());
    by_id.topic_data[0].topic_id = Uuid::from(12345);
    assert_eq!(only_partition(&mut client.call(13, &by_id).await).error_code, ErrorCode::UNKNOWN_TOPIC_ID);
    assert_eq!(client.append("t", 0, good).await, 0, "nothing of this was stored");
}

/// The CRC of a batch, bit by bit: what is tested must not be tested with itself.
fn crc32c(bytes: &[u8]) -> u32 {
    let mut crc = u32::MAX;
    for byte in bytes {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
        }
    }
    !crc
}

#[tokio::test]
async fn one_partition_that_fails_does_not_hinder_another() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 2, &[]).await;
    let mut request = produce("t", 0, 1, batch(&["good"]));
    request.topic_data.extend(produce("t", 7, 1, batch(&["bad"])).topic_data);
    request.topic_data.extend(produce("t", 1, 1, batch(&["good"])).topic_data);
    let response = client.call(9, &request).await;
    let codes: Vec<_> =
        response.responses.iter().map(|topic| topic.partition_responses[0].error_code).collect();
    assert_eq!(codes, [ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, ErrorCode::NONE]);
}

fn compressed(compression: Compression, value: &str) -> bytes::Bytes {
    let mut builder = BatchBuilder::new();
    builder.push(NOW_MS, None, Some(value.as_bytes()), &[]);
    let section = compress(compression, None, builder.section()).unwrap();
    builder.build_with(compression, &section)
}

/// Brokers that refuse some compressions lose the clients that have them switched on.
#[tokio::test]
async fn trap_every_compression_is_taken_and_given_back_as_it_came() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    for compression in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let sent = compressed(compression, "value");
        let offset = client.append("t", 0, sent.clone()).await;
        let data = client.fetch("t", 0, offset).await;
        let got = data.records.unwrap().into_contiguous();
        assert_eq!(got[16..], sent[16..], "{compression:?}");
    }
}

#[tokio::test]
async fn zstd_is_refused_from_old_producers_and_sent_to_consumers_of_every_version() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    let zstd = compressed(Compression::Zstd, "value");
    let old = only_partition(&mut client.call(6, &produce("t", 0, -1, zstd.clone())).await);
    assert_eq!(old.error_code, ErrorCode::UNSUPPORTED_COMPRESSION_TYPE);
    let new = only_partition(&mut client.call(7, &produce("t", 0, -1, zstd)).await);
    assert_eq!(new.error_code, ErrorCode::NONE);
    for version in [4, 9, 10] {
        let response = client.call(version, &fetch(&[("t", 0, 0)])).await;
        let data = &response.responses[0].partitions[0];
        assert_eq!((data.error_code, data.high_watermark), (ErrorCode::NONE, 1), "version {version}");
        assert!(data.records.as_ref().is_some_and(|records| !records.is_empty()), "version {version}");
    }
}

#[tokio::test]
async fn an_idempotent_producer_is_stored_once_also_across_a_restart() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    let (id, epoch) = init_producer(&mut client).await;
    assert_eq!(client.append("t", 0, numbered_batch(id, epoch, 0, &["a", "b"])).await, 0);
    assert_eq!(client.append("t", 0, numbered_batch(id, epoch, 2, &["c"])).await, 2);
    // Sent again because the answer got lost: a success at the first position.
    assert_eq!(client.append("t", 0, numbered_batch(id, epoch, 0, &["a", "b"])).await, 0);
    let gap = client.produce("t", 0, numbered_batch(id, epoch, 9, &["z"])).await;
    assert_eq!(gap.error_code, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);

    let disk = served.stop().await;
    let served = serve_with(Setup { disk, ..Default::default() }).await;
    let mut client = served.connect().await;
    assert_eq!(client.append("t", 0, numbered_batch(id, epoch, 2, &["c"])).await, 2);
    assert_eq!(client.append("t", 0, numbered_batch(id, epoch, 3, &["d"])).await, 3);
    let newer = client.produce("t", 0, numbered_batch(id, epoch + 1, 0, &["e"])).await;
    assert_eq!((newer.error_code, newer.base_offset), (ErrorCode::NONE, 4));
    let older = client.produce("t", 0, numbered_batch(id, epoch, 4, &["f"])).await;
    assert_eq!(older.error_code, ErrorCode::INVALID_PRODUCER_EPOCH);
    assert_eq!(texts(&client.fetch("t", 0, 0).await), ["a", "b", "c", "d", "e"]);
    let (second, _) = init_producer(&mut client).await;
    assert_ne!(second, id, "an id is never given out twice");
}

#[tokio::test]
async fn log_append_time_is_the_brokers() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[("message.timestamp.type", "LogAppendTime")]).await;
    let produced = client.produce("t", 0, batch_at(5, &["a"])).await;
    assert_eq!((produced.error_code, produced.log_append_time_ms), (ErrorCode::NONE, NOW_MS));
    let data = client.fetch("t", 0, 0).await;
    assert_eq!(crate::common::records(&data)[0].timestamp, NOW_MS);
}

#[tokio::test]
async fn offsets_are_found_by_time_and_place() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    assert_eq!(found(&mut client, 7, "t", -1).await.1, 0);
    assert_eq!(found(&mut client, 7, "t", 0).await, (ErrorCode::NONE, -1, -1, -1), "there is no record yet");
    client.append("t", 0, batch_at(100, &["a", "b", "c"])).await;
    client.append("t", 0, batch_at(50, &["late"])).await;
    client.append("t", 0, batch_at(200, &["d"])).await;
    for version in 1..=11 {
        assert_eq!(found(&mut client, version, "t", -2).await.1, 0, "earliest in version {version}");
        assert_eq!(found(&mut client, version, "t", -1).await.1, 5, "latest in version {version}");
        // To the record, not to its batch.
        let (_, offset, timestamp, _) = found(&mut client, version, "t", 101).await;
        assert_eq!((offset, timestamp), (1, 101), "version {version}");
        assert_eq!(found(&mut client, version, "t", 103).await.1, 4);
        assert_eq!(found(&mut client, version, "t", 201).await, (ErrorCode::NONE, -1, -1, -1));
    }
    let (_, offset, timestamp, _) = found(&mut client, 7, "t", -3).await;
    assert_eq!((offset, timestamp), (4, 200), "the record with the largest timestamp");
    assert_eq!(found(&mut client, 6, "t", -3).await.0, ErrorCode::UNSUPPORTED_VERSION);
    assert_eq!(found(&mut client, 8, "t", -4).await.1, 0);
    assert_eq!(found(&mut client, 9, "t", -5).await, (ErrorCode::NONE, -1, -1, -1));
    assert_eq!(found(&mut client, 11, "nope", -1).await.0, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let mut twice = list_offsets("t", 0, -1);
    twice.topics.push(twice.topics[0].clone());
    let response = client.call(7, &twice).await;
    assert_eq!(response.topics[1].partitions[0].error_code, ErrorCode::INVALID_REQUEST);
}

/// A client that is told the present epoch of an old record takes its log for truncated (Redpanda).
#[tokio::test]
async fn trap_list_offsets_tells_the_epoch_in_which_the_record_was_appended() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    client.append("t", 0, batch_at(100, &["old"])).await;
    let (_, _, _, old_epoch) = found(&mut client, 7, "t", 100).await;
    let disk = served.stop().await;

    let served = serve_with(Setup { disk, ..Default::default() }).await;
    let mut client = served.connect().await;
    client.append("t", 0, batch_at(200, &["new"])).await;
    let (_, offset, _, epoch) = found(&mut client, 7, "t", 100).await;
    assert_eq!((offset, epoch), (0, old_epoch));
    let (_, offset, _, new_epoch) = found(&mut client, 7, "t", 200).await;
    assert_eq!(offset, 1);
    assert!(new_epoch > old_epoch, "{new_epoch} after {old_epoch}");
    let (_, _, _, latest_epoch) = found(&mut client, 7, "t", -1).await;
    assert_eq!(latest_epoch, new_epoch);

    // Where each epoch ended, and what becomes of clients that know another leader.
    let end_of = |leader_epoch, current_leader_epoch| OffsetForLeaderEpochRequest {
        topics: vec![OffsetForLeaderTopic {
            topic: "t".into(),
            partitions: vec![OffsetForLeaderPartition { partition: 0, current_leader_epoch, leader_epoch }],
        }],
        ..Default::default()
    };
    let end = client.call(4, &end_of(old_epoch, -1)).await.topics.remove(0).partitions.remove(0);
    assert_eq!((end.error_code, end.leader_epoch, end.end_offset), (ErrorCode::NONE, old_epoch, 1));
    let end = client.call(4, &end_of(new_epoch, new_epoch)).await.topics.remove(0).partitions.remove(0);
    assert_eq!((end.leader_epoch, end.end_offset), (new_epoch, 2));
    for (epoch, expected) in
        [(old_epoch, ErrorCode::FENCED_LEADER_EPOCH), (new_epoch + 1, ErrorCode::UNKNOWN_LEADER_EPOCH)]
    {
        let end = client.call(4, &end_of(old_epoch, epoch)).await.topics.remove(0).partitions.remove(0);
        assert_eq!(end.error_code, expected);
        let mut request = fetch(&[("t", 0, 0)]);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        let response = client.call(12, &request).await;
        assert_eq!(response.responses[0].partitions[0].error_code, expected);
        let mut request = list_offsets("t", 0, -1);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        assert_eq!(client.call(7, &request).await.topics[0].partitions[0].error_code, expected);
    }
}

/// Hidden records of the broker's own in a topic make its end unreachable: lag 1 for ever (Redpanda).
#[tokio::test]
async fn trap_a_topic_holds_no_records_but_its_producers() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    client.append("t", 0, batch(&["only"])).await;
    let disk = served.stop().await;
    let served = serve_with(Setup { disk, ..Default::default() }).await;
    let mut client = served.connect().await;
    assert_eq!(found(&mut client, 7, "t", -1).await.1, 1);
    assert_eq!(values(&client.fetch("t", 0, 0).await), [(0, "only".into())]);
}

#[tokio::test]
async fn deleted_records_are_gone_and_the_log_begins_behind_them() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    for value in ["a", "b", "c"] {
        client.append("t", 0, batch(&[value])).await;
    }
    let delete = |offset| DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: "t".into(),
            partitions: vec![DeleteRecordsPartition { partition_index: 0, offset }],
        }],
        timeout_ms: 10_000,
    };
    let deleted = client.call(2, &delete(2)).await.topics.remove(0).partitions.remove(0);
    assert_eq!((deleted.error_code, deleted.low_watermark), (ErrorCode::NONE, 2));
    assert_eq!(client.fetch("t", 0, 1).await.error_code, ErrorCode::OFFSET_OUT_OF_RANGE);
    let data = client.fetch("t", 0, 2).await;
    assert_eq!((data.log_start_offset, texts(&data)), (2, vec!["c".to_owned()]));
    assert_eq!(found(&mut client, 7, "t", -2).await.1, 2);
    let beyond = client.call(2, &delete(9)).await.topics.remove(0).partitions.remove(0);
    assert_eq!(beyond.error_code, ErrorCode::OFFSET_OUT_OF_RANGE);
    let all = client.call(2, &delete(-1)).await.topics.remove(0).partitions.remove(0);
    assert_eq!((all.error_code, all.low_watermark), (ErrorCode::NONE, 3));
}

#[tokio::test]
async fn a_transactional_produce_is_refused() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    let request = ProduceRequest { transactional_id: Some("x".into()), ..produce("t", 0, -1, batch(&["a"])) };
    let refused = only_partition(&mut client.call(9, &request).await);
    assert_eq!(refused.error_code, ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
}

/// A nearly full disk is told by the one code that producers repeat until it is no more; reading goes on, and
/// records are taken again as soon as there is room.
#[tokio::test(start_paused = true)]
async fn a_nearly_full_disk_refuses_records_until_there_is_room() {
    let served = serve().await;
    let mut client = served.connect_in_memory();
    client.create_topic("t", 1, &[]).await;
    client.append("t", 0, batch(&["before"])).await;
    // Less than the reserve that records never take, so that everything else still has room.
    served.disk.set_capacity(Some(400 << 20));
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let refused = client.produce("t", 0, batch(&["too much"])).await;
    assert_eq!(refused.error_code, ErrorCode::KAFKA_STORAGE_ERROR);
    assert!(refused.error_code.is_retriable());
    assert_eq!(texts(&client.fetch("t", 0, 0).await), ["before"]);
    served.disk.set_capacity(None);
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    assert_eq!(client.append("t", 0, batch(&["after"])).await, 1);
}
