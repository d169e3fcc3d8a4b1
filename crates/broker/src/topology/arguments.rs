//! What a queue's arguments say, in RabbitMQ's names.

use std::time::Duration;

use weir_model::TimestampMs;
use weir_model::queue::{QueueKind, QueueMeta};
use weir_model::routing::{ArgumentValue, Arguments, argument};

use super::unique::UniqueWindow;
use crate::queues::QueueOptions;

/// Deliveries that may fail before a record of a quorum queue is dead, where the declaration does not say
/// (RabbitMQ from 4.0 on).
const DELIVERY_LIMIT_DEFAULT: u16 = 20;

/// What becomes of a record for which a queue has no room.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Overflow {
    /// The first records go.
    #[default]
    DropHead,
    /// It is refused, and its publisher told.
    Reject,
    /// As `Reject`, and it is dead.
    RejectDead,
}

/// Where a queue's dead records go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetters {
    /// The exchange that they are published to.
    pub exchange: String,
    /// By which key; their own if there is none.
    pub routing_key: Option<String>,
}

/// The arguments of a queue that mean something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueArguments {
    /// Records wait at most this long, in milliseconds (`x-message-ttl`).
    pub ttl_ms: Option<TimestampMs>,
    /// The queue goes when nobody has used it for this long, in milliseconds (`x-expires`).
    pub expires_ms: Option<TimestampMs>,
    /// Records that may wait (`x-max-length`).
    pub records_max: Option<u64>,
    /// Bytes of bodies that may wait (`x-max-length-bytes`).
    pub bytes_max: Option<u64>,
    /// What happens beyond that (`x-overflow`).
    pub overflow: Overflow,
    /// Where dead records go (`x-dead-letter-exchange`, `x-dead-letter-routing-key`).
    pub dead_letters: Option<DeadLetters>,
    /// Highest priority of records; none if all are alike (`x-max-priority`).
    pub priority_max: Option<u8>,
    /// Only one consumer gets records (`x-single-active-consumer`).
    pub single_active: bool,
    /// Deliveries that may fail (`x-delivery-limit`); none if there is no limit.
    pub failures_max: Option<u16>,
    /// No message is taken twice (`x-message-deduplication`, `x-cache-size`, `x-cache-ttl`).
    pub unique: Option<UniqueWindow>,
}

/// An argument that cannot be what it is; in RabbitMQ's words where clients look at them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid arg '{name}' for queue '{queue}': {why}")]
pub struct InvalidArgument {
    /// Which argument.
    pub name: &'static str,
    /// Of which queue.
    pub queue: String,
    /// What is wrong.
    pub why: String,
}

/// Reads arguments of one queue.
pub(super) struct Reader<'a> {
    queue: &'a str,
    arguments: &'a Arguments,
}

impl Reader<'_> {
    fn invalid(&self, name: &'static str, why: impl Into<String>) -> InvalidArgument {
        InvalidArgument { name, queue: self.queue.to_owned(), why: why.into() }
    }

    pub(super) fn number(
        &self,
        name: &'static str,
        least: i64,
        most: i64,
    ) -> Result<Option<i64>, InvalidArgument> {
        match argument(self.arguments, name) {
            None => Ok(None),
            Some(ArgumentValue::Integer(value)) if (least..=most).contains(value) => Ok(Some(*value)),
            Some(ArgumentValue::Integer(value)) => {
                Err(self.invalid(name, format!("{value} is not from {least} to {most}")))
            }
            Some(_) => Err(self.invalid(name, "it must be a whole number")),
        }
    }

    fn text(&self, name: &'static str) -> Result<Option<&str>, InvalidArgument> {
        match argument(self.arguments, name) {
            None => Ok(None),
            Some(value) => match value.as_text() {
                Some(text) => Ok(Some(text)),
                None => Err(self.invalid(name, "it must be a string")),
            },
        }
    }

    pub(super) fn flag(&self, name: &'static str) -> Result<bool, InvalidArgument> {
        match argument(self.arguments, name) {
            None => Ok(false),
            Some(ArgumentValue::Bool(value)) => Ok(*value),
            Some(_) => Err(self.invalid(name, "it must be true or false")),
        }
    }
}

impl QueueArguments {
    /// What the arguments of a queue of this kind say.
    pub fn read(
        queue: &str,
        kind: QueueKind,
        arguments: &Arguments,
    ) -> Result<QueueArguments, InvalidArgument> {
        let reader = Reader { queue, arguments };
        let ms_max = i64::from(u32::MAX);
        let overflow = match reader.text("x-overflow")? {
            None | Some("drop-head") => Overflow::DropHead,
            Some("reject-publish") => Overflow::Reject,
            Some("reject-publish-dlx") if kind == QueueKind::Classic => Overflow::RejectDead,
            Some(other) => return Err(reader.invalid("x-overflow", format!("'{other}' is not supported"))),
        };
        let exchange = reader.text("x-dead-letter-exchange")?;
        let routing_key = reader.text("x-dead-letter-routing-key")?.map(str::to_owned);
        if exchange.is_none() && routing_key.is_some() {
            let why = "it needs x-dead-letter-exchange";
            return Err(reader.invalid("x-dead-letter-routing-key", why));
        }
        let limit = reader.number("x-delivery-limit", -1, i64::from(u16::MAX))?;
        let failures_max = match (limit, kind) {
            (Some(limit), QueueKind::Quorum) => u16::try_from(limit).ok(),
            (None, QueueKind::Quorum) => Some(DELIVERY_LIMIT_DEFAULT),
            _ => None,
        };
        let unsigned = |value: i64| value.cast_unsigned();
        let ttl_ms = reader.number("x-message-ttl", 0, ms_max)?;
        let priority_max = reader.number("x-max-priority", 0, 255)?.map(|value| value as u8);
        let unique = UniqueWindow::read(&reader, ttl_ms)?;
        if unique.is_some() && (priority_max.is_some() || kind == QueueKind::Stream) {
            let why = "it goes with neither x-max-priority nor streams";
            return Err(reader.invalid("x-message-deduplication", why));
        }
        Ok(QueueArguments {
            ttl_ms,
            expires_ms: reader.number("x-expires", 1, ms_max)?,
            records_max: reader.number("x-max-length", 0, i64::MAX)?.map(unsigned),
            bytes_max: reader.number("x-max-length-bytes", 0, i64::MAX)?.map(unsigned),
            overflow,
            dead_letters: exchange.map(|exchange| DeadLetters { exchange: exchange.to_owned(), routing_key }),
            priority_max,
            single_active: reader.flag("x-single-active-consumer")?,
            failures_max,
            unique,
        })
    }

    /// How a queue behaves by them.
    pub fn options(&self, meta: &QueueMeta) -> QueueOptions {
        QueueOptions {
            returns_in_turn: meta.kind == QueueKind::Quorum,
            failures_max: self.failures_max,
            single_active: self.single_active,
            ttl_ms: self.ttl_ms,
            records_max: match self.overflow {
                Overflow::DropHead => self.records_max,
                Overflow::Reject | Overflow::RejectDead => None,
            },
            expires: self.expires_ms.map(|ms| Duration::from_millis(ms.cast_unsigned())),
            ..QueueOptions::default()
        }
    }

    /// The lane of a record of this priority, in RabbitMQ's default of 0.
    pub fn lane(&self, priority: Option<u8>) -> u8 {
        self.priority_max.map_or(0, |max| priority.unwrap_or(0).min(max))
    }
}
