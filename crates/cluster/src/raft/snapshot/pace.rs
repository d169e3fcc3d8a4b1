//! How fast snapshots leave a node, all of them together.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Lets bytes go at a rate.
#[derive(Debug)]
pub(crate) struct Pace {
    bytes_per_second: Option<u64>,
    /// When all that was let go will have gone.
    free_at: Mutex<Option<Instant>>,
}

impl Pace {
    /// Without a rate, nothing waits.
    pub(crate) fn new(bytes_per_second: Option<u64>) -> Pace {
        Pace { bytes_per_second, free_at: Mutex::new(None) }
    }

    /// Waits until what was let go before has gone at the rate, and lets so many bytes go.
    pub(crate) async fn take(&self, bytes: usize) {
        let Some(rate) = self.bytes_per_second else { return };
        let now = Instant::now();
        let takes = Duration::from_secs_f64(bytes as f64 / rate.max(1) as f64);
        let begin = {
            let mut free_at = self.free_at.lock();
            let begin = free_at.map_or(now, |free_at| free_at.max(now));
            *free_at = Some(begin + takes);
            begin
        };
        if begin > now {
            tokio::time::sleep_until(begin).await;
        }
    }
}
