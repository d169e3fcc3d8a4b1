use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use weir_kafka_wire::messages::fetch::{FetchPartition, FetchTopic, ForgottenTopic, PartitionData};
use weir_kafka_wire::{ErrorCode, FetchRequest, Records, Uuid};

use super::{FetchContext, FetchSessions, TopicRef, Wanted};

const EVICT_UNUSED: Duration = Duration::from_secs(120);
/// A version that names topics by name.
const BY_NAME: i16 = 12;
const BY_ID: i16 = 13;

fn request(session_id: i32, session_epoch: i32, topics: &[(&str, &[i32])]) -> FetchRequest {
    let topic = |&(name, partitions): &(&str, &[i32])| FetchTopic {
        topic: name.into(),
        topic_id: Uuid::from(name.len() as u128),
        partitions: partitions
            .iter()
            .map(|&partition| FetchPartition {
                partition,
                partition_max_bytes: 1 << 20,
                ..Default::default()
            })
            .collect(),
    };
    FetchRequest {
        session_id,
        session_epoch,
        topics: topics.iter().map(topic).collect(),
        ..Default::default()
    }
}

fn wanted(context: &FetchContext) -> Vec<(String, i32)> {
    let (FetchContext::Sessionless(all) | FetchContext::Full(all) | FetchContext::Incremental(_, all)) =
        context
    else {
        panic!("refused: {context:?}")
    };
    all.iter().map(|wanted| (name(&wanted.topic), wanted.partition)).collect()
}

fn name(topic: &TopicRef) -> String {
    match topic {
        TopicRef::Name(name) => name.to_string(),
        TopicRef::Id(id) => u128::from(*id).to_string(),
    }
}

/// Reads from every wanted partition: `records` says which have some, `high_watermark` applies to all.
fn read(context: &FetchContext, high_watermark: i64, records: &[i32]) -> Vec<(TopicRef, PartitionData)> {
    let (FetchContext::Sessionless(all) | FetchContext::Full(all) | FetchContext::Incremental(_, all)) =
        context
    else {
        panic!("refused: {context:?}")
    };
    let one = |wanted: &Wanted| {
        let data = PartitionData {
            partition_index: wanted.partition,
            high_watermark,
            records: Some(if records.contains(&wanted.partition) {
                Records::from(Bytes::from_static(b"batch"))
            } else {
                Records::new()
            }),
            ..Default::default()
        };
        (wanted.topic.clone(), data)
    };
    all.iter().map(one).collect()
}

/// Carries one request through: the answer's session id and the partitions in it.
fn fetch(
    sessions: &FetchSessions,
    request: &FetchRequest,
    high_watermark: i64,
    records: &[i32],
) -> Result<(i32, Vec<i32>), ErrorCode> {
    let now = Instant::now();
    let context = match sessions.begin(request, BY_NAME, now) {
        FetchContext::Refused(code) => return Err(code),
        context => context,
    };
    let data = read(&context, high_watermark, records);
    let (id, topics) = sessions.finish(context, data, now);
    Ok((id, topics.iter().flat_map(|topic| &topic.partitions).map(|p| p.partition_index).collect()))
}

fn sessions() -> FetchSessions {
    FetchSessions::new(10, EVICT_UNUSED, 7)
}

#[tokio::test]
async fn an_empty_incremental_request_asks_for_everything_in_the_session() {
    let sessions = sessions();
    let (id, told) = fetch(&sessions, &request(0, 0, &[("t", &[0, 1, 2])]), 5, &[]).unwrap();
    assert!(id > 0);
    assert_eq!(told, [0, 1, 2], "the first answer tells of everything");
    let context = sessions.begin(&request(id, 1, &[]), BY_NAME, Instant::now());
    assert_eq!(wanted(&context).len(), 3);
}

#[tokio::test]
async fn an_incremental_answer_tells_what_changed() {
    let sessions = sessions();
    let (id, _) = fetch(&sessions, &request(0, 0, &[("t", &[0, 1, 2])]), 5, &[]).unwrap();
    assert_eq!(fetch(&sessions, &request(id, 1, &[]), 5, &[]), Ok((id, vec![])));
    assert_eq!(fetch(&sessions, &request(id, 2, &[]), 5, &[1]), Ok((id, vec![1])), "records");
    let (_, mut told) = fetch(&sessions, &request(id, 3, &[]), 6, &[]).unwrap();
    told.sort_unstable();
    assert_eq!(told, [0, 1, 2], "the high watermark rose");
}

#[tokio::test]
async fn a_partition_with_records_moves_behind_the_others() {
    let sessions = sessions();
    let (id, _) = fetch(&sessions, &request(0, 0, &[("t", &[0, 1, 2])]), 5, &[]).unwrap();
    fetch(&sessions, &request(id, 1, &[]), 5, &[0]).unwrap();
    let context = sessions.begin(&request(id, 2, &[]), BY_NAME, Instant::now());
    let order: Vec<i32> = wanted(&context).into_iter().map(|(_, partition)| partition).collect();
    assert_eq!(order, [1, 2, 0]);
}

