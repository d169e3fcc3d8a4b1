//! What goes over the wire and into the journal comes back as it was; what is damaged is an error; and
//! a log is read back from the journal's records as it was left.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use openraft::entry::EntryPayload;
use openraft::errors::RPCError;
use openraft::impls::EmptyNode;
use openraft::network::{RPCOption, RaftNetworkFactory as _, RaftNetworkV2 as _};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, StreamAppendError, VoteRequest, VoteResponse,
};
use openraft::storage::RaftLogStorage as _;
use openraft::{LogState, RaftLogReader as _};
use parking_lot::Mutex;
use proptest::prelude::*;
use weir_log::disk::SimDisk;
use weir_log::journal::{JournalReader, Position, RecordKind, RecoveredRecord};
use weir_model::command::Command;
use weir_model::entry::Entry;
use weir_model::wire::{Reader, Writer};
use weir_model::{Incarnation, NodeId, PartitionId, ShardId};
use weir_shard::{Shard, ShardOptions};

use super::codec::{
    decode_entry, decode_membership, decode_stored_membership, encode_entry, encode_membership,
    encode_stored_membership,
};
use super::log::{LogRecovery, LogStore, ShardLog};
use super::member::Member;
use super::network::Network;
use super::rpc::{Answer, Between, Request};
use super::snapshot::{Pace, SnapshotSender};
use super::types::{Config, LogId, Membership, Proposal, RaftEntry, StoredMembership, Vote, log_id};
use crate::blocking::Blocking;
use crate::journal::queue::JournalQueue;
use crate::journal::records;
use crate::options::Drive;
use crate::transport::{Line, Transport, TransportFuture};

fn joint() -> Membership {
    let configs = vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([2, 3, 4])];
    let nodes: BTreeMap<u64, EmptyNode> = (1..=5).map(|id| (id, EmptyNode::new())).collect();
    Membership::new(configs, nodes).expect("a membership")
}

fn commands(term: u64, index: u64, bytes: usize) -> RaftEntry {
    let batch = Bytes::from(vec![7; bytes]);
    let commands = vec![Command::Append { partition: PartitionId(3), batch }, Command::TakeDigest];
    let proposal = Proposal::new(Entry { time: 12, commands }, Vec::new());
    RaftEntry { log_id: log_id(term, index), payload: EntryPayload::Normal(proposal) }
}

fn entries() -> Vec<RaftEntry> {
    vec![
        RaftEntry { log_id: log_id(3, 8), payload: EntryPayload::Blank },
        RaftEntry { log_id: log_id(3, 9), payload: EntryPayload::Membership(joint()) },
        commands(3, 10, 5),
        commands(4, 11, 5000),
    ]
}

fn joined(chunks: Vec<Bytes>) -> Bytes {
    chunks.concat().into()
}

fn same(a: &RaftEntry, b: &RaftEntry) -> bool {
    let payloads = match (&a.payload, &b.payload) {
        (EntryPayload::Blank, EntryPayload::Blank) => true,
        (EntryPayload::Membership(a), EntryPayload::Membership(b)) => a == b,
        (EntryPayload::Normal(a), EntryPayload::Normal(b)) => a.entry() == b.entry(),
        _ => false,
    };
    a.log_id == b.log_id && payloads
}

#[test]
fn entries_come_back() {
    for entry in entries() {
        let back = decode_entry(joined(encode_entry(&entry))).expect("an entry");
        assert!(same(&entry, &back), "{entry:?} came back as {back:?}");
    }
}

#[test]
fn memberships_come_back() {
    for membership in [joint(), Membership::default()] {
        let mut out = Writer::new();
        encode_membership(&mut out, &membership);
        let back = decode_membership(&mut Reader::new("a test", out.finish()));
        assert_eq!(back, Ok(membership.clone()));
        let stored = StoredMembership::new(Some(log_id(2, 5)), membership);
        assert_eq!(decode_stored_membership(encode_stored_membership(&stored)), Ok(stored));
    }
}

