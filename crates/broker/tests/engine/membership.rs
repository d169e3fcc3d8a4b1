//! Groups as fronts use them: over a real node on a simulated disk, with time under control.

use std::time::Duration;

use crate::support::*;
use weir_broker::groups::*;
use weir_broker::*;
use weir_model::command::OffsetCommit;

fn commit(topic: &Topic, joined: Option<&Joined>, offset: i64) -> CommitRequest {
    CommitRequest {
        group: "g".into(),
        generation: joined.map_or(-1, |joined| joined.generation),
        member_id: joined.map(|joined| joined.member_id.clone()).unwrap_or_default(),
        instance_id: None,
        offsets: vec![OffsetCommit {
            topic_id: topic.id(),
            partition: 0,
            offset,
            leader_epoch: 3,
            metadata: format!("at {offset}"),
            committed_at: 0,
        }],
    }
}

fn beat(joined: &Joined) -> HeartbeatRequest {
    HeartbeatRequest {
        group: "g".into(),
        generation: joined.generation,
        member_id: joined.member_id.clone(),
        instance_id: None,
    }
}

#[tokio::test(start_paused = true)]
async fn two_members_share_a_group_and_one_takes_over_when_the_other_is_silent() {
    let mut world = World::started(1).await;
    let broker = world.broker().clone();
    let first = join_alone(&broker, "g", "").await;
    assert_eq!((first.generation, first.leader == first.member_id), (1, true));

    let second = tokio::spawn({
        let broker = broker.clone();
        async move { broker.join_group(join_request("g", "")).await }
    });
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(broker.heartbeat(beat(&first)).await, Err(GroupError::RebalanceInProgress));
    let first = broker.join_group(join_request("g", &first.member_id)).await.unwrap();
    let second = second.await.unwrap().unwrap();
    assert_eq!((first.generation, second.generation), (2, 2));
    assert_eq!((first.members.len(), second.members.len()), (2, 0));

    let waiting = tokio::spawn({
        let (broker, request) = (broker.clone(), sync_request(&second, "g"));
        async move { broker.sync_group(request).await }
    });
    broker.sync_group(sync_request(&first, "g")).await.unwrap();
    let assigned = waiting.await.unwrap().unwrap();
    assert_eq!(assigned.assignment, format!("for {}", second.member_id));
    assert_eq!(broker.describe_group("g").unwrap().state, GroupState::Stable);

    // The first one goes silent. The timer finds out by itself.
    for _ in 0..4 {
        tokio::time::sleep(Duration::from_secs(3)).await;
        if broker.heartbeat(beat(&second)).await.is_err() {
            break;
        }
    }
    assert_eq!(broker.heartbeat(beat(&second)).await, Err(GroupError::RebalanceInProgress));
    assert_eq!(broker.heartbeat(beat(&first)).await, Err(GroupError::UnknownMember));
    let second = join_alone(&broker, "g", &second.member_id).await;
    assert_eq!((second.generation, second.members.len()), (3, 1));

    // And then the other.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let group = broker.describe_group("g").unwrap();
    assert_eq!((group.state, group.generation), (GroupState::Empty, 4));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_and_its_positions_survive_a_loss_of_power() {
    for seed in 10..20 {
        let mut world = World::started(seed).await;
        let topic = world.create("t", 1).await;
        let joined = join_alone(world.broker(), "g", "").await;
        for offset in 1..=5 {
            let verdicts =
                world.broker().commit_offsets(commit(&topic, Some(&joined), offset)).await.unwrap();
            assert_eq!(verdicts, [Ok(())]);
        }
        world.lose_power().await;
        world.start().await;
        let broker = world.broker();
        let group = broker.describe_group("g").unwrap();
        assert_eq!((group.state, group.generation, group.members.len()), (GroupState::Stable, 1, 1));
        broker.heartbeat(beat(&joined)).await.unwrap();
        let offsets = broker.fetch_offsets("g", Some(&[(topic.id(), 0), (topic.id(), 9)])).await.unwrap();
        assert_eq!(offsets.len(), 1, "what was never committed is left out");
        let position = &offsets[0];
        assert_eq!((position.offset, position.leader_epoch, position.metadata.as_str()), (5, 3, "at 5"));
        // Its session began anew with the restart, and ends.
        tokio::time::sleep(Duration::from_secs(11)).await;
        assert_eq!(broker.describe_group("g").unwrap().state, GroupState::Empty);
        let again = join_alone(broker, "g", "").await;
        assert!(again.generation > joined.generation, "the generation never falls");
        world.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn commits_are_checked_one_by_one() {
    let mut world = World::started(2).await;
    let topic = world.create("t", 1).await;
    let broker = world.broker();
    let mut request = commit(&topic, None, 7);
    request.offsets.push(OffsetCommit { partition: 1, ..request.offsets[0].clone() });
    request.offsets.push(OffsetCommit { metadata: "m".repeat(5_000), ..request.offsets[0].clone() });
    let verdicts = broker.commit_offsets(request).await.unwrap();
    let too_large = OffsetError::MetadataTooLarge { bytes: 5_000, max: 4_096 };
    assert_eq!(verdicts, [Ok(()), Err(OffsetError::UnknownPartition), Err(too_large)]);
    assert_eq!(broker.fetch_offsets("g", None).await.unwrap().len(), 1);
    let listed = broker.list_groups();
    assert_eq!((listed.len(), listed[0].state, listed[0].protocol_type.as_str()), (1, GroupState::Empty, ""));

    let joined = join_alone(broker, "g", "").await;
    let outsider = broker.commit_offsets(commit(&topic, None, 8)).await.unwrap_err();
    assert_eq!(outsider, GroupError::UnknownMember);
    let mut stale = commit(&topic, Some(&joined), 8);
    stale.generation = 0;
    assert_eq!(broker.commit_offsets(stale).await.unwrap_err(), GroupError::IllegalGeneration);
    broker.commit_offsets(commit(&topic, Some(&joined), 8)).await.unwrap();
    assert_eq!(broker.fetch_offsets("g", None).await.unwrap()[0].offset, 8);
    let nobody = broker.fetch_offsets("unknown", None).await.unwrap();
    assert!(nobody.is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_that_never_came_to_be_is_not_listed() {
    let mut world = World::started(6).await;
    let broker = world.broker();
    let short = JoinRequest { session_timeout_ms: 1, ..join_request("g", "") };
    assert!(matches!(broker.join_group(short).await, Err(GroupError::InvalidSessionTimeout { .. })));
    let first = JoinRequest { require_known_member_id: true, ..join_request("h", "") };
    assert!(matches!(broker.join_group(first).await, Err(GroupError::MemberIdRequired { .. })));
    assert!(broker.list_groups().is_empty());
    assert_eq!(broker.describe_group("g").unwrap().state, GroupState::Dead);
    assert_eq!(broker.heartbeat(HeartbeatRequest::default()).await, Err(GroupError::UnknownMember));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn only_what_nobody_uses_is_deleted() {
    let mut world = World::started(3).await;
    let (read, other) = (world.create("t", 1).await, world.create("other", 1).await);
    let broker = world.broker();
    let joined = join_alone(broker, "g", "").await;
    for topic in [&read, &other] {
        broker.commit_offsets(commit(topic, Some(&joined), 1)).await.unwrap();
    }
    assert_eq!(broker.delete_group("g").await, Err(GroupError::NotEmpty));
    let verdicts = broker.delete_offsets("g", &[(read.id(), 0), (other.id(), 0)]).await.unwrap();
    assert_eq!(verdicts, [Err(OffsetError::Subscribed), Ok(())]);
    assert_eq!(broker.fetch_offsets("g", None).await.unwrap().len(), 1);

    let leaving = LeavingMember { member_id: joined.member_id, instance_id: None };
    let left = broker.leave_group(LeaveRequest { group: "g".into(), members: vec![leaving] }).await.unwrap();
    assert_eq!(left, [Ok(())]);
    broker.delete_group("g").await.unwrap();
    assert!(broker.fetch_offsets("g", None).await.unwrap().is_empty());
    assert!(broker.list_groups().is_empty());
    assert_eq!(broker.describe_group("g").unwrap().state, GroupState::Dead);
    assert_eq!(broker.delete_group("g").await, Err(GroupError::UnknownGroup));
    assert_eq!(join_alone(broker, "g", "").await.generation, 1, "it is another group");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn positions_expire_some_time_after_the_last_member_left() {
    let mut world = World::new(4);
    world.options.offsets_retention_ms = 60_000;
    world.options.offsets_retention_check_interval_ms = 1_000;
    world.start().await;
    let topic = world.create("t", 1).await;
    let broker = world.broker().clone();
    let joined = join_alone(&broker, "g", "").await;
    broker.commit_offsets(commit(&topic, Some(&joined), 1)).await.unwrap();
    for _ in 0..36 {
        tokio::time::sleep(Duration::from_secs(5)).await;
        broker.heartbeat(beat(&joined)).await.unwrap();
    }
    assert_eq!(broker.fetch_offsets("g", None).await.unwrap().len(), 1, "a group with members keeps them");
    tokio::time::sleep(Duration::from_secs(50)).await;
    assert_eq!(broker.fetch_offsets("g", None).await.unwrap().len(), 1, "not yet");
    tokio::time::sleep(Duration::from_secs(25)).await;
    assert!(broker.fetch_offsets("g", None).await.unwrap().is_empty());
    assert!(broker.list_groups().is_empty());
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_is_answered_when_the_broker_stops() {
    let mut world = World::started(5).await;
    let broker = world.broker().clone();
    join_alone(&broker, "g", "").await;
    let waiting = tokio::spawn(async move { broker.join_group(join_request("g", "")).await });
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.stop().await;
    let answer = waiting.await.unwrap().unwrap_err();
    assert_eq!(answer, GroupError::Unavailable(Unavailable::ShuttingDown));
}
