//! The keys of the batches that came to a partition last: a batch whose key is known is a repeat.
//!
//! A window is a list of keys in the order in which they came, with where the batch of each went. The oldest go when
//! there are too many, and when their time is over. All that can be told of a window from outside follows from that
//! list. It is kept twice, so that both its ends and any key are found: by key, in buckets, and by the order, in runs;
//! both are shared with checkpoints until they change.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::command::Appended;
use weir_model::unique::UniqueHash;
use weir_model::wire::{DecodeError, Reader, Writer};
use weir_model::{Offset, TimestampMs};

use crate::limits::KEYS_PER_WINDOW_MAX;

/// Keys of one run of the order.
const RUN_MAX: usize = 1_024;

/// What is known of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Noted {
    pub base_offset: Offset,
    pub last_offset: Offset,
    pub leader_epoch: i32,
    pub time: TimestampMs,
    /// Known before this time.
    pub expires_at: TimestampMs,
    /// Known only as long as the records are not settled.
    pub until_settled: bool,
}

/// A key's place in the order, and what is known of it.
#[derive(Clone, Copy, Debug)]
struct Entry {
    serial: u64,
    noted: Noted,
}

/// One window of a partition.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window {
    /// By the first byte of the key.
    buckets: BTreeMap<u8, Arc<BTreeMap<UniqueHash, Entry>>>,
    /// By the serial of each run's first key. Keys that went since, or came again, are void where they were.
    runs: BTreeMap<u64, Arc<Vec<UniqueHash>>>,
    /// Everything before it in the order is void.
    first: u64,
    /// The next to be given out.
    next: u64,
    len: usize,
}

impl PartialEq for Window {
    fn eq(&self, other: &Window) -> bool {
        self.len == other.len && self.iter().eq(other.iter())
    }
}

impl Eq for Window {}

impl Noted {
    pub(crate) fn new(appended: &Appended, expires_at: TimestampMs, until_settled: bool) -> Noted {
        Noted {
            base_offset: appended.base_offset,
            last_offset: appended.last_offset,
            leader_epoch: appended.leader_epoch,
            time: appended.time,
            expires_at,
            until_settled,
        }
    }

    /// The answer to whoever brings the same again.
    pub(crate) fn repeated(&self, log_start: Offset) -> Appended {
        Appended {
            base_offset: self.base_offset,
            last_offset: self.last_offset,
            log_start,
            leader_epoch: self.leader_epoch,
            time: self.time,
            duplicate: true,
        }
    }
}

impl Window {
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// What is known of a key, whether or not its time is over.
    pub(crate) fn get(&self, hash: &UniqueHash) -> Option<&Noted> {
        Some(&self.buckets.get(&hash[0])?.get(hash)?.noted)
    }

