//! Versions, malformed requests, the order of answers, and the end of connections.

use weir_kafka_wire::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, DescribeClusterRequest, ErrorCode,
    FindCoordinatorRequest, InitProducerIdRequest, Message, MetadataRequest, ProduceRequest, RequestMessage,
};

use crate::common::{Client, Setup, batch, produce, serve, serve_with};

fn hello() -> ApiVersionsRequest {
    ApiVersionsRequest { client_software_name: "test".into(), client_software_version: "1.0".into() }
}

/// A frame of a request with any key and version and these bytes behind the correlation id.
fn frame(key: i16, version: i16, correlation_id: i32, rest: &[u8]) -> Vec<u8> {
    let mut frame = (8 + rest.len() as i32).to_be_bytes().to_vec();
    frame.extend_from_slice(&key.to_be_bytes());
    frame.extend_from_slice(&version.to_be_bytes());
    frame.extend_from_slice(&correlation_id.to_be_bytes());
    frame.extend_from_slice(rest);
    frame
}

async fn is_alive(client: &mut Client) -> bool {
    client.call(4, &hello()).await.error_code.is_none()
}

#[tokio::test]
async fn every_version_of_api_versions_tells_the_same() {
    let served = serve().await;
    let mut client = served.connect().await;
    let mut told = Vec::new();
    for version in 0..=4 {
        let response = client.call(version, &hello()).await;
        assert_eq!(response.error_code, ErrorCode::NONE);
        told.push(response.api_keys);
    }
    assert!(told.windows(2).all(|pair| pair[0] == pair[1]));
    let produce = told[0].iter().find(|api| api.api_key == ApiKey::Produce as i16).unwrap();
    assert_eq!((produce.min_version, produce.max_version), (0, 13));
}

/// A broker that cuts such a client off makes it reconnect again and again (Event Hubs does).
#[tokio::test]
async fn trap_an_unknown_version_of_api_versions_is_answered_in_the_layout_of_version_0() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.send_raw(&frame(18, 99, 7, &[0, 1, b'x', 0, 3, 1, 2, 3])).await;
    let answer = client.receive_frame().await.unwrap();
    assert_eq!(&answer[..4], 7i32.to_be_bytes());
    let response = ApiVersionsResponse::decode(0, answer.slice(4..)).unwrap();
    assert_eq!(response.error_code, ErrorCode::UNSUPPORTED_VERSION);
    let own = response.api_keys.iter().find(|api| api.api_key == ApiKey::ApiVersions as i16).unwrap();
    assert_eq!((own.min_version, own.max_version), (0, 4));
    assert!(is_alive(&mut client).await, "the client asks again on the same connection");
}

#[tokio::test]
async fn a_client_with_an_impossible_name_is_refused() {
    let served = serve().await;
    let mut client = served.connect().await;
    let nameless = ApiVersionsRequest { client_software_name: "a b".into(), ..hello() };
    assert_eq!(client.call(3, &nameless).await.error_code, ErrorCode::INVALID_REQUEST);
    assert!(is_alive(&mut client).await);
}

/// Versions 0 to 2 are advertised for the sake of old librdkafka, and refused in words it can read.
#[tokio::test]
async fn trap_produce_0_to_2_is_refused_in_its_own_layout() {
    let served = serve().await;
    let mut client = served.connect().await;
    for version in 0..=2i16 {
        // client id "c", acks 1, timeout 5, one topic "t" with one partition 3 and two bytes of records
        let mut body = vec![0, 1, b'c', 0, 1, 0, 0, 0, 5, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1];
        body.extend_from_slice(&[0, 0, 0, 3, 0, 0, 0, 2, 9, 9]);
        client.send_raw(&frame(0, version, 5, &body)).await;
        let answer = client.receive_frame().await.unwrap();
        // correlation id, one topic "t", one partition 3, error 35, offset -1
        let mut expected = vec![0, 0, 0, 5, 0, 0, 0, 1, 0, 1, b't', 0, 0, 0, 1, 0, 0, 0, 3, 0, 35];
        expected.extend_from_slice(&[0xff; 8]);
        if version >= 2 {
            expected.extend_from_slice(&[0xff; 8]);
        }
        if version >= 1 {
            expected.extend_from_slice(&[0; 4]);
        }
        assert_eq!(answer, expected, "version {version}");
    }
    assert!(is_alive(&mut client).await);
}

