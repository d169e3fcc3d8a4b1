//! Every API and version against the `kafka-protocol` crate, an independent implementation generated from Kafka's
//! own schemas: what we write it must read, and write back to the same bytes; what it writes we must read back.
//!
//! It lacks ListOffsets 11, OffsetCommit 10 and OffsetFetch 10. Those are written and read back by ourselves only;
//! of ListOffsets 11 it is known besides that its layout is that of version 10.

use crate::generate::Source;
use crate::messages::list_offsets::ListOffsetsRequest;
use crate::*;
use bytes::{Bytes, BytesMut};
use kafka_protocol::messages::{ApiKey as TheirKey, RequestKind, ResponseKind};
use proptest::prelude::*;

fn theirs_lacks(api: ApiKey, version: i16) -> bool {
    matches!((api, version), (ApiKey::ListOffsets, 11) | (ApiKey::OffsetCommit | ApiKey::OffsetFetch, 10))
}

fn their_key(api: ApiKey) -> TheirKey {
    TheirKey::try_from(api as i16).unwrap()
}

fn contiguous(chunks: Vec<Bytes>) -> Bytes {
    chunks.iter().flatten().copied().collect::<BytesMut>().freeze()
}

fn check_request(api: ApiKey, version: i16, request: Request, body: Bytes) {
    let read = Request::decode(api as i16, version, body.clone()).unwrap();
    assert_eq!(read, request, "{api} {version}");
    if theirs_lacks(api, version) {
        return;
    }
    let mut left = body.clone();
    let theirs = RequestKind::decode(their_key(api), &mut left, version)
        .unwrap_or_else(|error| panic!("{api} {version}: {error} at {request:?}"));
    assert!(left.is_empty(), "{api} {version}: they left {} bytes of {request:?}", left.len());
    let mut written = BytesMut::new();
    theirs.encode(&mut written, version).unwrap();
    assert_eq!(written, body, "{api} {version} {request:?}");
}

fn check_response(api: ApiKey, version: i16, response: Response, body: Bytes) {
    let frame = response.encode(version, 0x01020304).unwrap().into_contiguous();
    let read = Response::decode(api as i16, version, frame.slice(4..)).unwrap();
    assert_eq!(read, (0x01020304, response.clone()), "{api} {version}");
    if theirs_lacks(api, version) {
        return;
    }
    let mut left = body.clone();
    let theirs = ResponseKind::decode(their_key(api), &mut left, version)
        .unwrap_or_else(|error| panic!("{api} {version}: {error} at {response:?}"));
    assert!(left.is_empty(), "{api} {version}: they left {} bytes of {response:?}", left.len());
    let mut written = BytesMut::new();
    theirs.encode(&mut written, version).unwrap();
    assert_eq!(written, body, "{api} {version} {response:?}");
}

fn check<R: RequestMessage>(seed: u64) {
    let mut source = Source::new(seed);
    for version in R::API.versions() {
        let request: R = source.message(version).unwrap();
        let body = contiguous(request.encode(version).unwrap());
        check_request(R::API, version, request.into(), body);
        let response: R::Response = source.message(version).unwrap();
        let body = contiguous(response.encode(version).unwrap());
        check_response(R::API, version, response.into(), body);
    }
}

macro_rules! apis {
    ($($test:ident $request:ident,)*) => {
        $(
            proptest! {
                #![proptest_config(ProptestConfig::with_cases(128))]
                #[test]
                fn $test(seed: u64) {
                    check::<$request>(seed);
                }
            }
        )*

        #[test]
        fn every_api_is_compared() {
            assert_eq!(ApiKey::ALL.to_vec(), vec![$(<$request as Message>::API),*]);
        }
    };
}

apis! {
    produce ProduceRequest,
    fetch FetchRequest,
    list_offsets ListOffsetsRequest,
    metadata MetadataRequest,
    offset_commit OffsetCommitRequest,
    offset_fetch OffsetFetchRequest,
    find_coordinator FindCoordinatorRequest,
    join_group JoinGroupRequest,
    heartbeat HeartbeatRequest,
    leave_group LeaveGroupRequest,
    sync_group SyncGroupRequest,
    describe_groups DescribeGroupsRequest,
    list_groups ListGroupsRequest,
    sasl_handshake SaslHandshakeRequest,
    api_versions ApiVersionsRequest,
    create_topics CreateTopicsRequest,
    delete_topics DeleteTopicsRequest,
    delete_records DeleteRecordsRequest,
    init_producer_id InitProducerIdRequest,
    offset_for_leader_epoch OffsetForLeaderEpochRequest,
    describe_configs DescribeConfigsRequest,
    alter_configs AlterConfigsRequest,
    describe_log_dirs DescribeLogDirsRequest,
    sasl_authenticate SaslAuthenticateRequest,
    create_partitions CreatePartitionsRequest,
    delete_groups DeleteGroupsRequest,
    incremental_alter_configs IncrementalAlterConfigsRequest,
    offset_delete OffsetDeleteRequest,
    describe_cluster DescribeClusterRequest,
}

