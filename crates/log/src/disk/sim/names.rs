//! The simulated directory tree: the names as programs see them, the names as the device has them,
//! and the changes between.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::seed::Seed;

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Directory,
    File(u64),
}

/// A change of names that is not durable yet.
#[derive(Clone, Debug)]
enum Change {
    Link(PathBuf, Node),
    Unlink(PathBuf),
    Rename { from: PathBuf, to: PathBuf, node: Node },
}

#[derive(Debug, Default)]
pub(super) struct Names {
    seen: BTreeMap<PathBuf, Node>,
    stored: BTreeMap<PathBuf, Node>,
    pending: Vec<Change>,
}

impl Names {
    pub(super) fn get(&self, path: &Path) -> Option<Node> {
        if path.parent().is_none() || path.as_os_str().is_empty() {
            return Some(Node::Directory);
        }
        self.seen.get(path).copied()
    }

    pub(super) fn is_dir(&self, path: &Path) -> bool {
        self.get(path) == Some(Node::Directory)
    }

    /// The names directly below a directory.
    pub(super) fn children<'a>(&'a self, directory: &'a Path) -> impl Iterator<Item = (&'a Path, Node)> {
        self.seen
            .iter()
            .filter(move |(path, _)| path.parent() == Some(directory))
            .map(|(path, node)| (path.as_path(), *node))
    }

    /// Every file that a name stands for, seen or stored, or may stand for after a power loss.
    pub(super) fn files(&self) -> impl Iterator<Item = u64> {
        let pending = self.pending.iter().filter_map(|change| match change {
            Change::Link(_, node) | Change::Rename { node, .. } => Some(node),
            Change::Unlink(_) => None,
        });
        self.seen.values().chain(self.stored.values()).chain(pending).filter_map(|node| match node {
            Node::File(id) => Some(*id),
            Node::Directory => None,
        })
    }

    pub(super) fn link(&mut self, path: &Path, node: Node) {
        self.seen.insert(path.to_owned(), node);
        self.pending.push(Change::Link(path.to_owned(), node));
    }

    pub(super) fn unlink(&mut self, path: &Path) {
        self.seen.remove(path);
        self.pending.push(Change::Unlink(path.to_owned()));
    }

    pub(super) fn rename(&mut self, from: &Path, to: &Path, node: Node) {
        self.seen.remove(from);
        self.seen.insert(to.to_owned(), node);
        self.pending.push(Change::Rename { from: from.to_owned(), to: to.to_owned(), node });
    }

    pub(super) fn sync(&mut self, directory: &Path) {
        for change in std::mem::take(&mut self.pending) {
            let place = match &change {
                Change::Link(path, _) | Change::Unlink(path) => path.parent(),
                Change::Rename { to, .. } => to.parent(),
            };
            if place == Some(directory) {
                apply(&mut self.stored, &change);
            } else {
                self.pending.push(change);
            }
        }
    }

    pub(super) fn sync_all(&mut self) {
        self.pending.clear();
        self.stored = self.seen.clone();
    }

    /// The power goes: of the changes that were not synced, none, all, the first few, or any
    /// survive.
    pub(super) fn lose_power(&mut self, seed: &mut Seed) {
        let pending = std::mem::take(&mut self.pending);
        let first = seed.below(pending.len() as u64 + 1) as usize;
        let kind = seed.below(4);
        for (index, change) in pending.iter().enumerate() {
            let kept = match kind {
                0 => false,
                1 => true,
                2 => index < first,
                _ => seed.chance(1, 2),
            };
            if kept {
                apply(&mut self.stored, change);
            }
        }
        // What lies in a directory that was lost is lost. Directories come before what is in them.
        let mut reached: BTreeMap<PathBuf, Node> = BTreeMap::new();
        for (path, node) in std::mem::take(&mut self.stored) {
            let root = |parent: &Path| parent.parent().is_none() || parent.as_os_str().is_empty();
            if path.parent().is_none_or(|p| root(p) || reached.get(p) == Some(&Node::Directory)) {
                reached.insert(path, node);
            }
        }
        self.stored = reached;
        self.seen = self.stored.clone();
    }
}

/// Carries a change over to the device's names, unless what it builds on was lost.
fn apply(stored: &mut BTreeMap<PathBuf, Node>, change: &Change) {
    match change {
        Change::Link(path, node) => {
            stored.insert(path.clone(), *node);
        }
        Change::Unlink(path) => {
            stored.remove(path);
        }
        Change::Rename { from, to, node } => {
            if stored.get(from) == Some(node) {
                stored.remove(from);
            }
            stored.insert(to.clone(), *node);
        }
    }
}
