//! Producers that number their batches, and a batch that comes before the one it follows.
//!
//! Told that it is out of order, librdkafka (2.12, `rd_kafka_handle_idempotent_Produce_error`: "skipped sequence numbers")
//! begins a new epoch of its producer id, for all partitions, and sends again under it whatever it has no answer for. What
//! of that is stored already nobody can know for a repeat any more: it is stored twice. Yet the batch that lacks is often
//! about to come again:
//!
//! - It was refused for a reason that passes, such as a leader that has just begun, and the one behind it came when that was
//!   over. Then that one is refused for the same reason.
//! - The leader has changed. librdkafka waits for what is on its way to the one before, but its count of that falls before
//!   what has failed is back in its queue, and another thread may send what comes next (`rd_kafka_handle_Produce`). So where
//!   there are several replicas a producer has a while to send what lacks before it is told that it is out of order.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use weir_kafka_wire::ErrorCode;
use weir_model::TopicId;
use weir_model::batch::BatchHeader;

use crate::errors::Failure;

/// Partitions and producers of which a connection notes such a batch. Of more only the first are treated so.
const GAPS_MAX: usize = 1_024;

/// How long a producer has to send a batch that lacks, where leaders change.
const LACKING_MAX: Duration = Duration::from_secs(5);

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
    /// Until when others are refused for it; none if that is the batch's own reason.
    until: Option<Instant>,
}

/// Why a batch is out of order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OutOfOrder {
    /// The sequence that the partition waits for.
    pub expected: i32,
    /// Whether it has several replicas, so that its leader changes.
    pub replicated: bool,
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

    /// Why a batch was not appended is, as its producer is told, this.
    pub(crate) fn refused(&self, batch: Numbered, why: Failure, out_of_order: Option<OutOfOrder>) -> Failure {
        let (mut gaps, key) = (self.0.lock(), (batch.partition, batch.producer_id));
        let gap = gaps.get(&key).filter(|gap| gap.epoch == batch.epoch);
        let epoch = batch.epoch;
        match out_of_order {
            Some(OutOfOrder { expected, replicated }) => match gap.filter(|gap| gap.sequence == expected) {
                Some(gap) if gap.until.is_none_or(|until| Instant::now() < until) => gap.why.clone(),
                Some(_) => why,
                None if replicated && batch.sequence > expected && gaps.len() < GAPS_MAX => {
                    let (why, until) = (lacking(expected), Some(Instant::now() + LACKING_MAX));
                    gaps.insert(key, Gap { epoch, sequence: expected, why: why.clone(), until });
                    why
                }
                None => why,
            },
            // The first of several that were refused is the one that comes first again.
            None if PASSING.contains(&why.code) && gap.is_none() && gaps.len() < GAPS_MAX => {
                gaps.insert(key, Gap { epoch, sequence: batch.sequence, why: why.clone(), until: None });
                why
            }
            None => why,
        }
    }
}

fn lacking(sequence: i32) -> Failure {
    let why = format!("a batch of the producer with sequence {sequence} has not come yet; send both again");
    Failure::new(ErrorCode::REQUEST_TIMED_OUT, why)
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

    /// Alone, if nothing else is said.
    fn waits_for(expected: i32) -> Option<OutOfOrder> {
        Some(OutOfOrder { expected, replicated: false })
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
            let told = gaps.refused(batch(0, 0, sequence), disorder.clone(), waits_for(5));
            assert_eq!(told.code, ErrorCode::REQUEST_TIMED_OUT);
        }
        // Of another partition, of another epoch, or for another reason: it is out of order.
        for (batch, expected) in [(batch(1, 0, 6), 5), (batch(0, 1, 6), 5), (batch(0, 0, 6), 4)] {
            let told = gaps.refused(batch, disorder.clone(), waits_for(expected));
            assert_eq!(told.code, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, "{batch:?}");
        }
        gaps.appended(batch(0, 0, 5));
        let told = gaps.refused(batch(0, 0, 9), disorder, waits_for(5));
        assert_eq!(told.code, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, "it has come again since");
    }

    #[test]
    fn what_is_refused_for_good_is_no_gap() {
        let (gaps, disorder) = (Gaps::default(), failure(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
        gaps.refused(batch(0, 0, 5), failure(ErrorCode::MESSAGE_TOO_LARGE), None);
        let told = gaps.refused(batch(0, 0, 6), disorder, waits_for(5));
        assert_eq!(told.code, ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER);
        for partition in 0..2 * GAPS_MAX as i32 {
            gaps.refused(batch(partition, 0, 5), failure(ErrorCode::REQUEST_TIMED_OUT), None);
        }
        assert_eq!(gaps.0.lock().len(), GAPS_MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn where_leaders_change_what_lacks_may_come_for_a_while() {
        let (gaps, disorder) = (Gaps::default(), failure(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER));
        let told = |sequence| {
            let waits_for = OutOfOrder { expected: 5, replicated: true };
            gaps.refused(batch(0, 0, sequence), disorder.clone(), Some(waits_for)).code
        };
        assert_eq!(told(6), ErrorCode::REQUEST_TIMED_OUT);
        tokio::time::sleep(LACKING_MAX / 2).await;
        assert_eq!(told(7), ErrorCode::REQUEST_TIMED_OUT);
        tokio::time::sleep(LACKING_MAX / 2).await;
        assert_eq!(told(6), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, "it has not come");
        gaps.appended(batch(0, 0, 5));
        assert_eq!(told(4), ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER, "nothing lacks before it");
        assert_eq!(told(6), ErrorCode::REQUEST_TIMED_OUT);
    }
}
