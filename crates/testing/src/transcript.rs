//! Files of input with what comes of it written below: blocks parted by empty lines, in each the lines that are
//! carried out, a rule, and what came of them. Lines that begin with `#` are for the reader.
//!
//! With `UPDATE=1` in the environment a file is written anew instead of compared; the diff is then for a person to
//! read.

use std::path::Path;

/// Parts a block's lines from what comes of them.
const RULE: &str = "----";

/// Carries out the blocks of a file, and fails if anything else comes of them than stands there.
pub fn check(file: &Path, run: impl FnMut(&[&str]) -> String) {
    let written = std::fs::read_to_string(file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let actual = replay(&written, run);
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(file, actual).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    } else {
        assert_eq!(written, actual, "{} differs; UPDATE=1 writes it anew", file.display());
    }
}

/// The file that these blocks should stand in.
fn replay(written: &str, mut run: impl FnMut(&[&str]) -> String) -> String {
    let mut out = String::new();
    for block in written.split("\n\n").map(|block| block.trim_matches('\n')) {
        let lines: Vec<&str> = block.lines().take_while(|line| *line != RULE).collect();
        if !out.is_empty() {
            out.push('\n');
        }
        for line in &lines {
            out.extend([line, "\n"]);
        }
        let commands: Vec<&str> = lines.into_iter().filter(|line| !line.starts_with('#')).collect();
        let came = if commands.is_empty() { String::new() } else { run(&commands) };
        if !came.is_empty() {
            out.extend([RULE, "\n", &came]);
        }
    }
    out
}

/// The names of a directory's transcripts, without `.txt`, in order.
pub fn names(directory: &Path) -> Vec<String> {
    let entries =
        std::fs::read_dir(directory).unwrap_or_else(|error| panic!("{}: {error}", directory.display()));
    let files = entries.filter_map(Result::ok).map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> =
        files.filter_map(|name| name.strip_suffix(".txt").map(str::to_owned)).collect();
    names.sort();
    names
}

/// A test for each of a crate's `tests/transcripts`, which hands the file's path to a function, and one that none is
/// left out. The names stand in order.
#[macro_export]
macro_rules! transcripts {
    ($check:path: $($name:ident)*) => {
        $(
            #[test]
            fn $name() {
                $check(&directory().join(concat!(stringify!($name), ".txt")));
            }
        )*

        #[test]
        fn every_transcript_is_run() {
            assert_eq!($crate::transcript::names(&directory()), [$(stringify!($name)),*]);
        }

        fn directory() -> std::path::PathBuf {
            std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcripts")
        }
    };
}

#[cfg(test)]
mod tests {
    use super::replay;

    #[test]
    fn what_comes_of_a_block_stands_below_its_rule() {
        let shout = |lines: &[&str]| lines.iter().map(|line| line.to_uppercase() + "\n").collect::<String>();
        let written = "# a note\n\n# another\none\ntwo\n----\nwrong\n\nthree\n";
        let right = "# a note\n\n# another\none\ntwo\n----\nONE\nTWO\n\nthree\n----\nTHREE\n";
        assert_eq!(replay(written, shout), right);
        assert_eq!(replay(right, shout), right);
    }

    #[test]
    fn nothing_came_of_it_means_no_rule() {
        assert_eq!(replay("one\n----\nsomething\n", |_| String::new()), "one\n");
    }
}
