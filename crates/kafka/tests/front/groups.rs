//! Groups and their positions, as members see them.

use bytes::Bytes;
use weir_kafka_wire::messages::join_group::JoinGroupRequestProtocol;
use weir_kafka_wire::messages::leave_group::MemberIdentity;
use weir_kafka_wire::messages::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use weir_kafka_wire::messages::offset_delete::{OffsetDeleteRequestPartition, OffsetDeleteRequestTopic};
use weir_kafka_wire::messages::offset_fetch::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use weir_kafka_wire::messages::sync_group::SyncGroupRequestAssignment;
use weir_kafka_wire::{
    DeleteGroupsRequest, DescribeGroupsRequest, ErrorCode, FindCoordinatorRequest, HeartbeatRequest,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, ListGroupsRequest, MetadataRequest,
    OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest, SyncGroupRequest, Uuid,
};

use crate::common::{Client, Setup, serve, serve_with};

fn join(member_id: &str) -> JoinGroupRequest {
    JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        member_id: member_id.into(),
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".into(),
            metadata: Bytes::from_static(b"subscription"),
        }],
        ..Default::default()
    }
}

/// Joins as the only member: with the id that the first answer gives.
async fn join_alone(client: &mut Client, version: i16) -> JoinGroupResponse {
    let first = client.call(version, &join("")).await;
    if first.error_code != ErrorCode::MEMBER_ID_REQUIRED {
        return first;
    }
    client.call(version, &join(&first.member_id)).await
}

/// Brings a generation's assignment: everything to this member.
async fn sync_alone(client: &mut Client, joined: &JoinGroupResponse) -> ErrorCode {
    let sync = SyncGroupRequest {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: joined.member_id.clone(),
            assignment: Bytes::from_static(b"everything"),
        }],
        ..Default::default()
    };
    let synced = client.call(5, &sync).await;
    if synced.error_code.is_none() {
        assert_eq!(synced.assignment, "everything");
    }
    synced.error_code
}

fn heartbeat(joined: &JoinGroupResponse) -> HeartbeatRequest {
    HeartbeatRequest {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..Default::default()
    }
}

