//! What a queue's arguments say, in RabbitMQ's names.

use std::collections::BTreeMap;
use std::time::Duration;

use weir_dispatch::{Rest, Rests};
use weir_model::TimestampMs;
use weir_model::queue::{QueueKind, QueueMeta};
use weir_model::routing::{ArgumentValue, Arguments, argument};

use super::kinds::has_argument;
use super::rules::{queue_in, type_name};
use super::unique::UniqueWindow;
use crate::queues::{Limits, Overflow, QueueOptions};

/// Deliveries that may fail before a record of a quorum queue is dead, where the declaration does not say
/// (RabbitMQ from 4.0 on).
const DELIVERY_LIMIT_DEFAULT: u16 = 20;

/// Longest time that a message or a queue may be given, in milliseconds: ten years, as in RabbitMQ.
pub const EXPIRY_MS_MAX: TimestampMs = 3_650 * 86_400_000;

/// Bytes of a queue's segments: what is settled takes the disk's space until its segment is settled as a whole.
const QUEUE_SEGMENT_BYTES: u32 = 64 << 20;

/// Bounds of a stream's segments, in bytes: whoever asks for less or more gets these.
const SEGMENT_BYTES_MIN: i64 = 1 << 20;
const SEGMENT_BYTES_MAX: i64 = i32::MAX as i64;

/// The most that may be asked for, in bytes, as in RabbitMQ.
const SEGMENT_BYTES_ASKED_MAX: i64 = 3_000_000_000;

/// The argument that says how many priorities there are.
const MAX_PRIORITY: &str = "x-max-priority";

/// Where a queue's dead records go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetters {
    /// The exchange that they are published to.
    pub exchange: String,
    /// By which key; their own if there is none.
    pub routing_key: Option<String>,
    /// Whether they wait in their queue for as long as a queue behind the exchange has no room for them
    /// (`x-dead-letter-strategy`). Otherwise that queue does not get them.
    pub at_least_once: bool,
}

/// Which priorities records of a queue may have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Priorities {
    /// Higher ones are taken for this one. 0: all records are alike.
    pub most: u8,
    /// The priority of a record whose publisher gave it none.
    pub usual: u8,
}

impl Priorities {
    /// Those of every quorum queue, in RabbitMQ from 4.3 on.
    const QUORUM: Priorities = Priorities { most: 31, usual: 4 };
}

/// How long the records of a queue stay that nobody has to settle, or that are settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// Until they are settled, and then no longer than their segments.
    #[default]
    UntilSettled,
    /// All of them, up to these bounds: those of a stream.
    Bounded {
        /// Milliseconds (`x-max-age`).
        age_ms: Option<TimestampMs>,
        /// Bytes (`x-max-length-bytes`).
        bytes: Option<u64>,
        /// Bytes of a segment (`x-stream-max-segment-size-bytes`).
        segment_bytes: Option<u64>,
    },
}

impl Retention {
    /// The topic's settings that come of it.
    pub(crate) fn settings(self) -> BTreeMap<String, String> {
        let mut settings = BTreeMap::new();
        let mut set = |name: &str, value: String| settings.insert(name.to_owned(), value);
        match self {
            Retention::UntilSettled => {
                set("retention.ms", "0".to_owned());
                set("segment.bytes", QUEUE_SEGMENT_BYTES.to_string());
            }
            Retention::Bounded { age_ms, bytes, segment_bytes } => {
                let bound = |value: Option<String>| value.unwrap_or_else(|| "-1".to_owned());
                set("retention.ms", bound(age_ms.map(|ms| ms.to_string())));
                set("retention.bytes", bound(bytes.map(|bytes| bytes.to_string())));
                if let Some(bytes) = segment_bytes {
                    set("segment.bytes", bytes.to_string());
                }
            }
        }
        settings
    }
}

