//! What decoding takes from the allocator, counted by an allocator that passes on to the system's: nothing per
//! record, and for garbage a bounded multiple of its own length.

use bytes::Bytes;
use weir_kafka_wire::messages::produce::{PartitionProduceData, TopicProduceData};
use weir_kafka_wire::{ApiKey, Message, ProduceRequest, Records, Request, Response};
use weir_testing::allocations::{Counting, cost};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn produce(topics: usize, partitions: i32, record_bytes: usize) -> Bytes {
    let records = Records::from(Bytes::from(vec![1; record_bytes]));
    let partition = |index| PartitionProduceData { index, records: Some(records.clone()) };
    let topic = |number| TopicProduceData {
        name: format!("topic {number}").into(),
        partition_data: (0..partitions).map(partition).collect(),
        ..Default::default()
    };
    let request = ProduceRequest { topic_data: (0..topics).map(topic).collect(), ..Default::default() };
    request.encode(9).unwrap().concat().into()
}

#[test]
fn a_produce_request_costs_two_lists_however_large_it_is() {
    for (partitions, record_bytes) in [(1, 100), (1, 1_000_000), (50, 10_000)] {
        let body = produce(1, partitions, record_bytes);
        let (allocations, bytes) = cost(|| ProduceRequest::decode(9, body).unwrap());
        // The list of topics and its list of partitions; the buffer's shared count, when it is first shared.
        assert!(allocations <= 3, "{allocations} allocations");
        assert!(bytes < 200 + 100 * partitions as usize, "{bytes} bytes");
    }
    let body = produce(20, 3, 1_000);
    let (allocations, _) = cost(|| ProduceRequest::decode(9, body).unwrap());
    assert!(allocations <= 22, "{allocations} allocations");
}

/// Elements are larger in memory than the fewest bytes they take on the wire, and lists grow by doubling.
const AMPLIFICATION_MAX: usize = 128;

#[test]
fn garbage_takes_a_bounded_multiple_of_its_length() {
    // All zeros and all ones are the densest lists of empty things in one layout or the other; the rest is
    // random, with small values so that lengths fit.
    let mut state = 1u32;
    let mut random = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        ((state >> 16) % below) as u8
    };
    let mut inputs = vec![vec![0; 4_000], vec![1; 4_000]];
    inputs.extend((0..100).map(|_| (0..4_000).map(|_| random(5)).collect()));
    // A list that fills the whole input, at each place where a list could begin.
    for at in 0..40 {
        // Nulls or zeros fill a list in the old layout, empty strings and lists in the new one.
        for (length, filler) in [(&[0, 0, 0x07, 0xd0][..], 0), (&[0xd0, 0x0f][..], 1), (&[0x90, 0x1e][..], 1)]
        {
            let mut input = vec![filler; 4_000];
            input[at..at + length.len()].copy_from_slice(length);
            inputs.push(input);
        }
    }
    let mut worst = 0;
    for input in inputs {
        let input = Bytes::from(input);
        for &api in ApiKey::ALL {
            for version in api.versions() {
                let (_, request) = cost(|| Request::decode(api as i16, version, input.clone()));
                let (_, response) = cost(|| Response::decode(api as i16, version, input.clone()));
                worst = worst.max(request).max(response);
            }
        }
    }
    assert!(worst <= AMPLIFICATION_MAX * 4_000, "{worst} bytes for 4000");
    println!("at most {worst} bytes for 4000");
}
