//! State in chunks. A [`Chunk`] is shared with checkpoints and views, and copied when it changes
//! while shared; it remembers at which index it last changed, so that a checkpoint writes only what
//! is new. [`Buckets`] spreads a map over a fixed number of chunks by a hash that is the same for
//! ever, since bucket numbers stand in checkpoints.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::sync::Arc;

use weir_model::TopicId;

/// Buckets of a map. Cloning a map's root costs this many pointers.
pub(crate) const BUCKETS: usize = 256;

/// A part of the state.
#[derive(Debug)]
pub(crate) struct Chunk<T> {
    value: Arc<T>,
    changed_at: u64,
    digest: Option<u64>,
}

impl<T> Clone for Chunk<T> {
    fn clone(&self) -> Self {
        Chunk { value: Arc::clone(&self.value), changed_at: self.changed_at, digest: self.digest }
    }
}

impl<T> Chunk<T> {
    pub(crate) fn new(value: T, index: u64) -> Chunk<T> {
        Chunk { value: Arc::new(value), changed_at: index, digest: None }
    }

    pub(crate) fn get(&self) -> &T {
        &self.value
    }

    /// Index of the entry that changed it last.
    pub(crate) fn changed_at(&self) -> u64 {
        self.changed_at
    }

    /// The digest of its content, computed once per change.
    pub(crate) fn digest(&mut self, compute: impl FnOnce(&T) -> u64) -> u64 {
        *self.digest.get_or_insert_with(|| compute(&self.value))
    }

    #[cfg(test)]
    pub(crate) fn is_shared_with(&self, other: &Chunk<T>) -> bool {
        Arc::ptr_eq(&self.value, &other.value)
    }
}

impl<T: Clone> Chunk<T> {
    /// For changing it, by the entry at `index`.
    pub(crate) fn change(&mut self, index: u64) -> &mut T {
        self.changed_at = index;
        self.digest = None;
        Arc::make_mut(&mut self.value)
    }
}

/// A key that says which bucket it belongs to. Owned and borrowed forms must agree.
pub(crate) trait BucketKey: Ord {
    fn bucket(&self) -> usize;
}

impl BucketKey for str {
    fn bucket(&self) -> usize {
        crc32c::crc32c(self.as_bytes()) as usize % BUCKETS
    }
}

impl BucketKey for String {
    fn bucket(&self) -> usize {
        self.as_str().bucket()
    }
}

impl BucketKey for [u8] {
    fn bucket(&self) -> usize {
        crc32c::crc32c(self) as usize % BUCKETS
    }
}

impl BucketKey for Vec<u8> {
    fn bucket(&self) -> usize {
        self.as_slice().bucket()
    }
}

impl BucketKey for TopicId {
    fn bucket(&self) -> usize {
        crc32c::crc32c(&self.0) as usize % BUCKETS
    }
}

/// A map in a fixed number of chunks.
#[derive(Debug)]
pub(crate) struct Buckets<K, V> {
    buckets: Vec<Chunk<BTreeMap<K, V>>>,
    len: usize,
}

impl<K, V> Clone for Buckets<K, V> {
    fn clone(&self) -> Self {
        Buckets { buckets: self.buckets.clone(), len: self.len }
    }
}

impl<K, V> Default for Buckets<K, V> {
    fn default() -> Self {
        Buckets { buckets: (0..BUCKETS).map(|_| Chunk::new(BTreeMap::new(), 0)).collect(), len: 0 }
    }
}

impl<K: BucketKey + Clone, V: Clone> Buckets<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn get<Q: BucketKey + ?Sized>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        self.buckets[key.bucket()].get().get(key)
    }

    /// For changing the value of a key, if it is there.
    pub(crate) fn change<Q: BucketKey + ?Sized>(&mut self, key: &Q, index: u64) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        let bucket = &mut self.buckets[key.bucket()];
        if !bucket.get().contains_key(key) {
            return None;
        }
        bucket.change(index).get_mut(key)
    }

    pub(crate) fn insert(&mut self, key: K, value: V, index: u64) -> Option<V> {
        let before = self.buckets[key.bucket()].change(index).insert(key, value);
        self.len += usize::from(before.is_none());
        before
    }

    pub(crate) fn remove<Q: BucketKey + ?Sized>(&mut self, key: &Q, index: u64) -> Option<V>
    where
        K: Borrow<Q>,
    {
        self.get(key)?;
        self.len -= 1;
        self.buckets[key.bucket()].change(index).remove(key)
    }

    /// All entries, bucket by bucket.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.buckets.iter().flat_map(|bucket| bucket.get().iter())
    }

    /// The chunks with something in them, by number.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = (u64, &Chunk<BTreeMap<K, V>>)> {
        (0..).zip(&self.buckets).filter(|(_, chunk)| !chunk.get().is_empty())
    }

    pub(crate) fn chunks_mut(&mut self) -> impl Iterator<Item = (u64, &mut Chunk<BTreeMap<K, V>>)> {
        (0..).zip(&mut self.buckets).filter(|(_, chunk)| !chunk.get().is_empty())
    }
}
