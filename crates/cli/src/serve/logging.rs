//! The log on standard error.

use std::io::IsTerminal;

use tracing_subscriber::EnvFilter;

use crate::config::LogOptions;
use crate::exit::Failure;

/// Begins to log. The filter was checked with the configuration.
pub fn start(options: &LogOptions) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(with_quiet_libraries(&options.filter))
        .map_err(|error| Failure::Usage(format!("log-level '{}': {error}", options.filter)))?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match options.json {
        true => log.json().flatten_event(true).try_init(),
        false => log.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    started.map_err(|error| Failure::Failed(format!("the log cannot be started: {error}")))
}

/// The consensus library reports every step of an election, and warns of what is normal in one. Unless
/// somebody asks for it by name, only its errors are of use to an operator; "off" stays off.
fn with_quiet_libraries(filter: &str) -> String {
    let off = filter.split(',').any(|directive| directive.trim().eq_ignore_ascii_case("off"));
    match filter.contains("openraft") || off {
        true => filter.to_owned(),
        false => format!("{filter},openraft=error"),
    }
}
