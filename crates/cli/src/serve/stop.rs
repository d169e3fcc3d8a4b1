//! When the server ends: signals that ask for it, and failures after which it must not go on.

use std::io::Write;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::exit::Failure;

/// SIGTERM and SIGINT.
pub struct StopSignals {
    terminate: Signal,
    interrupt: Signal,
}

impl StopSignals {
    /// From here on the signals do not end the process by themselves.
    pub fn listen() -> Result<StopSignals, Failure> {
        let listen = |kind| {
            signal(kind).map_err(|error| Failure::Failed(format!("signals cannot be listened to: {error}")))
        };
        Ok(StopSignals {
            terminate: listen(SignalKind::terminate())?,
            interrupt: listen(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next of them; its name.
    pub async fn next(&mut self) -> &'static str {
        tokio::select! {
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.interrupt.recv() => "SIGINT",
        }
    }
}

/// Ends the process at once, saying why. Nothing is drained and nothing is written: after a failed sync
/// the page cache cannot be trusted, and whatever was acknowledged is on the disk already.
pub fn at_once(reason: &str) {
    let failure = Failure::Io(format!(
        "the node cannot go on: {reason}; check the disk, then start it again: it reads back what is really there"
    ));
    // If standard error is gone there is nobody left to tell; the status still does.
    let _ = writeln!(std::io::stderr(), "weir: {failure}");
    std::process::exit(failure.status().into());
}

/// Ends the process at once, because the others will have nothing to do with this node any more. What was acknowledged they
/// have.
pub fn for_good(reason: &str) {
    let failure = Failure::Usage(reason.to_owned());
    let _ = writeln!(std::io::stderr(), "weir: {failure}");
    std::process::exit(failure.status().into());
}
