//! Dead letters: what is noted on a record that no queue could get rid of otherwise, and where it goes.
//!
//! The facts stand in one header of the record, [`DEATHS_HEADER`], in the encoding of entries: newest first, one for each
//! queue and reason, with how often it happened. Each front shows them in its own way.
//!
//! ```text
//! deaths = version u8 (1), first death, death*
//! first  = queue string, reason u8, exchange string
//! death  = queue string, reason u8, count u64, time i64, exchange string, key bytes*, expiration string?
//! ```

use bytes::Bytes;
use weir_model::TimestampMs;
use weir_model::batch::{Header, Record};
use weir_model::subscription::DeadReason;
use weir_model::wire::{DecodeError, Reader, Writer};

use super::record::EXPIRES_HEADER;

/// The header of a record that has died.
pub const DEATHS_HEADER: &str = "weir.deaths";

/// The headers in which a message's address is kept.
pub(super) const EXCHANGE_HEADER: &str = "amqp.exchange";
pub(super) const ROUTING_KEY_HEADER: &str = "amqp.routing-key";
const EXPIRATION_HEADER: &str = "amqp.expiration";

const VERSION: u8 = 1;

/// Deaths that are kept of one record: more queues and reasons than any sensible chain has.
const DEATHS_MAX: usize = 64;

/// One way in which a record died, however often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// In which queue.
    pub queue: String,
    /// Why.
    pub reason: DeadReason,
    /// How often.
    pub count: u64,
    /// When for the first time.
    pub time: TimestampMs,
    /// The exchange that it had been published to.
    pub exchange: String,
    /// The keys that it had been published by.
    pub keys: Vec<Bytes>,
    /// How long it was to wait at most, as its publisher said. That does not count any more.
    pub expiration: Option<String>,
}

/// All deaths of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deaths {
    /// Queue, reason and exchange of the first one.
    pub first: (String, DeadReason, String),
    /// Newest first, and never none.
    pub all: Vec<Death>,
}

/// A dead record on its way to where it belongs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DeadLetter {
    pub record: Record,
    pub exchange: String,
    pub keys: Vec<Bytes>,
    deaths: Deaths,
}

fn reason_from(number: u8) -> Option<DeadReason> {
    use DeadReason::{DeliveryLimit, Expired, MaxLength, Rejected};
    [Rejected, Expired, MaxLength, DeliveryLimit].into_iter().find(|reason| *reason as u8 == number)
}

impl Deaths {
    /// The deaths that are noted on a record; none if it never died, or if what stands there cannot be read.
    pub fn of(record: &Record) -> Option<Deaths> {
        let header = record.headers.iter().rev().find(|header| header.key == DEATHS_HEADER)?;
        Deaths::decode(header.value.clone()?).ok()
    }

    fn encode(&self) -> Bytes {
        let mut out = Writer::new();
        out.u8(VERSION);
        out.str(&self.first.0);
        out.u8(self.first.1 as u8);
        out.str(&self.first.2);
        out.list(&self.all, |out, death| {
            out.str(&death.queue);
            out.u8(death.reason as u8);
            out.u64(death.count);
            out.i64(death.time);
            out.str(&death.exchange);
            out.list(&death.keys, |out, key| out.bytes(key));
            out.opt_str(death.expiration.as_deref());
        });
        out.finish()
    }

    fn decode(bytes: Bytes) -> Result<Deaths, DecodeError> {
        let mut reader = Reader::new("deaths", bytes);
        if reader.u8()? != VERSION {
            return Err(reader.error("their version is not known to this binary"));
        }
        let reason = |reader: &mut Reader| {
            let number = reader.u8()?;
            reason_from(number).ok_or_else(|| reader.error("a reason is not known to this binary"))
        };
        let first = (reader.str()?, reason(&mut reader)?, reader.str()?);
        let all = reader.list(34, |r| {
            Ok(Death {
                queue: r.str()?,
                reason: reason(r)?,
                count: r.u64()?,
                time: r.i64()?,
                exchange: r.str()?,
                keys: r.list(4, |r| r.bytes())?,
                expiration: r.opt_str()?,
            })
        })?;
        reader.finish()?;
        if all.is_empty() {
            return Err(DecodeError::new("deaths", "there are none"));
        }
        Ok(Deaths { first, all })
    }

    /// Notes one more.
    fn add(before: Option<Deaths>, death: Death) -> Deaths {
        let Some(mut deaths) = before else {
            let first = (death.queue.clone(), death.reason, death.exchange.clone());
            return Deaths { first, all: vec![death] };
        };
        let same = |known: &Death| known.queue == death.queue && known.reason == death.reason;
        match deaths.all.iter().position(same) {
            Some(index) => {
                let mut known = deaths.all.remove(index);
                known.count += 1;
                deaths.all.insert(0, known);
            }
            None => deaths.all.insert(0, death),
        }
        deaths.all.truncate(DEATHS_MAX);
        deaths
    }

