//! What an operator may set on a broker. Every setting here is acted on; [`BROKER_SETTINGS`] is the
//! list that `weir config show` and Kafka's DescribeConfigs print.

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::watch;
use weir_access::AccessOptions;
use weir_model::NodeId;
pub use weir_model::node::HostPort;
use weir_model::settings::PartitionSettings;
use weir_shard::limits::{MEMBERS_PER_GROUP_MAX, OFFSET_METADATA_BYTES_MAX, PARTITIONS_PER_TOPIC_MAX};

/// Most partitions that one topic may have.
pub const TOPIC_PARTITIONS_MAX: u32 = PARTITIONS_PER_TOPIC_MAX as u32;

/// Bounds and times of groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupOptions {
    /// Shortest session timeout a member may ask for (`group.min.session.timeout.ms`).
    pub session_timeout_ms_min: i32,
    /// Longest session timeout a member may ask for (`group.max.session.timeout.ms`).
    pub session_timeout_ms_max: i32,
    /// How long the first rebalance of an empty group waits for further members
    /// (`group.initial.rebalance.delay.ms`). Kafka's default is 3000; here it is 150, long enough for
    /// processes that start together to meet in one rebalance and too short for a person to notice.
    pub initial_rebalance_delay_ms: i32,
    /// Most members of one group (`group.max.size`).
    pub size_max: usize,
    /// Most groups for which this node keeps a coordinator in memory.
    pub groups_max: usize,
    /// Largest metadata of a committed offset, in bytes (`offset.metadata.max.bytes`).
    pub offset_metadata_bytes_max: usize,
    /// A member's protocol data, and its assignment, may have this many bytes each.
    pub member_data_bytes_max: usize,
    /// A member may support this many protocols.
    pub protocols_max: usize,
}

impl Default for GroupOptions {
    fn default() -> Self {
        GroupOptions {
            session_timeout_ms_min: 6_000,
            session_timeout_ms_max: 1_800_000,
            initial_rebalance_delay_ms: 150,
            size_max: MEMBERS_PER_GROUP_MAX,
            groups_max: 100_000,
            offset_metadata_bytes_max: 4_096,
            member_data_bytes_max: 1 << 20,
            protocols_max: 64,
        }
    }
}

/// What an operator may set on a broker.
#[derive(Clone, Debug)]
pub struct BrokerOptions {
    /// Identity of the cluster, told to clients.
    pub cluster_id: String,
    /// What clients are told to connect to, by protocol name. A protocol without an entry tells them
    /// the local address of their own connection.
    pub advertised: BTreeMap<String, HostPort>,
    /// Where this node stands, told to clients (`broker.rack`).
    pub zone: Option<String>,
    /// The other nodes that this one is connected with, where it is not the transport that knows.
    pub connected: Option<watch::Receiver<BTreeSet<NodeId>>>,
    /// Whether leaders are spread over the nodes by themselves.
    pub spread_leaders: bool,
    /// Settings of topics that do not override them.
    pub defaults: PartitionSettings,
    /// Whether using an unknown topic creates it (`auto.create.topics.enable`).
    pub auto_create_topics: bool,
    /// Partitions of a topic that does not say how many (`num.partitions`).
    pub num_partitions: u32,
    /// How often retention looks for what may go (`log.retention.check.interval.ms`).
    pub retention_check_interval_ms: u64,
    /// Positions of a group are dropped this long after it lost its last member
    /// (`offsets.retention.minutes`).
    pub offsets_retention_ms: i64,
    /// How often expired positions are looked for (`offsets.retention.check.interval.ms`).
    pub offsets_retention_check_interval_ms: u64,
    /// Bounds and times of groups.
    pub groups: GroupOptions,
    /// What this node holds against some users.
    pub access: AccessOptions,
    /// Seed of topic ids and member ids. Random in production, fixed in the simulator.
    pub seed: [u8; 32],
}

impl BrokerOptions {
    /// The defaults, for a cluster of this id, with ids drawn from this seed.
    pub fn new(cluster_id: impl Into<String>, seed: [u8; 32]) -> BrokerOptions {
        BrokerOptions {
            cluster_id: cluster_id.into(),
            advertised: BTreeMap::new(),
            zone: None,
            connected: None,
            spread_leaders: true,
            defaults: PartitionSettings::default(),
            auto_create_topics: true,
            num_partitions: 1,
            retention_check_interval_ms: 300_000,
            offsets_retention_ms: 7 * 24 * 3600 * 1000,
            offsets_retention_check_interval_ms: 600_000,
            groups: GroupOptions::default(),
            access: AccessOptions::default(),
            seed,
        }
    }
}

