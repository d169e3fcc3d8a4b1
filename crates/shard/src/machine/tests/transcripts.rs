//! Runs the transcripts in `tests/transcripts`. With `UPDATE=1` in the environment it writes down what
//! comes out instead of comparing; the diff is then for a person to read.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use weir_model::entry::Entry;

use super::{Machine, describe, reloaded, script};

/// Parts a block's commands from what comes of them.
const RULE: &str = "----";

fn transcripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
}

fn check(name: &str) {
    let path = transcripts().join(format!("{name}.txt"));
    let written =
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let actual = replay(&written);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, actual).unwrap();
    } else {
        assert_eq!(written, actual, "{} differs; UPDATE=1 writes it anew", path.display());
    }
}

/// Runs the commands of all blocks, and writes the file that they should stand in.
fn replay(written: &str) -> String {
    let mut machine = Machine::new();
    let mut index = 0;
    let mut out = String::new();
    for block in written.split("\n\n").map(|block| block.trim_matches('\n')) {
        let input: Vec<&str> = block.lines().take_while(|line| *line != RULE).collect();
        if !out.is_empty() {
            out.push('\n');
        }
        input.iter().for_each(|line| writeln!(out, "{line}").unwrap());
        let commands: Vec<&str> = input.into_iter().filter(|line| !line.starts_with('#')).collect();
        if !commands.is_empty() {
            writeln!(out, "{RULE}").unwrap();
            out.push_str(&run(&mut machine, &mut index, &commands));
        }
    }
    out
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

macro_rules! transcript {
    ($($name:ident)*) => { $(#[test] fn $name() { check(stringify!($name)); })* };
}

transcript! { appends catalog epochs fan_out groups partitions producers rolls subscriptions timers together trims }

#[test]
fn every_transcript_is_run() {
    let mut files: Vec<String> = std::fs::read_dir(transcripts())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter_map(|name| name.strip_suffix(".txt").map(str::to_owned))
        .collect();
    files.sort();
    let run = [
        "appends",
        "catalog",
        "epochs",
        "fan_out",
        "groups",
        "partitions",
        "producers",
        "rolls",
        "subscriptions",
        "timers",
        "together",
        "trims",
    ];
    assert_eq!(files, run);
}
