//! DescribeConfigs, AlterConfigs, IncrementalAlterConfigs.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_broker::{Action, ConfigEntry, ConfigSource, SettingKind, Topic};
use weir_kafka_wire::messages::describe_configs::{
    DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult, DescribeConfigsSynonym,
};
use weir_kafka_wire::messages::incremental_alter_configs::{AlterableConfig, operation};
use weir_kafka_wire::messages::{alter_configs, incremental_alter_configs};
use weir_kafka_wire::{
    AlterConfigsRequest, AlterConfigsResponse, DescribeConfigsRequest, DescribeConfigsResponse, ErrorCode,
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse, KafkaStr,
};

use super::cluster::kafka_id;
use crate::errors::Failure;
use crate::session::Call;

/// `resource_type` of a topic.
const TOPIC: i8 = 2;
/// `resource_type` of a broker.
const BROKER: i8 = 4;

/// Kafka's number for where a value comes from.
pub(super) fn source_code(source: ConfigSource) -> i8 {
    match source {
        ConfigSource::Topic => 1,
        ConfigSource::Broker => 4,
        ConfigSource::Default => 5,
    }
}

/// Kafka's number for what a value is.
fn kind_code(kind: SettingKind) -> i8 {
    match kind {
        SettingKind::Bool => 1,
        SettingKind::Text => 2,
        SettingKind::Int => 3,
        SettingKind::Long => 5,
    }
}

pub(crate) async fn describe(call: Call, request: DescribeConfigsRequest) -> DescribeConfigsResponse {
    let mut results = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let entries = entries(&call, &resource);
        let (resource_type, resource_name) = (resource.resource_type, resource.resource_name.clone());
        results.push(match entries {
            Ok(entries) => {
                let asked = |entry: &ConfigEntry| match &resource.configuration_keys {
                    Some(keys) => keys.iter().any(|key| *key == entry.name),
                    None => true,
                };
                let configs = entries.into_iter().filter(asked);
                let configs = configs.map(|entry| {
                    describe_entry(entry, request.include_synonyms, request.include_documentation)
                });
                DescribeConfigsResult {
                    resource_type,
                    resource_name,
                    configs: configs.collect(),
                    ..Default::default()
                }
            }
            Err(failure) => {
                call.count_error();
                DescribeConfigsResult {
                    error_code: failure.code,
                    error_message: failure.message,
                    resource_type,
                    resource_name,
                    configs: Vec::new(),
                }
            }
        });
    }
    DescribeConfigsResponse { results, ..Default::default() }
}

fn entries(call: &Call, resource: &DescribeConfigsResource) -> Result<Vec<ConfigEntry>, Failure> {
    let broker = &call.front.broker;
    match resource.resource_type {
        TOPIC => {
            if !call.may_know(&resource.resource_name) {
                call.check_topic(Action::Read, &resource.resource_name)?;
            }
            Ok(broker.describe_topic(&*find_topic(call, &resource.resource_name)?))
        }
        BROKER if resource.resource_name.is_empty() => Ok(Vec::new()),
        BROKER => {
            call.check_cluster()?;
            let own = kafka_id(broker.cluster().node_id);
            match resource.resource_name.parse::<i32>() {
                Ok(id) if id == own => Ok(broker.describe_broker()),
                _ => {
                    let why = format!(
                        "this is node {own} and cannot tell the settings of node '{}'; ask that one",
                        resource.resource_name
                    );
                    Err(Failure::new(ErrorCode::INVALID_REQUEST, why))
                }
            }
        }
        other => Err(unsupported_resource(other)),
    }
}

fn unsupported_resource(resource_type: i8) -> Failure {
    let why = format!(
        "resources of type {resource_type} have no settings here; topics ({TOPIC}) and brokers ({BROKER}) do"
    );
    Failure::new(ErrorCode::INVALID_REQUEST, why)
}

fn find_topic(call: &Call, name: &KafkaStr) -> Result<Arc<Topic>, Failure> {
    if let Err(error) = weir_model::names::check_topic_name(name) {
        return Err(Failure::new(ErrorCode::INVALID_TOPIC_EXCEPTION, error.to_string()));
    }
    call.front.broker.topic(name).ok_or_else(|| {
        Failure::new(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION, format!("there is no topic '{name}'"))
    })
}

fn describe_entry(
    entry: ConfigEntry,
    with_synonyms: bool,
    with_documentation: bool,
) -> DescribeConfigsResourceResult {
    let synonyms = entry.synonyms.into_iter().filter(|_| with_synonyms);
    let synonyms = synonyms.map(|(name, value, source)| DescribeConfigsSynonym {
        name: KafkaStr::from_static(name),
        value: Some(KafkaStr::from(value)),
        source: source_code(source),
    });
    DescribeConfigsResourceResult {
        name: KafkaStr::from_static(entry.name),
        value: Some(KafkaStr::from(entry.value)),
        read_only: entry.read_only,
        config_source: source_code(entry.source),
        is_sensitive: false,
        synonyms: synonyms.collect(),
        config_type: kind_code(entry.kind),
        documentation: with_documentation.then(|| KafkaStr::from_static(entry.doc)),
    }
}

