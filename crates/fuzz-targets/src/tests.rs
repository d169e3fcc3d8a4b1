//! That every target holds for a fixed number of inputs, and that the machinery finds what it is there to find.

use crate::{Campaign, TARGETS, Target};
use std::collections::BTreeSet;

/// Inputs per target in an ordinary test run.
const INPUTS: u64 = 3_000;

#[test]
fn every_target_holds() {
    std::thread::scope(|scope| {
        for &target in TARGETS {
            scope.spawn(move || {
                let mut campaign = Campaign::new(target, 1);
                assert!(!campaign.seeds().is_empty(), "{} has no seeds", target.name);
                campaign.run(INPUTS).unwrap_or_else(|failure| panic!("{failure}"));
                assert_eq!(campaign.inputs(), INPUTS);
            });
        }
    });
}

#[test]
fn libfuzzer_has_the_same_targets() {
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/Cargo.toml");
    let manifest: toml::Table = std::fs::read_to_string(manifest).unwrap().parse().unwrap();
    let binaries = manifest["bin"].as_array().unwrap().iter().map(|bin| bin["name"].as_str().unwrap());
    let targets = TARGETS.iter().map(|target| target.name);
    assert_eq!(binaries.collect::<BTreeSet<_>>(), targets.collect::<BTreeSet<_>>());
}

#[test]
fn the_same_seed_gives_the_same_inputs() {
    let inputs = |seed| {
        let mut mutator = crate::Mutator::new(seed);
        let seeds = [b"one seed".to_vec(), b"another".to_vec()];
        (0..100).map(|_| mutator.input(&seeds)).collect::<Vec<_>>()
    };
    assert_eq!(inputs(1), inputs(1));
    assert_ne!(inputs(1), inputs(2));
}

/// A parser with the classic mistake: it believes a length.
fn believes_a_length(data: &[u8]) {
    if let Some((&length, rest)) = data.split_first_chunk() {
        let _ = &rest[..u16::from_be_bytes(length) as usize];
    }
}

#[test]
fn a_broken_promise_is_found_and_told() {
    let target = Target { name: "wrong", run: believes_a_length, seeds: || vec![b"\0\x04four".to_vec()] };
    let failure = Campaign::new(target, 0).run(1_000).unwrap_err();
    assert!(failure.number > 0, "the seed itself is right");
    assert!(failure.what.contains("out of range"), "{}", failure.what);
    assert!(std::panic::catch_unwind(|| believes_a_length(&failure.input)).is_err());
    assert!(failure.to_string().starts_with("wrong: input "), "{failure}");
    // The same again, from the seed alone.
    assert_eq!(Campaign::new(target, 0).run(1_000).unwrap_err(), failure);
}
