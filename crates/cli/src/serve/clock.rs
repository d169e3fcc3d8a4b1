//! The wall clock, which nothing below this crate reads by itself.

use std::future::{Future, pending};
use std::pin::Pin;
use std::time::{SystemTime, UNIX_EPOCH};

use weir_cluster::Clock;
use weir_model::TimestampMs;

/// The system's clock.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[allow(clippy::disallowed_methods, reason = "this is the one clock that is handed to everybody else")]
    fn now_ms(&self) -> TimestampMs {
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since_1970.as_millis()).unwrap_or(i64::MAX)
    }

    fn jumped(&self) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        match jumps::Alarm::set() {
            Ok(alarm) => Box::pin(alarm.rings()),
            Err(error) => {
                tracing::warn!(%error, "nobody will tell when the time of day is set anew");
                Box::pin(pending())
            }
        }
    }
}

#[cfg(target_os = "linux")]
mod jumps {
    use std::io;
    use std::os::fd::OwnedFd;

    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    /// Later than anybody waits for, in seconds since 1970: the year 9999.
    const NEVER: i64 = 253_370_764_800;

    /// A timer that is never due, and that the kernel cancels when the time of day is set (timerfd_create(2),
    /// `TFD_TIMER_CANCEL_ON_SET`).
    pub(super) struct Alarm(AsyncFd<OwnedFd>);

    impl Alarm {
        /// Set from now on.
        #[allow(deprecated, reason = "the timer is ours alone, and open for as long as it is watched")]
        pub(super) fn set() -> io::Result<Alarm> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Realtime, flags)?;
            let once = Itimerspec {
                it_interval: Timespec { tv_sec: 0, tv_nsec: 0 },
                it_value: Timespec { tv_sec: NEVER, tv_nsec: 0 },
            };
            timerfd_settime(&timer, TimerfdTimerFlags::ABSTIME | TimerfdTimerFlags::CANCEL_ON_SET, &once)?;
            #[allow(
                deprecated,
                reason = "what the newer function asks for holds: it owns the only descriptor of the timer"
            )]
            let alarm = AsyncFd::with_interest(timer, Interest::READABLE)?;
            Ok(Alarm(alarm))
        }

        /// Whatever makes it readable is a change of the time of day.
        pub(super) async fn rings(self) {
            let _ = self.0.readable().await;
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod jumps {
    use std::io;

    /// Not told here.
    pub(super) struct Alarm;

    impl Alarm {
        pub(super) fn set() -> io::Result<Alarm> {
            Ok(Alarm)
        }

        pub(super) async fn rings(self) {
            std::future::pending().await
        }
    }
}
