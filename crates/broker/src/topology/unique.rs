//! Queues that take no message twice, as RabbitMQ's deduplication plugin has them: what their arguments say, and the
//! key of a message.

use bytes::Bytes;
use sha2::{Digest, Sha256};
use weir_model::batch::Record;
use weir_model::unique::{UniqueHash, UniqueKey, WindowKind};
use weir_model::{Offset, PartitionId, TimestampMs};

use super::arguments::{InvalidArgument, Reader};
use crate::queues::{QueueRecord, Ttl};

/// The header whose value tells messages apart. Messages without it are all taken.
pub const DEDUPLICATION_HEADER: &str = "x-deduplication-header";

/// How long a message's key is known, in milliseconds: an argument of the queue and a header of the message.
const TTL: &str = "x-cache-ttl";

/// Keys that are known at most (`x-cache-size`), and without that argument.
const KEYS_MAX: i64 = weir_shard::limits::KEYS_PER_WINDOW_MAX as i64;

/// Records that came from elsewhere are known for this long, in milliseconds: longer than it takes until somebody
/// knows that they have come.
const MOVED_KNOWN_MS: TimestampMs = 24 * 3600 * 1000;

/// Records that came from elsewhere of which a partition knows: many times those that can be on their way.
const MOVED_KNOWN_MAX: u32 = 65_536;

/// What a queue that takes no message twice knows, and how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UniqueWindow {
    /// Keys that are known at most; then the oldest go.
    pub keys_max: u32,
    /// A key is known for this long, in milliseconds, whatever becomes of its message; without that, as long as its
    /// message is in the queue.
    pub ttl_ms: Option<TimestampMs>,
    /// Messages wait at most this long, in milliseconds.
    pub queue_ttl_ms: Option<TimestampMs>,
}

impl UniqueWindow {
    /// What a queue's arguments say; none if it takes everything.
    pub(super) fn read(
        reader: &Reader<'_>,
        queue_ttl_ms: Option<TimestampMs>,
    ) -> Result<Option<UniqueWindow>, InvalidArgument> {
        if !reader.flag("x-message-deduplication")? {
            return Ok(None);
        }
        let keys_max = reader.number("x-cache-size", 1, KEYS_MAX)?.unwrap_or(KEYS_MAX);
        let ttl_ms = reader.number(TTL, 1, i64::from(u32::MAX))?;
        Ok(Some(UniqueWindow { keys_max: u32::try_from(keys_max).unwrap_or(u32::MAX), ttl_ms, queue_ttl_ms }))
    }

    /// The key of a message that is published now; none if it has none.
    pub(super) fn key_of(&self, record: &Record, now: TimestampMs) -> Option<UniqueKey> {
        let header = record.headers.iter().rev().find(|header| header.key == DEDUPLICATION_HEADER)?;
        let ttl_ms = ttl_of(record).or(self.ttl_ms);
        let expires_at = match ttl_ms {
            Some(ttl_ms) => now.saturating_add(ttl_ms),
            None => QueueRecord::new(
                record.clone(),
                self.queue_ttl_ms.map(|ms| Ttl { ms, now: record.timestamp }),
            )
            .expires_at
            .unwrap_or(TimestampMs::MAX),
        };
        Some(UniqueKey {
            window: WindowKind::Business,
            hash: business_hash(header.value.as_ref()),
            expires_at,
            keys_max: self.keys_max,
            until_settled: ttl_ms.is_none(),
        })
    }
}

/// The key by which a partition knows a record that came from another one.
pub(crate) fn moved_key(from: PartitionId, offset: Offset, now: TimestampMs) -> UniqueKey {
    let mut digest = Sha256::new();
    digest.update(from.0.to_le_bytes());
    digest.update(offset.to_le_bytes());
    UniqueKey {
        window: WindowKind::Moved,
        hash: first_half(digest),
        expires_at: now.saturating_add(MOVED_KNOWN_MS),
        keys_max: MOVED_KNOWN_MAX,
        until_settled: false,
    }
}

fn ttl_of(record: &Record) -> Option<TimestampMs> {
    let header = record.headers.iter().rev().find(|header| header.key == TTL)?;
    std::str::from_utf8(header.value.as_deref()?).ok()?.parse().ok().filter(|ttl| *ttl > 0)
}

/// Numbers are in records as their digits, so that 42 and "42" are the same key, whatever protocol it came by.
fn business_hash(value: Option<&Bytes>) -> UniqueHash {
    let mut digest = Sha256::new();
    match value {
        Some(value) => {
            digest.update([1]);
            digest.update(value);
        }
        // No value is a value.
        None => digest.update([0]),
    }
    first_half(digest)
}

fn first_half(digest: Sha256) -> UniqueHash {
    let mut hash = UniqueHash::default();
    hash.iter_mut().zip(digest.finalize()).for_each(|(to, from)| *to = from);
    hash
}

#[cfg(test)]
mod tests {
    use weir_model::batch::Header;

    use super::*;

    fn record(headers: &[(&str, Option<&str>)]) -> Record {
        let header = |(name, value): &(&str, Option<&str>)| Header {
            key: (*name).to_owned(),
            value: value.map(|value| Bytes::copy_from_slice(value.as_bytes())),
        };
        Record { timestamp: 1_000, headers: headers.iter().map(header).collect(), ..Record::default() }
    }

    fn window(ttl_ms: Option<i64>, queue_ttl_ms: Option<i64>) -> UniqueWindow {
        UniqueWindow { keys_max: 7, ttl_ms, queue_ttl_ms }
    }

    fn hash(value: Option<&str>) -> UniqueHash {
        window(None, None).key_of(&record(&[(DEDUPLICATION_HEADER, value)]), 0).unwrap().hash
    }

    #[test]
    fn only_the_header_tells_messages_apart() {
        assert_eq!(window(None, None).key_of(&record(&[("other", Some("a"))]), 0), None);
        assert_eq!(hash(Some("a")), hash(Some("a")));
        let all = [hash(Some("a")), hash(Some("b")), hash(Some("")), hash(None)];
        assert!((0..4).all(|at| all[at + 1..].iter().all(|other| *other != all[at])));
    }

    #[test]
    fn a_key_is_known_while_its_message_waits_or_for_as_long_as_was_said() {
        let key = |window: UniqueWindow, headers: &[(&str, Option<&str>)]| {
            let mut all = vec![(DEDUPLICATION_HEADER, Some("a"))];
            all.extend(headers);
            let key = window.key_of(&record(&all), 5_000).unwrap();
            (key.expires_at, key.until_settled)
        };
        assert_eq!(key(window(None, None), &[]), (i64::MAX, true));
        assert_eq!(key(window(None, Some(300)), &[]), (1_300, true));
        assert_eq!(key(window(Some(2_000), Some(300)), &[]), (7_000, false));
        assert_eq!(key(window(Some(2_000), None), &[(TTL, Some("10"))]), (5_010, false));
        assert_eq!(key(window(None, None), &[(TTL, Some("soon"))]), (i64::MAX, true));
    }
}
