//! Runs the transcripts in `tests/transcripts`. With `UPDATE=1` in the environment it writes down what
//! comes out instead of comparing; the diff is then for a person to read.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use super::scene::Scene;

/// Parts a block's lines from what comes of them.
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

/// Runs the lines of all blocks, and writes the file that they should stand in.
fn replay(written: &str) -> String {
    let mut scene = Scene::default();
    let mut out = String::new();
    for block in written.split("\n\n").map(|block| block.trim_matches('\n')) {
        let input: Vec<&str> = block.lines().take_while(|line| *line != RULE).collect();
        if !out.is_empty() {
            out.push('\n');
        }
        input.iter().for_each(|line| writeln!(out, "{line}").unwrap());
        let answers: String =
            input.iter().filter(|line| !line.starts_with('#')).map(|line| scene.run(line)).collect();
        if !answers.is_empty() {
            write!(out, "{RULE}\n{answers}").unwrap();
        }
    }
    out
}

macro_rules! transcript {
    ($($name:ident)*) => {
        $(#[test] fn $name() { check(stringify!($name)); })*

        const RUN: &[&str] = &[$(stringify!($name)),*];
    };
}

transcript! {
    alternate consistent_hash default delayed deletions direct exchanges fanout headers local_random
    modulus_hash random topic
}

#[test]
fn every_transcript_is_run() {
    let mut files: Vec<String> = std::fs::read_dir(transcripts())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .filter_map(|name| name.strip_suffix(".txt").map(str::to_owned))
        .collect();
    files.sort();
    assert_eq!(files, RUN);
}
