//! A map whose copies share what they have in common: the reason why a router can be changed ten
//! thousand times in a row while publishers hold on to earlier ones.
//!
//! It is a trie over the bits of the key's hash, sixteen ways at each level, with the entries in small
//! leaves:
//!
//! ```text
//!              branch: by bits 63..60 of the hash
//!             ┌──┬──┬──┬──── 16 ────┬──┐
//!             │0 │1 │2 │            │15│
//!             └┬─┴──┴┬─┴────────────┴──┘
//!         leaf ▼     ▼ branch: by bits 59..56
//!   (hash, key, value), up to 32, in the order of hash and key
//! ```
//!
//! A change copies the nodes from the root to one leaf, those of them that somebody else still holds: 16
//! pointers for each of log16(n) levels and up to 32 entries. Iteration is in the order of hashes and so
//! depends on the content alone, never on how it came about.
//!
//! Sixteen ways and leaves of 32 were measured to be as quick to read as any other choice, and to change.

#[cfg(test)]
mod tests;

use std::borrow::Borrow;
use std::fmt;
use std::sync::Arc;

use crate::hash;

/// Children of a branch.
const FANOUT: usize = 16;

/// Bits of the hash that choose among them.
const BITS: u32 = 4;

/// Levels until the hash has no bits left. What collides in all of them shares a leaf of any length.
const DEPTH_MAX: u32 = 64 / BITS;

/// A leaf of more entries is split.
const LEAF_ENTRIES_MAX: usize = 32;

/// A branch of no more entries becomes a leaf again; fewer than make one split, so that a map which
/// swings around either does not pay at every turn.
const BRANCH_ENTRIES_MIN: usize = 16;

/// A key. Owned and borrowed forms must agree in hash and order.
pub(crate) trait Key: Ord {
    /// Where it stands in maps.
    fn hashed(&self) -> u64;
}

impl Key for str {
    fn hashed(&self) -> u64 {
        hash::of_bytes(self.as_bytes())
    }
}

impl Key for [u8] {
    fn hashed(&self) -> u64 {
        hash::of_bytes(self)
    }
}

impl<T: Key + ?Sized> Key for Arc<T> {
    fn hashed(&self) -> u64 {
        (**self).hashed()
    }
}

/// The map.
pub(crate) struct SharedMap<K, V> {
    root: Option<Arc<Node<K, V>>>,
}

#[derive(Clone)]
enum Node<K, V> {
    Leaf(Vec<Entry<K, V>>),
    Branch(Branch<K, V>),
}

#[derive(Clone)]
struct Entry<K, V> {
    hash: u64,
    key: K,
    value: V,
}

#[derive(Clone)]
struct Branch<K, V> {
    /// Entries below it.
    len: usize,
    children: [Option<Arc<Node<K, V>>>; FANOUT],
}

impl<K, V> Clone for SharedMap<K, V> {
    fn clone(&self) -> Self {
        SharedMap { root: self.root.clone() }
    }
}

impl<K, V> Default for SharedMap<K, V> {
    fn default() -> Self {
        SharedMap { root: None }
    }
}

impl<K, V> fmt::Debug for SharedMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} entries", self.len())
    }
}

impl<K, V> SharedMap<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.root.as_ref().map_or(0, |root| root.len())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.root.is_none()
    }

    pub(crate) fn get<Q>(&self, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        self.get_hashed(key.hashed(), key)
    }

    /// The value of a key whose hash is known.
    pub(crate) fn get_hashed<Q>(&self, hash: u64, key: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let mut node = self.root.as_deref()?;
        let mut depth = 0;
        loop {
            match node {
                Node::Branch(branch) => {
                    node = branch.children[slot(hash, depth)].as_deref()?;
                    depth += 1;
                }
                Node::Leaf(entries) => {
                    let at = position(entries, hash, key).ok()?;
                    return Some(&entries[at].value);
                }
            }
        }
    }

    pub(crate) fn contains<Q>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        self.get(key).is_some()
    }

    /// The entry at a place in the order of iteration.
    pub(crate) fn nth(&self, mut index: usize) -> Option<(&K, &V)> {
        let mut node = self.root.as_deref()?;
        loop {
            match node {
                Node::Leaf(entries) => return entries.get(index).map(|entry| (&entry.key, &entry.value)),
                Node::Branch(branch) => {
                    node = branch.children.iter().flatten().find(|child| {
                        let here = index < child.len();
                        if !here {
                            index -= child.len();
                        }
                        here
                    })?;
                }
            }
        }
    }

    /// Every entry in the order of hashes, without an allocation.
    pub(crate) fn for_each<'a>(&'a self, mut each: impl FnMut(&'a K, &'a V)) {
        if let Some(root) = &self.root {
            root.for_each(&mut |entry: &'a Entry<K, V>| each(&entry.key, &entry.value));
        }
    }

    /// Every key in the order of hashes.
    pub(crate) fn keys(&self) -> Vec<&K> {
        let mut keys = Vec::with_capacity(self.len());
        self.for_each(|key, _| keys.push(key));
        keys
    }
}