    /// Whether a record that comes into this queue goes round in a circle by itself: it has died there before, and nobody
    /// has rejected it since (RabbitMQ then drops it).
    fn is_a_circle(&self, queue: &str) -> bool {
        let Some(died) = self.all.iter().position(|death| death.queue == queue) else { return false };
        self.all.iter().take(died + 1).all(|death| death.reason != DeadReason::Rejected)
    }
}

impl DeadLetter {
    /// Whether the record may come into a queue, having died of this.
    pub(crate) fn may_enter(&self, queue: &str) -> bool {
        self.deaths.all.first().is_none_or(|last| last.reason == DeadReason::Rejected)
            || !self.deaths.is_a_circle(queue)
    }
}

/// What becomes of a record that died in a queue: where it goes, and what is noted on it.
pub(crate) fn dead_letter(
    mut record: Record,
    queue: &str,
    reason: DeadReason,
    now: TimestampMs,
    exchange: &str,
    routing_key: Option<&str>,
) -> DeadLetter {
    let before = Deaths::of(&record);
    let text = |record: &Record, name: &str| {
        let found = record.headers.iter().find(|header| header.key == name);
        found.and_then(|header| header.value.clone()).unwrap_or_default()
    };
    let published_to = String::from_utf8_lossy(&text(&record, EXCHANGE_HEADER)).into_owned();
    let own_key = text(&record, ROUTING_KEY_HEADER);
    let expiration = text(&record, EXPIRATION_HEADER);
    let FurtherKeys { copies, blind } = further_keys(&record);
    let death = Death {
        queue: queue.to_owned(),
        reason,
        count: 1,
        time: now,
        exchange: published_to,
        keys: std::iter::once(own_key.clone()).chain(copies.iter().cloned()).collect(),
        expiration: (!expiration.is_empty()).then(|| String::from_utf8_lossy(&expiration).into_owned()),
    };
    let deaths = Deaths::add(before, death);
    let (key, further) = match routing_key {
        None => (own_key, copies.into_iter().chain(blind).collect()),
        // The queue says where its dead go, and nobody else.
        Some(key) => {
            record.headers.retain(|header| header.key != KEYS_HEADER);
            (Bytes::copy_from_slice(key.as_bytes()), Vec::new())
        }
    };
    // It would otherwise die of the same once more, and at once.
    let gone = [DEATHS_HEADER, EXPIRES_HEADER, EXPIRATION_HEADER, EXCHANGE_HEADER, ROUTING_KEY_HEADER];
    record.headers.retain(|header| !gone.contains(&header.key.as_str()));
    let header = |name: &str, value: Bytes| Header { key: name.to_owned(), value: Some(value) };
    let address = [
        header(EXCHANGE_HEADER, Bytes::copy_from_slice(exchange.as_bytes())),
        header(ROUTING_KEY_HEADER, key.clone()),
    ];
    record.headers.splice(0..0, address);
    record.headers.push(header(DEATHS_HEADER, deaths.encode()));
    record.timestamp = now;
    let keys = std::iter::once(key).chain(further).collect();
    DeadLetter { record, exchange: exchange.to_owned(), keys, deaths }
}

/// The header of a record that was published by several keys at once: the others than its routing key. A front puts it
/// there, and takes away what its clients see of them where it is gone.
pub const KEYS_HEADER: &str = "weir.keys";

/// Keys of a record beside its routing key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FurtherKeys {
    /// Those that whoever reads it sees.
    pub copies: Vec<Bytes>,
    /// Those that nobody sees.
    pub blind: Vec<Bytes>,
}

/// The header by which a record tells of further keys; none if it has none.
pub fn keys_header(keys: &FurtherKeys) -> Option<Header> {
    if *keys == FurtherKeys::default() {
        return None;
    }
    let mut out = Writer::new();
    for keys in [&keys.copies, &keys.blind] {
        out.list(keys, |out, key| out.bytes(key));
    }
    Some(Header { key: KEYS_HEADER.to_owned(), value: Some(out.finish()) })
}