/// The arguments of a queue that mean something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueArguments {
    /// Records wait at most this long, in milliseconds (`x-message-ttl`).
    pub ttl_ms: Option<TimestampMs>,
    /// The queue goes when nobody has used it for this long, in milliseconds (`x-expires`).
    pub expires_ms: Option<TimestampMs>,
    /// How much may wait (`x-max-length`, `x-max-length-bytes`, `x-overflow`).
    pub limits: Limits,
    /// Where dead records go (`x-dead-letter-exchange`, `x-dead-letter-routing-key`).
    pub dead_letters: Option<DeadLetters>,
    /// How long records stay.
    pub retention: Retention,
    /// Which records come first.
    pub priorities: Priorities,
    /// Only one consumer gets records (`x-single-active-consumer`).
    pub single_active: bool,
    /// Deliveries that may fail (`x-delivery-limit`); none if there is no limit.
    pub failures_max: Option<u16>,
    /// How long records rest that came back (`x-delayed-retry-type`, `x-delayed-retry-min`, `x-delayed-retry-max`).
    pub rest: Option<Rest>,
    /// How long who has a record may take to settle it (`x-consumer-timeout`).
    pub consumer_timeout: Option<Duration>,
    /// No message is taken twice (`x-message-deduplication`, `x-cache-size`, `x-cache-ttl`).
    pub unique: Option<UniqueWindow>,
}

/// An argument that cannot be what it is; in RabbitMQ's words where clients look at them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid arg '{name}' for {of}: {why}")]
pub struct InvalidArgument {
    /// Which argument.
    pub name: &'static str,
    /// Of which queue: its name and its namespace.
    pub of: String,
    /// What is wrong.
    pub why: String,
}

/// Reads arguments of one queue. Those that its kind does not have are as good as absent.
pub(super) struct Reader<'a> {
    namespace: &'a str,
    queue: &'a str,
    kind: QueueKind,
    arguments: &'a Arguments,
}