/// One setting of the broker, for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerSetting {
    /// Kafka's name, which is also the key in the configuration file.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// What the value is.
    pub kind: SettingKind,
}

/// What the value of a setting is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingKind {
    /// `true` or `false`.
    Bool,
    /// A whole number of up to 32 bits.
    Int,
    /// A whole number of up to 64 bits.
    Long,
    /// Words.
    Text,
}

/// Every setting of the broker itself. The defaults of topic settings are listed beside them in
/// [`weir_model::settings::TOPIC_SETTINGS`] under their `broker_name`.
pub const BROKER_SETTINGS: &[BrokerSetting] = &[
    BrokerSetting {
        name: "auto.create.topics.enable",
        doc: "Create a topic when a client asks for one that does not exist.",
        kind: SettingKind::Bool,
    },
    BrokerSetting {
        name: "num.partitions",
        doc: "Partitions of a topic that is created without saying how many.",
        kind: SettingKind::Int,
    },
    BrokerSetting {
        name: "log.retention.check.interval.ms",
        doc: "How often to look for segments that retention.ms or retention.bytes lets go; queues are looked at every ten seconds at least.",
        kind: SettingKind::Long,
    },
    BrokerSetting {
        name: "offsets.retention.minutes",
        doc: "Drop a group's committed offsets this long after it lost its last member.",
        kind: SettingKind::Int,
    },
    BrokerSetting {
        name: "offsets.retention.check.interval.ms",
        doc: "How often to look for committed offsets that may go.",
        kind: SettingKind::Long,
    },
    BrokerSetting {
        name: "offset.metadata.max.bytes",
        doc: "Largest metadata that a client may commit with an offset.",
        kind: SettingKind::Int,
    },
    BrokerSetting {
        name: "group.min.session.timeout.ms",
        doc: "Shortest session timeout that a group member may ask for.",
        kind: SettingKind::Int,
    },
    BrokerSetting {
        name: "group.max.session.timeout.ms",
        doc: "Longest session timeout that a group member may ask for.",
        kind: SettingKind::Int,
    },
    BrokerSetting {
        name: "group.initial.rebalance.delay.ms",
        doc: "How long an empty group's first rebalance waits for further members.",
        kind: SettingKind::Int,
    },
    BrokerSetting { name: "group.max.size", doc: "Most members of one group.", kind: SettingKind::Int },
];

impl BrokerOptions {
    /// The value of a broker setting by its name in [`BROKER_SETTINGS`].
    pub fn get(&self, name: &str) -> Option<String> {
        Some(match name {
            "auto.create.topics.enable" => self.auto_create_topics.to_string(),
            "num.partitions" => self.num_partitions.to_string(),
            "log.retention.check.interval.ms" => self.retention_check_interval_ms.to_string(),
            "offsets.retention.minutes" => (self.offsets_retention_ms / 60_000).to_string(),
            "offsets.retention.check.interval.ms" => self.offsets_retention_check_interval_ms.to_string(),
            "offset.metadata.max.bytes" => self.groups.offset_metadata_bytes_max.to_string(),
            "group.min.session.timeout.ms" => self.groups.session_timeout_ms_min.to_string(),
            "group.max.session.timeout.ms" => self.groups.session_timeout_ms_max.to_string(),
            "group.initial.rebalance.delay.ms" => self.groups.initial_rebalance_delay_ms.to_string(),
            "group.max.size" => self.groups.size_max.to_string(),
            _ => return None,
        })
    }