#[test]
fn messages_come_back() {
    let vote = Vote::new_committed(4, 2);
    let append = AppendEntriesRequest {
        vote,
        prev_log_id: Some(log_id(3, 7)),
        entries: entries(),
        leader_commit: Some(log_id(3, 9)),
    };
    match Request::decode(joined(Request::Append(append.clone()).encode())) {
        Ok(Request::Append(back)) => {
            assert_eq!(
                (back.vote, back.prev_log_id, back.leader_commit),
                (vote, append.prev_log_id, append.leader_commit)
            );
            assert_eq!(back.entries.len(), append.entries.len());
            assert!(back.entries.iter().zip(&append.entries).all(|(a, b)| same(a, b)));
        }
        other => panic!("an append came back as {other:?}"),
    }
    let mut ask = VoteRequest::new(Vote::new(5, 1), None);
    ask.leadership_transfer = true;
    for request in [Request::Vote(ask.clone()), Request::PreVote(ask.clone())] {
        match Request::decode(joined(request.encode())) {
            Ok(Request::Vote(back) | Request::PreVote(back)) => assert_eq!(back, ask),
            other => panic!("a vote request came back as {other:?}"),
        }
    }
    for response in [
        AppendEntriesResponse::Success,
        AppendEntriesResponse::PartialSuccess(Some(log_id(1, 1))),
        AppendEntriesResponse::Conflict,
        AppendEntriesResponse::HigherVote(vote),
    ] {
        match Answer::decode(Answer::Append(response.clone()).encode()) {
            Ok(Answer::Append(back)) => assert_eq!(back, response),
            other => panic!("an answer came back as {other:?}"),
        }
    }
    let granted = VoteResponse::new(vote, Some(log_id(2, 2)), true);
    match Answer::decode(Answer::Vote(granted.clone()).encode()) {
        Ok(Answer::Vote(back)) => assert_eq!(back, granted),
        other => panic!("an answer came back as {other:?}"),
    }
}

#[test]
fn entries_that_do_not_follow_each_other_are_refused() {
    for broken in [vec![commands(3, 9, 5)], vec![commands(3, 8, 5), commands(3, 10, 5)]] {
        let append = AppendEntriesRequest {
            vote: Vote::new_committed(4, 2),
            prev_log_id: Some(log_id(3, 7)),
            entries: broken,
            leader_commit: None,
        };
        assert!(Request::decode(joined(Request::Append(append).encode())).is_err());
    }
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        super::rpc::decode_anything(bytes.clone().into());
        let _ = decode_entry(bytes.into());
    }

    #[test]
    fn damaged_messages_are_read_without_a_panic(at in 0usize..5400, with in any::<u8>(), cut in 0usize..5400) {
        let append = AppendEntriesRequest {
            vote: Vote::new_committed(4, 2),
            prev_log_id: Some(log_id(3, 7)),
            entries: entries(),
            leader_commit: None,
        };
        let mut bytes = Request::Append(append).encode().concat();
        let at = at % bytes.len();
        bytes[at] ^= with;
        bytes.truncate(cut.max(1));
        super::rpc::decode_anything(bytes.into());
    }
}

/// Records as the journal hands them over, at rising positions.
struct Records {
    recovery: LogRecovery,
    next: u64,
}

impl Records {
    fn new() -> Records {
        Records { recovery: LogRecovery::default(), next: 100 }
    }

    fn take(&mut self, kind: RecordKind, payload: Bytes) -> Result<(), String> {
        self.next += 100;
        let position = Position(self.next);
        self.recovery.take(&RecoveredRecord { position, shard: ShardId(1), kind, payload, repeated: false })
    }

    fn entry(&mut self, term: u64, index: u64) -> Result<(), String> {
        self.take(records::ENTRY, joined(encode_entry(&commands(term, index, 10))))
    }

