//! What Kafka consumers tell each other through the broker: a subscription, or an assignment, with its version
//! in front. What was read can be written in the newest version, and reads the same again.

use bytes::Bytes;
use weir_kafka_wire::messages::consumer_protocol::CONSUMER_PROTOCOL_VERSION_MAX;
use weir_kafka_wire::{ConsumerProtocolAssignment, ConsumerProtocolSubscription, Source};

pub fn run(data: &[u8]) {
    let data = Bytes::copy_from_slice(data);
    if let Ok(subscription) = ConsumerProtocolSubscription::decode(data.clone()) {
        let written = subscription.encode(CONSUMER_PROTOCOL_VERSION_MAX).expect("what was read can be written");
        assert_eq!(ConsumerProtocolSubscription::decode(written), Ok(subscription));
    }
    if let Ok(assignment) = ConsumerProtocolAssignment::decode(data) {
        let written = assignment.encode(CONSUMER_PROTOCOL_VERSION_MAX).expect("what was read can be written");
        assert_eq!(ConsumerProtocolAssignment::decode(written), Ok(assignment));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let mut source = Source::new(3);
    let mut seeds = Vec::new();
    for version in (0..=CONSUMER_PROTOCOL_VERSION_MAX).cycle().take(20) {
        let subscription = ConsumerProtocolSubscription::random(version, &mut source).encode(version);
        let assignment = ConsumerProtocolAssignment::random(version, &mut source).encode(version);
        for written in [subscription, assignment] {
            seeds.push(written.expect("a generated message can be written").to_vec());
        }
    }
    seeds
}
