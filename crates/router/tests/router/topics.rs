//! Topic exchanges against a matcher that is as simple as it can be.

use std::collections::BTreeSet;

use proptest::prelude::*;
use weir_router::Router;
use weir_router::limits::ROUTING_KEY_BYTES_MAX;

use super::{binding, exchange, queue, routed};

fn words(key: &str) -> Vec<&str> {
    if key.is_empty() { Vec::new() } else { key.split('.').collect() }
}

/// Whether a pattern matches, every stretch of every `#` tried.
fn fits(pattern: &[&str], key: &[&str]) -> bool {
    match pattern.split_first() {
        None => key.is_empty(),
        Some((&"#", rest)) => (0..=key.len()).any(|skipped| fits(rest, &key[skipped..])),
        Some((word, rest)) => key
            .split_first()
            .is_some_and(|(first, others)| (*word == "*" || word == first) && fits(rest, others)),
    }
}

/// An exchange `t` with a queue bound by each pattern, named by its number.
fn bound(patterns: &[String]) -> Router {
    let names: Vec<String> = (0..patterns.len()).map(|number| number.to_string()).collect();
    let bindings =
        names.iter().zip(patterns).map(|(name, pattern)| (binding("t", queue(name), pattern, vec![]), 0));
    Router::build(names.iter().map(String::as_str), [exchange("t", "topic", vec![])], bindings)
        .expect("all of it is there")
}

fn check(router: &Router, patterns: &[String], key: &str) {
    let wanted: BTreeSet<String> = (0..)
        .zip(patterns)
        .filter(|(_, pattern)| fits(&words(pattern), &words(key)))
        .map(|(number, _): (usize, _)| number.to_string())
        .collect();
    assert_eq!(routed(router, "t", key), wanted, "'{key}' among {patterns:?}");
}

fn text(words: &'static [&'static str], count: std::ops::Range<usize>) -> impl Strategy<Value = String> {
    proptest::collection::vec(proptest::sample::select(words), count).prop_map(|words| words.join("."))
}

const PATTERN_WORDS: &[&str] = &["a", "b", "", "*", "*", "#", "#"];
const KEY_WORDS: &[&str] = &["a", "a", "b", "c", ""];

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn patterns_match_what_trying_everything_matches(
        patterns in proptest::collection::vec(text(PATTERN_WORDS, 0..7), 1..20),
        keys in proptest::collection::vec(text(KEY_WORDS, 0..9), 1..20),
        gone in proptest::collection::vec(any::<proptest::sample::Index>(), 0..10),
    ) {
        let mut router = bound(&patterns);
        keys.iter().for_each(|key| check(&router, &patterns, key));
        // A pattern that nothing fits takes the place of one that is unbound.
        let mut left = patterns.clone();
        for index in gone {
            let number = index.index(patterns.len());
            let unbound = binding("t", queue(&number.to_string()), &patterns[number], vec![]);
            router = router.without_binding(&unbound).router;
            left[number] = "nothing.fits.this".into();
        }
        keys.iter().for_each(|key| check(&router, &left, key));
    }
}

#[test]
fn many_hashes_and_a_long_key_take_no_time_to_speak_of() {
    // Trying every stretch would take longer than the world is old.
    let patterns: [String; 4] =
        [["#.a"; 63].join("."), ["#.*"; 63].join("."), ["#"; 128].join("."), ["#.a"; 60].join(".") + ".b"];
    let router = bound(&patterns);
    let key = ["a"; 128].join(".");
    let wanted: BTreeSet<String> = ["0", "1", "2"].map(str::to_owned).into();
    assert_eq!(routed(&router, "t", &key), wanted);
}

#[test]
fn the_longest_key_has_a_word_more_than_bytes() {
    let patterns: Vec<String> =
        ["#", "*.#", "#.*", "", "*"].map(str::to_owned).into_iter().chain([".".repeat(255)]).collect();
    let router = bound(&patterns);
    let wanted: BTreeSet<String> = ["0", "1", "2", "5"].map(str::to_owned).into();
    assert_eq!(routed(&router, "t", &".".repeat(ROUTING_KEY_BYTES_MAX)), wanted);
    // A longer one cannot be a key of AMQP and matches nothing.
    assert_eq!(routed(&router, "t", &".".repeat(ROUTING_KEY_BYTES_MAX + 1)), BTreeSet::new());
}
