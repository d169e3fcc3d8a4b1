//! Topics and settings.

use weir_kafka_wire::messages::alter_configs;
use weir_kafka_wire::messages::create_partitions::{CreatePartitionsAssignment, CreatePartitionsTopic};
use weir_kafka_wire::messages::create_topics::CreatableReplicaAssignment;
use weir_kafka_wire::messages::delete_topics::DeleteTopicState;
use weir_kafka_wire::messages::describe_configs::{DescribeConfigsResource, DescribeConfigsResult};
use weir_kafka_wire::messages::describe_log_dirs::DescribableLogDirTopic;
use weir_kafka_wire::messages::incremental_alter_configs::{self, operation};
use weir_kafka_wire::messages::metadata::{MetadataRequestTopic, MetadataResponseTopic};
use weir_kafka_wire::{
    AlterConfigsRequest, CreatePartitionsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
    DescribeLogDirsRequest, ErrorCode, IncrementalAlterConfigsRequest, MetadataRequest, Uuid,
};

use crate::common::{Client, Setup, batch, create_topic, serve, serve_with, texts};

fn ask(names: &[&str], allow_auto_topic_creation: bool) -> MetadataRequest {
    let topics =
        names.iter().map(|name| MetadataRequestTopic { name: Some((*name).into()), ..Default::default() });
    MetadataRequest { topics: Some(topics.collect()), allow_auto_topic_creation, ..Default::default() }
}

async fn topic(client: &mut Client, name: &str) -> MetadataResponseTopic {
    client.call(12, &ask(&[name], false)).await.topics.remove(0)
}

#[tokio::test]
async fn metadata_tells_of_the_cluster_in_every_version() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("b", 3, &[]).await;
    client.create_topic("a", 1, &[]).await;
    for version in 0..=13 {
        let response = client.call(version, &ask(&["b"], false)).await;
        let broker = &response.brokers[0];
        assert_eq!((broker.host.as_str(), broker.port), ("127.0.0.1", i32::from(served.addr.port())));
        if version >= 1 {
            assert_eq!(response.controller_id, broker.node_id);
        }
        if version >= 2 {
            assert_eq!(response.cluster_id.as_deref(), Some("test-cluster"));
        }
        let topic = &response.topics[0];
        assert_eq!((topic.error_code, topic.partitions.len()), (ErrorCode::NONE, 3));
        for partition in &topic.partitions {
            assert_eq!(partition.leader_id, broker.node_id);
            assert_eq!(partition.replica_nodes, [broker.node_id]);
            assert_eq!(partition.isr_nodes, [broker.node_id]);
            if version >= 7 {
                assert!(partition.leader_epoch >= 0);
            }
        }
        let all = MetadataRequest { topics: None, ..Default::default() };
        let names = |topics: &[MetadataResponseTopic]| -> Vec<String> {
            topics.iter().map(|topic| topic.name.as_deref().unwrap_or_default().to_owned()).collect()
        };
        if version >= 1 {
            assert_eq!(names(&client.call(version, &all).await.topics), ["a", "b"]);
        }
        let empty = MetadataRequest { topics: Some(Vec::new()), ..Default::default() };
        let told = names(&client.call(version, &empty).await.topics);
        assert_eq!(told.len(), if version == 0 { 2 } else { 0 }, "an empty list in version {version}");
    }
}

#[tokio::test]
async fn topics_are_found_by_id() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[]).await;
    let topic_id = topic(&mut client, "t").await.topic_id;
    assert!(!topic_id.is_zero());
    let by_id = |topic_id| MetadataRequest {
        topics: Some(vec![MetadataRequestTopic { topic_id, name: None }]),
        ..Default::default()
    };
    assert_eq!(client.call(12, &by_id(topic_id)).await.topics[0].name.as_deref(), Some("t"));
    let unknown = client.call(12, &by_id(Uuid::from(5))).await;
    assert_eq!(unknown.topics[0].error_code, ErrorCode::UNKNOWN_TOPIC_ID);
}

