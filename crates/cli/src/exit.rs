//! What a run ends with: a status that scripts can tell apart, and words on standard error.

use std::fmt;

use crate::config::ConfigError;

/// Why a command failed, by what somebody can do about it.
#[derive(Debug)]
pub enum Failure {
    /// The command line, the configuration, or the data directory's state: change it and try again.
    Usage(String),
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
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Usage(words) | Failure::Failed(words) => f.write_str(words),
        }
    }
}

impl std::error::Error for Failure {}

impl From<ConfigError> for Failure {
    fn from(error: ConfigError) -> Failure {
        Failure::Usage(error.to_string())
    }
}