impl Reader<'_> {
    fn get(&self, name: &str) -> Option<&ArgumentValue> {
        argument(self.arguments, name).filter(|_| has_argument(self.kind, name))
    }

    fn invalid(&self, name: &'static str, why: impl Into<String>) -> InvalidArgument {
        InvalidArgument { name, of: queue_in(self.namespace, self.queue), why: why.into() }
    }

    fn wrong_type(&self, name: &'static str, value: &ArgumentValue) -> InvalidArgument {
        self.invalid(name, format!("{{unacceptable_type,{}}}", type_name(value)))
    }

    /// A whole number within bounds.
    pub(super) fn number(
        &self,
        name: &'static str,
        least: i64,
        most: i64,
    ) -> Result<Option<i64>, InvalidArgument> {
        match self.get(name) {
            None => Ok(None),
            Some(ArgumentValue::Integer(value)) if (least..=most).contains(value) => Ok(Some(*value)),
            Some(ArgumentValue::Integer(value)) => {
                let why = match value {
                    ..0 => "value_negative",
                    0 => "value_zero",
                    _ if *value < least => "value_too_small",
                    _ if name == MAX_PRIORITY => "max_value_exceeded",
                    _ => "value_too_large",
                };
                Err(self.invalid(name, format!("{{{why},{value}}}")))
            }
            Some(other) => Err(self.invalid(name, format!("\"expected integer, got {}\"", type_name(other)))),
        }
    }

    /// A length or a count of anything.
    fn count(&self, name: &'static str) -> Result<Option<u64>, InvalidArgument> {
        Ok(self.number(name, 0, i64::MAX)?.map(i64::cast_unsigned))
    }

    fn text(&self, name: &'static str) -> Result<Option<&str>, InvalidArgument> {
        match self.get(name) {
            None => Ok(None),
            Some(value) => match value.as_text() {
                Some(text) => Ok(Some(text)),
                None => Err(self.wrong_type(name, value)),
            },
        }
    }

    /// An age: a number above 0 and its unit, of Y, M, D, h, m and s, in milliseconds.
    fn age(&self, name: &'static str) -> Result<Option<TimestampMs>, InvalidArgument> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match interval_ms(text).filter(|ms| *ms > 0) {
            Some(ms) => Ok(Some(ms)),
            None => Err(self.invalid(name, "invalid_max_age")),
        }
    }

    pub(super) fn flag(&self, name: &'static str) -> Result<bool, InvalidArgument> {
        match self.get(name) {
            None => Ok(false),
            Some(ArgumentValue::Bool(value)) => Ok(*value),
            Some(other) => Err(self.wrong_type(name, other)),
        }
    }

    fn dead_letters(&self) -> Result<Option<DeadLetters>, InvalidArgument> {
        let exchange = self.text("x-dead-letter-exchange")?;
        let routing_key = self.text("x-dead-letter-routing-key")?.map(str::to_owned);
        if exchange.is_none() && routing_key.is_some() {
            return Err(self.invalid("x-dead-letter-routing-key", "routing_key_but_no_dlx_defined"));
        }
        let at_least_once = match self.text("x-dead-letter-strategy")? {
            None | Some("at-most-once") => false,
            Some("at-least-once") => true,
            Some(_) => return Err(self.invalid("x-dead-letter-strategy", "invalid_dlx_strategy")),
        };
        Ok(exchange.map(|exchange| DeadLetters { exchange: exchange.to_owned(), routing_key, at_least_once }))
    }

    fn rest(&self) -> Result<Option<Rest>, InvalidArgument> {
        const MOST: i64 = u32::MAX as i64;
        let least = self.number("x-delayed-retry-min", 0, MOST)?;
        let most = self.number("x-delayed-retry-max", 0, MOST)?;
        let of = match self.text("x-delayed-retry-type")? {
            None | Some("disabled") => return Ok(None),
            Some("all") => Rests::All,
            Some("failed") => Rests::Failed,
            Some("returned") => Rests::Returned,
            Some(_) => return Err(self.invalid("x-delayed-retry-type", "invalid_delayed_retry_type")),
        };
        let Some(least) = least else {
            return Err(self.invalid("x-delayed-retry-type", "it needs x-delayed-retry-min"));
        };
        let ms = |value: i64| u32::try_from(value).unwrap_or(u32::MAX);
        Ok(Some(Rest { of, least_ms: ms(least), most_ms: ms(most.unwrap_or(least).max(least)) }))
    }

    fn overflow(&self) -> Result<Overflow, InvalidArgument> {
        match self.text("x-overflow")? {
            None | Some("drop-head") => Ok(Overflow::DropHead),
            Some("reject-publish") => Ok(Overflow::Reject),
            Some("reject-publish-dlx") if self.kind == QueueKind::Classic => Ok(Overflow::RejectDead),
            // Quorum queues do not have it, and RabbitMQ's do without it.
            Some("reject-publish-dlx") => Ok(Overflow::DropHead),
            Some(_) => Err(self.invalid("x-overflow", "invalid_overflow")),
        }
    }

    /// Checks what RabbitMQ checks and what changes nothing here.
    fn check_without_effect(&self) -> Result<(), InvalidArgument> {
        let version = self.number("x-queue-version", 0, i64::MAX)?;
        if let Some(version) = version.filter(|version| !(1..=2).contains(version)) {
            return Err(self.invalid("x-queue-version", format!("\"unsupported queue version '{version}'\"")));
        }
        self.number("x-quorum-initial-group-size", 1, i64::MAX)?;
        self.number("x-initial-cluster-size", 1, i64::MAX)?;
        match self.text("x-queue-leader-locator")? {
            None | Some("client-local" | "balanced" | "random" | "least-leaders") => Ok(()),
            Some(_) => Err(self.invalid("x-queue-leader-locator", "invalid_queue_locator_arg")),
        }
    }
}

/// Milliseconds of a number with one of RabbitMQ's units of time: Y, M, D, h, m, s. None if it is no such thing.
pub fn interval_ms(text: &str) -> Option<TimestampMs> {
    const SECOND: i64 = 1_000;
    const DAY: i64 = 86_400 * SECOND;
    let unit = text.chars().last()?;
    let number: i64 = text.strip_suffix(unit)?.parse().ok().filter(|number| *number >= 0)?;
    let unit = match unit {
        'Y' => 365 * DAY,
        'M' => 30 * DAY,
        'D' => DAY,
        'h' => 3_600 * SECOND,
        'm' => 60 * SECOND,
        's' => SECOND,
        _ => return None,
    };
    number.checked_mul(unit)
}

