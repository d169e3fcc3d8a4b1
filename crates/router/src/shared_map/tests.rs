//! The map against a plain one, and that copies share.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;

/// A number whose hash has few different values, so that keys collide.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Crowded(u16);

impl Key for Crowded {
    fn hashed(&self) -> u64 {
        hash::mix(u64::from(self.0 % 13)) & !0xff
    }
}

impl Key for u16 {
    fn hashed(&self) -> u64 {
        hash::mix(u64::from(*self))
    }
}

fn entries<K: Clone + Ord, V: Clone>(map: &SharedMap<K, V>) -> BTreeMap<K, V> {
    let mut entries = BTreeMap::new();
    map.for_each(|key, value| {
        assert!(entries.insert(key.clone(), value.clone()).is_none());
    });
    entries
}

fn check<K: Key + Clone + fmt::Debug>(steps: &[(bool, u16)], key: impl Fn(u16) -> K) {
    let mut map = SharedMap::default();
    let mut model = BTreeMap::new();
    let mut held = Vec::new();
    for (number, (insert, of)) in steps.iter().enumerate() {
        let key = key(*of);
        if *insert {
            assert_eq!(map.insert(key.clone(), number), model.insert(key, number));
        } else {
            assert_eq!(map.remove(&key), model.remove(&key));
        }
        assert_eq!(map.len(), model.len());
        if number % 7 == 0 {
            held.push((map.clone(), model.clone()));
        }
    }
    held.push((map, model));
    // What was held on to is as it was, whatever happened to later copies.
    for (map, model) in held {
        assert_eq!(entries(&map), model);
        for (index, key) in map.keys().into_iter().enumerate() {
            assert_eq!(map.get(key), model.get(key));
            assert_eq!(map.nth(index).map(|(key, _)| key), Some(key));
        }
        assert!(map.nth(map.len()).is_none());
    }
}

/// The nodes that a map consists of.
fn nodes<K, V>(map: &SharedMap<K, V>) -> BTreeSet<usize> {
    fn walk<K, V>(node: &Arc<Node<K, V>>, all: &mut BTreeSet<usize>) {
        all.insert(Arc::as_ptr(node) as usize);
        if let Node::Branch(branch) = &**node {
            branch.children.iter().flatten().for_each(|child| walk(child, all));
        }
    }
    let mut all = BTreeSet::new();
    map.root.iter().for_each(|root| walk(root, &mut all));
    all
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn it_is_what_a_plain_map_would_be(steps in proptest::collection::vec((any::<bool>(), 0u16..200), 0..400)) {
        check(&steps, |number| number);
    }

    #[test]
    fn it_stays_a_map_when_hashes_collide(steps in proptest::collection::vec((any::<bool>(), 0u16..100), 0..400)) {
        check(&steps, Crowded);
    }

    #[test]
    fn the_order_does_not_tell_how_it_came_about(mut numbers in proptest::collection::vec(0u16..500, 0..300), extra in 0u16..500) {
        let mut one = SharedMap::default();
        numbers.iter().for_each(|number| { one.insert(*number, ()); });
        one.insert(extra, ());
        one.remove(&extra);
        numbers.retain(|number| *number != extra);
        numbers.reverse();
        let mut other = SharedMap::default();
        numbers.iter().for_each(|number| { other.insert(*number, ()); });
        prop_assert_eq!(one.keys(), other.keys());
    }
}

#[test]
fn a_change_copies_one_path_and_shares_the_rest() {
    let mut map = SharedMap::default();
    (0..10_000u16).for_each(|number| {
        map.insert(number, number);
    });
    let held = map.clone();
    map.insert(10_000, 0);
    map.remove(&5);
    *map.get_mut(&7).expect("it is there") = 0;
    let (now, then) = (nodes(&map), nodes(&held));
    assert!(now.difference(&then).count() <= 3 * 5, "three paths of at most five nodes");
    assert_eq!((held.get(&5), held.get(&7), held.get(&10_000)), (Some(&5), Some(&7), None));
}

#[test]
fn what_was_emptied_is_small_again() {
    let mut map = SharedMap::default();
    (0..10_000u16).for_each(|number| {
        map.insert(number, ());
    });
    (1..10_000u16).for_each(|number| {
        map.remove(&number);
    });
    assert_eq!((map.keys(), nodes(&map).len()), (vec![&0], 1));
    map.remove(&0);
    assert!(map.is_empty());
}
