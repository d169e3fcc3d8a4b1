//! What goes between nodes comes out as it went in, and nothing else is taken for it.

use bytes::Bytes;
use proptest::prelude::*;
use weir_dispatch::{OwnerId, Place};
use weir_model::TopicId;
use weir_model::subscription::{DeadReason, Disposition};

use super::answers::{self, Answer};
use super::messages::{self, Call, LinkId, PeerAsk, Seat};
use super::written_again;

#[test]
fn every_kind_of_call_and_answer_comes_out_as_it_went_in() {
    for call in messages::examples() {
        let bytes: Bytes = call.encode().concat().into();
        assert_eq!(Call::decode(bytes), Ok(call));
    }
    for answer in answers::examples() {
        assert_eq!(Answer::decode(answer.encode()), Ok(answer));
    }
}

#[test]
fn what_is_cut_short_or_goes_on_is_refused() {
    for call in messages::examples() {
        let bytes: Bytes = call.encode().concat().into();
        // The batch of a publish has whatever length it has.
        if !matches!(call, Call::Publish(..)) {
            refused_unless_whole(&bytes, |bytes| Call::decode(bytes).is_err());
        }
    }
    for answer in answers::examples() {
        refused_unless_whole(&answer.encode(), |bytes| Answer::decode(bytes).is_err());
    }
}

fn refused_unless_whole(bytes: &Bytes, is_refused: impl Fn(Bytes) -> bool) {
    for length in 0..bytes.len() {
        assert!(is_refused(bytes.slice(..length)), "{length} bytes of {bytes:?}");
    }
    assert!(is_refused([&bytes[..], &[0]].concat().into()));
}

fn disposition() -> impl Strategy<Value = Disposition> {
    prop_oneof![
        Just(Disposition::Accept),
        any::<bool>().prop_map(|failed| Disposition::Release { failed }),
        Just(Disposition::Reject { reason: DeadReason::Rejected }),
    ]
}

proptest! {
    #[test]
    fn settlements_come_out_as_they_went_in(
        (link, seat, owner) in (any::<u64>(), any::<u32>(), any::<u64>()),
        disposition in disposition(),
        again in any::<bool>(),
        places in proptest::collection::vec((any::<u8>(), any::<i64>()), 0..50),
    ) {
        let places = places.into_iter().map(|(lane, offset)| Place { lane, offset }).collect();
        let ask = PeerAsk::Settle { owner: OwnerId(owner), disposition, again, places };
        let call = Call::Ask(LinkId(link), Seat(seat), ask);
        prop_assert_eq!(Call::decode(call.encode().concat().into()), Ok(call));
    }

    #[test]
    fn batches_come_out_as_they_went_in(
        targets in proptest::collection::vec((any::<[u8; 16]>(), any::<u8>()), 0..5),
        batch in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        let targets = targets.into_iter().map(|(topic, lane)| (TopicId(topic), lane)).collect();
        let call = Call::Publish(targets, batch.into());
        prop_assert_eq!(Call::decode(call.encode().concat().into()), Ok(call));
    }

    #[test]
    fn any_bytes_are_refused_or_are_what_they_say(
        which in 0usize..100,
        changes in proptest::collection::vec((any::<usize>(), any::<u8>()), 0..4),
    ) {
        let examples = super::examples();
        let mut bytes = examples[which % examples.len()].to_vec();
        for (at, byte) in changes {
            let at = at % bytes.len();
            bytes[at] = byte;
        }
        if let Some(again) = written_again(&bytes.into()) {
            prop_assert_eq!(written_again(&again), Some(again));
        }
    }
}
