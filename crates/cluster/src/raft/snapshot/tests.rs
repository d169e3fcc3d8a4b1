//! Messages come back as they were, and whatever else comes is an error.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use weir_model::{PartitionId, SegmentId};
use weir_shard::{SnapshotFile, SnapshotId, SnapshotWanted};

use super::{Pace, Part, SnapshotAnswer, SnapshotRequest};
use crate::raft::rpc::{Answer, Request};
use crate::raft::types::Vote;

fn files() -> [SnapshotFile; 3] {
    let segment = SegmentId { base: 1 << 40, generation: 7 };
    [SnapshotFile::Manifest, SnapshotFile::State(9), SnapshotFile::Segment(PartitionId(3), segment)]
}

fn requests() -> Vec<Request> {
    let id = SnapshotId { applied_index: 900, applied_term: 4, manifest_bytes: 1000, manifest_crc: 77 };
    let mut parts = vec![Part::Offer, Part::Install];
    for file in files() {
        parts.push(Part::Piece { file, from: 12, crc: 5, bytes: Bytes::from_static(b"content") });
        parts.push(Part::Checksum { file, from: 12, to: 20, crc: 6 });
    }
    let request = |part| Request::Snapshot(SnapshotRequest { vote: Vote::new_committed(4, 2), id, part });
    parts.into_iter().map(request).collect()
}

fn answers() -> Vec<Answer> {
    let vote = Vote::new(5, 3);
    let mut answers = vec![
        SnapshotAnswer::Complete,
        SnapshotAnswer::Installed(vote),
        SnapshotAnswer::HigherVote(vote),
        SnapshotAnswer::Unknown,
    ];
    for file in files() {
        answers.push(SnapshotAnswer::Wanted(SnapshotWanted::Bytes { file, from: 1, to: 2 }));
        answers.push(SnapshotAnswer::Wanted(SnapshotWanted::Checksum { file, from: 1, to: 2 }));
    }
    answers.into_iter().map(Answer::Snapshot).collect()
}

#[test]
fn what_is_said_comes_back_as_it_was() {
    for request in requests() {
        let read = Request::decode(request.encode().concat().into()).expect("a request");
        assert_eq!(format!("{read:?}"), format!("{request:?}"));
    }
    for answer in answers() {
        let read = Answer::decode(answer.encode()).expect("an answer");
        assert_eq!(format!("{read:?}"), format!("{answer:?}"));
    }
}

#[test]
fn what_is_cut_is_an_error() {
    for answer in answers() {
        let bytes = answer.encode();
        for length in 0..bytes.len() {
            Answer::decode(bytes.slice(..length)).expect_err("it is cut");
        }
    }
    for request in requests() {
        let head = request.encode().swap_remove(0);
        for length in 0..head.len() {
            Request::decode(head.slice(..length)).expect_err("it is cut");
        }
    }
}

#[test]
fn bytes_leave_at_the_rate_that_is_set() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    runtime.block_on(async {
        let pace = Arc::new(Pace::new(Some(1000)));
        let began = tokio::time::Instant::now();
        let two = [Arc::clone(&pace), pace].map(|pace| async move {
            for _ in 0..5 {
                pace.take(100).await;
            }
        });
        futures_util::future::join_all(two).await;
        // The last piece may go when the nine before it have gone.
        assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
        assert!(began.elapsed() < Duration::from_millis(1000), "{:?}", began.elapsed());
        let free = Pace::new(None);
        free.take(usize::MAX).await;
        assert!(began.elapsed() < Duration::from_millis(1000));
    });
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn reading_is_total(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let kind = [1u8, 5];
        let bytes: Bytes = kind.into_iter().chain(bytes).collect();
        let _ = Request::decode(bytes.clone());
        let _ = Answer::decode(bytes);
    }
}
