//! Creating, altering and deleting topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::{Offset, TopicId};

use crate::broker::Broker;
use crate::errors::{AdminError, Unavailable};
use crate::options::SettingKind;
use crate::read::PartitionRef;
use crate::topics::Topic;

/// A topic to be created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; `num.partitions` if it does not say.
    pub partitions: Option<u32>,
    /// How many replicas; the cluster's if it does not say. Another number than that is refused.
    pub replication: Option<u16>,
    /// Overrides of the broker's defaults, by topic setting name.
    pub config: BTreeMap<String, String>,
}

/// Where the value of a setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigSource {
    /// The topic's own override.
    Topic,
    /// The broker's configuration.
    Broker,
    /// The built-in default.
    Default,
}

/// One setting with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigEntry {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Where the value comes from.
    pub source: ConfigSource,
    /// What the value is.
    pub kind: SettingKind,
    /// What it does.
    pub doc: &'static str,
    /// Whether it can be altered while the broker runs.
    pub read_only: bool,
    /// All values in the order in which they count, the effective one first: name, value, source.
    pub synonyms: Vec<(&'static str, String, ConfigSource)>,
}

impl Broker {
    /// Creates a topic and returns when all its partitions can be written to. With `validate_only`
    /// everything is checked and the topic that would come into being is returned; its id is none.
    pub async fn create_topic(
        &self,
        create: CreateTopic,
        validate_only: bool,
    ) -> Result<Arc<Topic>, AdminError> {
        let _ = (create, validate_only);
        Err(Unavailable::Starting.into())
    }

    /// The topic of this name, created with the defaults if there is none and
    /// `auto.create.topics.enable` says so. Many at once for one name create it once.
    pub async fn topic_or_create(&self, name: &str) -> Result<Arc<Topic>, AdminError> {
        Err(AdminError::UnknownTopic(name.to_owned()))
    }

    /// Deletes a topic with its records and all groups' positions in it.
    pub async fn delete_topic(&self, topic_id: TopicId) -> Result<(), AdminError> {
        Err(AdminError::UnknownTopic(topic_id.to_string()))
    }

    /// Replaces a topic's overrides by these.
    pub async fn alter_topic(
        &self,
        topic_id: TopicId,
        config: BTreeMap<String, String>,
        validate_only: bool,
    ) -> Result<Arc<Topic>, AdminError> {
        let _ = (config, validate_only);
        Err(AdminError::UnknownTopic(topic_id.to_string()))
    }

    /// Raises the number of a topic's partitions to `total`.
    pub async fn add_partitions(
        &self,
        topic_id: TopicId,
        total: u32,
        validate_only: bool,
    ) -> Result<Arc<Topic>, AdminError> {
        let _ = (total, validate_only);
        Err(AdminError::UnknownTopic(topic_id.to_string()))
    }

    /// Removes all records below `before`, or all there are; the new log start is returned.
    pub async fn delete_records(
        &self,
        partition: &PartitionRef,
        before: Option<Offset>,
    ) -> Result<Offset, AdminError> {
        let _ = (partition, before);
        Err(Unavailable::Starting.into())
    }

    /// Every setting of a topic.
    pub fn describe_topic(&self, topic: &Topic) -> Vec<ConfigEntry> {
        let _ = topic;
        Vec::new()
    }

    /// Every setting of this broker, the defaults of topic settings among them.
    pub fn describe_broker(&self) -> Vec<ConfigEntry> {
        Vec::new()
    }
}
