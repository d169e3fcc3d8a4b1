//! Frames written by hand, byte by byte, where clients have been broken by other brokers.

use crate::messages::fetch::{FetchableTopicResponse, PartitionData};
use crate::messages::metadata::MetadataRequestTopic;
use crate::messages::produce::{PartitionProduceResponse, TopicProduceResponse};
use crate::*;
use bytes::Bytes;

/// Bytes from hexadecimal digits; blanks are for the reader.
fn hex(digits: &str) -> Bytes {
    let digits: Vec<u32> = digits.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect::<Vec<_>>().into()
}

#[test]
fn api_versions_of_the_future_is_answered_in_version_0() {
    // key 18, version 99, correlation id 7, then things nobody can know.
    let mut frame = hex("0012 0063 00000007 ffff 01 02 03");
    let header = RequestHeader::decode(&mut frame).unwrap();
    assert_eq!((header.api_key, header.api_version, header.correlation_id), (18, 99, 7));
    assert_eq!(ApiKey::from_code(header.api_key).unwrap().version(header.api_version), None);

    let served = [ApiVersion::from(ApiKey::Produce), ApiVersion::from(ApiKey::ApiVersions)];
    let frame = ApiVersionsResponse::unsupported_version(header.correlation_id, &served).unwrap();
    assert_eq!(frame.len(), 4 + 22);
    // length, correlation id, error 35, two APIs: Produce from 0 (not 3) to 13, ApiVersions from 0 to 4.
    assert_eq!(frame.into_contiguous(), hex("00000016 00000007 0023 00000002 0000 0000 000d 0012 0000 0004"));
}

#[test]
fn api_versions_never_has_tags_in_its_header() {
    let response = ApiVersionsResponse { api_keys: vec![ApiKey::Heartbeat.into()], ..Default::default() };
    let frame = response.encode_response(3, 5).unwrap().into_contiguous();
    // Correlation id, at once the error; in the body a compact list of one; no tagged field for an epoch of -1.
    assert_eq!(frame, hex("00000013 00000005 0000 02 000c 0000 0004 00 00000000 00"));
    // Any other flexible response has the empty tag section behind the correlation id.
    let frame = HeartbeatResponse::default().encode_response(4, 5).unwrap().into_contiguous();
    assert_eq!(frame, hex("0000000c 00000005 00 00000000 0000 00"));
}

#[test]
fn api_versions_with_features() {
    let response =
        ApiVersionsResponse { finalized_features_epoch: 3, zk_migration_ready: true, ..Default::default() };
    let body = response.encode(3).unwrap().concat();
    assert_eq!(body, hex("0000 01 00000000 02 01 08 0000000000000003 03 01 01"));
    assert_eq!(ApiVersionsResponse::decode(3, body.into()).unwrap(), response);
}

#[test]
fn the_client_id_keeps_its_old_layout_in_a_flexible_header() {
    // ApiVersions 3 of librdkafka's making: a 16-bit length before the client id, tags, compact strings.
    let mut frame = hex("0012 0003 00000001 0007 72646b61666b61 00 0b 6c696272646b61666b61 06 322e302e32 00");
    let header = RequestHeader::decode(&mut frame).unwrap();
    assert_eq!(header.client_id.as_deref(), Some("rdkafka"));
    let request = ApiVersionsRequest::decode(3, frame).unwrap();
    assert_eq!(request.client_software_name, "librdkafka");
    assert_eq!(request.client_software_version, "2.0.2");
}

#[test]
fn an_unknown_api_still_has_a_correlation_id() {
    let mut frame = hex("7fff 0000 0000002a ffff");
    let header = RequestHeader::decode(&mut frame).unwrap();
    assert_eq!((header.api_key, header.correlation_id, header.client_id), (0x7fff, 42, None));
    assert_eq!(
        Request::decode(header.api_key, header.api_version, frame).unwrap_err().why,
        Why::UnknownApi(0x7fff)
    );
    assert_eq!(RequestHeader::decode(&mut hex("0012 00")).unwrap_err().what, "RequestHeader.api_version");
}