/// Gives a topic these overrides and no others.
async fn replace(
    call: &Call,
    topic: &Topic,
    config: BTreeMap<String, String>,
    validate_only: bool,
) -> Result<(), Failure> {
    let altered = call.front.broker.alter_topic(topic.id(), config, validate_only).await;
    altered.map(|_| ()).map_err(|error| Failure::from(&error))
}

/// The topic that a resource names; nothing else can be altered while the broker runs.
fn alterable(call: &Call, resource_type: i8, name: &KafkaStr) -> Result<Arc<Topic>, Failure> {
    match resource_type {
        TOPIC => {
            call.check_topic(Action::Configure, name)?;
            find_topic(call, name)
        }
        BROKER => {
            call.check_cluster()?;
            let why = "a broker's settings are read when it starts; change its configuration and restart it";
            Err(Failure::new(ErrorCode::INVALID_REQUEST, why))
        }
        other => Err(unsupported_resource(other)),
    }
}

pub(crate) async fn alter(call: Call, request: AlterConfigsRequest) -> AlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let altered = async {
            let topic = alterable(&call, resource.resource_type, &resource.resource_name)?;
            // A setting without a value goes back to its default.
            let config = resource.configs.iter().filter_map(|setting| {
                setting.value.as_ref().map(|value| (setting.name.to_string(), value.to_string()))
            });
            replace(&call, &topic, config.collect(), request.validate_only).await
        };
        let failure = altered.await.err().inspect(|_| call.count_error());
        responses.push(alter_configs::AlterConfigsResourceResponse {
            error_code: failure.as_ref().map_or(ErrorCode::NONE, |failure| failure.code),
            error_message: failure.and_then(|failure| failure.message),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
        });
    }
    AlterConfigsResponse { responses, ..Default::default() }
}

pub(crate) async fn alter_incrementally(
    call: Call,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let mut responses = Vec::with_capacity(request.resources.len());
    for resource in request.resources {
        let altered = async {
            let topic = alterable(&call, resource.resource_type, &resource.resource_name)?;
            let mut config = topic.meta.config.clone();
            for change in &resource.configs {
                apply(&topic, &mut config, change)?;
            }
            replace(&call, &topic, config, request.validate_only).await
        };
        let failure = altered.await.err().inspect(|_| call.count_error());
        responses.push(incremental_alter_configs::AlterConfigsResourceResponse {
            error_code: failure.as_ref().map_or(ErrorCode::NONE, |failure| failure.code),
            error_message: failure.and_then(|failure| failure.message),
            resource_type: resource.resource_type,
            resource_name: resource.resource_name,
        });
    }
    IncrementalAlterConfigsResponse { responses, ..Default::default() }
}

/// Applies one change to a topic's overrides.
fn apply(
    topic: &Topic,
    config: &mut BTreeMap<String, String>,
    change: &AlterableConfig,
) -> Result<(), Failure> {
    let name = change.name.to_string();
    if change.config_operation == operation::DELETE {
        if topic.settings.get(&name).is_none() {
            let why = format!("{name}: there is no such topic setting");
            return Err(Failure::new(ErrorCode::INVALID_CONFIG, why));
        }
        config.remove(&name);
        return Ok(());
    }
    let Some(value) = &change.value else {
        let why = format!("{name} has no value; to return to the default, delete the setting");
        return Err(Failure::new(ErrorCode::INVALID_CONFIG, why));
    };
    match change.config_operation {
        operation::SET => {
            config.insert(name, value.to_string());
        }
        operation::APPEND | operation::SUBTRACT if name == "cleanup.policy" => {
            let now = config.get(&name).cloned().or_else(|| topic.settings.get(&name)).unwrap_or_default();
            let mut list: Vec<&str> = now.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
            let named: Vec<&str> = value.split(',').map(str::trim).collect();
            list.retain(|one| !named.contains(one));
            if change.config_operation == operation::APPEND {
                list.extend(named);
            }
            config.insert(name, list.join(","));
        }
        operation::APPEND | operation::SUBTRACT => {
            let why = format!("{name} is no list; set it instead");
            return Err(Failure::new(ErrorCode::INVALID_CONFIG, why));
        }
        other => {
            let why = format!("operation {other} on {name} is not known");
            return Err(Failure::new(ErrorCode::INVALID_REQUEST, why));
        }
    }
    Ok(())
}
