//! What can be set on a topic, under Kafka's names where Kafka has one: bounds, defaults, and what
//! each does. A setting is acted on, or refused; none is merely stored.

use std::collections::BTreeMap;
use std::fmt;

use crate::batch::TimestampType;
use crate::wire::{DecodeError, Reader, Writer};

/// When a topic's producers are answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// After a majority has the record on stable storage.
    Sync,
    /// When the leader has queued the record for its journal; the answer carries offset -1.
    Async,
}

/// The effective settings of a partition: its topic's over the broker's defaults. They reach the
/// state machine as a command, so that every replica acts on the same ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionSettings {
    /// A segment is closed before it would grow beyond this many bytes (`segment.bytes`).
    pub segment_bytes: u32,
    /// A segment is closed when its first record is older than this (`segment.ms`).
    pub segment_ms: i64,
    /// Segments whose newest record is older are dropped; -1 keeps for ever (`retention.ms`).
    pub retention_ms: i64,
    /// Oldest segments are dropped beyond this size; -1 is without limit (`retention.bytes`).
    pub retention_bytes: i64,
    /// Largest batch accepted, in bytes as sent (`max.message.bytes`).
    pub max_message_bytes: u32,
    /// Whose timestamps records carry (`message.timestamp.type`).
    pub timestamp_type: TimestampType,
    /// When producers are answered (`weir.durability`).
    pub durability: Durability,
}

impl Default for PartitionSettings {
    /// Kafka's own defaults.
    fn default() -> Self {
        PartitionSettings {
            segment_bytes: 1 << 30,
            segment_ms: 7 * 24 * 3600 * 1000,
            retention_ms: 7 * 24 * 3600 * 1000,
            retention_bytes: -1,
            max_message_bytes: 1_048_588,
            timestamp_type: TimestampType::CreateTime,
            durability: Durability::Sync,
        }
    }
}

/// Smallest segment size that can be set, in bytes: small enough for tests, large enough that a
/// typing error does not make a file per record.
pub const SEGMENT_BYTES_MIN: u32 = 1 << 10;

/// Largest batch size that can be set, in bytes.
pub const MESSAGE_BYTES_MAX: u32 = 64 << 20;

/// One setting, for listings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingInfo {
    /// Name on a topic.
    pub name: &'static str,
    /// Name of the broker-wide default in the configuration file, Kafka's own.
    pub broker_name: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// Whether the setting has an effect here. One without is listed so that a client that always
    /// sends it is answered, and only its default is accepted.
    pub effective: bool,
}

/// Every topic setting that is known.
pub const TOPIC_SETTINGS: &[SettingInfo] = &[
    SettingInfo {
        name: "segment.bytes",
        broker_name: "log.segment.bytes",
        doc: "Close a segment before it grows beyond this size.",
        effective: true,
    },
    SettingInfo {
        name: "segment.ms",
        broker_name: "log.roll.ms",
        doc: "Close a segment whose first record is older than this.",
        effective: true,
    },
    SettingInfo {
        name: "retention.ms",
        broker_name: "log.retention.ms",
        doc: "Drop segments whose newest record is older than this; -1 keeps them for ever.",
        effective: true,
    },
    SettingInfo {
        name: "retention.bytes",
        broker_name: "log.retention.bytes",
        doc: "Drop the oldest segments of a partition beyond this size; -1 is without limit.",
        effective: true,
    },
    SettingInfo {
        name: "max.message.bytes",
        broker_name: "message.max.bytes",
        doc: "Largest record batch that is accepted.",
        effective: true,
    },
    SettingInfo {
        name: "message.timestamp.type",
        broker_name: "log.message.timestamp.type",
        doc: "CreateTime keeps the producer's timestamps, LogAppendTime replaces them by the broker's.",
        effective: true,
    },
    SettingInfo {
        name: "weir.durability",
        broker_name: "weir.durability",
        doc: "sync answers producers after a majority has the record on stable storage; async when the leader has queued it.",
        effective: true,
    },
    SettingInfo {
        name: "cleanup.policy",
        broker_name: "log.cleanup.policy",
        doc: "How old records are removed; only delete is supported.",
        effective: false,
    },
    SettingInfo {
        name: "compression.type",
        broker_name: "compression.type",
        doc: "Only producer: batches are kept as they were sent.",
        effective: false,
    },
    SettingInfo {
        name: "min.insync.replicas",
        broker_name: "min.insync.replicas",
        doc: "Every acknowledged record is on a majority of replicas; only 1, or up to that majority, is accepted.",
        effective: false,
    },
];

/// Why a setting was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingError {
    /// The setting.
    pub name: String,
    /// What is wrong and how to mend it.
    pub why: String,
}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.name, self.why)
    }
}

impl std::error::Error for SettingError {}

impl PartitionSettings {
    /// These settings with a topic's overrides applied. `majority` is the number of replicas that
    /// have every acknowledged record, which `min.insync.replicas` must not exceed.
    pub fn with_overrides(
        &self,
        overrides: &BTreeMap<String, String>,
        majority: u32,
    ) -> Result<PartitionSettings, SettingError> {
        let mut settings = self.clone();
        for (name, value) in overrides {
            settings.set(name, value, majority).map_err(|why| SettingError { name: name.clone(), why })?;
        }
        Ok(settings)
    }

