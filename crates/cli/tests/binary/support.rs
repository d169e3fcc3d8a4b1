//! Runs the binary without what the machine's own environment would tell it.

use std::path::Path;
use std::process::{Command, Output};

/// A command line of the binary in this directory, with none of our variables set.
pub fn weir(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).current_dir(dir);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("WEIR_") {
            command.env_remove(name);
        }
    }
    command.env("WEIR_CONTEXTS", dir.join("contexts.toml"));
    command
}

/// What a finished run said, and its status.
pub struct Said {
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
    /// Exit status; none if a signal ended it.
    pub status: Option<i32>,
}

impl From<Output> for Said {
    fn from(output: Output) -> Said {
        Said {
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
            status: output.status.code(),
        }
    }
}

/// Runs a command line to its end.
pub fn said(command: &mut Command) -> Said {
    command.output().expect("the binary runs").into()
}
