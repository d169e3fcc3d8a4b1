//! Topic exchanges: keys are words between dots, and binding keys patterns of them, in which `*` stands
//! for one word and `#` for any number of words, none included.
//!
//! The patterns of an exchange form a trie of words. A message's key is not walked down it once for every
//! way in which a `#` could be stretched, which takes time exponential in their number (`#.a.#.a.#.a` and
//! a key of many `a`); instead every node is visited once, with the set of all positions in the key at
//! which it is reached:
//!
//! ```text
//!   patterns  a.*  a.#.c       key a.b.c         positions reached
//!                                                0 a 1 b 2 c 3
//!   root ── a ─┬─ *  (a.*)     a                   {1}
//!              │               a.*                 {2}        not 3: no match
//!              └─ # ── c       a.#                 {1,2,3}
//!                   (a.#.c)    a.#.c               {3}        the end: match
//! ```
//!
//! The empty key has no words; a dot at either end or two in a row make an empty word, which `*` stands
//! for as for any other. All as in RabbitMQ (`rabbit_exchange_type_topic`, `rabbit_db_topic_exchange`).

mod positions;

use std::sync::Arc;

use weir_model::routing::BindingMeta;

use super::Bound;
use super::targets::{Target, Targets};
use crate::hash;
use crate::limits::ROUTING_KEY_BYTES_MAX;
use crate::message::Routed;
use crate::route::Route;
use crate::shared_map::SharedMap;
use positions::Positions;

const ONE_WORD: &[u8] = b"*";
const ANY_WORDS: &[u8] = b"#";

#[derive(Clone, Debug, Default)]
pub(crate) struct TopicTable {
    root: Node,
}

/// A prefix of patterns.
#[derive(Clone, Debug, Default)]
struct Node {
    /// Where bindings lead whose pattern ends here.
    targets: Targets,
    words: SharedMap<Arc<[u8]>, Arc<Node>>,
    one_word: Option<Arc<Node>>,
    any_words: Option<Arc<Node>>,
}

/// A word of a message's key: where it stands in it, and its hash.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Word {
    start: usize,
    end: usize,
    hash: u64,
}

fn words(key: &[u8]) -> impl Iterator<Item = &[u8]> {
    let count = if key.is_empty() { 0 } else { usize::MAX };
    key.split(|byte| *byte == b'.').take(count)
}

impl TopicTable {
    pub(super) fn add(&mut self, bound: &Bound<'_>) {
        self.root.add(words(&bound.binding.key), bound.target);
    }

    pub(super) fn remove(&mut self, binding: &BindingMeta, target: &Target) {
        self.root.remove(words(&binding.key), target);
    }

    /// A key beyond [`ROUTING_KEY_BYTES_MAX`] matches nothing.
    pub(super) fn route(&self, message: &Routed<'_>, route: &mut Route) {
        for key in message.keys.iter().copied().filter(|key| key.len() <= ROUTING_KEY_BYTES_MAX) {
            let mut list = std::mem::take(&mut route.words);
            list.clear();
            let mut start = 0;
            for word in words(key) {
                list.push(Word { start, end: start + word.len(), hash: hash::of_bytes(word) });
                start += word.len() + 1;
            }
            Search { key, words: &list, route }.visit_at(&self.root, 0);
            route.words = list;
        }
    }
}

/// One key on its way down the trie.
struct Search<'s> {
    key: &'s [u8],
    words: &'s [Word],
    route: &'s mut Route,
}

impl Search<'_> {
    /// Visits a node that is reached at one position: no `#` is above it.
    fn visit_at(&mut self, node: &Node, position: usize) {
        if position == self.words.len() {
            self.arrive(node);
        } else {
            if let Some(child) = self.child(node, position) {
                self.visit_at(child, position + 1);
            }
            if let Some(child) = &node.one_word {
                self.visit_at(child, position + 1);
            }
        }
        if let Some(child) = &node.any_words {
            self.visit(child, Positions::between(position, self.words.len()));
        }
    }

    /// Visits a node that is reached at several positions: behind a `#`.
    fn visit(&mut self, node: &Node, positions: Positions) {
        let end = self.words.len();
        if positions.contains(end) {
            self.arrive(node);
        }
        let with_next_word = positions.without(end);
        if !node.words.is_empty() {
            let mut left = with_next_word;
            while let Some(position) = left.first() {
                let same = self.with_same_word(left, position);
                left = left.minus(same);
                if let Some(child) = self.child(node, position) {
                    self.visit(child, same.moved_on());
                }
            }
        }
        if let Some(child) = &node.one_word
            && with_next_word.first().is_some()
        {
            self.visit(child, with_next_word.moved_on());
        }
        if let Some(child) = &node.any_words
            && let Some(first) = positions.first()
        {
            self.visit(child, Positions::between(first, end));
        }
    }

    /// The pattern that leads here matches the whole key.
    fn arrive(&mut self, node: &Node) {
        if !node.targets.is_empty() {
            self.route.add_all(&node.targets);
        }
    }

    /// The child for the word at a position, which is not the end.
    fn child<'n>(&self, node: &'n Node, position: usize) -> Option<&'n Node> {
        let word = self.words[position];
        node.words.get_hashed(word.hash, self.text(word)).map(|child| &**child)
    }

    /// Those of the positions at which the same word comes next as at `position`.
    fn with_same_word(&self, positions: Positions, position: usize) -> Positions {
        let word = self.words[position];
        positions.filter(|other| {
            let other = self.words[other];
            other.hash == word.hash && self.text(other) == self.text(word)
        })
    }

    fn text(&self, word: Word) -> &[u8] {
        &self.key[word.start..word.end]
    }
}

impl Node {
    fn add<'k>(&mut self, mut pattern: impl Iterator<Item = &'k [u8]>, target: &Target) {
        match pattern.next() {
            None => self.targets.add(target),
            Some(ONE_WORD) => Arc::make_mut(self.one_word.get_or_insert_default()).add(pattern, target),
            Some(ANY_WORDS) => Arc::make_mut(self.any_words.get_or_insert_default()).add(pattern, target),
            Some(word) => {
                self.words.change(Arc::from(word), |child| Arc::make_mut(child).add(pattern, target));
            }
        }
    }

    fn remove<'k>(&mut self, mut pattern: impl Iterator<Item = &'k [u8]>, target: &Target) {
        let Some(word) = pattern.next() else { return self.targets.remove(target) };
        let child = match word {
            ONE_WORD => self.one_word.as_mut(),
            ANY_WORDS => self.any_words.as_mut(),
            word => self.words.get_mut(word),
        };
        let Some(child) = child.map(Arc::make_mut) else { return };
        child.remove(pattern, target);
        if child.is_empty() {
            match word {
                ONE_WORD => self.one_word = None,
                ANY_WORDS => self.any_words = None,
                word => {
                    self.words.remove(word);
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.targets.is_empty()
            && self.words.is_empty()
            && self.one_word.is_none()
            && self.any_words.is_none()
    }
}
