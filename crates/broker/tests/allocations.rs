//! What a batch costs does not depend on how many records it has: they are never looked at one by one.

#[path = "engine/support/mod.rs"]
mod support;

use support::*;
use weir_model::batch::BatchBuilder;
use weir_testing::allocations::{Counting, of_process};

#[global_allocator]
static COUNTING: Counting = Counting;

const ROUNDS: usize = 200;

/// Allocations per batch of so many records, written and read.
async fn allocations(world: &World, records: usize) -> (usize, usize) {
    let partition = world.partition("t", 0);
    let mut batch = BatchBuilder::new();
    for _ in 0..records {
        batch.push(EPOCH, None, Some(b"value"), &[]);
    }
    let batch = batch.build();
    let begin = partition.next_offset();
    let before = of_process();
    for _ in 0..ROUNDS {
        world.publish(&partition, batch.clone()).await.unwrap();
    }
    let written = of_process() - before;
    let before = of_process();
    for round in 0..ROUNDS {
        let read = partition.read(begin + (round * records) as i64, 1).await.unwrap();
        assert_eq!(read.bytes, batch.len());
    }
    let read = of_process() - before;
    (written / ROUNDS, read / ROUNDS)
}

#[tokio::test(start_paused = true)]
async fn a_batch_costs_the_same_allocations_however_many_records_it_has() {
    let mut world = World::started(1).await;
    world.create("t", 1).await;
    allocations(&world, 1).await;
    let (one_written, one_read) = allocations(&world, 1).await;
    let (many_written, many_read) = allocations(&world, 1_000).await;
    // What runs beside it (Raft, the segment writer) allocates a little more or less each time.
    assert!(
        many_written <= one_written + one_written / 4,
        "{many_written} for a thousand records, {one_written} for one"
    );
    assert!(many_read <= one_read + 1, "{many_read} for a thousand records, {one_read} for one");
    assert!(one_read <= 10, "{one_read} to read a batch");
    world.stop().await;
}