impl<K: Key + Clone, V: Clone> SharedMap<K, V> {
    /// Sets the value of a key and gives the one before.
    pub(crate) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let entry = Entry { hash: key.hashed(), key, value };
        match &mut self.root {
            Some(root) => insert(root, 0, entry),
            None => {
                self.root = Some(Arc::new(Node::Leaf(vec![entry])));
                None
            }
        }
    }

    /// For changing the value of a key, if it is there.
    pub(crate) fn get_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        // Nothing is copied for a key that is not there.
        let hash = key.hashed();
        self.get_hashed(hash, key)?;
        let mut node = Arc::make_mut(self.root.as_mut()?);
        let mut depth = 0;
        loop {
            match node {
                Node::Branch(branch) => {
                    node = Arc::make_mut(branch.children[slot(hash, depth)].as_mut()?);
                    depth += 1;
                }
                Node::Leaf(entries) => {
                    let at = position(entries, hash, key).ok()?;
                    return Some(&mut entries[at].value);
                }
            }
        }
    }

    /// Changes the value of a key, which is the default one if there was none.
    pub(crate) fn change(&mut self, key: K, change: impl FnOnce(&mut V))
    where
        V: Default,
    {
        match self.get_mut(&key) {
            Some(value) => change(value),
            None => {
                let mut value = V::default();
                change(&mut value);
                self.insert(key, value);
            }
        }
    }

    /// Takes a key out and gives its value.
    pub(crate) fn remove<Q>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
        Q: Key + ?Sized,
    {
        let hash = key.hashed();
        self.get_hashed(hash, key)?;
        let root = self.root.as_mut()?;
        let value = remove(root, 0, hash, key);
        if root.len() == 0 {
            self.root = None;
        }
        value
    }
}

impl<K, V> Node<K, V> {
    fn len(&self) -> usize {
        match self {
            Node::Leaf(entries) => entries.len(),
            Node::Branch(branch) => branch.len,
        }
    }

    fn for_each<'a>(&'a self, each: &mut impl FnMut(&'a Entry<K, V>)) {
        match self {
            Node::Leaf(entries) => entries.iter().for_each(each),
            Node::Branch(branch) => branch.children.iter().flatten().for_each(|child| child.for_each(each)),
        }
    }
}

fn slot(hash: u64, depth: u32) -> usize {
    (hash >> (64 - BITS * (depth + 1))) as usize % FANOUT
}

/// Where a key stands in a leaf, or where it would.
fn position<K, V, Q>(entries: &[Entry<K, V>], hash: u64, key: &Q) -> Result<usize, usize>
where
    K: Borrow<Q>,
    Q: Key + ?Sized,
{
    entries.binary_search_by(|entry| {
        entry.hash.cmp(&hash).then_with(|| Borrow::<Q>::borrow(&entry.key).cmp(key))
    })
}

fn insert<K: Key + Clone, V: Clone>(node: &mut Arc<Node<K, V>>, depth: u32, entry: Entry<K, V>) -> Option<V> {
    let node = Arc::make_mut(node);
    match node {
        Node::Branch(branch) => {
            let before = match &mut branch.children[slot(entry.hash, depth)] {
                Some(child) => insert(child, depth + 1, entry),
                empty => {
                    *empty = Some(Arc::new(Node::Leaf(vec![entry])));
                    None
                }
            };
            branch.len += usize::from(before.is_none());
            before
        }
        Node::Leaf(entries) => match position(entries, entry.hash, &entry.key) {
            Ok(at) => Some(std::mem::replace(&mut entries[at].value, entry.value)),
            Err(at) => {
                entries.insert(at, entry);
                if entries.len() > LEAF_ENTRIES_MAX {
                    let entries = std::mem::take(entries);
                    *node = grown(entries, depth);
                }
                None
            }
        },
    }
}

/// A leaf, or the branch that so many entries need.
fn grown<K, V>(entries: Vec<Entry<K, V>>, depth: u32) -> Node<K, V> {
    if entries.len() <= LEAF_ENTRIES_MAX || depth == DEPTH_MAX {
        return Node::Leaf(entries);
    }
    let len = entries.len();
    let mut parts: [Vec<Entry<K, V>>; FANOUT] = Default::default();
    for entry in entries {
        parts[slot(entry.hash, depth)].push(entry);
    }
    let child = |part: Vec<Entry<K, V>>| (!part.is_empty()).then(|| Arc::new(grown(part, depth + 1)));
    Node::Branch(Branch { len, children: parts.map(child) })
}

/// Takes out a key that is there.
fn remove<K: Key + Clone + Borrow<Q>, V: Clone, Q: Key + ?Sized>(
    node: &mut Arc<Node<K, V>>,
    depth: u32,
    hash: u64,
    key: &Q,
) -> Option<V> {
    let node = Arc::make_mut(node);
    match node {
        Node::Leaf(entries) => position(entries, hash, key).ok().map(|at| entries.remove(at).value),
        Node::Branch(branch) => {
            let child = &mut branch.children[slot(hash, depth)];
            let value = remove(child.as_mut()?, depth + 1, hash, key)?;
            if child.as_ref().is_some_and(|child| child.len() == 0) {
                *child = None;
            }
            branch.len -= 1;
            if branch.len <= BRANCH_ENTRIES_MIN {
                let mut entries = Vec::with_capacity(branch.len);
                node.for_each(&mut |entry: &Entry<K, V>| entries.push(entry.clone()));
                *node = Node::Leaf(entries);
            }
            Some(value)
        }
    }
}
