//! What a run ends with: a status that scripts can tell apart, and words on standard error.

use std::fmt;

use crate::config::ConfigError;

/// Why a command failed, by what somebody can do about it.
#[derive(Debug)]
pub enum Failure {
    /// The command line, the configuration, or the data directory's state: change it and try again.
    Usage(String),
    /// Stored data cannot be read: look before touching anything.
    Corrupt(String),
    /// A server cannot be reached.
    Unreachable(String),
    /// The operating system refused to read or write something that the node cannot go on without.
    Io(String),
    /// Anything else; the words say it.
    Failed(String),
}

/// Statuses follow `sysexits.h` where it has a word for it.
impl Failure {
    /// The process' exit status.
    pub fn status(&self) -> u8 {
        match self {
            Failure::Failed(_) => 1,
            Failure::Usage(_) => 64,
            Failure::Corrupt(_) => 65,
            Failure::Unreachable(_) => 69,
            Failure::Io(_) => 74,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(words)
            | Failure::Corrupt(words)
            | Failure::Unreachable(words)
            | Failure::Io(words)
            | Failure::Failed(words) => f.write_str(words),
        }
    }
}

impl std::error::Error for Failure {}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::Usage(error.to_string())
    }
}
