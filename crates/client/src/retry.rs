//! Trying again: with growing pauses, for a bounded time, and only what can succeed.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::ClientError;

const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// One operation's attempts.
#[derive(Debug)]
pub(crate) struct Retry {
    until: Instant,
    pause: Duration,
}

impl Retry {
    pub(crate) fn for_at_most(time: Duration) -> Retry {
        Retry { until: Instant::now() + time, pause: FIRST_PAUSE }
    }

    /// Pauses before the next attempt; gives the error back if it cannot help or the time is up.
    pub(crate) async fn after(&mut self, error: ClientError) -> Result<(), ClientError> {
        if !error.is_retryable() {
            return Err(error);
        }
        let pause = self.next_pause();
        if Instant::now() + pause >= self.until {
            return Err(error);
        }
        tracing::debug!(%error, ?pause, "trying again");
        tokio::time::sleep(pause).await;
        Ok(())
    }

    /// Whether the time is up.
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() >= self.until
    }

    /// The pause before the next attempt: twice the last one, up to a bound, and shortened by up to a
    /// quarter so that many clients that failed together do not come back together.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        pause - pause.mul_f64(scatter() * 0.25)
    }
}

/// A number from 0 to 1 that differs between clients.
fn scatter() -> f64 {
    use rand::{Rng, SeedableRng, rngs::SmallRng};
    let seed = crate::clock::wall_clock_nanos() ^ (u64::from(std::process::id()) << 32);
    SmallRng::seed_from_u64(seed).random::<f64>()
}