    fn truncate(&mut self, after: Option<LogId>) {
        self.take(records::TRUNCATE, records::encode_log_id_record(&after)).expect("a truncation");
    }

    fn log(self, checkpoint: Option<LogId>) -> Result<LogStore, (u64, u64)> {
        let log = ShardLog::new(ShardId(1), 0);
        self.recovery.finish(&log, checkpoint)?;
        let blocking = Blocking::new(Drive::Threads);
        let queue = JournalQueue::new(1 << 20);
        Ok(LogStore::new(log.into(), queue.into(), JournalReader::default(), blocking))
    }
}

fn state(mut store: LogStore) -> (Option<LogId>, Option<LogId>) {
    let LogState { last_purged_log_id, last_log_id } = now(store.get_log_state()).expect("a state");
    (last_purged_log_id, last_log_id)
}

/// The result of a future that does not wait.
fn now<T>(future: impl Future<Output = T>) -> T {
    futures_util::FutureExt::now_or_never(future).expect("does not wait")
}

#[test]
fn a_log_is_read_back_with_vote_and_commit() {
    let mut records = Records::new();
    records.take(records::VOTE, records::encode_vote_record(&Vote::new(1, 1))).expect("a vote");
    for index in 0..5 {
        records.entry(1, index).expect("an entry");
    }
    records.take(records::VOTE, records::encode_vote_record(&Vote::new(2, 3))).expect("a vote");
    let committed = Some(log_id(1, 3));
    records.take(records::COMMITTED, records::encode_log_id_record(&committed)).expect("a commit");
    let mut store = records.log(None).expect("a log");
    assert_eq!(now(store.read_vote()).expect("readable"), Some(Vote::new(2, 3)));
    assert_eq!(now(store.read_committed()).expect("readable"), committed);
    assert_eq!(state(store), (None, Some(log_id(1, 4))));
}

#[test]
fn what_was_truncated_stays_away() {
    let mut records = Records::new();
    for index in 0..6 {
        records.entry(1, index).expect("an entry");
    }
    records.truncate(Some(log_id(1, 2)));
    records.entry(2, 3).expect("an entry");
    assert_eq!(state(records.log(None).expect("a log")), (None, Some(log_id(2, 3))));

    let mut records = Records::new();
    records.entry(1, 0).expect("an entry");
    records.truncate(None);
    assert_eq!(state(records.log(None).expect("a log")), (None, None));
}

#[test]
fn an_entry_in_the_place_of_another_needs_a_truncation() {
    let mut records = Records::new();
    records.entry(1, 0).expect("an entry");
    records.entry(1, 1).expect("an entry");
    assert!(records.entry(2, 1).is_err());
}

#[test]
fn a_log_goes_on_from_its_checkpoint() {
    // Nothing is left of what the checkpoint covers.
    let store = Records::new().log(Some(log_id(2, 9))).expect("a log");
    assert_eq!(state(store), (Some(log_id(2, 9)), Some(log_id(2, 9))));

    // A part of it is left: the first entry stands for the one before it, which nobody knows.
    let mut records = Records::new();
    for index in 7..12 {
        records.entry(2, index).expect("an entry");
    }
    let store = records.log(Some(log_id(2, 9))).expect("a log");
    assert_eq!(state(store), (Some(log_id(2, 7)), Some(log_id(2, 11))));

    // If what is before the first one is noted, that need not be: a follower may have just that.
    for (noted, purged) in
        [(log_id(1, 6), log_id(1, 6)), (log_id(1, 5), log_id(2, 7)), (log_id(2, 8), log_id(2, 7))]
    {
        let mut records = Records::new();
        (7..12).for_each(|index| records.entry(2, index).expect("an entry"));
        let noted = records::encode_log_id_record(&Some(noted));
        records.take(records::PURGED, noted).expect("what was purged");
        let store = records.log(Some(log_id(2, 9))).expect("a log");
        assert_eq!(state(store), (Some(purged), Some(log_id(2, 11))));
    }

    // It begins right behind it.
    let mut records = Records::new();
    records.entry(3, 10).expect("an entry");
    let store = records.log(Some(log_id(2, 9))).expect("a log");
    assert_eq!(state(store), (Some(log_id(2, 9)), Some(log_id(3, 10))));

    // All that is left lies below it.
    let mut records = Records::new();
    records.entry(1, 4).expect("an entry");
    let store = records.log(Some(log_id(2, 9))).expect("a log");
    assert_eq!(state(store), (Some(log_id(2, 9)), Some(log_id(2, 9))));
}