impl QueueArguments {
    /// What the arguments of a queue of this kind say.
    pub fn read(
        namespace: &str,
        queue: &str,
        kind: QueueKind,
        arguments: &Arguments,
    ) -> Result<QueueArguments, InvalidArgument> {
        let reader = Reader { namespace, queue, kind, arguments };
        // In the order in which RabbitMQ looks at them: what it refuses first is refused first.
        let expires_ms = reader.number("x-expires", 1, EXPIRY_MS_MAX)?;
        let ttl_ms = reader.number("x-message-ttl", 0, EXPIRY_MS_MAX)?;
        let mut dead_letters = reader.dead_letters()?;
        let (records, bytes) = (reader.count("x-max-length")?, reader.count("x-max-length-bytes")?);
        reader.count("x-max-in-memory-length")?;
        reader.count("x-max-in-memory-bytes")?;
        let most = reader.number(MAX_PRIORITY, 0, 255)?;
        let priorities = match (most, kind) {
            (None, QueueKind::Quorum) => Priorities::QUORUM,
            (most, _) => Priorities { most: most.map_or(0, |most| most as u8), usual: 0 },
        };
        let overflow = reader.overflow()?;
        let single_active = reader.flag("x-single-active-consumer")?;
        reader.check_without_effect()?;
        let age_ms = reader.age("x-max-age")?;
        let segment_bytes = reader.number("x-stream-max-segment-size-bytes", 0, SEGMENT_BYTES_ASKED_MAX)?;
        let segment_bytes = segment_bytes.map(|asked| asked.clamp(SEGMENT_BYTES_MIN, SEGMENT_BYTES_MAX));
        let retention = match kind {
            QueueKind::Classic | QueueKind::Quorum => Retention::UntilSettled,
            QueueKind::Stream => {
                Retention::Bounded { age_ms, bytes, segment_bytes: segment_bytes.map(i64::cast_unsigned) }
            }
        };
        // What is refused for want of room must be refused to its publishers as well.
        if let Some(dead_letters) = &mut dead_letters {
            dead_letters.at_least_once &= overflow == Overflow::Reject;
        }
        let limit = reader.number("x-delivery-limit", -1, i64::from(u16::MAX))?;
        let failures_max = match (limit, kind) {
            (Some(limit), QueueKind::Quorum) => u16::try_from(limit).ok(),
            (None, QueueKind::Quorum) => Some(DELIVERY_LIMIT_DEFAULT),
            _ => None,
        };
        let rest = reader.rest()?;
        let consumer_timeout = reader.number("x-consumer-timeout", 1, i64::MAX)?;
        let unique = UniqueWindow::read(&reader, ttl_ms)?;
        if unique.is_some() && (most.is_some() || kind == QueueKind::Stream) {
            let why = "it goes with neither x-max-priority nor streams";
            return Err(reader.invalid("x-message-deduplication", why));
        }
        Ok(QueueArguments {
            ttl_ms,
            expires_ms,
            limits: Limits { records, bytes, overflow },
            dead_letters,
            retention,
            priorities,
            single_active,
            failures_max,
            rest,
            consumer_timeout: consumer_timeout.map(|ms| Duration::from_millis(ms.cast_unsigned())),
            unique,
        })
    }

    /// How a queue behaves by them.
    pub fn options(&self, meta: &QueueMeta) -> QueueOptions {
        QueueOptions {
            returns_in_turn: meta.kind == QueueKind::Quorum,
            failures_max: self.failures_max,
            rest: self.rest,
            single_active: self.single_active,
            ttl_ms: self.ttl_ms,
            limits: self.limits,
            expires: self.expires_ms.map(|ms| Duration::from_millis(ms.cast_unsigned())),
            ..QueueOptions::default()
        }
    }

