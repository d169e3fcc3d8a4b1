//! Runs the transcripts in `tests/transcripts`: entries in, outcomes and effects out.

use std::fmt::Write;
use std::path::Path;

use weir_model::entry::Entry;
use weir_testing::transcript;

use super::{Machine, describe, reloaded, script};

fn check(file: &Path) {
    let (mut machine, mut index) = (Machine::new(), 0);
    transcript::check(file, |lines| run(&mut machine, &mut index, lines));
}

fn run(machine: &mut Machine, index: &mut u64, lines: &[&str]) -> String {
    match lines {
        ["state"] => describe::state(machine),
        ["reload"] => {
            let mut loaded = reloaded(machine);
            assert_eq!(loaded.digest(), machine.digest());
            *machine = loaded;
            "as before\n".into()
        }
        _ => apply(machine, index, lines),
    }
}

/// The lines of a block are one entry. It may begin with its time.
fn apply(machine: &mut Machine, index: &mut u64, lines: &[&str]) -> String {
    let (time, commands) = match lines.split_first() {
        Some((first, rest)) if first.starts_with("time ") => (first[5..].parse().unwrap(), rest),
        _ => (machine.entry_time(), lines),
    };
    *index += 1;
    let commands = commands.iter().map(|line| script::command(line)).collect();
    let mut effects = Vec::new();
    let mut out = String::new();
    match machine.apply(*index, 1, &Entry { time, commands }, &mut effects) {
        Ok(outcomes) => {
            outcomes.iter().for_each(|outcome| writeln!(out, "{}", describe::outcome(outcome)).unwrap());
            effects.iter().for_each(|effect| writeln!(out, "  {}", describe::effect(effect)).unwrap());
        }
        Err(error) => writeln!(out, "stopped: {error}").unwrap(),
    }
    out
}

weir_testing::transcripts! {
    check: access appends catalog epochs fan_out groups moves nodes partitions policies producers relays rewrites rolls subscriptions timers together
         trims unique
}