#[test]
fn metadata_of_all_topics_or_of_none() {
    // Version 0 has no null and asks for all with an empty list, which since version 1 means none.
    assert_eq!(MetadataRequest::decode(0, hex("00000000")).unwrap().topics, Some(vec![]));
    assert_eq!(
        MetadataRequest::decode(0, hex("ffffffff")).unwrap_err(),
        DecodeError { what: "MetadataRequest.topics", at: 0, why: Why::Null }
    );
    assert_eq!(MetadataRequest::decode(1, hex("ffffffff")).unwrap().topics, None);
    assert_eq!(MetadataRequest::decode(1, hex("00000000")).unwrap().topics, Some(vec![]));
    assert_eq!(MetadataRequest::decode(9, hex("00 01 00 00 00")).unwrap().topics, None);
    assert_eq!(MetadataRequest::decode(9, hex("01 01 00 00 00")).unwrap().topics, Some(vec![]));
    // A null list is not silently turned into an empty one.
    assert_eq!(
        MetadataRequest::default().encode(0),
        Err(EncodeError::Null { what: "MetadataRequest.topics" })
    );
    assert_eq!(MetadataRequest::default().encode(1).unwrap().concat(), hex("ffffffff"));
    // Before version 4 topics were created on sight, so that is the default.
    assert!(MetadataRequest::decode(1, hex("ffffffff")).unwrap().allow_auto_topic_creation);
}

#[test]
fn metadata_by_id_has_no_name() {
    let id = "000102030405060708090a0b0c0d0e0f";
    let body = hex(&format!("02 {id} 00 00 01 00 00"));
    let request = MetadataRequest::decode(12, body.clone()).unwrap();
    let topic = MetadataRequestTopic { topic_id: Uuid(core::array::from_fn(|byte| byte as u8)), name: None };
    assert_eq!(request.topics, Some(vec![topic]));
    assert_eq!(request.encode(12).unwrap().concat(), body);
    // Before version 10 a name is needed.
    assert_eq!(MetadataRequest::decode(9, hex("02 00 00 00 00 00 00")).unwrap_err().why, Why::Null);
    assert_eq!(MetadataRequest::decode(9, hex("02 00 00 00 00 00 00")).unwrap_err().at, 1);
}

#[test]
fn join_group_without_a_protocol_in_an_old_version() {
    // Null became possible in version 7; older clients get the empty string that they were always sent.
    let response = JoinGroupResponse { error_code: ErrorCode::UNKNOWN_MEMBER_ID, ..Default::default() };
    assert_eq!(response.encode(0).unwrap().concat(), hex("0019 ffffffff 0000 0000 0000 00000000"));
    assert_eq!(response.encode(7).unwrap().concat(), hex("00000000 0019 ffffffff 00 00 01 01 01 00"));
}

#[test]
fn tagged_fields_at_their_default_are_left_out() {
    let partition = PartitionProduceResponse { base_offset: 9, ..Default::default() };
    let topic =
        TopicProduceResponse { name: "t".into(), partition_responses: vec![partition], ..Default::default() };
    let mut response = ProduceResponse { responses: vec![topic], ..Default::default() };
    let without_leader = "02 0274 02 00000000 0000 0000000000000009 ffffffffffffffff ffffffffffffffff 01 00";
    assert_eq!(response.encode(10).unwrap().concat(), hex(&format!("{without_leader} 00 00 00000000 00")));
    response.responses[0].partition_responses[0].current_leader.leader_id = 2;
    let leader = "01 00 09 00000002 ffffffff 00";
    let body = hex(&format!("{without_leader} {leader} 00 00000000 00"));
    assert_eq!(response.encode(10).unwrap().concat(), body);
    assert_eq!(ProduceResponse::decode(10, body).unwrap(), response);
}

#[test]
fn unknown_tagged_fields_are_passed_over() {
    let body = hex("0267 00000001 0261 00 02 07 03 aabbcc 8001 00");
    let request = HeartbeatRequest::decode(4, body).unwrap();
    assert_eq!((&*request.group_id, request.generation_id, &*request.member_id), ("g", 1, "a"));
}