    /// Sets a broker setting, or the default of a topic setting, by its name in the configuration
    /// file. The words of an error name the value and its bounds.
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), SetError> {
        let bad = |why: String| SetError { name: name.to_owned(), why };
        match name {
            "auto.create.topics.enable" => {
                self.auto_create_topics = match value {
                    "true" => true,
                    "false" => false,
                    _ => return Err(bad(format!("'{value}' is neither true nor false"))),
                }
            }
            "num.partitions" => {
                self.num_partitions = number(value, 1, i64::from(TOPIC_PARTITIONS_MAX)).map_err(bad)? as u32
            }
            "log.retention.check.interval.ms" => {
                self.retention_check_interval_ms = number(value, 1, MS_MAX).map_err(bad)? as u64
            }
            "offsets.retention.minutes" => {
                self.offsets_retention_ms = number(value, 1, i64::from(i32::MAX)).map_err(bad)? * 60_000
            }
            "offsets.retention.check.interval.ms" => {
                self.offsets_retention_check_interval_ms = number(value, 1, MS_MAX).map_err(bad)? as u64
            }
            "offset.metadata.max.bytes" => {
                self.groups.offset_metadata_bytes_max =
                    number(value, 0, OFFSET_METADATA_BYTES_MAX as i64).map_err(bad)? as usize
            }
            "group.min.session.timeout.ms" => {
                self.groups.session_timeout_ms_min =
                    number(value, 1, i64::from(i32::MAX)).map_err(bad)? as i32
            }
            "group.max.session.timeout.ms" => {
                self.groups.session_timeout_ms_max =
                    number(value, 1, i64::from(i32::MAX)).map_err(bad)? as i32
            }
            "group.initial.rebalance.delay.ms" => {
                self.groups.initial_rebalance_delay_ms = number(value, 0, 600_000).map_err(bad)? as i32
            }
            "group.max.size" => {
                self.groups.size_max = number(value, 1, MEMBERS_PER_GROUP_MAX as i64).map_err(bad)? as usize
            }
            _ => {
                let topic = weir_model::settings::TOPIC_SETTINGS.iter().find(|s| s.broker_name == name);
                let Some(topic) = topic else { return Err(bad(unknown(name))) };
                let one = BTreeMap::from([(topic.name.to_owned(), value.to_owned())]);
                self.defaults = self.defaults.with_overrides(&one, 1).map_err(|error| bad(error.why))?;
            }
        }
        Ok(())
    }

    /// Checks the settings against each other.
    pub fn check(&self) -> Result<(), SetError> {
        if self.groups.session_timeout_ms_min > self.groups.session_timeout_ms_max {
            return Err(SetError {
                name: "group.min.session.timeout.ms".into(),
                why: format!(
                    "{} is above group.max.session.timeout.ms, which is {}",
                    self.groups.session_timeout_ms_min, self.groups.session_timeout_ms_max
                ),
            });
        }
        Ok(())
    }
}

/// Why a broker setting was refused.
pub type SetError = weir_model::settings::SettingError;

/// Longest interval that can be set, in milliseconds: a year.
const MS_MAX: i64 = 366 * 24 * 3600 * 1000;

fn number(value: &str, min: i64, max: i64) -> Result<i64, String> {
    match value.trim().parse::<i64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("'{value}' is not a whole number from {min} to {max}")),
    }
}

fn unknown(name: &str) -> String {
    let known = BROKER_SETTINGS
        .iter()
        .map(|setting| setting.name)
        .chain(weir_model::settings::TOPIC_SETTINGS.iter().map(|setting| setting.broker_name));
    let nearest = known
        .map(|known| (weir_model::settings::edit_distance(name, known), known))
        .min()
        .filter(|(distance, _)| *distance <= name.len() / 2);
    match nearest {
        Some((_, nearest)) => format!("there is no such setting; did you mean {nearest}?"),
        None => "there is no such setting".into(),
    }
}

#[cfg(test)]
mod tests {
    use weir_model::settings::TOPIC_SETTINGS;

    use super::*;

    #[test]
    fn every_listed_setting_can_be_read_and_set_to_what_it_is() {
        let mut options = BrokerOptions::new("cluster", [0; 32]);
        let names = BROKER_SETTINGS.iter().map(|s| s.name.to_owned());
        for name in names {
            let value = options.get(&name).unwrap();
            options.set(&name, &value).unwrap();
            assert_eq!(options.get(&name).unwrap(), value);
        }
        for setting in TOPIC_SETTINGS {
            let value = options.defaults.get(setting.name).unwrap();
            options.set(setting.broker_name, &value).unwrap();
        }
        options.check().unwrap();
    }

    #[test]
    fn what_is_set_takes_effect() {
        let mut options = BrokerOptions::new("cluster", [0; 32]);
        options.set("num.partitions", "7").unwrap();
        options.set("offsets.retention.minutes", "2").unwrap();
        options.set("log.retention.ms", "1000").unwrap();
        options.set("auto.create.topics.enable", "false").unwrap();
        assert_eq!((options.num_partitions, options.offsets_retention_ms), (7, 120_000));
        assert_eq!((options.defaults.retention_ms, options.auto_create_topics), (1000, false));
    }

    #[test]
    fn errors_name_the_value_its_bounds_and_the_nearest_name() {
        let mut options = BrokerOptions::new("cluster", [0; 32]);
        let error = options.set("num.partitions", "0").unwrap_err();
        assert_eq!(error.to_string(), "num.partitions: '0' is not a whole number from 1 to 10000");
        let error = options.set("num.partition", "1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "num.partition: there is no such setting; did you mean num.partitions?"
        );
        let error = options.set("log.cleanup.policy", "compact").unwrap_err();
        assert_eq!(error.to_string(), "log.cleanup.policy: 'compact' is not supported; only delete is");
        options.set("group.min.session.timeout.ms", "9000").unwrap();
        options.set("group.max.session.timeout.ms", "8000").unwrap();
        assert!(options.check().unwrap_err().why.contains("9000 is above"));
    }
}