/// Asking for a topic makes it where both sides allow it, and it can be written to at once.
#[tokio::test]
async fn trap_metadata_creates_topics_where_both_sides_allow_it() {
    let mut setup = Setup::default();
    setup.broker.num_partitions = 4;
    let served = serve_with(setup).await;
    let mut client = served.connect().await;
    let refused = client.call(12, &ask(&["new"], false)).await;
    assert_eq!(refused.topics[0].error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let made = client.call(12, &ask(&["new", "new", "newer"], true)).await;
    assert_eq!(made.topics.len(), 2, "a name that is asked for twice is answered once");
    assert!(made.topics.iter().all(|topic| topic.error_code.is_none() && topic.partitions.len() == 4));
    assert_eq!(client.append("new", 3, batch(&["at once"])).await, 0);
    // Clients older than the question whether they want it.
    let old = client.call(3, &ask(&["old"], true)).await;
    assert_eq!(old.topics[0].error_code, ErrorCode::NONE);

    let mut setup = Setup::default();
    setup.broker.auto_create_topics = false;
    let served = serve_with(setup).await;
    let mut client = served.connect().await;
    let refused = client.call(12, &ask(&["new"], true)).await;
    assert_eq!(refused.topics[0].error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
}

/// A name that no topic can have is told apart from a topic that is not there yet, which clients wait for.
#[tokio::test]
async fn trap_invalid_names_are_invalid_and_not_unknown() {
    let served = serve().await;
    let mut client = served.connect().await;
    let long = "x".repeat(250);
    for name in ["", ".", "..", "a b", "a/b", "\u{e4}", &long] {
        let response = client.call(12, &ask(&[name], true)).await;
        assert_eq!(response.topics[0].error_code, ErrorCode::INVALID_TOPIC_EXCEPTION, "'{name}'");
        assert_eq!(response.topics[0].name.as_deref(), Some(name));
        let response = client.call(7, &create_topic(name, 1, &[])).await;
        assert_eq!(response.topics[0].error_code, ErrorCode::INVALID_TOPIC_EXCEPTION, "'{name}'");
    }
}

#[tokio::test]
async fn topics_are_created_in_every_version() {
    let served = serve().await;
    let mut client = served.connect().await;
    for version in 2..=7 {
        let name = format!("t{version}");
        let request = create_topic(&name, 3, &[("retention.ms", "1000")]);
        let created = client.call(version, &request).await.topics.remove(0);
        assert_eq!(created.error_code, ErrorCode::NONE, "{:?}", created.error_message);
        if version >= 5 {
            assert_eq!((created.num_partitions, created.replication_factor), (3, 1));
            let configs = created.configs.unwrap();
            let retention = configs.iter().find(|one| one.name == "retention.ms").unwrap();
            assert_eq!((retention.value.as_deref(), retention.config_source), (Some("1000"), 1));
            let segment = configs.iter().find(|one| one.name == "segment.bytes").unwrap();
            assert_eq!(segment.config_source, 5);
        }
        assert_eq!(topic(&mut client, &name).await.partitions.len(), 3);
        if version >= 7 {
            assert_eq!(created.topic_id, topic(&mut client, &name).await.topic_id);
        }
        let again = client.call(version, &request).await.topics.remove(0);
        assert_eq!(again.error_code, ErrorCode::TOPIC_ALREADY_EXISTS);
    }
}

#[tokio::test]
async fn what_cannot_be_created_is_refused_by_its_cause() {
    let served = serve().await;
    let mut client = served.connect().await;
    let replicas = |count| {
        let mut request = create_topic("t", 1, &[]);
        request.topics[0].replication_factor = count;
        request
    };
    let assigned = |assignments: &[(i32, &[i32])]| {
        let mut request = create_topic("t", -1, &[]);
        request.topics[0].assignments = assignments
            .iter()
            .map(|(index, nodes)| CreatableReplicaAssignment {
                partition_index: *index,
                broker_ids: nodes.to_vec(),
            })
            .collect();
        request
    };
    let mut twice = create_topic("t", 1, &[]);
    twice.topics.push(twice.topics[0].clone());
    let mut both = assigned(&[(0, &[1])]);
    both.topics[0].num_partitions = 1;
    let assignment = ErrorCode::INVALID_REPLICA_ASSIGNMENT;
    let cases = [
        (create_topic("t", 0, &[]), ErrorCode::INVALID_PARTITIONS),
        (create_topic("t", i32::MAX, &[]), ErrorCode::INVALID_PARTITIONS),
        (replicas(0), ErrorCode::INVALID_REPLICATION_FACTOR),
        (replicas(3), ErrorCode::INVALID_REPLICATION_FACTOR),
        (create_topic("t", 1, &[("no.such.setting", "1")]), ErrorCode::INVALID_CONFIG),
        (create_topic("t", 1, &[("retention.ms", "soon")]), ErrorCode::INVALID_CONFIG),
        (create_topic("t", 1, &[("cleanup.policy", "compact")]), ErrorCode::INVALID_CONFIG),
        (twice, ErrorCode::INVALID_REQUEST),
        (both, ErrorCode::INVALID_REQUEST),
        (assigned(&[(1, &[1])]), assignment),
        (assigned(&[(0, &[9])]), assignment),
        (assigned(&[(0, &[1, 1])]), assignment),
        (assigned(&[(0, &[])]), assignment),
    ];
    for (request, expected) in cases {
        let refused = client.call(7, &request).await.topics.remove(0);
        assert_eq!(refused.error_code, expected, "{:?}", refused.error_message);
        assert!(refused.error_message.is_some_and(|words| !words.is_empty()));
    }
    let mut only_checked = create_topic("t", 5, &[]);
    only_checked.validate_only = true;
    let checked = client.call(7, &only_checked).await.topics.remove(0);
    assert_eq!((checked.error_code, checked.num_partitions), (ErrorCode::NONE, 5));
    assert_eq!(topic(&mut client, "t").await.error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    let by_hand = client.call(7, &assigned(&[(1, &[1]), (0, &[1])])).await.topics.remove(0);
    assert_eq!((by_hand.error_code, by_hand.num_partitions), (ErrorCode::NONE, 2));
}

#[tokio::test]
async fn topics_are_deleted_by_name_and_by_id() {
    let served = serve().await;
    let mut client = served.connect().await;
    for version in 1..=6 {
        client.create_topic("t", 1, &[]).await;
        client.append("t", 0, batch(&["old"])).await;
        let before = topic(&mut client, "t").await.topic_id;
        let by_id = version == 6;
        let request = DeleteTopicsRequest {
            topic_names: vec!["t".into()],
            topics: vec![DeleteTopicState {
                name: (!by_id).then(|| "t".into()),
                topic_id: if by_id { before } else { Uuid::ZERO },
            }],
            ..Default::default()
        };
        let deleted = client.call(version, &request).await.responses.remove(0);
        assert_eq!((deleted.error_code, deleted.name.as_deref()), (ErrorCode::NONE, Some("t")));
        let gone = client.call(version, &request).await.responses.remove(0);
        let expected =
            if by_id { ErrorCode::UNKNOWN_TOPIC_ID } else { ErrorCode::UNKNOWN_TOPIC_OR_PARTITION };
        assert_eq!(gone.error_code, expected);
        assert_eq!(topic(&mut client, "t").await.error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    }
    client.create_topic("t", 1, &[]).await;
    assert!(
        texts(&client.fetch("t", 0, 0).await).is_empty(),
        "a topic made again has nothing of the old one"
    );
}

fn describe(resource_type: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsRequest {
    DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type,
            resource_name: name.into(),
            configuration_keys: keys.map(|keys| keys.iter().map(|key| (*key).into()).collect()),
        }],
        include_synonyms: true,
        include_documentation: true,
    }
}

async fn described(client: &mut Client, request: &DescribeConfigsRequest) -> DescribeConfigsResult {
    client.call(4, request).await.results.remove(0)
}

/// Tools diff what they find against what they want, so that a setting that is left out looks unset.
#[tokio::test]
async fn trap_describe_configs_lists_every_setting_with_its_default_and_synonyms() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[("retention.ms", "1000")]).await;
    let topic = described(&mut client, &describe(2, "t", None)).await;
    for setting in weir_model::settings::TOPIC_SETTINGS {
        let entry = topic.configs.iter().find(|entry| entry.name == setting.name);
        let entry = entry.unwrap_or_else(|| panic!("{} is missing", setting.name));
        assert!(entry.value.is_some() && entry.documentation.is_some() && entry.config_type > 0);
        assert!(!entry.synonyms.is_empty(), "{}", setting.name);
        let overridden = setting.name == "retention.ms";
        assert_eq!(entry.config_source, if overridden { 1 } else { 5 }, "{}", setting.name);
    }
    let retention = described(&mut client, &describe(2, "t", Some(&["retention.ms"]))).await.configs;
    assert_eq!(retention.len(), 1);
    assert_eq!(retention[0].value.as_deref(), Some("1000"));
    let sources: Vec<i8> = retention[0].synonyms.iter().map(|synonym| synonym.source).collect();
    assert_eq!((sources.first(), sources.last()), (Some(&1), Some(&5)), "nearest first, down to the default");

    let broker = described(&mut client, &describe(4, "1", None)).await;
    assert_eq!(broker.error_code, ErrorCode::NONE, "{:?}", broker.error_message);
    for name in ["auto.create.topics.enable", "num.partitions", "log.retention.ms", "message.max.bytes"] {
        assert!(broker.configs.iter().any(|entry| entry.name == name), "{name}");
    }
    let elsewhere = described(&mut client, &describe(4, "77", None)).await;
    assert_eq!(elsewhere.error_code, ErrorCode::INVALID_REQUEST);
    let unknown = described(&mut client, &describe(2, "nope", None)).await;
    assert_eq!(unknown.error_code, ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
    for version in 1..=4 {
        assert!(!client.call(version, &describe(2, "t", None)).await.results[0].configs.is_empty());
    }
}

#[tokio::test]
async fn settings_are_replaced_and_changed_one_by_one() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 1, &[("retention.ms", "1000"), ("segment.bytes", "100000")]).await;
    let change = |changes: &[(&str, i8, Option<&str>)]| IncrementalAlterConfigsRequest {
        resources: vec![incremental_alter_configs::AlterConfigsResource {
            resource_type: 2,
            resource_name: "t".into(),
            configs: changes
                .iter()
                .map(|(name, config_operation, value)| incremental_alter_configs::AlterableConfig {
                    name: (*name).into(),
                    config_operation: *config_operation,
                    value: value.map(Into::into),
                })
                .collect(),
        }],
        ..Default::default()
    };
    let (set, delete, append) = (operation::SET, operation::DELETE, operation::APPEND);
    let good = change(&[("max.message.bytes", set, Some("5000")), ("retention.ms", delete, None)]);
    assert_eq!(client.call(1, &good).await.responses[0].error_code, ErrorCode::NONE);
    let value = async |client: &mut Client, name: &str| {
        described(client, &describe(2, "t", Some(&[name]))).await.configs.remove(0)
    };
    assert_eq!(value(&mut client, "max.message.bytes").await.value.as_deref(), Some("5000"));
    assert_eq!(value(&mut client, "retention.ms").await.config_source, 5);
    assert_eq!(value(&mut client, "segment.bytes").await.value.as_deref(), Some("100000"), "left alone");
    let too_large = client.produce("t", 0, batch(&[&"x".repeat(6000)])).await;
    assert_eq!(too_large.error_code, ErrorCode::MESSAGE_TOO_LARGE, "it is acted on");

    for (bad, expected) in [
        (change(&[("retention.ms", set, Some("soon"))]), ErrorCode::INVALID_CONFIG),
        (change(&[("retention.ms", append, Some("1"))]), ErrorCode::INVALID_CONFIG),
        (change(&[("cleanup.policy", append, Some("compact"))]), ErrorCode::INVALID_CONFIG),
        (change(&[("retention.ms", 9, Some("1"))]), ErrorCode::INVALID_REQUEST),
        (change(&[("no.such", delete, None)]), ErrorCode::INVALID_CONFIG),
    ] {
        assert_eq!(client.call(1, &bad).await.responses[0].error_code, expected);
    }

    let replace = AlterConfigsRequest {
        resources: vec![alter_configs::AlterConfigsResource {
            resource_type: 2,
            resource_name: "t".into(),
            configs: vec![alter_configs::AlterableConfig {
                name: "retention.ms".into(),
                value: Some("2000".into()),
            }],
        }],
        validate_only: true,
    };
    assert_eq!(client.call(2, &replace).await.responses[0].error_code, ErrorCode::NONE);
    assert_eq!(value(&mut client, "retention.ms").await.config_source, 5, "only checked");
    let replace = AlterConfigsRequest { validate_only: false, ..replace };
    assert_eq!(client.call(2, &replace).await.responses[0].error_code, ErrorCode::NONE);
    assert_eq!(value(&mut client, "retention.ms").await.value.as_deref(), Some("2000"));
    assert_eq!(
        value(&mut client, "max.message.bytes").await.config_source,
        5,
        "everything else is a default"
    );
    let mut broker = replace.clone();
    broker.resources[0].resource_type = 4;
    assert_eq!(client.call(2, &broker).await.responses[0].error_code, ErrorCode::INVALID_REQUEST);
}

