//! Deliveries that a peer does not settle for too long: their channel is closed, and they come to others. RabbitMQ calls
//! the time the consumer timeout.

use std::time::Duration;

use tokio::time::Instant;

use super::{Connection, Ended};
use crate::errors::Failure;

/// How often it is looked whether there are such; RabbitMQ looks once a minute too. So they may wait this much longer.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// When to look next; never where there is no timeout.
pub(super) fn looks(timeout: Option<Duration>) -> Option<tokio::time::Interval> {
    let mut looks = tokio::time::interval(timeout?.min(LOOK_EVERY));
    looks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    Some(looks)
}

/// The next look.
pub(super) async fn next(looks: &mut Option<tokio::time::Interval>) {
    match looks {
        Some(looks) => drop(looks.tick().await),
        None => std::future::pending().await,
    }
}

impl Connection {
    /// Closes the channels that have such a delivery.
    pub(super) async fn close_overdue(&mut self) -> Result<(), Ended> {
        let Some(timeout) = self.front.options.consumer_timeout else { return Ok(()) };
        let now = Instant::now();
        let mut overdue = Vec::new();
        for (number, channel) in &mut self.channels {
            if !channel.closing && channel.unsettled.is_overdue(now, timeout) {
                overdue.push(*number);
            }
        }
        for number in overdue {
            let words = format!(
                "delivery acknowledgement on channel {number} timed out. Timeout value used: {} ms. \
                 It is set by amqp.consumer.timeout.ms",
                timeout.as_millis()
            );
            self.failed(number, Failure::precondition(words), 0, 0).await?;
        }
        Ok(())
    }
}