    /// The lane of a record of this priority.
    pub fn lane(&self, priority: Option<u8>) -> u8 {
        let Priorities { most, usual } = self.priorities;
        priority.unwrap_or(usual).min(most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(kind: QueueKind, arguments: &[(&str, ArgumentValue)]) -> Result<QueueArguments, String> {
        let arguments = arguments.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        QueueArguments::read("/", "q", kind, &arguments).map_err(|error| error.to_string())
    }

    fn text(text: &str) -> ArgumentValue {
        ArgumentValue::Bytes(text.as_bytes().to_vec().into())
    }

    #[test]
    fn limits_say_what_happens_beyond_them() {
        let limits = |overflow: &str| {
            let arguments = [("x-max-length", ArgumentValue::Integer(7)), ("x-overflow", text(overflow))];
            read(QueueKind::Classic, &arguments).map(|arguments| arguments.limits)
        };
        let of = |overflow| Ok(Limits { records: Some(7), bytes: None, overflow });
        assert_eq!(limits("drop-head"), of(Overflow::DropHead));
        assert_eq!(limits("reject-publish"), of(Overflow::Reject));
        assert_eq!(limits("reject-publish-dlx"), of(Overflow::RejectDead));
        assert_eq!(
            limits("never"),
            Err("invalid arg 'x-overflow' for queue 'q' in vhost '/': invalid_overflow".into())
        );
        let quorum = read(QueueKind::Quorum, &[("x-overflow", text("reject-publish-dlx"))]).unwrap();
        assert_eq!(quorum.limits.overflow, Overflow::DropHead, "it has no such overflow, and does without");
    }

    #[test]
    fn a_priority_is_a_lane_up_to_the_highest() {
        let lanes = |kind, arguments: &[(&str, ArgumentValue)]| {
            let arguments = read(kind, arguments).unwrap();
            [None, Some(0), Some(5), Some(255)].map(|priority| arguments.lane(priority))
        };
        let most = ("x-max-priority", ArgumentValue::Integer(10));
        assert_eq!(lanes(QueueKind::Classic, &[]), [0, 0, 0, 0]);
        assert_eq!(lanes(QueueKind::Classic, std::slice::from_ref(&most)), [0, 0, 5, 10]);
        assert_eq!(lanes(QueueKind::Quorum, &[]), [4, 0, 5, 31]);
        assert_eq!(lanes(QueueKind::Quorum, &[most]), [4, 0, 5, 31]);
        assert!(read(QueueKind::Classic, &[("x-max-priority", ArgumentValue::Integer(256))]).is_err());
    }

    #[test]
    fn streams_keep_what_nobody_settles() {
        let arguments = [("x-max-age", text("7D")), ("x-max-length-bytes", ArgumentValue::Integer(5_000))];
        let stream = read(QueueKind::Stream, &arguments).unwrap();
        let settings = stream.retention.settings();
        assert_eq!(settings["retention.ms"], "604800000");
        assert_eq!(settings["retention.bytes"], "5000");
        assert_eq!(read(QueueKind::Stream, &[]).unwrap().retention.settings()["retention.ms"], "-1");
        assert!(!stream.limits.refuses());
        assert!(read(QueueKind::Stream, &[("x-max-age", text("soon"))]).is_err());
    }

    #[test]
    fn what_is_wrong_is_told_in_rabbitmqs_words_and_order() {
        let integer = ArgumentValue::Integer;
        let check = |kind, arguments: &[(&str, ArgumentValue)], expected: &str| {
            let words = read(kind, arguments).unwrap_err();
            let (name, why) = expected.split_once(": ").unwrap();
            assert_eq!(words, format!("invalid arg '{name}' for queue 'q' in vhost '/': {why}"));
        };
        let classic = |name, value, expected| check(QueueKind::Classic, &[(name, value)], expected);
        classic("x-expires", integer(0), "x-expires: {value_zero,0}");
        classic("x-message-ttl", integer(-1), "x-message-ttl: {value_negative,-1}");
        classic("x-message-ttl", integer(315_360_000_001), "x-message-ttl: {value_too_large,315360000001}");
        classic("x-max-length", text("3"), "x-max-length: \"expected integer, got longstr\"");
        classic("x-max-priority", integer(256), "x-max-priority: {max_value_exceeded,256}");
        classic(
            "x-single-active-consumer",
            integer(1),
            "x-single-active-consumer: {unacceptable_type,signedint}",
        );
        classic("x-queue-version", integer(3), "x-queue-version: \"unsupported queue version '3'\"");
        check(
            QueueKind::Quorum,
            &[("x-dead-letter-strategy", text("x"))],
            "x-dead-letter-strategy: invalid_dlx_strategy",
        );
        check(QueueKind::Stream, &[("x-max-age", text("5x"))], "x-max-age: invalid_max_age");
        let two = [("x-max-length", integer(-1)), ("x-message-ttl", integer(-1))];
        check(QueueKind::Classic, &two, "x-message-ttl: {value_negative,-1}");
    }

    #[test]
    fn intervals_have_a_number_and_a_unit() {
        let of = |text: &str| interval_ms(text);
        assert_eq!((of("5s"), of("2m"), of("1h")), (Some(5_000), Some(120_000), Some(3_600_000)));
        assert_eq!(of("1Y"), Some(365 * 86_400_000));
        for wrong in ["", "5", "s", "-5s", "5x", "1.5h", "9223372036854775807Y", "5ü"] {
            assert_eq!(of(wrong), None, "{wrong}");
        }
    }
}
