//! A frame from a broker (without its length), behind two bytes that say which API and version it answers. What
//! was read can be written, and reads the same again.

use bytes::Bytes;
use weir_kafka_wire::{ApiKey, Response, Source};

pub fn run(data: &[u8]) {
    let Some((&[api, version], frame)) = data.split_first_chunk() else { return };
    let (api, version) = (i16::from(api), i16::from(version));
    let Ok((correlation_id, response)) = Response::decode(api, version, Bytes::copy_from_slice(frame)) else {
        return;
    };
    let frame = response.encode(version, correlation_id).expect("what was read can be written");
    let again = Response::decode(api, version, frame.into_contiguous().slice(4..));
    assert_eq!(again, Ok((correlation_id, response)));
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut source = Source::new(81);
    let mut seeds = Vec::new();
    for &api in ApiKey::ALL {
        for version in api.versions() {
            let response = Response::generate(api, version, &mut source);
            let frame = response.encode(version, 7).expect("a generated message can be written");
            let mut seed = vec![api as u8, version as u8];
            seed.extend_from_slice(&frame.into_contiguous()[4..]);
            seeds.push(seed);
        }
    }
    seeds
}
