//! Deliveries that a peer does not settle for too long come to others. RabbitMQ calls the time the consumer timeout.
//!
//! From a quorum queue they are taken back and their consumer is cancelled, if its client understands that, as in RabbitMQ
//! from 4.3 on. From a classic queue, or where there is no consumer to cancel, their channel is closed, as before 4.3.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;
use weir_amqp_wire::ShortStr;
use weir_amqp_wire::methods::basic;
use weir_model::queue::QueueKind;

use super::{Connection, Ended};
use crate::channel::{Channel, ConsumerKey, Delivered};
use crate::errors::Failure;

/// How often it is looked at most whether there are such; RabbitMQ looks once a minute too. So they may wait this much
/// longer.
const LOOK_EVERY: Duration = Duration::from_secs(60);

/// How often it is looked at least apart, however short a timeout somebody asks for.
const LOOK_APART: Duration = Duration::from_secs(1);

/// Waits until it is time to look again; for ever where there is no timeout.
pub(super) async fn until_next_look(looked_at: Instant, least_timeout: Option<Duration>) {
    match least_timeout {
        Some(timeout) => tokio::time::sleep_until(looked_at + timeout.clamp(LOOK_APART, LOOK_EVERY)).await,
        None => std::future::pending().await,
    }
}

/// What is to be done on a channel.
enum Overdue {
    /// A consumer is cancelled and loses what it has.
    Consumer(u16, ShortStr, ConsumerKey),
    /// The channel is closed.
    Channel(u16, Duration),
}

impl Connection {
    /// How long a delivery may wait to be settled, by what its consumer or its queue says and otherwise by the option.
    /// From now on it is looked at often enough for that.
    pub(super) fn look_within(&mut self, said: Option<Duration>) -> Option<Duration> {
        let timeout = said.or(self.front.options.consumer_timeout)?;
        self.least_timeout = Some(self.least_timeout.map_or(timeout, |least| least.min(timeout)));
        Some(timeout)
    }

    /// Takes back what waits for too long.
    pub(super) async fn take_back_overdue(&mut self) -> Result<(), Ended> {
        let Some(least) = self.least_timeout else { return Ok(()) };
        let (now, takes_cancel) = (Instant::now(), self.client.takes_cancel);
        let channels = self.channels.iter_mut().filter(|(_, channel)| !channel.closing);
        let overdue: Vec<_> = channels
            .filter_map(|(number, channel)| of_channel(*number, channel, now, least, takes_cancel))
            .collect();
        for overdue in overdue.into_iter().flatten() {
            match overdue {
                Overdue::Consumer(number, tag, key) => self.cancel_overdue(number, tag, key).await,
                Overdue::Channel(number, timeout) => {
                    let words = format!(
                        "delivery acknowledgement on channel {number} timed out. Timeout value used: {} ms. It is set by \
                         x-consumer-timeout of the consumer or its queue, or by amqp.consumer.timeout.ms",
                        timeout.as_millis()
                    );
                    self.failed(number, Failure::precondition(words), 0, 0).await?;
                }
            }
        }
        Ok(())
    }

    async fn cancel_overdue(&mut self, number: u16, tag: ShortStr, key: ConsumerKey) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let Some(consumer) = channel.consumers.remove(&tag) else { return };
        // What it has is taken back under tags that stay known, so that a client that was only slow makes no mistake.
        let taken = channel.unsettled.take_back(|delivered| match delivered {
            Delivered::Leased(leased) if leased.consumer == Some(key) => Some(Delivered::TakenBack),
            _ => None,
        });
        let _ = consumer.queue.cancel(consumer.id).await;
        let (queue, ms) =
            (consumer.info.topic.name(), consumer.timeout.map_or(0, |timeout| timeout.as_millis()));
        tracing::warn!(queue, %tag, ms, "a consumer was cancelled: it did not settle what it has in time");
        self.give_back_all(number, taken);
        self.send(number, basic::Cancel { consumer_tag: tag, no_wait: true });
        self.drop_if_unused(&consumer).await;
    }
}

/// What is overdue on a channel: the channel itself, or consumers of it.
fn of_channel(
    number: u16,
    channel: &mut Channel,
    now: Instant,
    least: Duration,
    takes_cancel: bool,
) -> Option<Vec<Overdue>> {
    let Channel { unsettled, consumers, .. } = channel;
    let mut keys = BTreeSet::new();
    for (_, delivered, age) in unsettled.aged(now, least) {
        let Delivered::Leased(leased) = delivered else { continue };
        let Some(timeout) = leased.timeout.filter(|timeout| age >= *timeout) else { continue };
        let of = leased.consumer.and_then(|key| {
            let is_its = |consumer: &&crate::channel::Consumer| {
                consumer.id == key.id && consumer.info.topic.id() == key.topic
            };
            consumers.values().find(is_its).map(|consumer| (key, consumer.info.meta.kind))
        });
        match of {
            Some((key, QueueKind::Quorum)) if takes_cancel => drop(keys.insert(key)),
            _ => return Some(vec![Overdue::Channel(number, timeout)]),
        }
    }
    let overdue = consumers.iter().filter_map(|(tag, consumer)| {
        let key = ConsumerKey { topic: consumer.info.topic.id(), id: consumer.id };
        keys.contains(&key).then(|| Overdue::Consumer(number, tag.clone(), key))
    });
    Some(overdue.collect())
}