#[tokio::test]
async fn an_error_is_always_told_and_so_is_its_end() {
    let sessions = sessions();
    let (id, _) = fetch(&sessions, &request(0, 0, &[("t", &[0])]), 5, &[]).unwrap();
    let context = sessions.begin(&request(id, 1, &[]), BY_NAME, Instant::now());
    let mut data = read(&context, 5, &[]);
    data[0].1.error_code = ErrorCode::NOT_LEADER_OR_FOLLOWER;
    let (_, topics) = sessions.finish(context, data, Instant::now());
    assert_eq!(topics[0].partitions[0].error_code, ErrorCode::NOT_LEADER_OR_FOLLOWER);
    assert_eq!(
        fetch(&sessions, &request(id, 2, &[]), 5, &[]),
        Ok((id, vec![0])),
        "told that it is well again"
    );
    assert_eq!(fetch(&sessions, &request(id, 3, &[]), 5, &[]), Ok((id, vec![])));
}

#[tokio::test]
async fn partitions_join_and_leave_a_session() {
    let sessions = sessions();
    let (id, _) = fetch(&sessions, &request(0, 0, &[("t", &[0, 1])]), 5, &[]).unwrap();
    let mut change = request(id, 1, &[("u", &[7])]);
    change.forgotten_topics_data =
        vec![ForgottenTopic { topic: "t".into(), partitions: vec![0], ..Default::default() }];
    let context = sessions.begin(&change, BY_NAME, Instant::now());
    assert_eq!(wanted(&context), [("t".to_owned(), 1), ("u".to_owned(), 7)]);
}

#[tokio::test]
async fn a_wrong_session_or_epoch_or_kind_of_name_is_refused() {
    let sessions = sessions();
    let (id, _) = fetch(&sessions, &request(0, 0, &[("t", &[0])]), 5, &[]).unwrap();
    let not_found = ErrorCode::FETCH_SESSION_ID_NOT_FOUND;
    assert_eq!(fetch(&sessions, &request(id.wrapping_add(1), 1, &[]), 5, &[]), Err(not_found));
    let wrong_epoch = ErrorCode::INVALID_FETCH_SESSION_EPOCH;
    assert_eq!(fetch(&sessions, &request(id, 2, &[]), 5, &[]), Err(wrong_epoch));
    let by_id = sessions.begin(&request(id, 1, &[]), BY_ID, Instant::now());
    assert!(matches!(by_id, FetchContext::Refused(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR)));
    assert!(fetch(&sessions, &request(id, 1, &[]), 5, &[]).is_ok(), "a refusal changes nothing");
}

#[tokio::test]
async fn the_final_epoch_ends_the_session() {
    let sessions = sessions();
    let (id, _) = fetch(&sessions, &request(0, 0, &[("t", &[0])]), 5, &[]).unwrap();
    assert_eq!(sessions.len(), 1);
    assert_eq!(fetch(&sessions, &request(id, -1, &[("t", &[0])]), 5, &[]), Ok((0, vec![0])));
    assert_eq!(sessions.len(), 0);
}

#[tokio::test]
async fn a_session_that_lost_all_its_partitions_is_over() {
    let sessions = sessions();
    let (id, _) = fetch(&sessions, &request(0, 0, &[("t", &[0])]), 5, &[]).unwrap();
    let mut change = request(id, 1, &[]);
    change.forgotten_topics_data =
        vec![ForgottenTopic { topic: "t".into(), partitions: vec![0], ..Default::default() }];
    assert_eq!(fetch(&sessions, &change, 5, &[]), Ok((0, vec![])));
    assert_eq!(sessions.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_cache_is_bounded_and_gives_unused_sessions_up() {
    let sessions = FetchSessions::new(2, EVICT_UNUSED, 7);
    let (first, _) = fetch(&sessions, &request(0, 0, &[("t", &[0])]), 5, &[]).unwrap();
    let (second, _) = fetch(&sessions, &request(0, 0, &[("t", &[0])]), 5, &[]).unwrap();
    assert_ne!(first, second);
    let (third, told) = fetch(&sessions, &request(0, 0, &[("t", &[0])]), 5, &[]).unwrap();
    assert_eq!((third, told), (0, vec![0]), "answered in full, without a session");
    tokio::time::advance(EVICT_UNUSED / 2).await;
    fetch(&sessions, &request(first, 1, &[]), 5, &[]).unwrap();
    tokio::time::advance(EVICT_UNUSED / 2).await;
    let (third, _) = fetch(&sessions, &request(0, 0, &[("t", &[0])]), 5, &[]).unwrap();
    assert!(third > 0, "the second gave way");
    assert_eq!(sessions.len(), 2);
    assert_eq!(
        fetch(&sessions, &request(second, 1, &[]), 5, &[]),
        Err(ErrorCode::FETCH_SESSION_ID_NOT_FOUND)
    );
    assert!(fetch(&sessions, &request(first, 2, &[]), 5, &[]).is_ok());
}

#[test]
fn epochs_wrap_past_the_two_with_a_meaning() {
    assert_eq!(super::next_epoch(i32::MAX), 1);
    assert_eq!(super::next_epoch(0), 1);
}