#[test]
fn entries_that_are_nowhere_are_a_loss() {
    let mut records = Records::new();
    records.entry(2, 12).expect("an entry");
    assert_eq!(records.log(Some(log_id(2, 9))).err(), Some((10, 11)));
    let mut records = Records::new();
    records.entry(2, 3).expect("an entry");
    assert_eq!(records.log(None).err(), Some((0, 2)));
}

#[test]
fn key_ids_are_the_last_of_each_term() {
    let mut records = Records::new();
    for (term, index) in [(1, 0), (2, 1), (2, 2), (2, 3), (5, 4), (5, 5)] {
        records.entry(term, index).expect("an entry");
    }
    let mut store = records.log(None).expect("a log");
    let ids =
        |store: &mut LogStore, from: LogId, to: LogId| now(store.get_key_log_ids(from..=to)).expect("ids");
    assert_eq!(ids(&mut store, log_id(1, 0), log_id(5, 5)), [log_id(1, 0), log_id(2, 3), log_id(5, 5)]);
    assert_eq!(ids(&mut store, log_id(2, 2), log_id(5, 4)), [log_id(2, 3), log_id(5, 4)]);
    assert_eq!(ids(&mut store, log_id(5, 5), log_id(5, 5)), [log_id(5, 5)]);
}

/// Answers appends, one after the other, as it is told to.
struct Scripted(Mutex<VecDeque<AppendEntriesResponse<Config>>>);

impl Transport for Scripted {
    fn call(&self, _: NodeId, _: Line, _: Vec<Bytes>) -> TransportFuture<'_> {
        let answer = self.0.lock().pop_front().expect("an answer for each append");
        Box::pin(async move { Ok(Answer::Append(answer).encode()) })
    }
}

/// What the library hears of appends of one entry each, the first behind index 7.
fn heard_of_appends(answers: &[AppendEntriesResponse<Config>]) -> Vec<String> {
    let transport = Arc::new(Scripted(Mutex::new(answers.to_vec().into())));
    let disk = SimDisk::new(1);
    let opened = Shard::open(disk.shared(), "/data/shards/1".into(), ShardId(1), ShardOptions::default());
    let sender = SnapshotSender {
        snapshots: opened.expect("a shard").0.snapshots(),
        blocking: Blocking::new(Drive::Tasks { sync_latency: Duration::ZERO }),
        pace: Arc::new(Pace::new(None)),
    };
    let mut network = Network { own: Member::of(1), shard: ShardId(1), transport, sender };
    let append = |index: u64| AppendEntriesRequest {
        vote: Vote::new_committed(3, 1),
        prev_log_id: Some(log_id(3, index - 1)),
        entries: vec![commands(3, index, 10)],
        leader_commit: None,
    };
    let appends: Vec<_> = (8..8 + answers.len() as u64).map(append).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        let mut peer = network.new_client(2, &EmptyNode::new()).await;
        let option = RPCOption::new(Duration::from_secs(1));
        let heard = peer.stream_append(stream::iter(appends), option).await.expect("a stream");
        heard
            .map(|heard| match heard {
                Ok(Ok(upto)) => format!("has {:?}", upto.map(|id| id.index)),
                Ok(Err(StreamAppendError::Conflict(at))) => format!("lacks {}", at.index),
                Ok(Err(StreamAppendError::HigherVote(vote))) => format!("obeys {vote}"),
                Err(error) => format!("failed: {error}"),
            })
            .collect()
            .await
    })
}

