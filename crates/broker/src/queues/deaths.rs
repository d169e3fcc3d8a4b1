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

/// The header of a record that was published by several keys: all but its own, as `key bytes*`.
pub const COPIES_HEADER: &str = "weir.copies";

/// The headers in which a message's address is kept.
const EXCHANGE_HEADER: &str = "amqp.exchange";
const ROUTING_KEY_HEADER: &str = "amqp.routing-key";
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
    /// How long it was to wait at most, as its publisher said, if that is what it died of.
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
}

/// The header that notes further keys of a record.
pub fn copies_header(keys: &[Bytes]) -> Header {
    let mut out = Writer::new();
    out.list(keys, |out, key| out.bytes(key));
    Header { key: COPIES_HEADER.to_owned(), value: Some(out.finish()) }
}

/// The further keys of a record; none if they cannot be read.
fn copies_of(record: &Record) -> Vec<Bytes> {
    let header = record.headers.iter().find(|header| header.key == COPIES_HEADER);
    let Some(value) = header.and_then(|header| header.value.clone()) else { return Vec::new() };
    Reader::new("copies", value).list(4, |reader| reader.bytes()).unwrap_or_default()
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

    /// Whether a record that dies in this queue once more goes round in a circle by itself: it has died here before,
    /// and nobody has rejected it on the way (RabbitMQ then drops it).
    fn is_a_circle(&self, queue: &str) -> bool {
        self.all.iter().any(|death| death.queue == queue)
            && self.all.iter().all(|death| death.reason != DeadReason::Rejected)
    }
}

/// What becomes of a record that died in a queue: where it goes, and what is noted on it. Nothing if it goes round in a
/// circle.
pub(crate) fn dead_letter(
    mut record: Record,
    queue: &str,
    reason: DeadReason,
    now: TimestampMs,
    exchange: &str,
    routing_key: Option<&str>,
) -> Option<DeadLetter> {
    let before = Deaths::of(&record);
    if reason != DeadReason::Rejected && before.as_ref().is_some_and(|deaths| deaths.is_a_circle(queue)) {
        return None;
    }
    let text = |record: &Record, name: &str| {
        let found = record.headers.iter().find(|header| header.key == name);
        found.and_then(|header| header.value.clone()).unwrap_or_default()
    };
    let published_to = String::from_utf8_lossy(&text(&record, EXCHANGE_HEADER)).into_owned();
    let own_key = text(&record, ROUTING_KEY_HEADER);
    let expiration = text(&record, EXPIRATION_HEADER);
    let expires = reason == DeadReason::Expired && !expiration.is_empty();
    let mut keys = vec![own_key.clone()];
    keys.extend(copies_of(&record));
    let death = Death {
        queue: queue.to_owned(),
        reason,
        count: 1,
        time: now,
        exchange: published_to,
        keys: keys.clone(),
        expiration: expires.then(|| String::from_utf8_lossy(&expiration).into_owned()),
    };
    let deaths = Deaths::add(before, death);
    let key = routing_key.map_or(own_key, |key| Bytes::copy_from_slice(key.as_bytes()));
    if routing_key.is_some() {
        // The one that was declared stands for all that it had.
        keys = vec![key.clone()];
        record.headers.retain(|header| header.key != COPIES_HEADER);
    }
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
    Some(DeadLetter { record, exchange: exchange.to_owned(), keys })
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

    fn die(record: Record, queue: &str, reason: DeadReason) -> Option<Record> {
        dead_letter(record, queue, reason, 1_000, "dlx", None).map(|letter| letter.record)
    }

    #[test]
    fn a_death_is_noted_with_where_and_why_and_the_record_may_wait_again() {
        let letter = dead_letter(record(), "q", DeadReason::Expired, 1_000, "dlx", Some("key")).unwrap();
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
            dying = die(dying, queue, reason).unwrap();
        }
        let deaths = Deaths::of(&dying).unwrap();
        let seen: Vec<_> = deaths.all.iter().map(|d| (d.queue.as_str(), d.reason, d.count)).collect();
        let expected =
            [("a", DeadReason::MaxLength, 1), ("a", DeadReason::Rejected, 2), ("b", DeadReason::Expired, 1)];
        assert_eq!(seen, expected);
        assert_eq!(deaths.first.0, "a");
    }

    #[test]
    fn a_record_dies_with_all_its_keys_unless_one_is_declared() {
        let keys = ["eu", "us"].map(|key| Bytes::copy_from_slice(key.as_bytes()));
        let mut record = record();
        record.headers.push(copies_header(&keys[1..]));
        for (declared, further) in [(None, &keys[..]), (Some("key"), &[Bytes::from_static(b"key")][..])] {
            let letter =
                dead_letter(record.clone(), "q", DeadReason::Rejected, 1_000, "dlx", declared).unwrap();
            assert_eq!(letter.keys, further);
            assert_eq!(Deaths::of(&letter.record).unwrap().all[0].keys, keys);
            let again = dead_letter(letter.record, "q2", DeadReason::Rejected, 1_000, "dlx", None).unwrap();
            assert_eq!(again.keys, further);
        }
        record
            .headers
            .push(Header { key: COPIES_HEADER.into(), value: Some(Bytes::from_static(b"\x01\xff")) });
        record.headers.swap_remove(5);
        assert!(dead_letter(record, "q", DeadReason::Rejected, 1_000, "dlx", None).is_some());
    }

    #[test]
    fn what_goes_round_by_itself_is_dropped() {
        let once = die(record(), "q", DeadReason::Expired).unwrap();
        let elsewhere = die(once, "other", DeadReason::Expired).unwrap();
        assert_eq!(die(elsewhere.clone(), "q", DeadReason::Expired), None);
        let rejected = die(elsewhere, "other", DeadReason::Rejected).unwrap();
        assert!(die(rejected, "q", DeadReason::Expired).is_some(), "somebody had a hand in it");
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