fn commit(topic: &str, partition_index: i32, offset: i64) -> OffsetCommitRequest {
    OffsetCommitRequest {
        group_id: "g".into(),
        topics: vec![OffsetCommitRequestTopic {
            name: topic.into(),
            partitions: vec![OffsetCommitRequestPartition {
                partition_index,
                committed_offset: offset,
                committed_leader_epoch: 3,
                committed_metadata: Some("where I am".into()),
            }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

#[tokio::test]
async fn the_coordinator_is_found_in_every_version() {
    let served = serve().await;
    let mut client = served.connect().await;
    let request = FindCoordinatorRequest {
        key: "g".into(),
        key_type: 0,
        coordinator_keys: vec!["g".into(), "other".into()],
    };
    let port = i32::from(served.addr.port());
    for version in 0..=3 {
        let found = client.call(version, &request).await;
        assert_eq!((found.error_code, found.port), (ErrorCode::NONE, port));
    }
    for version in 4..=6 {
        let found = client.call(version, &request).await.coordinators;
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|one| one.error_code.is_none() && one.port == port));
    }
    let share = FindCoordinatorRequest { key_type: 2, coordinator_keys: vec!["g".into()], ..request };
    assert_eq!(client.call(6, &share).await.coordinators[0].error_code, ErrorCode::INVALID_REQUEST);
}

/// From version 4 on a new member gets its id first, so that a client whose first answer got lost does
/// not stay in the group as a member that nobody is.
#[tokio::test]
async fn trap_a_new_member_joins_again_with_the_id_it_is_given() {
    let served = serve().await;
    let mut client = served.connect().await;
    for version in 4..=9 {
        let first = client.call(version, &join("")).await;
        assert_eq!(first.error_code, ErrorCode::MEMBER_ID_REQUIRED, "version {version}");
        assert!(!first.member_id.is_empty());
    }
    let unknown = client.call(9, &join("nobody")).await;
    assert_eq!(unknown.error_code, ErrorCode::UNKNOWN_MEMBER_ID);
}

/// The oldest clients join at once; kafka-go and brod have no later version than 1.
#[tokio::test]
async fn trap_join_group_works_in_its_first_versions() {
    for version in 0..=3 {
        let served = serve().await;
        let mut client = served.connect().await;
        let joined = client.call(version, &join("")).await;
        assert_eq!(joined.error_code, ErrorCode::NONE, "version {version}");
        assert_eq!((joined.leader.clone(), joined.members.len()), (joined.member_id.clone(), 1));
        assert_eq!(sync_alone(&mut client, &joined).await, ErrorCode::NONE);
        assert_eq!(client.call(0, &heartbeat(&joined)).await.error_code, ErrorCode::NONE);
    }
}

#[tokio::test]
async fn a_member_joins_syncs_beats_and_leaves() {
    let served = serve().await;
    let mut client = served.connect().await;
    let joined = join_alone(&mut client, 9).await;
    assert_eq!(joined.error_code, ErrorCode::NONE);
    assert_eq!(joined.protocol_name.as_deref(), Some("range"));
    assert_eq!(joined.members[0].metadata, "subscription");
    assert_eq!(sync_alone(&mut client, &joined).await, ErrorCode::NONE);
    for version in 0..=4 {
        assert_eq!(client.call(version, &heartbeat(&joined)).await.error_code, ErrorCode::NONE);
    }
    let old = HeartbeatRequest { generation_id: joined.generation_id - 1, ..heartbeat(&joined) };
    assert_eq!(client.call(4, &old).await.error_code, ErrorCode::ILLEGAL_GENERATION);
    let nobody = HeartbeatRequest { member_id: "nobody".into(), ..heartbeat(&joined) };
    assert_eq!(client.call(4, &nobody).await.error_code, ErrorCode::UNKNOWN_MEMBER_ID);
    let leave = LeaveGroupRequest {
        group_id: "g".into(),
        members: vec![
            MemberIdentity { member_id: joined.member_id.clone(), ..Default::default() },
            MemberIdentity { member_id: "nobody".into(), ..Default::default() },
        ],
        ..Default::default()
    };
    let left = client.call(5, &leave).await;
    let codes: Vec<_> = left.members.iter().map(|member| member.error_code).collect();
    assert_eq!(codes, [ErrorCode::NONE, ErrorCode::UNKNOWN_MEMBER_ID]);
    assert_eq!(client.call(4, &heartbeat(&joined)).await.error_code, ErrorCode::UNKNOWN_MEMBER_ID);
    // The layout before several could leave at once.
    let one = LeaveGroupRequest { group_id: "g".into(), member_id: "nobody".into(), ..Default::default() };
    assert_eq!(client.call(2, &one).await.error_code, ErrorCode::UNKNOWN_MEMBER_ID);
}

#[tokio::test]
async fn two_members_share_a_generation() {
    let served = serve().await;
    let mut first = served.connect().await;
    let mut second = served.connect().await;
    let joined = join_alone(&mut first, 9).await;
    assert_eq!(sync_alone(&mut first, &joined).await, ErrorCode::NONE);
    let id = second.call(9, &join("")).await.member_id;
    let second_joins = second.send(9, &join(&id)).await;
    // The first hears of it by its heartbeat and joins again; then both are in the next generation.
    while client_code(&mut first, &joined).await == ErrorCode::NONE {
        tokio::task::yield_now().await;
    }
    let rejoined = first.call(9, &join(&joined.member_id)).await;
    let other = second.receive::<JoinGroupRequest>(9, second_joins).await;
    assert_eq!(rejoined.generation_id, joined.generation_id + 1);
    assert_eq!(other.generation_id, rejoined.generation_id);
    assert_eq!(rejoined.leader, other.leader);
    let (leader, follower) =
        if rejoined.member_id == rejoined.leader { (&rejoined, &other) } else { (&other, &rejoined) };
    assert_eq!((leader.members.len(), follower.members.len()), (2, 0));
}

async fn client_code(client: &mut Client, joined: &JoinGroupResponse) -> ErrorCode {
    client.call(4, &heartbeat(joined)).await.error_code
}

/// In the midst of a rebalance a member that the group does not have is told so, and neither waits for a
/// generation that it is not in nor keeps the others from theirs (Redpanda).
#[tokio::test]
async fn trap_a_member_that_is_gone_is_unknown_also_during_a_rebalance() {
    let served = serve().await;
    let mut first = served.connect().await;
    let mut second = served.connect().await;
    let mut stranger = served.connect().await;
    let joined = join_alone(&mut first, 9).await;
    assert_eq!(sync_alone(&mut first, &joined).await, ErrorCode::NONE);
    let id = second.call(9, &join("")).await.member_id;
    let second_joins = second.send(9, &join(&id)).await;
    while client_code(&mut first, &joined).await == ErrorCode::NONE {
        tokio::task::yield_now().await;
    }
    assert_eq!(stranger.call(9, &join("nobody")).await.error_code, ErrorCode::UNKNOWN_MEMBER_ID);
    let nobody = JoinGroupResponse { member_id: "nobody".into(), ..joined.clone() };
    assert_eq!(sync_alone(&mut stranger, &nobody).await, ErrorCode::UNKNOWN_MEMBER_ID);
    assert_eq!(client_code(&mut stranger, &nobody).await, ErrorCode::UNKNOWN_MEMBER_ID);
    let rejoined = first.call(9, &join(&joined.member_id)).await;
    let other = second.receive::<JoinGroupRequest>(9, second_joins).await;
    assert_eq!(other.generation_id, rejoined.generation_id);
}

/// A static member that comes back keeps its place; the one it replaces is told so.
#[tokio::test]
async fn trap_static_members_are_fenced_by_their_successors() {
    let served = serve().await;
    let mut client = served.connect().await;
    let named = JoinGroupRequest { group_instance_id: Some("i".into()), ..join("") };
    let first = client.call(9, &named).await;
    assert_eq!(first.error_code, ErrorCode::NONE, "a static member needs no id first");
    let mut sync = SyncGroupRequest {
        group_id: "g".into(),
        generation_id: first.generation_id,
        member_id: first.member_id.clone(),
        group_instance_id: Some("i".into()),
        ..Default::default()
    };
    assert_eq!(client.call(5, &sync).await.error_code, ErrorCode::NONE);
    let second = client.call(9, &named).await;
    assert_eq!(second.error_code, ErrorCode::NONE);
    assert_ne!(second.member_id, first.member_id);
    sync.generation_id = second.generation_id;
    assert_eq!(client.call(5, &sync).await.error_code, ErrorCode::FENCED_INSTANCE_ID);
    let beat = HeartbeatRequest { group_instance_id: Some("i".into()), ..heartbeat(&first) };
    assert_eq!(client.call(4, &beat).await.error_code, ErrorCode::FENCED_INSTANCE_ID);
}

#[tokio::test]
async fn bad_groups_and_timeouts_are_refused() {
    let served = serve().await;
    let mut client = served.connect().await;
    let nameless = JoinGroupRequest { group_id: "".into(), ..join("") };
    assert_eq!(client.call(9, &nameless).await.error_code, ErrorCode::INVALID_GROUP_ID);
    let hasty = JoinGroupRequest { session_timeout_ms: 1, ..join("") };
    assert_eq!(client.call(9, &hasty).await.error_code, ErrorCode::INVALID_SESSION_TIMEOUT);
    let joined = join_alone(&mut client, 9).await;
    assert_eq!(joined.error_code, ErrorCode::NONE);
    let mut other = join("");
    other.protocols[0].name = "other".into();
    let refused = client.call(3, &other).await;
    assert_eq!(refused.error_code, ErrorCode::INCONSISTENT_GROUP_PROTOCOL);
}

/// Positions come back with their leader epoch and metadata, in the layout of every version.
#[tokio::test]
async fn trap_committed_positions_keep_their_epoch_and_metadata() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 2, &[]).await;
    let topic_id = client.call(12, &MetadataRequest::default()).await.topics[0].topic_id;
    for version in 2..=10 {
        let mut request = commit("t", 1, i64::from(version) * 10);
        request.topics[0].topic_id = topic_id;
        let committed = client.call(version, &request).await;
        assert_eq!(committed.topics[0].partitions[0].error_code, ErrorCode::NONE, "version {version}");
    }
    for version in 1..=7 {
        let request = OffsetFetchRequest {
            group_id: "g".into(),
            topics: Some(vec![OffsetFetchRequestTopic { name: "t".into(), partition_indexes: vec![0, 1] }]),
            ..Default::default()
        };
        let response = client.call(version, &request).await;
        let partitions = &response.topics[0].partitions;
        assert_eq!(partitions[0].committed_offset, -1, "never committed");
        assert_eq!(partitions[1].committed_offset, 100);
        assert_eq!(partitions[1].metadata.as_deref(), Some("where I am"));
        if version >= 5 {
            assert_eq!((partitions[0].committed_leader_epoch, partitions[1].committed_leader_epoch), (-1, 3));
        }
        if version >= 2 {
            let all = client.call(version, &OffsetFetchRequest { topics: None, ..request }).await;
            assert_eq!(all.topics[0].partitions.len(), 1);
            assert_eq!(all.topics[0].name, "t");
        }
    }
    for version in 8..=10 {
        let topics =
            vec![OffsetFetchRequestTopics { name: "t".into(), topic_id, partition_indexes: vec![0, 1] }];
        let named =
            OffsetFetchRequestGroup { group_id: "g".into(), topics: Some(topics), ..Default::default() };
        let all = OffsetFetchRequestGroup { group_id: "g".into(), topics: None, ..Default::default() };
        let none = OffsetFetchRequestGroup { group_id: "unknown".into(), topics: None, ..Default::default() };
        let request = OffsetFetchRequest { groups: vec![named, all, none], ..Default::default() };
        let groups = client.call(version, &request).await.groups;
        assert_eq!(groups[0].topics[0].partitions[1].committed_offset, 100, "version {version}");
        assert_eq!(groups[0].topics[0].partitions[1].committed_leader_epoch, 3);
        assert_eq!(groups[1].topics[0].partitions.len(), 1);
        assert!(groups[2].topics.is_empty() && groups[2].error_code.is_none());
    }
}

#[tokio::test]
async fn positions_of_unknown_topics_and_members_are_refused() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    let code = async |client: &mut Client, version, request: &OffsetCommitRequest| {
        client.call(version, request).await.topics[0].partitions[0].error_code
    };
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    assert_eq!(code(&mut client, 9, &commit("nope", 0, 1)).await, unknown);
    assert_eq!(code(&mut client, 9, &commit("t", 1, 1)).await, unknown);
    let mut by_id = commit("t", 0, 1);
    by_id.topics[0].topic_id = Uuid::from(99);
    assert_eq!(code(&mut client, 10, &by_id).await, ErrorCode::UNKNOWN_TOPIC_ID);
    let mut long = commit("t", 0, 1);
    long.topics[0].partitions[0].committed_metadata = Some("x".repeat(10_000).into());
    assert_eq!(code(&mut client, 9, &long).await, ErrorCode::OFFSET_METADATA_TOO_LARGE);
    let joined = join_alone(&mut client, 9).await;
    assert_eq!(sync_alone(&mut client, &joined).await, ErrorCode::NONE);
    let as_member = |generation, member: &str| OffsetCommitRequest {
        generation_id_or_member_epoch: generation,
        member_id: member.into(),
        ..commit("t", 0, 1)
    };
    let own = as_member(joined.generation_id, &joined.member_id);
    assert_eq!(code(&mut client, 9, &own).await, ErrorCode::NONE);
    let old = as_member(joined.generation_id - 1, &joined.member_id);
    assert_eq!(code(&mut client, 9, &old).await, ErrorCode::ILLEGAL_GENERATION);
    let nobody = as_member(joined.generation_id, "nobody");
    assert_eq!(code(&mut client, 9, &nobody).await, ErrorCode::UNKNOWN_MEMBER_ID);
}

