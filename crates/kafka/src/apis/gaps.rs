//! Batches of producers that number them, which a connection has brought and which were not appended for a reason that
//! passes.
//!
//! A producer has several batches on their way. Where the first is refused because a leader has just begun, and the next
//! comes when that is over, the next is out of order. But told so, librdkafka (2.12,
//! `rd_kafka_handle_idempotent_Produce_error`: "skipped sequence numbers") begins a new epoch of its producer id, for all
//! partitions, and sends again under it whatever it has no answer for. What of that is stored already nobody can know for a
//! repeat any more. So whoever is out of order only because of such a batch is refused for the reason of that batch, and
//! comes again behind it.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use weir_kafka_wire::ErrorCode;
use weir_model::TopicId;
use weir_model::batch::BatchHeader;

use crate::errors::Failure;

/// Partitions and producers of which a connection notes such a batch. Of more only the first are treated so.
const GAPS_MAX: usize = 1_024;

/// Reasons that pass.
const PASSING: [ErrorCode; 4] = [
    ErrorCode::NOT_LEADER_OR_FOLLOWER,
    ErrorCode::REQUEST_TIMED_OUT,
    ErrorCode::KAFKA_STORAGE_ERROR,
    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
];

/// A batch with a number.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Numbered {
    partition: (TopicId, i32),
    producer_id: i64,
    epoch: i16,
    sequence: i32,
}

impl Numbered {
    /// None if its producer does not number its batches.
    pub(crate) fn new(topic: TopicId, partition: i32, header: &BatchHeader) -> Option<Numbered> {
        let (producer_id, epoch, sequence) =
            (header.producer_id, header.producer_epoch, header.base_sequence);
        (producer_id >= 0).then_some(Numbered { partition: (topic, partition), producer_id, epoch, sequence })
    }
}

/// What a producer lacks in a partition.
#[derive(Debug)]
struct Gap {
    epoch: i16,
    sequence: i32,
    why: Failure,
}

/// A partition, and the id of a producer.
type Key = ((TopicId, i32), i64);

/// Those of a connection.
#[derive(Debug, Default)]
pub(crate) struct Gaps(Mutex<BTreeMap<Key, Gap>>);

impl Gaps {
    /// A batch was appended.
    pub(crate) fn appended(&self, batch: Numbered) {
        let mut gaps = self.0.lock();
        if !gaps.is_empty() {
            gaps.remove(&(batch.partition, batch.producer_id));
        }
    }

    /// Why a batch was not appended is, as its producer is told, this. `expected` is the sequence that its partition waits
    /// for, where that is why.
    pub(crate) fn refused(&self, batch: Numbered, why: Failure, expected: Option<i32>) -> Failure {
        let (mut gaps, key) = (self.0.lock(), (batch.partition, batch.producer_id));
        let gap = gaps.get(&key).filter(|gap| gap.epoch == batch.epoch);
        if let (Some(gap), Some(expected)) = (gap, expected) {
            return if gap.sequence == expected { gap.why.clone() } else { why };
        }
        // The first of several that were refused is the one that comes first again.
        if PASSING.contains(&why.code) && gap.is_none() && gaps.len() < GAPS_MAX {
            let (epoch, sequence) = (batch.epoch, batch.sequence);
            gaps.insert(key, Gap { epoch, sequence, why: why.clone() });
        }
        why
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(partition: i32, epoch: i16, sequence: i32) -> Numbered {
        Numbered { partition: (TopicId([7; 16]), partition), producer_id: 1, epoch, sequence }
    }

    fn failure(code: ErrorCode) -> Failure {
        Failure::new(code, "why")
    }

    #[test]
    fn who_is_out_of_order_because_of_a_batch_that_comes_again_is_refused_as_that_was() {
        let (gaps, disorder) = (Gaps::default(), failure(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
        let starting = failure(ErrorCode::REQUEST_TIMED_OUT);
        assert_eq!(gaps.refused(batch(0, 0, 5), starting.clone(), None).code, ErrorCode::REQUEST_TIMED_OUT);
        assert_eq!(
            gaps.refused(batch(0, 0, 6), failure(ErrorCode::NOT_LEADER_OR_FOLLOWER), None).code,
            ErrorCode::NOT_LEADER_OR_FOLLOWER
        );
        for sequence in [6, 9] {
            let told = gaps.refused(batch(0, 0, sequence), disorder.clone(), Some(5));
            assert_eq!(told.code, ErrorCode::REQUEST_TIMED_OUT);
        }
        // Of another partition, of another epoch, or for another reason: it is out of order.
        for (batch, expected) in [(batch(1, 0, 6), 5), (batch(0, 1, 6), 5), (batch(0, 0, 6), 4)] {
            let told = gaps.refused(batch, disorder.clone(), Some(expected));
            assert_eq!(told.code, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, "{batch:?}");
        }
        gaps.appended(batch(0, 0, 5));
        let told = gaps.refused(batch(0, 0, 9), disorder, Some(5));
        assert_eq!(told.code, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, "it has come again since");
    }

    #[test]
    fn what_is_refused_for_good_is_no_gap() {
        let (gaps, disorder) = (Gaps::default(), failure(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
        gaps.refused(batch(0, 0, 5), failure(ErrorCode::MESSAGE_TOO_LARGE), None);
        let told = gaps.refused(batch(0, 0, 6), disorder, Some(5));
        assert_eq!(told.code, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
        for partition in 0..2 * GAPS_MAX as i32 {
            gaps.refused(batch(partition, 0, 5), failure(ErrorCode::REQUEST_TIMED_OUT), None);
        }
        assert_eq!(gaps.0.lock().len(), GAPS_MAX);
    }
}