#[test]
fn list_offsets_11_is_laid_out_as_10() {
    let request: ListOffsetsRequest = Source::new(3).message(10).unwrap();
    assert_eq!(request.encode(10), request.encode(11));
}

#[test]
fn header_versions_agree() {
    for &api in ApiKey::ALL {
        for version in api.versions() {
            let theirs = their_key(api);
            assert_eq!(
                api.request_header_version(version),
                theirs.request_header_version(version),
                "{api} {version}"
            );
            assert_eq!(
                api.response_header_version(version),
                theirs.response_header_version(version),
                "{api} {version}"
            );
        }
    }
}

#[test]
fn version_ranges_agree() {
    for &api in ApiKey::ALL {
        let theirs = their_key(api).valid_versions();
        let newest = match api {
            // Newer than the other crate.
            ApiKey::ListOffsets => 11,
            // Version 6, two-phase commit, is not stable in Kafka and no broker offers it.
            ApiKey::InitProducerId => 5,
            _ => theirs.max,
        };
        assert_eq!(api.versions(), theirs.min..=newest, "{api}");
    }
}

#[test]
fn request_headers_agree() {
    use kafka_protocol::messages::RequestHeader as TheirHeader;
    use kafka_protocol::protocol::{Decodable, StrBytes};
    for &api in ApiKey::ALL {
        for version in api.versions() {
            for client_id in [None, Some(KafkaStr::from_static("a client"))] {
                let mut source = Source::new(version as u64);
                let request = match api {
                    ApiKey::SaslHandshake => {
                        Request::from(source.message::<SaslHandshakeRequest>(version).unwrap())
                    }
                    ApiKey::Metadata => Request::from(source.message::<MetadataRequest>(version).unwrap()),
                    ApiKey::ApiVersions => {
                        Request::from(source.message::<ApiVersionsRequest>(version).unwrap())
                    }
                    ApiKey::DescribeCluster => {
                        Request::from(source.message::<DescribeClusterRequest>(version).unwrap())
                    }
                    _ => continue,
                };
                let frame = request.encode(version, 42, client_id.as_ref()).unwrap().into_contiguous();
                let mut ours = frame.slice(4..);
                let header = RequestHeader::decode(&mut ours).unwrap();
                let mut theirs = frame.slice(4..);
                let their_header =
                    TheirHeader::decode(&mut theirs, api.request_header_version(version)).unwrap();
                assert_eq!(their_header.request_api_key, header.api_key);
                assert_eq!(their_header.request_api_version, header.api_version);
                assert_eq!(their_header.correlation_id, header.correlation_id);
                assert_eq!(
                    their_header.client_id,
                    header.client_id.as_deref().map(|id| StrBytes::from_string(id.to_owned()))
                );
                assert_eq!(ours, theirs);
                assert_eq!(Request::decode(header.api_key, header.api_version, ours).unwrap(), request);
            }
        }
    }
}

#[test]
fn error_codes_agree() {
    use kafka_protocol::error::ResponseError;
    for code in -2..200 {
        let ours = ErrorCode(code);
        match ResponseError::try_from_code(code) {
            None => assert_eq!(ours, ErrorCode::NONE),
            Some(ResponseError::Unknown(_)) => assert_eq!(ours.name(), None),
            Some(theirs) => {
                let name = ours.name().unwrap_or_else(|| panic!("{code} is missing")).replace('_', "");
                assert_eq!(name, theirs.to_string().to_uppercase(), "{code}");
                // Kafka's clients do try CONCURRENT_TRANSACTIONS again; the other crate's table says otherwise.
                if ours != ErrorCode::CONCURRENT_TRANSACTIONS {
                    assert_eq!(ours.is_retriable(), theirs.is_retriable(), "{code}");
                }
            }
        }
    }
}