#[test]
fn an_append_that_overtook_another_is_not_a_follower_that_lost_its_log() {
    use AppendEntriesResponse::{Conflict, PartialSuccess, Success};
    assert_eq!(heard_of_appends(&[Success, Success]), ["has Some(8)", "has Some(9)"]);
    assert_eq!(heard_of_appends(&[Conflict, Success]), ["lacks 7"]);
    let overtaken = heard_of_appends(&[Success, Success, Conflict, Success]);
    assert_eq!(overtaken[..2], ["has Some(8)", "has Some(9)"]);
    assert!(overtaken[2].contains("arrived before the one that it follows"), "{overtaken:?}");
    assert_eq!(overtaken.len(), 3, "what was sent behind it means nothing");
    let partial = heard_of_appends(&[Success, PartialSuccess(Some(log_id(3, 8))), Success]);
    assert_eq!(partial, ["has Some(8)", "has Some(8)"], "what was sent behind it means nothing");
}

#[test]
fn what_is_for_one_incarnation_says_so_and_between_the_first_ones_it_is_as_it_ever_was() {
    let request = Request::Vote(VoteRequest::new(Vote::new(5, 1), None));
    let first = Between::default();
    assert_eq!(request.encode(), request.encode_between(first));
    assert_eq!(request.encode()[0][..2], [1, 2]);
    let returned = Between { from: Incarnation(7), to: Incarnation(1 << 31) };
    let bytes = joined(request.encode_between(returned));
    assert_eq!(bytes[..10], [2, 7, 0, 0, 0, 0, 0, 0, 128, 2]);
    for between in [first, returned] {
        let bytes = joined(request.encode_between(between));
        let (said, back) = Request::decode_between(bytes.clone()).expect("a request");
        assert_eq!((said, format!("{back:?}")), (between, format!("{request:?}")));
        for length in 0..bytes.len() {
            Request::decode_between(bytes.slice(..length)).expect_err("it is cut");
        }
    }
    let refusal = Answer::OtherIncarnation("another one is meant".into());
    let back = Answer::decode(refusal.encode()).expect("an answer");
    assert_eq!(format!("{back:?}"), format!("{refusal:?}"));
}

#[test]
fn a_replica_that_is_not_the_one_meant_is_not_tried_again_at_once() {
    struct Another;
    impl Transport for Another {
        fn call(&self, to: NodeId, _: Line, request: Vec<Bytes>) -> TransportFuture<'_> {
            let (between, _) = Request::decode_between(joined(request)).expect("a request");
            assert_eq!((to, between.from, between.to), (NodeId(2), Incarnation(0), Incarnation(3)));
            Box::pin(async { Ok(Answer::OtherIncarnation("it is another".into()).encode()) })
        }
    }
    let disk = SimDisk::new(1);
    let opened = Shard::open(disk.shared(), "/data/shards/1".into(), ShardId(1), ShardOptions::default());
    let sender = SnapshotSender {
        snapshots: opened.expect("a shard").0.snapshots(),
        blocking: Blocking::new(Drive::Tasks { sync_latency: Duration::ZERO }),
        pace: Arc::new(Pace::new(None)),
    };
    let mut network = Network { own: Member::of(1), shard: ShardId(1), transport: Arc::new(Another), sender };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    let answer = runtime.block_on(async {
        let mut peer = network.new_client((3 << 32) + 2, &EmptyNode::new()).await;
        peer.vote(VoteRequest::new(Vote::new(5, 1), None), RPCOption::new(Duration::from_secs(1))).await
    });
    assert!(matches!(answer, Err(RPCError::Unreachable(_))), "{answer:?}");
}