/// librdkafka's request for the metadata of all topics has three bytes too many from version 9 on: it
/// leaves four zeroes where one is the empty list.
#[tokio::test]
async fn trap_bytes_behind_a_request_are_passed_over() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    for version in 9..=13 {
        // client id "c", no tags; topics, creation, operations (two until version 10), tags
        client.send_raw(&frame(3, version, 4, &[0, 1, b'c', 0, 0, 0, 0, 0, 0, 0, 0, 0])).await;
        let answer = client.receive_frame().await.expect("the connection stays open");
        let (_, response) = MetadataRequest::decode_response(version, answer).unwrap();
        assert_eq!(response.topics.len(), 1, "all topics, in version {version}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_closes_its_own_connection_and_no_other() {
    let served = serve().await;
    let mut bystander = served.connect().await;
    assert!(is_alive(&mut bystander).await);
    let unreadable: [Vec<u8>; 6] = [
        vec![0xff; 4],                             // a negative length
        i32::MAX.to_be_bytes().to_vec(),           // a length beyond the limit
        vec![0, 0, 0, 2, 0, 3],                    // too short for a header
        frame(999, 0, 1, &[0xff, 0xff]),           // an API that does not exist
        frame(3, 99, 1, &[0xff, 0xff]),            // a version that does not exist
        frame(3, 1, 1, &[0xff, 0xff, 0, 0, 0, 9]), // a list longer than its frame
    ];
    for bytes in unreadable {
        let mut client = served.connect().await;
        assert!(is_alive(&mut client).await);
        client.send_raw(&bytes).await;
        assert!(client.is_closed().await, "{bytes:?}");
    }
    assert!(is_alive(&mut bystander).await);
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_and_appended_in_order() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("ordered", 1, &[]).await;
    let mut sent = Vec::new();
    for number in 0..200 {
        let value = number.to_string();
        sent.push(client.send(9, &produce("ordered", 0, -1, batch(&[&value]))).await);
        if number % 50 == 0 {
            sent.push(client.send(12, &MetadataRequest::default()).await);
        }
    }
    let mut expected_offset = 0;
    for (index, correlation_id) in sent.into_iter().enumerate() {
        if index % 51 == 1 {
            client.receive::<MetadataRequest>(12, correlation_id).await;
            continue;
        }
        let response = client.receive::<ProduceRequest>(9, correlation_id).await;
        assert_eq!(response.responses[0].partition_responses[0].base_offset, expected_offset);
        expected_offset += 1;
    }
    assert_eq!(expected_offset, 200);
}

#[tokio::test]
async fn stopping_answers_what_is_under_way_and_takes_no_more() {
    let mut served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    let waiting = {
        let mut request = crate::common::fetch(&[("t", 0, 0)]);
        request.max_wait_ms = i32::MAX;
        client.send(12, &request).await
    };
    let mut other = served.connect().await;
    assert!(is_alive(&mut other).await, "the fetch was begun before this was answered");
    served.drain().await;
    let response = client.receive::<weir_kafka_wire::FetchRequest>(12, waiting).await;
    assert_eq!(response.error_code, ErrorCode::NONE);
    assert!(client.is_closed().await);
    assert!(other.is_closed().await);
}

#[tokio::test]
async fn transactions_are_refused_at_once_and_in_words() {
    let served = serve().await;
    let mut client = served.connect().await;
    let request = FindCoordinatorRequest {
        key: "my-transaction".into(),
        key_type: 1,
        coordinator_keys: vec!["my-transaction".into()],
    };
    for version in 1..=6 {
        let response = client.call(version, &request).await;
        let (code, message) = match response.coordinators.first() {
            Some(one) => (one.error_code, one.error_message.clone()),
            None => (response.error_code, response.error_message.clone()),
        };
        assert_eq!(code, ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "version {version}");
        assert!(message.unwrap().contains("remove transactional.id"));
    }
    let init = InitProducerIdRequest { transactional_id: Some("x".into()), ..Default::default() };
    let response = client.call(4, &init).await;
    assert_eq!(response.error_code, ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED);
}

#[tokio::test]
async fn a_node_that_advertises_nothing_is_where_the_client_has_reached_it() {
    let served = serve().await;
    let mut client = served.connect().await;
    for version in 0..=2 {
        let response = client.call(version, &DescribeClusterRequest::default()).await;
        let broker = &response.brokers[0];
        assert_eq!((broker.host.as_str(), broker.port), ("127.0.0.1", i32::from(served.addr.port())));
        assert_eq!(response.cluster_id, "test-cluster");
        assert_eq!(response.controller_id, broker.broker_id);
    }
    let controllers = DescribeClusterRequest { endpoint_type: 2, ..Default::default() };
    assert_eq!(client.call(2, &controllers).await.error_code, ErrorCode::MISMATCHED_ENDPOINT_TYPE);
}

#[tokio::test]
async fn every_request_message_has_a_version_that_is_advertised() {
    let served = serve().await;
    let mut client = served.connect().await;
    let told = client.call(4, &hello()).await.api_keys;
    for (api, highest) in
        [(ApiVersionsRequest::API, 4), (MetadataRequest::API, 13), (ProduceRequest::API, 13)]
    {
        let entry = told.iter().find(|entry| entry.api_key == api as i16).unwrap();
        assert_eq!(entry.max_version, highest, "{api}");
    }
    let highest = |request: &dyn Fn(i16) -> bool| (0..100).filter(|version| request(*version)).max();
    assert_eq!(
        highest(&|version| <MetadataRequest as RequestMessage>::Response::API.has_version(version)),
        Some(13)
    );
}

#[tokio::test]
async fn connections_are_bounded_and_free_their_place() {
    let mut setup = Setup::default();
    setup.front.connections_max = 2;
    let served = serve_with(setup).await;
    let mut first = served.connect().await;
    let mut second = served.connect().await;
    assert!(is_alive(&mut first).await && is_alive(&mut second).await);
    assert!(served.connect().await.is_closed().await, "one too many");
    drop(first);
    loop {
        let mut next = served.connect().await;
        next.send(0, &hello()).await;
        if !next.is_closed().await {
            break;
        }
    }
    assert!(is_alive(&mut second).await);
}

#[tokio::test]
async fn what_a_node_advertises_is_what_clients_are_told() {
    let mut setup = Setup::default();
    let told = weir_broker::HostPort { host: "broker.example".into(), port: 12_345 };
    setup.broker.advertised.insert("kafka".into(), told);
    let served = serve_with(setup).await;
    let mut client = served.connect().await;
    let metadata = client.call(12, &MetadataRequest::default()).await;
    assert_eq!((metadata.brokers[0].host.as_str(), metadata.brokers[0].port), ("broker.example", 12_345));
    let coordinator = FindCoordinatorRequest { key: "g".into(), ..Default::default() };
    let found = client.call(2, &coordinator).await;
    assert_eq!((found.host.as_str(), found.port), ("broker.example", 12_345));
}
