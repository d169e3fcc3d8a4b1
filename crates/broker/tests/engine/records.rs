//! Publishing, reading, finding offsets and waiting, over a real node on a simulated disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::support::*;
use bytes::{Bytes, BytesMut};
use tokio::time::Instant;
use weir_broker::*;
use weir_compression::compress;
use weir_model::batch::{BatchBuilder, BatchError, Compression, verify_batch};

#[tokio::test(start_paused = true)]
async fn what_is_published_is_read_in_order_and_again_after_a_restart() {
    let mut world = World::started(1).await;
    world.create("t", 4).await;
    for round in 0..20 {
        for partition in 0..4 {
            let value = format!("{partition}:{round}");
            assert_eq!(world.publish_values("t", partition, &[&value, "x"]).await, 2 * round);
        }
    }
    let before = world.values("t", 3).await;
    assert_eq!(before[..4], ["3:0", "x", "3:1", "x"]);
    world.restart().await;
    assert_eq!(world.values("t", 3).await, before);
    assert_eq!(world.publish_values("t", 3, &["after"]).await, 40);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn batches_of_one_connection_are_appended_in_the_order_of_the_calls() {
    let mut world = World::started(2).await;
    world.create("t", 1).await;
    let partition = world.partition("t", 0);
    let mut on_their_way = Vec::new();
    for number in 0..500 {
        let batch = values_batch(&[&number.to_string()]);
        on_their_way.push(world.broker().publish(&partition, batch, Acks::All).await.unwrap());
    }
    for (number, publishing) in on_their_way.into_iter().enumerate() {
        assert_eq!(publishing.await.unwrap().base_offset, number as i64);
    }
    let expected: Vec<String> = (0..500).map(|number| number.to_string()).collect();
    assert_eq!(world.values("t", 0).await, expected);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn bytes_that_are_not_one_good_batch_are_refused_by_name() {
    let mut world = World::started(3).await;
    world.create_with("t", 1, &[("max.message.bytes", "200")]).await;
    let partition = world.partition("t", 0);
    let refused = async |batch: Bytes| world.publish(&partition, batch).await.unwrap_err();
    let good = values_batch(&["v"]);

    let large = values_batch(&["v".repeat(300).as_str()]);
    assert_eq!(refused(large.clone()).await, PublishError::TooLarge { bytes: large.len(), max: 200 });

    let two = Bytes::from([&good[..], &good[..]].concat());
    assert_eq!(refused(two).await, PublishError::NotOneBatch { bytes: good.len() });

    let mut flipped = BytesMut::from(&good[..]);
    flipped[65] ^= 1;
    assert!(matches!(refused(flipped.freeze()).await, PublishError::Batch(BatchError::Crc { .. })));

    let cut = refused(good.slice(..good.len() - 1)).await;
    assert!(matches!(cut, PublishError::Batch(BatchError::Truncated { .. })), "{cut}");
    assert!(matches!(refused(Bytes::new()).await, PublishError::Batch(BatchError::Truncated { .. })));

    assert_eq!(refused(with_attributes(&good, 0x20)).await, PublishError::Control);
    let mut transactional = BatchBuilder::new().producer(5, 0, 0);
    transactional.push(1, None, None, &[]);
    assert_eq!(refused(with_attributes(&transactional.build(), 0x10)).await, PublishError::Transactional);
    assert_eq!(refused(with_attributes(&good, 0x08)).await, PublishError::TimestampType);

    assert_eq!(partition.next_offset(), 0, "nothing of it was appended");
    world.stop().await;
}

/// The same batch with bits set in its attributes and its checksum made to fit.
fn with_attributes(batch: &Bytes, bits: u8) -> Bytes {
    let mut batch = BytesMut::from(&batch[..]);
    batch[22] |= bits;
    let crc = crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch.freeze()
}

/// CRC-32C bit by bit: slow, and not the code under test.
fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ 0x82f6_3b78 };
    !bytes.iter().fold(!0u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}

#[tokio::test(start_paused = true)]
async fn a_topic_with_append_time_gives_records_the_brokers() {
    let mut world = World::started(4).await;
    world.create_with("t", 1, &[("message.timestamp.type", "LogAppendTime")]).await;
    tokio::time::advance(Duration::from_secs(5)).await;
    let partition = world.partition("t", 0);
    let mut batch = BatchBuilder::new();
    batch.push(17, None, Some(b"v"), &[]);
    let published = world.publish(&partition, batch.build()).await.unwrap();
    let record = read_all(&partition).await.remove(0);
    assert!(published.append_time >= EPOCH + 5_000);
    assert_eq!(record.timestamp, published.append_time);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_producer_of_an_async_topic_is_answered_without_an_offset() {
    let mut world = World::started(5).await;
    world.create_with("t", 1, &[("weir.durability", "async")]).await;
    let partition = world.partition("t", 0);
    let published = world.publish(&partition, values_batch(&["v"])).await.unwrap();
    assert_eq!((published.base_offset, published.leader_epoch), (-1, -1));
    let wait = FetchWait::on([&partition]);
    let mark = wait.mark();
    if partition.next_offset() == 0 {
        assert!(wait.beyond(mark, 1, Instant::now() + Duration::from_secs(1)).await);
    }
    assert_eq!(world.values("t", 0).await, ["v"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_wants_no_answer_still_gets_the_records_stored() {
    let mut world = World::started(6).await;
    world.create("t", 1).await;
    let partition = world.partition("t", 0);
    let unanswered = world.broker().publish(&partition, values_batch(&["quiet"]), Acks::None).await.unwrap();
    drop(unanswered);
    world.publish_values("t", 0, &["loud"]).await;
    assert_eq!(world.values("t", 0).await, ["quiet", "loud"]);
    let metrics = world.broker().metrics().render();
    for line in ["weir_topics 1", "weir_publish_seconds_count 1", "weir_shard_leads{shard=\"0\"} 1"] {
        assert!(metrics.lines().any(|found| found == line), "no {line} in:\n{metrics}");
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_repeated_batch_of_an_idempotent_producer_is_stored_once_even_across_a_restart() {
    let mut world = World::started(7).await;
    world.create("t", 1).await;
    let (id, epoch) = world.broker().init_producer().await.unwrap();
    let batch = |sequence: i32| {
        let mut batch = BatchBuilder::new().producer(id, epoch, sequence);
        batch.push(EPOCH, None, Some(sequence.to_string().as_bytes()), &[]);
        batch.build()
    };
    let partition = world.partition("t", 0);
    for sequence in 0..3 {
        assert!(!world.publish(&partition, batch(sequence)).await.unwrap().duplicate);
    }
    world.restart().await;
    let partition = world.partition("t", 0);
    let again = world.publish(&partition, batch(1)).await.unwrap();
    assert_eq!((again.base_offset, again.duplicate), (1, true));
    let gap = world.publish(&partition, batch(5)).await.unwrap_err();
    assert_eq!(gap, PublishError::OutOfOrderSequence { producer_id: id, expected: 3, got: 5 });
    assert_eq!(world.values("t", 0).await, ["0", "1", "2"]);
    let (other, _) = world.broker().init_producer().await.unwrap();
    assert!(other > id, "an id is never given out again");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn offsets_are_found_by_time_to_the_record_in_every_codec() {
    let mut world = World::started(8).await;
    world.create("t", 1).await;
    let partition = world.partition("t", 0);
    for (at, codec) in [Compression::None, Compression::Gzip, Compression::Zstd].into_iter().enumerate() {
        let mut batch = BatchBuilder::new();
        for record in 0..4 {
            batch.push(EPOCH + 100 * at as i64 + 10 * record, None, Some(b"value"), &[]);
        }
        let section = compress(codec, None, batch.section()).unwrap();
        world.publish(&partition, batch.build_with(codec, &section)).await.unwrap();
    }
    for restarted in [false, true] {
        if restarted {
            world.restart().await;
        }
        let partition = world.partition("t", 0);
        let at = async |query| partition.list_offset(query).await.unwrap();
        let by_time = async |time: i64| {
            at(OffsetQuery::At(EPOCH + time)).await.map(|l| (l.offset, l.timestamp - EPOCH))
        };
        assert_eq!(by_time(0).await, Some((0, 0)));
        assert_eq!(by_time(15).await, Some((2, 20)));
        assert_eq!(by_time(31).await, Some((4, 100)));
        assert_eq!(by_time(125).await, Some((7, 130)));
        assert_eq!(by_time(201).await, Some((9, 210)));
        assert_eq!(by_time(231).await, None);
        assert_eq!(at(OffsetQuery::Earliest).await.unwrap().offset, 0);
        let latest = at(OffsetQuery::Latest).await.unwrap();
        assert_eq!((latest.offset, latest.timestamp), (12, -1));
        let newest = at(OffsetQuery::MaxTimestamp).await.unwrap();
        assert_eq!((newest.offset, newest.timestamp), (11, EPOCH + 230));
    }
    // A record is listed with the epoch that it was appended in, not with today's.
    let partition = world.partition("t", 0);
    let listed = partition.list_offset(OffsetQuery::At(EPOCH)).await.unwrap().unwrap();
    assert!(listed.leader_epoch < partition.leader_epoch());
    assert_eq!(partition.end_offset_for_epoch(listed.leader_epoch), (listed.leader_epoch, 12));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_on_the_disk_only_is_read_all_the_same() {
    let mut world = World::started(13).await;
    world.create_with("t", 1, &[("segment.bytes", "5000")]).await;
    let values: Vec<String> = (0..100).map(|number| format!("{number}-{}", "x".repeat(300))).collect();
    for value in &values {
        world.publish_values("t", 0, &[value]).await;
    }
    for restarted in [false, true] {
        if restarted {
            world.restart().await;
        }
        // Nothing is in the page cache: every read goes to the disk, on a thread where that may wait.
        world.disk.set_cached(false);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(world.values("t", 0).await, values);
        let found = world.partition("t", 0).list_offset(OffsetQuery::At(EPOCH)).await.unwrap().unwrap();
        assert_eq!(found.offset, 0);
    }
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn reading_outside_of_the_log_is_out_of_range_and_at_its_end_is_nothing() {
    let mut world = World::started(9).await;
    world.create("t", 1).await;
    world.publish_values("t", 0, &["a", "b", "c"]).await;
    let partition = world.partition("t", 0);
    let inside = partition.read(1, 10).await.unwrap();
    assert_eq!(inside.next_offset, 3, "the whole batch that contains the offset");
    assert!(partition.read(3, 1000).await.unwrap().pieces.is_empty());
    let beyond = partition.read(4, 1000).await.unwrap_err();
    assert_eq!(beyond, ReadError::OutOfRange { offset: 4, log_start: 0, next_offset: 3 });
    assert_eq!(world.broker().delete_records(&partition, Some(2)).await.unwrap(), 2);
    assert!(matches!(partition.read(1, 1000).await, Err(ReadError::OutOfRange { log_start: 2, .. })));
    let too_far = world.broker().delete_records(&partition, Some(9)).await.unwrap_err();
    assert!(matches!(too_far, AdminError::OffsetOutOfRange { offset: 9, .. }));
    assert_eq!(world.broker().delete_records(&partition, None).await.unwrap(), 3);
    assert!(partition.list_offset(OffsetQuery::At(0)).await.unwrap().is_none());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_with_enough_bytes_or_its_deadline_or_the_partition() {
    let mut world = World::started(10).await;
    let topic = world.create("t", 2).await;
    let partitions = [world.partition("t", 0), world.partition("t", 1)];
    let size = values_batch(&["v"]).len();
    let soon = || Instant::now() + Duration::from_secs(1);

    let wait = FetchWait::on(&partitions);
    let began = Instant::now();
    assert!(!wait.beyond(wait.mark(), 1, soon()).await, "nothing came");
    assert_eq!(began.elapsed().as_secs(), 1);

    let mark = wait.mark();
    world.publish_values("t", 0, &["v"]).await;
    assert!(wait.beyond(mark, 1, soon()).await, "what came between mark and wait counts");

    let mark = wait.mark();
    let enough = tokio::spawn(async move { wait.beyond(mark, 2 * size, soon()).await });
    world.publish_values("t", 0, &["v"]).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(!enough.is_finished(), "one batch is not enough");
    world.publish_values("t", 1, &["v"]).await;
    assert!(enough.await.unwrap());

    let wait = FetchWait::on(&partitions);
    let mark = wait.mark();
    let closed = tokio::spawn(async move { wait.beyond(mark, 1 << 30, soon()).await });
    tokio::task::yield_now().await;
    world.broker().delete_topic(topic.id()).await.unwrap();
    assert!(closed.await.unwrap(), "a partition that is gone ends the wait");
    assert_eq!(partitions[0].read(0, 1).await.unwrap_err(), ReadError::UnknownPartition);
    world.stop().await;
}

/// Counts how often a future is looked at.
struct Polled<F> {
    future: std::pin::Pin<Box<F>>,
    polls: Arc<AtomicUsize>,
}

impl<F: Future> Future for Polled<F> {
    type Output = F::Output;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<F::Output> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        self.future.as_mut().poll(context)
    }
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_waiting_fetches_are_looked_at_only_when_they_end() {
    let mut world = World::started(11).await;
    world.create("quiet", 4).await;
    world.create("busy", 1).await;
    let polls = Arc::new(AtomicUsize::new(0));
    let deadline = Instant::now() + Duration::from_secs(30);
    let waiting: Vec<_> = (0..10_000)
        .map(|number| {
            let wait = FetchWait::on(&[world.partition("quiet", number % 4)]);
            let future = Box::pin(async move { wait.beyond(wait.mark(), 1, deadline).await });
            tokio::spawn(Polled { future, polls: polls.clone() })
        })
        .collect();
    tokio::task::yield_now().await;
    for _ in 0..50 {
        world.publish_values("busy", 0, &["v"]).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(polls.load(Ordering::Relaxed), 10_000, "each once, to begin with");
    world.publish_values("quiet", 0, &["v"]).await;
    let mut woken = 0;
    for wait in waiting {
        woken += usize::from(wait.await.unwrap());
    }
    assert_eq!(woken, 2_500);
    assert_eq!(polls.load(Ordering::Relaxed), 20_000, "and once, to end");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn retention_drops_whole_segments_by_age_and_size() {
    let mut world = World::new(12);
    world.options.retention_check_interval_ms = 1_000;
    world.start().await;
    world
        .create_with(
            "age",
            1,
            &[("retention.ms", "60000"), ("segment.ms", "1000"), ("segment.bytes", "1024")],
        )
        .await;
    world.create_with("size", 1, &[("retention.bytes", "3000"), ("segment.bytes", "1024")]).await;
    let value = "v".repeat(400);
    for _ in 0..20 {
        world.publish_values("age", 0, &[&value]).await;
        world.publish_values("size", 0, &[&value]).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (age, size) = (world.partition("age", 0), world.partition("size", 0));
    assert_eq!(age.log_start(), 0);
    assert!(size.log_start() > 0 && size.log_start() < 20);
    assert!((3000..4100).contains(&size.bytes()), "{}", size.bytes());
    // The records are a minute old, and the partition is idle: all of it goes.
    tokio::time::sleep(Duration::from_secs(70)).await;
    assert_eq!((age.log_start(), age.next_offset(), age.bytes()), (20, 20, 0));
    assert_eq!(world.publish_values("age", 0, &["next"]).await, 20);
    world.restart().await;
    assert_eq!(world.values("age", 0).await, ["next"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_acknowledged_survives_a_loss_of_power_and_keeps_its_offset() {
    for seed in 20..40 {
        let mut world = World::started(seed).await;
        world.create("t", 2).await;
        let mut acknowledged: Vec<(i32, i64, String)> = Vec::new();
        for round in 0..4 {
            let partitions = [world.partition("t", 0), world.partition("t", 1)];
            let mut on_their_way = Vec::new();
            for number in 0..30 {
                let value = format!("{round}.{number}.{}", "x".repeat(3_000));
                let publishing = world
                    .broker()
                    .publish(&partitions[number % 2], values_batch(&[&value]), Acks::All)
                    .await
                    .unwrap();
                on_their_way.push((number as i32 % 2, value, publishing));
            }
            // Some are waited for, the rest is on its way when the power goes.
            let waited_for = on_their_way.drain(..(seed as usize * 7 + round * 11) % 30);
            for (partition, value, publishing) in waited_for {
                acknowledged.push((partition, publishing.await.unwrap().base_offset, value));
            }
            drop(on_their_way);
            world.lose_power().await;
            world.start().await;
        }
        for index in 0..2 {
            let records = read_all(&world.partition("t", index)).await;
            for (_, offset, value) in acknowledged.iter().filter(|(partition, ..)| *partition == index) {
                let record = &records[*offset as usize];
                assert_eq!(record.value.as_deref(), Some(value.as_bytes()), "seed {seed}");
            }
        }
        world.stop().await;
    }
}

#[test]
fn the_slow_checksum_of_this_test_is_the_right_one() {
    let batch = values_batch(&["v"]);
    assert_eq!(crc32c(&batch[21..]), verify_batch(&batch).unwrap().crc);
}
