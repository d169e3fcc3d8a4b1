//! Publishing dead records where they belong. A record is settled in its queue only after that; if the node fails in
//! between, it is published once more.

use std::sync::Weak;

use weir_dispatch::{Dead, Place};
use weir_model::batch::{BatchBuilder, Record};
use weir_router::{Route, Routed};

use super::deaths::{DeadLetter, dead_letter};
use crate::broker::Broker;
use crate::errors::PublishError;
use crate::topology::DeadLetters;

/// Where the dead of a queue go.
#[derive(Clone, Debug)]
pub struct Cemetery {
    /// The broker that publishes them.
    pub(crate) broker: Weak<Broker>,
    /// The queue's namespace.
    pub(crate) namespace: String,
    /// The queue's name.
    pub(crate) queue: String,
    /// What its declaration says.
    pub(crate) dead_letters: DeadLetters,
}

/// What came of burying a record.
#[derive(Debug)]
pub(crate) enum Burial {
    /// It is where it belongs, or nowhere: it can be settled.
    Done(Place),
    /// It must be tried again.
    Again(Dead),
}

impl Cemetery {
    /// Publishes a dead record; none if it is not in the log any more.
    pub(crate) async fn bury(self, dead: Dead, record: Option<Record>) -> Burial {
        let Some(record) = record else { return Burial::Done(dead.place) };
        let Some(broker) = self.broker.upgrade() else { return Burial::Again(dead) };
        let DeadLetters { exchange, routing_key } = &self.dead_letters;
        let now = broker.now_ms();
        let letter = dead_letter(record, &self.queue, dead.reason, now, exchange, routing_key.as_deref());
        let Some(letter) = letter else {
            tracing::info!(queue = self.queue, "a record that died in a circle is dropped");
            return Burial::Done(dead.place);
        };
        match publish(&broker, &self.namespace, letter).await {
            Ok(()) => Burial::Done(dead.place),
            Err(error) => {
                tracing::warn!(%error, queue = self.queue, "a dead record could not be published; it tries again");
                Burial::Again(dead)
            }
        }
    }
}

async fn publish(broker: &Broker, namespace: &str, letter: DeadLetter) -> Result<(), PublishError> {
    let DeadLetter { record, exchange, keys } = letter;
    let destinations = {
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut route = Route::new();
        let router = broker.router(namespace)?;
        let priority = priority_of(&record);
        // An exchange that is not there takes what is dead with it, as in RabbitMQ.
        if router.route(&Routed::new(&exchange, &keys), &mut route).is_err() || route.is_empty() {
            return Ok(());
        }
        let names = route.queues().map(|name| &**name);
        broker
            .destinations(namespace, names, priority, 0)
            .map_err(|unrouted| PublishError::Refused(unrouted.to_string()))?
    };
    let mut builder = BatchBuilder::new();
    builder.push(record.timestamp, record.key.as_deref(), record.value.as_deref(), &record.headers);
    broker.publish_to(&destinations, builder.build()).await?.await
}

/// The priority that a message's publisher gave it.
pub(crate) fn priority_of(record: &Record) -> Option<u8> {
    let header = record.headers.iter().find(|header| header.key == "amqp.priority")?;
    std::str::from_utf8(header.value.as_deref()?).ok()?.parse().ok()
}
