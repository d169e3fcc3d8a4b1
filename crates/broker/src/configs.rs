//! Listing settings with their values and where these come from.

use weir_model::settings::{PartitionSettings, TOPIC_SETTINGS};

use crate::broker::Broker;
use crate::options::{BROKER_SETTINGS, BrokerOptions, SettingKind};
use crate::topics::Topic;

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
    /// Every setting of a topic.
    pub fn describe_topic(&self, topic: &Topic) -> Vec<ConfigEntry> {
        let built_in = PartitionSettings::default();
        TOPIC_SETTINGS
            .iter()
            .map(|setting| {
                let of = |settings: &PartitionSettings| settings.get(setting.name).unwrap_or_default();
                let mut synonyms = Vec::with_capacity(3);
                if topic.meta.config.contains_key(setting.name) {
                    synonyms.push((setting.name, of(&topic.settings), ConfigSource::Topic));
                }
                synonyms.extend(self.default_synonyms(
                    setting.broker_name,
                    of(&self.options.defaults),
                    of(&built_in),
                ));
                entry(setting.name, setting.doc, kind(setting.name), false, synonyms)
            })
            .collect()
    }

    /// Every setting of this broker, the defaults of topic settings among them. They are read when
    /// the process starts.
    pub fn describe_broker(&self) -> Vec<ConfigEntry> {
        let built_in = BrokerOptions::new("", [0; 32]);
        let own = BROKER_SETTINGS.iter().map(|setting| {
            let of = |options: &BrokerOptions| options.get(setting.name).unwrap_or_default();
            let synonyms = self.default_synonyms(setting.name, of(&self.options), of(&built_in));
            entry(setting.name, setting.doc, setting.kind, true, synonyms)
        });
        let defaults = TOPIC_SETTINGS.iter().map(|setting| {
            let of = |settings: &PartitionSettings| settings.get(setting.name).unwrap_or_default();
            let synonyms = self.default_synonyms(
                setting.broker_name,
                of(&self.options.defaults),
                of(&built_in.defaults),
            );
            entry(setting.broker_name, setting.doc, kind(setting.name), true, synonyms)
        });
        own.chain(defaults).collect()
    }

    /// The broker's value, if it is not the built-in one, and that.
    fn default_synonyms(
        &self,
        name: &'static str,
        value: String,
        built_in: String,
    ) -> Vec<(&'static str, String, ConfigSource)> {
        let mut synonyms = Vec::with_capacity(2);
        if value != built_in {
            synonyms.push((name, value, ConfigSource::Broker));
        }
        synonyms.push((name, built_in, ConfigSource::Default));
        synonyms
    }
}

fn entry(
    name: &'static str,
    doc: &'static str,
    kind: SettingKind,
    read_only: bool,
    synonyms: Vec<(&'static str, String, ConfigSource)>,
) -> ConfigEntry {
    let (value, source) = match synonyms.first() {
        Some((_, value, source)) => (value.clone(), *source),
        None => (String::new(), ConfigSource::Default),
    };
    ConfigEntry { name, value, source, kind, doc, read_only, synonyms }
}

/// What the value of a topic setting is, as Kafka declares it.
fn kind(name: &str) -> SettingKind {
    match name {
        "segment.bytes" | "max.message.bytes" | "min.insync.replicas" => SettingKind::Int,
        "segment.ms" | "retention.ms" | "retention.bytes" => SettingKind::Long,
        _ => SettingKind::Text,
    }
}