#[test]
fn a_known_tagged_field_fills_its_size() {
    // Fetch 12: cluster id "c" in a tagged field that claims one byte too many.
    let before = "ffffffff 00000000 00000000 7fffffff 00 00000000 ffffffff 01 01 01";
    let right = hex(&format!("{before} 01 00 02 0263"));
    assert_eq!(FetchRequest::decode(12, right).unwrap().cluster_id.as_deref(), Some("c"));
    let wrong = hex(&format!("{before} 01 00 03 0263 00"));
    assert_eq!(FetchRequest::decode(12, wrong).unwrap_err().why, Why::TagSize { tag: 0, left: 1 });
    let short = hex(&format!("{before} 01 00 01 0263"));
    let error = FetchRequest::decode(12, short).unwrap_err();
    assert_eq!((error.what, error.why), ("FetchRequest.cluster_id", Why::Truncated { needed: 1, left: 0 }));
}

#[test]
fn trailing_bytes_are_an_error() {
    let error = HeartbeatRequest::decode(0, hex("0000 00000000 0000 ab")).unwrap_err();
    assert_eq!(error, DecodeError { what: "HeartbeatRequest", at: 8, why: Why::Trailing(1) });
    assert_eq!(error.to_string(), "HeartbeatRequest at byte 8: 1 bytes follow the end of the message");
}

#[test]
fn an_unsupported_version_is_an_error_both_ways() {
    assert_eq!(ProduceRequest::decode(2, Bytes::new()).unwrap_err().why, Why::UnsupportedVersion(2));
    assert_eq!(
        ProduceRequest::default().encode(2),
        Err(EncodeError::UnsupportedVersion { api: "Produce", version: 2 })
    );
    assert_eq!(ApiKey::Produce.advertised_versions(), 0..=13);
    assert_eq!(ApiKey::Produce.versions(), 3..=13);
}

#[test]
fn null_records_and_no_records_differ() {
    let produce = |version: i16, records: &str| {
        let compact = version >= 9;
        let body = if compact {
            format!("00 0001 00000000 02 0274 02 00000000 {records} 00 00 00")
        } else {
            format!("ffff 0001 00000000 00000001 000174 00000001 00000000 {records}")
        };
        let request = ProduceRequest::decode(version, hex(&body)).unwrap();
        assert_eq!(request.encode(version).unwrap().concat(), hex(&body));
        request.topic_data[0].partition_data[0].records.clone()
    };
    assert_eq!(produce(3, "ffffffff"), None);
    assert_eq!(produce(3, "00000000"), Some(Records::new()));
    assert_eq!(produce(3, "00000002 abcd"), Some(Records::from(hex("abcd"))));
    assert_eq!(produce(9, "00"), None);
    assert_eq!(produce(9, "01"), Some(Records::new()));
    assert_eq!(produce(9, "03 abcd"), Some(Records::from(hex("abcd"))));
}

#[test]
fn records_travel_without_a_copy() {
    let stored = Bytes::from(vec![7u8; 10_000]);
    let chunks = [stored.slice(..4_000), stored.slice(4_000..9_000), stored.slice(9_000..9_100)];
    let partition = PartitionData { records: Some(chunks.iter().cloned().collect()), ..Default::default() };
    let topic =
        FetchableTopicResponse { topic: "t".into(), partitions: vec![partition], ..Default::default() };
    let response = FetchResponse { responses: vec![topic], ..Default::default() };
    for version in ApiKey::Fetch.versions() {
        let frame = response.encode_response(version, 1).unwrap();
        // What stands before, the two large slices where they lie, the small one copied to what stands behind.
        let [_, first, second, last] = frame.chunks() else { panic!("{frame:?}") };
        assert_eq!(first.as_ptr(), stored.as_ptr());
        assert_eq!(second.as_ptr(), stored[4_000..].as_ptr());
        assert_eq!((first.len(), second.len()), (4_000, 5_000));
        assert!(last.len() >= 100);
        assert_eq!(frame.len(), frame.chunks().iter().map(Bytes::len).sum::<usize>());
        let whole = frame.into_contiguous();
        assert_eq!(u32::from_be_bytes(whole[..4].try_into().unwrap()) as usize, whole.len() - 4);

        let (_, read) = FetchRequest::decode_response(version, whole.slice(4..)).unwrap();
        let records = read.responses[0].partitions[0].records.clone().unwrap();
        assert_eq!(records.chunks().count(), 1);
        let records = records.into_contiguous();
        assert!(whole.as_ptr_range().contains(&records.as_ptr()), "the records are a slice of the frame");
        assert_eq!(records, stored[..9_100]);
    }
}