/// Clients look for each topic in the answer and fail on one that is missing.
#[tokio::test]
async fn trap_create_partitions_echoes_every_topic() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 2, &[]).await;
    let wanted = |name: &str, count| CreatePartitionsTopic { name: name.into(), count, assignments: None };
    let request = CreatePartitionsRequest {
        topics: vec![wanted("t", 5), wanted("nope", 5), wanted("u", 1), wanted("u", 2)],
        timeout_ms: 1000,
        validate_only: false,
    };
    for version in 0..=3 {
        let results = client.call(version, &request).await.results;
        let told: Vec<_> = results.iter().map(|one| (one.name.as_str(), one.error_code)).collect();
        let first = if version == 0 { ErrorCode::NONE } else { ErrorCode::INVALID_PARTITIONS };
        let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
        let twice = ErrorCode::INVALID_REQUEST;
        assert_eq!(told, [("t", first), ("nope", unknown), ("u", twice), ("u", twice)]);
    }
    assert_eq!(topic(&mut client, "t").await.partitions.len(), 5);
    assert_eq!(client.append("t", 4, batch(&["new"])).await, 0);
    let mut by_hand = wanted("t", 6);
    by_hand.assignments = Some(vec![CreatePartitionsAssignment { broker_ids: vec![9] }]);
    let request = CreatePartitionsRequest { topics: vec![by_hand], ..request };
    let refused = client.call(3, &request).await.results.remove(0);
    assert_eq!(refused.error_code, ErrorCode::INVALID_REPLICA_ASSIGNMENT);
}

