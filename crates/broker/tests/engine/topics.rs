//! The life of topics: created, altered, deleted, created again, and all of it half done when the
//! power went.

use std::collections::BTreeMap;

use crate::support::*;
use weir_broker::groups::CommitRequest;
use weir_broker::*;
use weir_model::command::OffsetCommit;

fn create(name: &str) -> CreateTopic {
    CreateTopic { name: name.into(), ..CreateTopic::default() }
}

#[tokio::test(start_paused = true)]
async fn a_creation_is_checked_before_anything_happens() {
    let mut world = World::started(1).await;
    let broker = world.broker();
    let refused = async |topic: CreateTopic| broker.create_topic(topic, false).await.unwrap_err();
    assert!(matches!(refused(create("no/slashes")).await, AdminError::InvalidName(_)));
    let none = CreateTopic { partitions: Some(0), ..create("t") };
    assert!(matches!(refused(none).await, AdminError::InvalidPartitions(_)));
    let many = CreateTopic { partitions: Some(10_001), ..create("t") };
    assert!(matches!(refused(many).await, AdminError::InvalidPartitions(_)));
    let three = CreateTopic { replication: Some(3), ..create("t") };
    assert!(matches!(refused(three).await, AdminError::InvalidReplication(_)));
    let compacted =
        CreateTopic { config: BTreeMap::from([("cleanup.policy".into(), "compact".into())]), ..create("t") };
    assert!(matches!(refused(compacted).await, AdminError::InvalidConfig(_)));
    assert!(broker.topics().is_empty());

    let one = CreateTopic { replication: Some(1), partitions: Some(5), ..create("t") };
    let would_be = broker.create_topic(one.clone(), true).await.unwrap();
    assert_eq!((would_be.name(), would_be.partition_count()), ("t", 5));
    assert!(broker.topics().is_empty(), "validation creates nothing");
    broker.create_topic(one, false).await.unwrap();
    assert_eq!(refused(create("t")).await, AdminError::TopicExists("t".into()));
    assert_eq!(broker.colliding_topic("t.a"), None);
    broker.create_topic(create("a.b"), false).await.unwrap();
    assert_eq!(broker.colliding_topic("a_b").as_deref(), Some("a.b"));
    broker.create_topic(create("a_b"), false).await.unwrap();
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn partitions_are_spread_evenly_over_the_shards() {
    let mut world = World::started(2).await;
    for name in ["a", "b", "c", "d"] {
        world.create(name, 7).await;
    }
    let mut loads = BTreeMap::new();
    for topic in world.broker().topics() {
        for partition in &topic.meta.partitions {
            *loads.entry(partition.shard).or_insert(0) += 1;
        }
    }
    assert_eq!(loads.len(), 3);
    assert!(loads.values().all(|load| (9..=10).contains(load)), "{loads:?}");
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn using_an_unknown_topic_creates_it_once_however_many_do() {
    let mut world = World::new(3);
    world.options.num_partitions = 3;
    world.start().await;
    let asking: Vec<_> = (0..50)
        .map(|_| {
            let broker = world.broker().clone();
            tokio::spawn(async move { broker.topic_or_create("fresh").await.map(|topic| topic.id()) })
        })
        .collect();
    let mut ids = Vec::new();
    for task in asking {
        ids.push(task.await.unwrap().unwrap());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
    assert_eq!(world.broker().topic("fresh").unwrap().partition_count(), 3);
    world.stop().await;
    world.options.auto_create_topics = false;
    world.start().await;
    let refused = world.broker().topic_or_create("other").await.unwrap_err();
    assert_eq!(refused, AdminError::UnknownTopic("other".into()));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_topic_created_again_shares_nothing_with_the_one_before() {
    let mut world = World::started(4).await;
    let first = world.create("t", 2).await;
    world.publish_values("t", 0, &["old"]).await;
    let old_partition = world.partition("t", 0);
    let commit = |topic: &Topic| CommitRequest {
        group: "g".into(),
        generation: -1,
        offsets: vec![OffsetCommit {
            topic_id: topic.id(),
            partition: 0,
            offset: 1,
            leader_epoch: 0,
            metadata: "m".into(),
            committed_at: 0,
        }],
        ..CommitRequest::default()
    };
    world.broker().commit_offsets(commit(&first)).await.unwrap();
    world.broker().delete_topic(first.id()).await.unwrap();
    assert!(world.broker().topic("t").is_none());
    let gone = world.broker().delete_topic(first.id()).await.unwrap_err();
    assert!(matches!(gone, AdminError::UnknownTopic(_)));

    let second = world.create("t", 2).await;
    assert_ne!(first.id(), second.id());
    assert_eq!(world.values("t", 0).await, Vec::<String>::new());
    assert!(world.broker().fetch_offsets("g", None).await.unwrap().is_empty());
    let late = world.publish(&old_partition, values_batch(&["late"])).await.unwrap_err();
    assert_eq!(late, PublishError::UnknownPartition);
    let verdicts = world.broker().commit_offsets(commit(&first)).await.unwrap();
    assert_eq!(verdicts, [Err(OffsetError::UnknownPartition)]);

    world.publish_values("t", 0, &["new"]).await;
    world.restart().await;
    assert_eq!(world.values("t", 0).await, ["new"]);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn altered_settings_take_effect_and_survive() {
    let mut world = World::started(5).await;
    let topic = world.create("t", 2).await;
    let config = BTreeMap::from([("max.message.bytes".to_owned(), "100".to_owned())]);
    let altered = world.broker().alter_topic(topic.id(), config.clone(), true).await.unwrap();
    assert_eq!(altered.settings, topic.settings, "validation alters nothing");
    let altered = world.broker().alter_topic(topic.id(), config, false).await.unwrap();
    assert_eq!(altered.settings.max_message_bytes, 100);
    for restarted in [false, true] {
        if restarted {
            world.restart().await;
        }
        for index in 0..2 {
            let partition = world.partition("t", index);
            let refused = world.publish(&partition, values_batch(&["v".repeat(100).as_str()])).await;
            assert!(matches!(refused, Err(PublishError::TooLarge { max: 100, .. })));
        }
    }
    let entries = world.broker().describe_topic(&world.broker().topic("t").unwrap());
    let entry = entries.iter().find(|entry| entry.name == "max.message.bytes").unwrap();
    assert_eq!((entry.value.as_str(), entry.source), ("100", ConfigSource::Topic));
    assert_eq!(entry.synonyms.len(), 2);
    let wrong = BTreeMap::from([("retention.ms".to_owned(), "soon".to_owned())]);
    let refused = world.broker().alter_topic(topic.id(), wrong, false).await.unwrap_err();
    assert!(matches!(refused, AdminError::InvalidConfig(_)));
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn another_default_of_the_broker_reaches_topics_that_do_not_override_it() {
    let mut world = World::started(6).await;
    world.create("plain", 1).await;
    world.create_with("own", 1, &[("max.message.bytes", "5000")]).await;
    world.stop().await;
    world.options.set("message.max.bytes", "150").unwrap();
    world.start().await;
    assert_eq!(world.partition("plain", 0).settings().max_message_bytes, 150);
    assert_eq!(world.partition("own", 0).settings().max_message_bytes, 5000);
    world.stop().await;
}

#[tokio::test(start_paused = true)]
async fn partitions_are_added_and_old_ones_keep_their_records() {
    let mut world = World::started(7).await;
    let topic = world.create("t", 2).await;
    world.publish_values("t", 1, &["kept"]).await;
    let fewer = world.broker().add_partitions(topic.id(), 2, false).await.unwrap_err();
    assert!(matches!(fewer, AdminError::InvalidPartitions(_)));
    let more = world.broker().add_partitions(topic.id(), 5, false).await.unwrap();
    assert_eq!(more.partition_count(), 5);
    assert_eq!(more.meta.partitions[..2], topic.meta.partitions[..]);
    world.publish_values("t", 4, &["new"]).await;
    world.restart().await;
    assert_eq!(
        (world.values("t", 1).await, world.values("t", 4).await),
        (vec!["kept".into()], vec!["new".into()])
    );
    world.stop().await;
}

/// Creates, deletes and alters topics until the power goes at some write; after the restart every
/// topic of the catalog has exactly its partitions, open, with its settings.
#[tokio::test(start_paused = true)]
async fn whatever_was_half_done_is_whole_after_the_restart() {
    for stop_after in 0..60 {
        let mut world = World::started(100 + stop_after).await;
        let kept = world.create_with("kept", 3, &[("max.message.bytes", "777")]).await;
        world.publish_values("kept", 0, &["value"]).await;
        world.disk.crash_at(world.disk.operations() + stop_after);
        let broker = world.broker().clone();
        let doing = tokio::spawn(async move {
            for round in 0..20 {
                let topic = broker.create_topic(create(&format!("t{round}")), false).await?;
                broker.add_partitions(topic.id(), 4, false).await?;
                let config = BTreeMap::from([("segment.bytes".to_owned(), "9999".to_owned())]);
                broker.alter_topic(topic.id(), config, false).await?;
                if round % 2 == 0 {
                    broker.delete_topic(topic.id()).await?;
                }
            }
            Ok::<(), AdminError>(())
        });
        let ended = tokio::time::timeout(std::time::Duration::from_secs(5), doing).await;
        assert!(!matches!(ended, Ok(Ok(Ok(())))), "the power did not go");
        world.end().await;
        world.disk.restart();
        world.start().await;

        let broker = world.broker();
        let mut expected = Vec::new();
        for topic in broker.topics() {
            for (index, partition) in topic.meta.partitions.iter().enumerate() {
                let open = broker.partition(&topic, index as i32).expect("every partition is open");
                assert_eq!(open.settings(), &topic.settings);
                expected.push(partition.id);
            }
        }
        let mut open: Vec<_> = world
            .node()
            .data_shards()
            .into_iter()
            .flat_map(|shard| world.node().shard(shard).unwrap().view().partitions())
            .map(|partition| partition.id())
            .collect();
        expected.sort();
        open.sort();
        assert_eq!(open, expected, "no partition without a topic");
        assert_eq!(broker.topic("kept").unwrap().meta, kept.meta);
        assert_eq!(world.values("kept", 0).await, ["value"]);
        world.stop().await;
    }
}
