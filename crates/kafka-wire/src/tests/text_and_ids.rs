//! Strings, ids and record sets.

use crate::*;
use bytes::Bytes;
use std::collections::BTreeMap;

#[test]
fn text_shares_its_buffer_until_detached() {
    let frame = Bytes::from(b"xxorders".to_vec());
    let text = KafkaStr::from_utf8(frame.slice(2..)).unwrap();
    assert_eq!(text.as_bytes().as_ptr(), frame[2..].as_ptr());
    assert_eq!(text.clone().into_bytes().as_ptr(), frame[2..].as_ptr());
    assert_ne!(text.detached().as_bytes().as_ptr(), frame[2..].as_ptr());
    assert_eq!(text.detached(), text);
}

#[test]
fn text_is_looked_up_by_str() {
    let map = BTreeMap::from([(KafkaStr::from("b"), 1), (KafkaStr::from_static("水"), 2)]);
    assert_eq!(map.get("b"), Some(&1));
    assert_eq!(map.get("水"), Some(&2));
    assert!(KafkaStr::from_utf8(Bytes::from_static(b"\xff")).is_err());
}

#[test]
fn ids_print_as_kafka_prints_them() {
    assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
    assert_eq!(Uuid::from(1).to_string(), "AAAAAAAAAAAAAAAAAAAAAQ==".trim_end_matches('='));
    assert_eq!(Uuid([0xff; 16]).to_string(), "_____________________w");
    assert_eq!(Uuid(*b"0123456789abcdef").to_string(), "MDEyMzQ1Njc4OWFiY2RlZg");
}

#[test]
fn records_are_equal_however_they_are_cut() {
    let whole = Records::from(Bytes::from_static(b"abcdef"));
    let cut: Records =
        ["", "ab", "", "cdef"].into_iter().map(|part| Bytes::from_static(part.as_bytes())).collect();
    assert_eq!(whole, cut);
    assert_eq!(cut.chunks().count(), 2);
    assert_eq!(cut.len(), 6);
    assert_eq!(cut.into_contiguous(), "abcdef");
    assert_ne!(whole, Records::new());
    assert!(Records::new().is_empty());
    assert_eq!(Records::from(Bytes::new()).chunks().count(), 0);
}

#[test]
fn long_text_cannot_be_written() {
    let request = FindCoordinatorRequest { key: "x".repeat(32_768).into(), ..Default::default() };
    assert_eq!(
        request.encode(0),
        Err(EncodeError::TooLong { what: "FindCoordinatorRequest.key", bytes: 32_768 })
    );
    let request = FindCoordinatorRequest { key: "x".repeat(32_767).into(), ..Default::default() };
    let body = request.encode(0).unwrap().concat();
    assert_eq!(FindCoordinatorRequest::decode(0, body.into()).unwrap(), request);
}