    /// All keys in the order in which they came.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (UniqueHash, Noted)> + '_ {
        let all = self.runs.iter().flat_map(|(first, run)| (*first..).zip(run.iter()));
        all.filter_map(|(serial, hash)| {
            let entry = self.entry(hash).filter(|entry| entry.serial == serial)?;
            Some((*hash, entry.noted))
        })
    }

    /// Notes a key as the newest, known or not. Keys at the old end go before that, while `is_over` says so or there
    /// are not fewer than `keys_max`.
    pub(crate) fn note(
        &mut self,
        hash: UniqueHash,
        noted: Noted,
        keys_max: u32,
        is_over: impl Fn(&Noted) -> bool,
    ) {
        let keys_max = (keys_max as usize).clamp(1, KEYS_PER_WINDOW_MAX);
        self.remove(&hash);
        while let Some((oldest, known)) = self.oldest() {
            if self.len < keys_max && !is_over(&known) {
                break;
            }
            self.remove(&oldest);
        }
        self.push(hash, noted);
        // Void places in the middle are let go when there are more of them than keys.
        if (self.next - self.first) as usize > 2 * self.len + RUN_MAX {
            self.renumber();
        }
    }

    fn entry(&self, hash: &UniqueHash) -> Option<&Entry> {
        self.buckets.get(&hash[0])?.get(hash)
    }

    fn push(&mut self, hash: UniqueHash, noted: Noted) {
        let serial = self.next;
        self.next += 1;
        let last = self.runs.last_entry().filter(|run| run.get().len() < RUN_MAX);
        match last {
            Some(mut run) => Arc::make_mut(run.get_mut()).push(hash),
            None => drop(self.runs.insert(serial, Arc::new(vec![hash]))),
        }
        let bucket = self.buckets.entry(hash[0]).or_default();
        if Arc::make_mut(bucket).insert(hash, Entry { serial, noted }).is_none() {
            self.len += 1;
        }
    }

    fn remove(&mut self, hash: &UniqueHash) {
        let Some(bucket) = self.buckets.get_mut(&hash[0]) else { return };
        if !bucket.contains_key(hash) {
            return;
        }
        self.len -= 1;
        if bucket.len() == 1 {
            self.buckets.remove(&hash[0]);
        } else {
            Arc::make_mut(bucket).remove(hash);
        }
    }

    /// The oldest key; runs that have become void are let go.
    fn oldest(&mut self) -> Option<(UniqueHash, Noted)> {
        while let Some((begin, run)) = self.runs.first_key_value() {
            let begin = *begin;
            for (serial, hash) in (begin..).zip(run.iter()).skip((self.first.max(begin) - begin) as usize) {
                let live = self.entry(hash).filter(|entry| entry.serial == serial).map(|entry| entry.noted);
                if let Some(noted) = live {
                    self.first = serial;
                    return Some((*hash, noted));
                }
            }
            self.first = begin + run.len() as u64;
            // The last run is gone on with, so that serials within a run stay dense.
            if self.runs.len() == 1 {
                return None;
            }
            self.runs.pop_first();
        }
        None
    }

    /// The same keys in the same order, without void places.
    fn renumber(&mut self) {
        let all: Vec<_> = self.iter().collect();
        *self = Window::default();
        all.into_iter().for_each(|(hash, noted)| self.push(hash, noted));
    }

    pub(crate) fn encode(&self, out: &mut Writer) {
        out.u32(self.len as u32);
        for (hash, noted) in self.iter() {
            out.raw(&hash);
            out.i64(noted.base_offset);
            out.i64(noted.last_offset);
            out.i32(noted.leader_epoch);
            out.i64(noted.time);
            out.i64(noted.expires_at);
            out.u8(u8::from(noted.until_settled));
        }
    }

    pub(crate) fn decode(reader: &mut Reader) -> Result<Window, DecodeError> {
        let keys = reader.list(53, |r| {
            let hash: UniqueHash = r.array()?;
            let noted = Noted {
                base_offset: r.i64()?,
                last_offset: r.i64()?,
                leader_epoch: r.i32()?,
                time: r.i64()?,
                expires_at: r.i64()?,
                until_settled: r.bool()?,
            };
            Ok((hash, noted))
        })?;
        if keys.len() > KEYS_PER_WINDOW_MAX {
            return Err(reader.error("more keys than a window may have"));
        }
        let mut window = Window::default();
        for (hash, noted) in keys {
            if window.get(&hash).is_some() {
                return Err(reader.error("a key is there twice"));
            }
            window.push(hash, noted);
        }
        Ok(window)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hash(number: u16) -> UniqueHash {
        let mut hash = [0; 16];
        hash[..2].copy_from_slice(&number.wrapping_mul(0x9e37).to_be_bytes());
        hash[2..4].copy_from_slice(&number.to_be_bytes());
        hash
    }

    fn noted(offset: Offset, expires_at: TimestampMs) -> Noted {
        Noted {
            base_offset: offset,
            last_offset: offset,
            leader_epoch: 0,
            time: 0,
            expires_at,
            until_settled: false,
        }
    }

    fn reloaded(window: &Window) -> Window {
        let mut out = Writer::new();
        window.encode(&mut out);
        Window::decode(&mut Reader::new("a window", out.finish())).unwrap()
    }

    #[test]
    fn one_old_key_does_not_keep_places_of_keys_that_come_again_and_again() {
        let mut window = Window::default();
        window.note(hash(0), noted(0, i64::MAX), 10, |_| false);
        (1..100_000).for_each(|offset| window.note(hash(1), noted(offset, 0), 10, |_| false));
        assert_eq!(window.len(), 2);
        assert!(window.runs.len() <= 3, "{}", window.runs.len());
        assert_eq!(window.iter().map(|(_, noted)| noted.base_offset).collect::<Vec<_>>(), [0, 99_999]);
    }

    proptest! {
        #[test]
        fn a_window_is_a_list_of_keys(
            steps in proptest::collection::vec((0u16..40, 0i64..100, 1u32..20, any::<bool>()), 0..3_000),
        ) {
            let (mut window, mut model) = (Window::default(), Vec::<(UniqueHash, Noted)>::new());
            for (now, (number, lives, keys_max, reload)) in (0i64..).zip(steps) {
                let (hash, noted) = (hash(number), noted(now, now + lives));
                window.note(hash, noted, keys_max, |known| known.expires_at <= now);
                model.retain(|(known, _)| *known != hash);
                while model.first().is_some_and(|(_, known)| {
                    model.len() >= keys_max as usize || known.expires_at <= now
                }) {
                    model.remove(0);
                }
                model.push((hash, noted));
                prop_assert_eq!(window.len(), model.len());
                prop_assert_eq!(window.get(&hash), Some(&noted));
                if reload && number == 7 {
                    let loaded = reloaded(&window);
                    prop_assert_eq!(&loaded, &window);
                    window = loaded;
                }
            }
            prop_assert_eq!(window.iter().collect::<Vec<_>>(), model);
        }
    }
}
