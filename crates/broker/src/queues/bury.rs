//! Publishing dead records where they belong. A record is settled in its queue only after that; if the node fails in
//! between, it is published once more.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use weir_dispatch::{Dead, Place};
use weir_model::batch::{BatchBuilder, Record};
use weir_model::subscription::DeadReason;
use weir_router::{Route, Routed};

use super::deaths::{DeadLetter, dead_letter};
use crate::broker::Broker;
use crate::errors::{PublishError, Unavailable};
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
    // A future in a box, because publishing may start the actor of another queue, which buries as well.
    pub(crate) fn bury(
        self,
        dead: Dead,
        record: Option<Record>,
    ) -> Pin<Box<dyn Future<Output = Burial> + Send>> {
        Box::pin(async move {
            let Some(record) = record else { return Burial::Done(dead.place) };
            let Some(broker) = self.broker.upgrade() else { return Burial::Again(dead) };
            match self.publish(&broker, record, dead.reason).await {
                Ok(()) => Burial::Done(dead.place),
                Err(PublishError::QueueFull(queue)) if !self.dead_letters.at_least_once => {
                    tracing::info!(queue, "a dead record finds no room and is dropped");
                    Burial::Done(dead.place)
                }
                Err(error) => {
                    tracing::warn!(%error, queue = self.queue, "a dead record could not be published; it tries again");
                    Burial::Again(dead)
                }
            }
        })
    }

    /// Publishes a record that the queue has no room for.
    // A future in a box, because publishing may lead here again.
    pub(crate) fn bury_refused(
        &self,
        record: Record,
    ) -> Pin<Box<dyn Future<Output = Result<(), PublishError>> + Send + '_>> {
        Box::pin(async move {
            let Some(broker) = self.broker.upgrade() else { return Err(Unavailable::ShuttingDown.into()) };
            match self.publish(&broker, record, DeadReason::MaxLength).await {
                Err(PublishError::QueueFull(_)) => Ok(()),
                done => done,
            }
        })
    }

    async fn publish(
        &self,
        broker: &Arc<Broker>,
        record: Record,
        reason: DeadReason,
    ) -> Result<(), PublishError> {
        let DeadLetters { exchange, routing_key, .. } = &self.dead_letters;
        let now = broker.now_ms();
        let letter = dead_letter(record, &self.queue, reason, now, exchange, routing_key.as_deref());
        publish(broker, &self.namespace, &letter).await
    }
}

async fn publish(broker: &Arc<Broker>, namespace: &str, letter: &DeadLetter) -> Result<(), PublishError> {
    let record = &letter.record;
    let destinations = {
        let keys: Vec<&[u8]> = letter.keys.iter().map(|key| &key[..]).collect();
        let mut route = Route::new();
        let router = broker.router(namespace)?;
        let priority = broker.priority_of(record);
        let properties = broker.routing_properties(record);
        let mut routed = Routed::new(&letter.exchange, &keys);
        if let Some(properties) = &properties {
            routed.properties = &**properties;
        }
        // An exchange that is not there takes what is dead with it, as in RabbitMQ.
        if router.route(&routed, &mut route).is_err() || route.is_empty() {
            return Ok(());
        }
        let names = route.queues().map(|name| &**name).filter(|name| letter.may_enter(name));
        broker
            .destinations(namespace, names, priority, 0)
            .map_err(|unrouted| PublishError::Refused(unrouted.to_string()))?
    };
    if destinations.is_empty() {
        tracing::info!(exchange = letter.exchange, "a record that dies in a circle is dropped");
        return Ok(());
    }
    let mut builder = BatchBuilder::new();
    builder.push(record.timestamp, record.key.as_deref(), record.value.as_deref(), &record.headers);
    broker.publish_to(&destinations, builder.build()).await?.await
}
