//! What a batch costs does not depend on how many records it has: they are never looked at one by one.

// Counting allocations takes an allocator, and that takes `unsafe`; nothing but counting happens.
#![allow(unsafe_code)]

mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use support::*;
use weir_model::batch::BatchBuilder;

struct Counting;

static ALLOCATIONS: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        unsafe { System.dealloc(at, layout) }
    }
}

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
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for _ in 0..ROUNDS {
        world.publish(&partition, batch.clone()).await.unwrap();
    }
    let written = ALLOCATIONS.load(Ordering::Relaxed) - before;
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    for round in 0..ROUNDS {
        let read = partition.read(begin + (round * records) as i64, 1).await.unwrap();
        assert_eq!(read.bytes, batch.len());
    }
    let read = ALLOCATIONS.load(Ordering::Relaxed) - before;
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
