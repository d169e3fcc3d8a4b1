//! A lane's batches: when they leave, under which numbers, and what happens when they come back.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use weir_kafka_wire::ErrorCode;
use weir_model::batch::{Compression, verify_batch};

use super::Record;
use super::lane::{Batch, Due, FIRST_PAUSE as PAUSE, Identity, Lane};
use crate::error::ClientError;

const LINGER: Duration = Duration::from_millis(5);
const IN_FLIGHT: usize = 5;

fn lane() -> Lane {
    Lane::new(Some(Identity { id: 7, epoch: 0 }))
}

/// Appends a record that fills a batch by itself.
fn append(lane: &mut Lane, now: Instant) {
    let record = Record::new("x");
    let (delivery, closed) = lane.append(&record, 1000, 10, now, now + Duration::from_secs(60), 10, 0);
    assert!(closed);
    drop(delivery);
}

/// Takes the next batch; its producer id and sequence.
fn take(lane: &mut Lane) -> (Batch, (i64, i32)) {
    let (batch, bytes) = lane.take(Compression::None).expect("a batch is due");
    (batch, numbers(&bytes))
}

fn numbers(bytes: &Bytes) -> (i64, i32) {
    let header = verify_batch(bytes).expect("a batch that a broker would accept");
    (header.producer_id, header.base_sequence)
}

fn refused(code: ErrorCode) -> Result<i64, ClientError> {
    Err(ClientError::Refused { what: "writing".into(), code, message: None })
}

fn due(lane: &Lane, now: Instant) -> Due {
    lane.due(now, LINGER, IN_FLIGHT)
}

#[tokio::test]
async fn a_batch_leaves_at_once_alone_and_lingers_while_another_is_under_way() {
    let now = Instant::now();
    let mut lane = lane();
    assert_eq!(due(&lane, now), Due::Idle);
    let record = Record::new("x");
    let deadline = now + Duration::from_secs(60);
    let _first = lane.append(&record, 1000, 10, now, deadline, 1000, 0);
    assert_eq!(due(&lane, now), Due::Now);
    let (batch, _) = take(&mut lane);
    let _second = lane.append(&record, 1000, 10, now, deadline, 1000, 0);
    assert_eq!(due(&lane, now), Due::At(now + LINGER));
    assert_eq!(due(&lane, now + LINGER), Due::Now);
    assert!(lane.came_back(batch, Ok(0), now).is_some());
    assert_eq!(due(&lane, now), Due::Now);
}

#[tokio::test]
async fn no_more_than_five_are_under_way() {
    let now = Instant::now();
    let mut lane = lane();
    (0..6).for_each(|_| append(&mut lane, now));
    let under_way: Vec<_> = (0..5).map(|_| take(&mut lane)).collect();
    assert_eq!(under_way.iter().map(|(_, (_, sequence))| *sequence).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(due(&lane, now), Due::Idle);
}

#[tokio::test]
async fn what_came_back_leaves_again_in_order_under_the_same_numbers() {
    let now = Instant::now();
    let mut lane = lane();
    (0..4).for_each(|_| append(&mut lane, now));
    let (first, numbers_of_first) = take(&mut lane);
    let (second, numbers_of_second) = take(&mut lane);
    let (third, numbers_of_third) = take(&mut lane);
    // The first got lost; the broker refused the others, because they do not follow.
    assert!(lane.came_back(second, refused(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER), now).is_none());
    assert_eq!(due(&lane, now), Due::Idle, "nothing leaves while anything is under way");
    assert!(lane.came_back(first, refused(ErrorCode::REQUEST_TIMED_OUT), now).is_none());
    assert!(lane.came_back(third, refused(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER), now).is_none());
    assert_eq!(due(&lane, now), Due::At(now + PAUSE));
    let again: Vec<_> = (0..4).map(|_| take(&mut lane).1).collect();
    assert_eq!(again, [numbers_of_first, numbers_of_second, numbers_of_third, (7, 3)]);
}

#[tokio::test]
async fn behind_a_batch_that_was_given_up_the_lane_begins_anew() {
    let now = Instant::now();
    let mut lane = lane();
    (0..3).for_each(|_| append(&mut lane, now));
    let (first, _) = take(&mut lane);
    let (second, _) = take(&mut lane);
    let settled = lane.came_back(first, refused(ErrorCode::MESSAGE_TOO_LARGE), now);
    assert!(matches!(settled, Some((_, Err(_)))));
    assert!(lane.came_back(second, refused(ErrorCode::OUT_OF_ORDER_SEQUENCE_NUMBER), now).is_none());
    assert_eq!(due(&lane, now + PAUSE), Due::Identity);
    lane.renew(Identity { id: 8, epoch: 0 });
    assert_eq!(due(&lane, now + PAUSE), Due::Now);
    let again: Vec<_> = (0..2).map(|_| take(&mut lane).1).collect();
    assert_eq!(again, [(8, 0), (8, 1)]);
}

#[tokio::test]
async fn a_batch_that_waited_too_long_is_given_up() {
    let now = Instant::now();
    let mut lane = lane();
    append(&mut lane, now);
    let (batch, _) = take(&mut lane);
    let later = now + Duration::from_secs(61);
    let settled = lane.came_back(batch, refused(ErrorCode::REQUEST_TIMED_OUT), later);
    assert!(matches!(settled, Some((_, Err(_)))));
    append(&mut lane, now);
    assert_eq!(lane.take_expired(later).len(), 1);
    assert!(lane.is_idle());
}

#[tokio::test]
async fn a_duplicate_that_the_broker_cannot_place_is_stored_all_the_same() {
    let now = Instant::now();
    let mut lane = lane();
    append(&mut lane, now);
    let (batch, _) = take(&mut lane);
    let settled = lane.came_back(batch, refused(ErrorCode::DUPLICATE_SEQUENCE_NUMBER), now);
    assert!(matches!(settled, Some((_, Ok(-1)))));
}
