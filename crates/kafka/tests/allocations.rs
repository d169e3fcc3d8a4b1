//! What a request costs in allocations does not depend on how many records it carries. The allocator of
//! this binary counts, so that it has a binary of its own.

#[path = "common/mod.rs"]
mod common;

use bytes::Bytes;
use weir_model::batch::BatchBuilder;
use weir_testing::allocations::{Counting, of_process};

use common::{Client, NOW_MS, serve};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const ROUNDS: usize = 200;

/// A batch of so many records that together have about 100,000 bytes, so that only their number differs.
fn batch_of(records: usize) -> Bytes {
    let value = vec![b'x'; 100_000 / records - 8];
    let mut builder = BatchBuilder::new();
    for _ in 0..records {
        builder.push(NOW_MS, None, Some(&value), &[]);
    }
    builder.build()
}

/// Allocations of the whole process per produce, and per fetch, of one such batch.
async fn cost(client: &mut Client, topic: &str, records: usize) -> (usize, usize) {
    client.create_topic(topic, 1, &[]).await;
    let batch = batch_of(records);
    for _ in 0..ROUNDS / 4 {
        client.append(topic, 0, batch.clone()).await;
    }
    let before = of_process();
    for _ in 0..ROUNDS {
        client.append(topic, 0, batch.clone()).await;
    }
    let produced = of_process() - before;
    let before = of_process();
    for round in 0..ROUNDS {
        let mut request = common::fetch(&[(topic, 0, round as i64 * records as i64)]);
        request.topics[0].partitions[0].partition_max_bytes = 1;
        let response = client.call(12, &request).await;
        let got = &response.responses[0].partitions[0];
        assert_eq!(got.records.as_ref().map(weir_kafka_wire::Records::len), Some(batch.len()));
    }
    let fetched = of_process() - before;
    (produced / ROUNDS, fetched / ROUNDS)
}

#[tokio::test]
async fn a_request_allocates_the_same_for_ten_records_and_for_ten_thousand() {
    let served = serve().await;
    let mut client = served.connect().await;
    let (few_produced, few_fetched) = cost(&mut client, "few", 10).await;
    let (many_produced, many_fetched) = cost(&mut client, "many", 10_000).await;
    println!(
        "produce: {few_produced} and {many_produced} allocations; fetch: {few_fetched} and {many_fetched}"
    );
    // How a large frame is cut by the socket differs from run to run, and with it a few allocations.
    assert!(many_produced <= few_produced + 10, "produce: {few_produced} for 10, {many_produced} for 10,000");
    assert!(many_fetched <= few_fetched + 10, "fetch: {few_fetched} for 10, {many_fetched} for 10,000");
}