/// Further keys of a record; none if there are none, or if what stands there cannot be read.
fn further_keys(record: &Record) -> FurtherKeys {
    let header = record.headers.iter().rev().find(|header| header.key == KEYS_HEADER);
    let Some(value) = header.and_then(|header| header.value.clone()) else { return FurtherKeys::default() };
    let mut reader = Reader::new("keys", value);
    let mut list = || reader.list(4, |reader| reader.bytes()).unwrap_or_default();
    FurtherKeys { copies: list(), blind: list() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let header = |name: &str, value: &'static [u8]| Header {
            key: name.to_owned(),
            value: Some(Bytes::from_static(value)),
        };
        let headers = vec![
            header(EXCHANGE_HEADER, b"orders"),
            header(ROUTING_KEY_HEADER, b"eu"),
            header("kind", b"a"),
            header(EXPIRATION_HEADER, b"50"),
            header(EXPIRES_HEADER, &[0; 8]),
        ];
        Record { timestamp: 5, value: Some(Bytes::from_static(b"v")), headers, ..Record::default() }
    }

    fn die(record: Record, queue: &str, reason: DeadReason) -> DeadLetter {
        dead_letter(record, queue, reason, 1_000, "dlx", None)
    }

    #[test]
    fn a_death_is_noted_with_where_and_why_and_the_record_may_wait_again() {
        let letter = dead_letter(record(), "q", DeadReason::Expired, 1_000, "dlx", Some("key"));
        assert_eq!((letter.exchange.as_str(), &letter.keys[0][..]), ("dlx", b"key".as_slice()));
        let names: Vec<&str> = letter.record.headers.iter().map(|header| header.key.as_str()).collect();
        assert_eq!(names, [EXCHANGE_HEADER, ROUTING_KEY_HEADER, "kind", DEATHS_HEADER]);
        let deaths = Deaths::of(&letter.record).unwrap();
        assert_eq!(deaths.first, ("q".into(), DeadReason::Expired, "orders".into()));
        let death = &deaths.all[0];
        assert_eq!((death.count, death.time, death.expiration.as_deref()), (1, 1_000, Some("50")));
        assert_eq!(death.keys, [Bytes::from_static(b"eu")]);
    }

    #[test]
    fn deaths_of_the_same_kind_are_counted_and_the_newest_stands_first() {
        let mut dying = record();
        for (queue, reason) in [
            ("a", DeadReason::Rejected),
            ("b", DeadReason::Expired),
            ("a", DeadReason::Rejected),
            ("a", DeadReason::MaxLength),
        ] {
            dying = die(dying, queue, reason).record;
        }
        let deaths = Deaths::of(&dying).unwrap();
        let seen: Vec<_> = deaths.all.iter().map(|d| (d.queue.as_str(), d.reason, d.count)).collect();
        let expected =
            [("a", DeadReason::MaxLength, 1), ("a", DeadReason::Rejected, 2), ("b", DeadReason::Expired, 1)];
        assert_eq!(seen, expected);
        assert_eq!(deaths.first.0, "a");
    }

    #[test]
    fn a_record_dies_by_all_its_keys_unless_its_queue_says_by_which() {
        let [visible, blind] = ["copy", "blind"].map(|key| vec![Bytes::from(key)]);
        let mut copied = record();
        copied.headers.extend(keys_header(&FurtherKeys { copies: visible.clone(), blind: blind.clone() }));
        let letter = die(copied.clone(), "q", DeadReason::Rejected);
        assert_eq!(letter.keys, [Bytes::from("eu"), visible[0].clone(), blind[0].clone()]);
        assert_eq!(Deaths::of(&letter.record).unwrap().all[0].keys, [Bytes::from("eu"), visible[0].clone()]);
        assert_eq!(die(letter.record, "q2", DeadReason::Rejected).keys.len(), 3, "also the next time");
        let letter = dead_letter(copied, "q", DeadReason::Rejected, 1_000, "dlx", Some("key"));
        assert_eq!(letter.keys, [Bytes::from("key")]);
        assert!(letter.record.headers.iter().all(|header| header.key != KEYS_HEADER));
        assert_eq!(keys_header(&FurtherKeys::default()), None);
    }

    #[test]
    fn what_goes_round_by_itself_is_dropped() {
        let once = die(record(), "q", DeadReason::Expired);
        assert!(!once.may_enter("q") && once.may_enter("other"));
        let elsewhere = die(once.record, "other", DeadReason::Expired);
        assert!(!elsewhere.may_enter("q") && !elsewhere.may_enter("other") && elsewhere.may_enter("third"));
        let rejected = die(elsewhere.record, "third", DeadReason::Rejected);
        assert!(rejected.may_enter("q"), "somebody had a hand in it");
        let again = die(rejected.record, "fourth", DeadReason::Expired);
        assert!(again.may_enter("q") && !again.may_enter("fourth"));
    }

    #[test]
    fn nonsense_in_the_header_is_no_death() {
        for value in [&b""[..], b"\x02", b"\x01\xff\xff\xff\xff", &[1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]]
        {
            let mut record = record();
            record
                .headers
                .push(Header { key: DEATHS_HEADER.into(), value: Some(Bytes::copy_from_slice(value)) });
            assert_eq!(Deaths::of(&record), None);
        }
    }
}