#[tokio::test]
async fn positions_and_generations_survive_a_restart() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    let joined = join_alone(&mut client, 9).await;
    assert_eq!(sync_alone(&mut client, &joined).await, ErrorCode::NONE);
    client.call(9, &commit_as(&joined, 42)).await;
    let disk = served.stop().await;

    let served = serve_with(Setup { disk, ..Default::default() }).await;
    let mut client = served.connect().await;
    assert_eq!(client.call(4, &heartbeat(&joined)).await.error_code, ErrorCode::NONE, "still a member");
    let request = OffsetFetchRequest { group_id: "g".into(), topics: None, ..Default::default() };
    let response = client.call(7, &request).await;
    assert_eq!(response.topics[0].partitions[0].committed_offset, 42);
    let rejoined = client.call(9, &join(&joined.member_id)).await;
    assert_eq!(rejoined.generation_id, joined.generation_id + 1);
}

fn commit_as(joined: &JoinGroupResponse, offset: i64) -> OffsetCommitRequest {
    OffsetCommitRequest {
        generation_id_or_member_epoch: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..commit("t", 0, offset)
    }
}

#[tokio::test]
async fn groups_are_listed_described_and_deleted() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    let joined = join_alone(&mut client, 9).await;
    assert_eq!(sync_alone(&mut client, &joined).await, ErrorCode::NONE);
    client.call(9, &commit_as(&joined, 1)).await;

    for version in 0..=5 {
        let listed = client.call(version, &ListGroupsRequest::default()).await.groups;
        assert_eq!((listed.len(), listed[0].group_id.as_str()), (1, "g"), "version {version}");
        assert_eq!(listed[0].protocol_type, "consumer");
    }
    let by_state =
        |state: &str| ListGroupsRequest { states_filter: vec![state.into()], ..Default::default() };
    assert_eq!(client.call(5, &by_state("stable")).await.groups[0].group_state, "Stable");
    assert!(client.call(5, &by_state("Empty")).await.groups.is_empty());
    let by_type = |kind: &str| ListGroupsRequest { types_filter: vec![kind.into()], ..Default::default() };
    assert_eq!(client.call(5, &by_type("Classic")).await.groups.len(), 1);
    assert!(client.call(5, &by_type("share")).await.groups.is_empty());

    let describe = DescribeGroupsRequest {
        groups: vec!["g".into(), "nope".into()],
        include_authorized_operations: true,
    };
    for version in 0..=6 {
        let groups = client.call(version, &describe).await.groups;
        assert_eq!(groups[0].group_state, "Stable");
        let member = &groups[0].members[0];
        assert_eq!((member.client_id.as_str(), member.client_host.as_str()), ("test", "/127.0.0.1"));
        assert_eq!(member.member_assignment, "everything");
        let expected = if version < 6 { ErrorCode::NONE } else { ErrorCode::GROUP_ID_NOT_FOUND };
        assert_eq!((groups[1].group_state.as_str(), groups[1].error_code), ("Dead", expected));
    }

    let delete = DeleteGroupsRequest { groups_names: vec!["g".into(), "nope".into()] };
    let codes: Vec<_> = client.call(2, &delete).await.results.iter().map(|one| one.error_code).collect();
    assert_eq!(codes, [ErrorCode::NON_EMPTY_GROUP, ErrorCode::GROUP_ID_NOT_FOUND]);
    let leave =
        LeaveGroupRequest { group_id: "g".into(), member_id: joined.member_id.clone(), ..Default::default() };
    assert_eq!(client.call(2, &leave).await.error_code, ErrorCode::NONE);

    let forget = OffsetDeleteRequest {
        group_id: "g".into(),
        topics: vec![OffsetDeleteRequestTopic {
            name: "t".into(),
            partitions: vec![
                OffsetDeleteRequestPartition { partition_index: 0 },
                OffsetDeleteRequestPartition { partition_index: 9 },
            ],
        }],
    };
    let forgotten = client.call(0, &forget).await;
    assert_eq!(forgotten.error_code, ErrorCode::NONE);
    let codes: Vec<_> = forgotten.topics[0].partitions.iter().map(|one| one.error_code).collect();
    assert_eq!(codes, [ErrorCode::NONE, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION]);
    let request = OffsetFetchRequest { group_id: "g".into(), topics: None, ..Default::default() };
    assert!(client.call(7, &request).await.topics.is_empty());
}

/// Requests of one connection are carried out in its order, although produce requests run beside each
/// other: a member that commits and leaves without waiting has committed.
#[tokio::test]
async fn a_commit_is_carried_out_before_the_leave_behind_it() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    let joined = join_alone(&mut client, 9).await;
    assert_eq!(sync_alone(&mut client, &joined).await, ErrorCode::NONE);
    let commits = client.send(9, &commit_as(&joined, 7)).await;
    let leave =
        LeaveGroupRequest { group_id: "g".into(), member_id: joined.member_id.clone(), ..Default::default() };
    let leaves = client.send(2, &leave).await;
    let committed = client.receive::<OffsetCommitRequest>(9, commits).await;
    assert_eq!(committed.topics[0].partitions[0].error_code, ErrorCode::NONE);
    assert_eq!(client.receive::<LeaveGroupRequest>(2, leaves).await.error_code, ErrorCode::NONE);
}