    /// Applies one setting by its topic name.
    fn set(&mut self, name: &str, value: &str, majority: u32) -> Result<(), String> {
        match name {
            "segment.bytes" => {
                self.segment_bytes = number(value, SEGMENT_BYTES_MIN as i64, i32::MAX as i64)? as u32
            }
            "segment.ms" => self.segment_ms = number(value, 1, i64::MAX)?,
            "retention.ms" => self.retention_ms = number(value, -1, i64::MAX)?,
            "retention.bytes" => self.retention_bytes = number(value, -1, i64::MAX)?,
            "max.message.bytes" => {
                self.max_message_bytes = number(value, 1, MESSAGE_BYTES_MAX as i64)? as u32
            }
            "message.timestamp.type" => {
                self.timestamp_type = match value {
                    "CreateTime" => TimestampType::CreateTime,
                    "LogAppendTime" => TimestampType::LogAppendTime,
                    _ => return Err(format!("'{value}' is not known; use CreateTime or LogAppendTime")),
                }
            }
            "weir.durability" => {
                self.durability = match value {
                    "sync" => Durability::Sync,
                    "async" => Durability::Async,
                    _ => return Err(format!("'{value}' is not known; use sync or async")),
                }
            }
            "cleanup.policy" if value == "delete" => {}
            "cleanup.policy" => return Err(format!("'{value}' is not supported; only delete is")),
            "compression.type" if value == "producer" => {}
            "compression.type" => {
                return Err(format!(
                    "'{value}' is not supported; only producer is, set compression in the producer"
                ));
            }
            "min.insync.replicas" => {
                number(value, 1, majority as i64).map_err(|_| {
                    format!("'{value}' is not supported; acknowledged records are on {majority} replica(s), use 1 to {majority}")
                })?;
            }
            _ => return Err(unknown_setting(name)),
        }
        Ok(())
    }

    /// The value of a setting by its topic name, as Kafka spells it.
    pub fn get(&self, name: &str) -> Option<String> {
        Some(match name {
            "segment.bytes" => self.segment_bytes.to_string(),
            "segment.ms" => self.segment_ms.to_string(),
            "retention.ms" => self.retention_ms.to_string(),
            "retention.bytes" => self.retention_bytes.to_string(),
            "max.message.bytes" => self.max_message_bytes.to_string(),
            "message.timestamp.type" => match self.timestamp_type {
                TimestampType::CreateTime => "CreateTime".into(),
                TimestampType::LogAppendTime => "LogAppendTime".into(),
            },
            "weir.durability" => match self.durability {
                Durability::Sync => "sync".into(),
                Durability::Async => "async".into(),
            },
            "cleanup.policy" => "delete".into(),
            "compression.type" => "producer".into(),
            "min.insync.replicas" => "1".into(),
            _ => return None,
        })
    }

    /// Writes the settings, for commands and checkpoints.
    pub fn encode(&self, out: &mut Writer) {
        out.u32(self.segment_bytes);
        out.i64(self.segment_ms);
        out.i64(self.retention_ms);
        out.i64(self.retention_bytes);
        out.u32(self.max_message_bytes);
        out.u8(u8::from(self.timestamp_type == TimestampType::LogAppendTime));
        out.u8(u8::from(self.durability == Durability::Async));
    }

    /// Reads what [`PartitionSettings::encode`] wrote.
    pub fn decode(reader: &mut Reader) -> Result<PartitionSettings, DecodeError> {
        Ok(PartitionSettings {
            segment_bytes: reader.u32()?,
            segment_ms: reader.i64()?,
            retention_ms: reader.i64()?,
            retention_bytes: reader.i64()?,
            max_message_bytes: reader.u32()?,
            timestamp_type: if reader.bool()? {
                TimestampType::LogAppendTime
            } else {
                TimestampType::CreateTime
            },
            durability: if reader.bool()? { Durability::Async } else { Durability::Sync },
        })
    }
}

fn number(value: &str, min: i64, max: i64) -> Result<i64, String> {
    match value.trim().parse::<i64>() {
        Ok(number) if (min..=max).contains(&number) => Ok(number),
        _ => Err(format!("'{value}' is not a whole number from {min} to {max}")),
    }
}

fn unknown_setting(name: &str) -> String {
    let nearest =
        TOPIC_SETTINGS.iter().map(|setting| setting.name).min_by_key(|known| edit_distance(name, known));
    match nearest {
        Some(nearest) if edit_distance(name, nearest) <= name.len() / 2 => {
            format!("there is no such topic setting; did you mean {nearest}?")
        }
        _ => "there is no such topic setting".into(),
    }
}

/// Levenshtein's distance, for "did you mean".
pub fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, ca) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, cb) in b.iter().enumerate() {
            let cost = diagonal + usize::from(ca != *cb);
            diagonal = row[j + 1];
            row[j + 1] = cost.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