/// While a topic is being made clients are told to ask again; an answer without the topic would make
/// them give up.
#[tokio::test]
async fn a_topic_that_is_still_being_made_has_no_leader_yet() {
    let mut setup = Setup::default();
    setup.front.topic_creation_wait = std::time::Duration::ZERO;
    let served = serve_with(setup).await;
    let mut client = served.connect().await;
    let first = client.call(12, &ask(&["new"], true)).await.topics.remove(0);
    assert_eq!(first.error_code, ErrorCode::LEADER_NOT_AVAILABLE);
    loop {
        let topic = topic(&mut client, "new").await;
        if topic.error_code.is_none() && topic.partitions.iter().all(|one| one.error_code.is_none()) {
            break;
        }
        tokio::task::yield_now().await;
    }
    assert_eq!(client.append("new", 0, batch(&["made"])).await, 0);
}

/// Consoles ask for sizes, and some do not work without (Redpanda).
#[tokio::test]
async fn trap_sizes_on_disk_are_told() {
    let served = serve().await;
    let mut client = served.connect().await;
    client.create_topic("t", 2, &[]).await;
    client.append("t", 1, batch(&["value"])).await;
    let asked = DescribableLogDirTopic { topic: "t".into(), partitions: vec![1, 9] };
    for topics in [None, Some(vec![asked])] {
        for version in 1..=4 {
            let response = client.call(version, &DescribeLogDirsRequest { topics: topics.clone() }).await;
            let topic = &response.results[0].topics[0];
            let found = topic.partitions.iter().find(|one| one.partition_index == 1).unwrap();
            assert_eq!(found.partition_size, batch(&["value"]).len() as i64);
            assert!(!topic.partitions.iter().any(|one| one.partition_index == 9));
        }
    }
}
