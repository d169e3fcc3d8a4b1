//! A frame from a Kafka client (without its length): header and body. What was read can be written, and reads
//! the same again.

use bytes::Bytes;
use weir_kafka_wire::{ApiKey, KafkaStr, Request, RequestHeader, Source};

pub fn run(data: &[u8]) {
    let mut body = Bytes::copy_from_slice(data);
    let Ok(header) = RequestHeader::decode(&mut body) else { return };
    let Ok(request) = Request::decode(header.api_key, header.api_version, body) else { return };
    let frame = request.encode(header.api_version, header.correlation_id, header.client_id.as_ref());
    let frame = frame.expect("what was read can be written").into_contiguous();
    let mut body = frame.slice(4..);
    assert_eq!(RequestHeader::decode(&mut body).as_ref(), Ok(&header));
    assert_eq!(Request::decode(header.api_key, header.api_version, body), Ok(request));
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut source = Source::new(18);
    let client_id = KafkaStr::from_static("seed");
    let frame = |request: &Request, version| {
        let frame = request.encode(version, 7, Some(&client_id)).expect("a generated message can be written");
        frame.into_contiguous().slice(4..).to_vec()
    };
    let mut seeds = Vec::new();
    for &api in ApiKey::ALL {
        for version in api.versions() {
            seeds.push(frame(&Request::generate(api, version, &mut source), version));
        }
    }
    seeds
}
