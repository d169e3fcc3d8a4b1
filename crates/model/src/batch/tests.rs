//! Batches: what is built can be read back, and no bytes whatever make the parsers panic.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn sample() -> Bytes {
    let mut builder = BatchBuilder::new().producer(7, 1, 40);
    builder.push(1000, Some(b"k"), Some(b"v1"), &[Header { key: "h".into(), value: None }]);
    builder.push(1005, None, None, &[]);
    builder.build()
}

#[test]
fn a_built_batch_verifies_and_decodes() {
    let bytes = sample();
    let header = verify_batch(&bytes).unwrap();
    assert_eq!((header.record_count, header.last_sequence(), header.max_timestamp), (2, 41, 1005));
    let records: Vec<_> =
        decode_records(&header, bytes.slice(BATCH_HEADER_BYTES..)).collect::<Result<_, _>>().unwrap();
    assert_eq!(records[0].value.as_deref(), Some(&b"v1"[..]));
    assert_eq!(records[0].headers[0], Header { key: "h".into(), value: None });
    assert_eq!((records[1].offset, records[1].timestamp, records[1].key.clone()), (1, 1005, None));
}

#[test]
fn a_place_is_patched_outside_the_crc() {
    let bytes = sample();
    let header = verify_batch(&bytes).unwrap();
    let stored = StoredBatch::place(&header, bytes, 500, 9);
    let sent = stored.to_contiguous();
    let header = verify_batch(&sent).unwrap();
    assert_eq!((header.base_offset, header.last_offset(), header.leader_epoch), (500, 501, 9));
}

#[test]
fn sequences_wrap_to_zero() {
    let mut builder = BatchBuilder::new().producer(1, 0, i32::MAX);
    builder.push(0, None, None, &[]);
    builder.push(0, None, None, &[]);
    assert_eq!(verify_batch(&builder.build()).unwrap().last_sequence(), 0);
}

#[test]
fn every_flipped_bit_behind_the_prefix_is_noticed() {
    let bytes = sample();
    for position in 16..bytes.len() {
        let mut flipped = bytes.to_vec();
        flipped[position] ^= 1;
        assert!(verify_batch(&flipped).is_err(), "flip at {position} went unnoticed");
    }
}

#[test]
fn an_old_message_set_is_named_as_such() {
    let mut old = vec![0u8; 40];
    old[16] = 1;
    assert_eq!(BatchHeader::parse(&old), Err(BatchError::Magic(1)));
}

proptest! {
    #[test]
    fn parsers_are_total(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = verify_batch(&bytes);
        let bytes = Bytes::from(bytes);
        let _ = split_batches(&bytes);
        let mut header = BatchHeader::parse(&sample()).unwrap();
        header.record_count = i32::MAX;
        for record in decode_records(&header, bytes) {
            if record.is_err() { break; }
        }
    }
}

#[test]
fn append_time_replaces_every_timestamp() {
    let stamped = with_append_time(&sample(), 9_000);
    let header = verify_batch(&stamped).unwrap();
    assert_eq!((header.timestamp_type(), header.max_timestamp), (TimestampType::LogAppendTime, 9_000));
    let times = decode_records(&header, stamped.slice(BATCH_HEADER_BYTES..)).map(|r| r.unwrap().timestamp);
    assert_eq!(times.collect::<Vec<_>>(), [9_000, 9_000]);
}
