//! A run finds what is done wrong: each deliberate mistake is found within a few seeds, and named.

use std::process::Command;

/// Seeds that are tried. One that has no occasion for the mistake shows nothing.
const SEEDS: std::ops::RangeInclusive<u32> = 1..=4;

#[track_caller]
fn is_found(wrong: &str, named: &[&str]) {
    let mut seen = String::new();
    for seed in SEEDS {
        let output = Command::new(env!("CARGO_BIN_EXE_weir-sim"))
            .args(["--seed", &seed.to_string(), "--faults-for", "6", "--wrong", wrong])
            .output()
            .expect("the simulator starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let is_named = |damage: &&str| text.contains(&format!("DAMAGE {damage} "));
        if !output.status.success() && named.iter().any(is_named) {
            return;
        }
        seen += &text;
    }
    panic!("no seed finds {named:?}: {seen}");
}

#[test]
fn accepts_that_are_forgotten() {
    is_found("forgets-accepts", &["CameAgain"]);
}

#[test]
fn messages_that_are_lost() {
    is_found("loses-messages", &["Lost"]);
}

#[test]
fn failures_that_are_not_counted() {
    is_found("counts-no-failures", &["CountFell"]);
}

#[test]
fn returns_that_have_no_turns() {
    is_found("keeps-no-turns", &["ReturnsNotInOrder"]);
}

#[test]
fn keys_that_are_forgotten() {
    is_found("forgets-keys", &["KeyTwice"]);
}

#[test]
fn releases_before_their_time() {
    is_found("releases-early", &["TooEarly"]);
}

#[test]
fn releases_that_come_twice() {
    is_found("releases-twice", &["ReleasedTwice"]);
}

#[test]
fn logs_that_are_trimmed_too_far() {
    is_found("trims-unsettled", &["Lost"]);
}

#[test]
fn replicas_that_are_told_another_digest() {
    is_found("digests-differ", &["Stopped"]);
}

#[test]
fn users_that_are_lost() {
    is_found("loses-users", &["UsersDiffer"]);
}
