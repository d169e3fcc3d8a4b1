//! Messages that ask for a delay, as RabbitMQ's plugin for delayed messages has them: an exchange of type
//! `x-delayed-message` keeps those back whose header `x-delay` says for how many milliseconds, and routes them then.
//!
//! As with the plugin, a message arrives with the header negated, so that no such exchange behind the first keeps it
//! back again, and a mandatory one is returned at once, because no queue takes it now; it arrives all the same. Other
//! than with the plugin, a delay may be longer than 2³² milliseconds.

use std::sync::Arc;

use futures_util::future::try_join_all;
use weir_amqp_message::{Asked, Message, expires_after};
use weir_amqp_wire::{BasicProperties, ShortStr, Table, Value};
use weir_broker::PartitionRef;
use weir_broker::errors::PublishError;
use weir_broker::parking::{Due, ParkedBatch, RoutingProperties, Target};
use weir_broker::queues::{FurtherKeys, keys_header};
use weir_broker::topology::Destinations;
use weir_model::batch::{BatchBuilder, Record};

use super::Connection;
use super::publish::{Confirmed, expiring};
use crate::errors::Failure;

/// The header that asks for a delay, in milliseconds.
const DELAY: &str = "x-delay";

/// Messages that are parked together: of one channel, in one lot.
pub(super) struct ParkedMessages {
    number: u16,
    lot: PartitionRef,
    batch: ParkedBatch,
    /// Numbers of those that are to be confirmed.
    tags: Vec<u64>,
}

/// A message that exchanges keep back.
pub(super) struct Delayed {
    /// For how many milliseconds.
    pub delay_ms: i64,
    /// The exchanges.
    pub held_by: Vec<Arc<str>>,
    /// Queues that get it now, by other ways.
    pub now: Destinations,
    /// All its keys.
    pub keys: Vec<bytes::Bytes>,
    /// Those beside its routing key.
    pub further: FurtherKeys,
    pub mandatory: bool,
    pub message: Message,
    /// Its number, if it is to be confirmed.
    pub tag: Option<u64>,
}

/// The delay that a message asks for; none if it asks for none, or for no time at all. Text is read as a number, as the
/// plugin does, and what is no number in any way asks for nothing.
pub(super) fn delay_of(properties: &BasicProperties) -> Result<Option<i64>, Failure> {
    let Some(value) = properties.headers.as_ref().and_then(|headers| headers.get(DELAY)) else {
        return Ok(None);
    };
    let delay = match (value.as_i64(), value.as_f64(), value.as_bytes()) {
        (Some(whole), _, _) => Some(whole),
        (None, Some(fraction), _) => Some(fraction as i64),
        (None, None, Some(text)) => {
            let number = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
            let invalid =
                || Failure::precondition(format!("invalid value for header '{DELAY}': it must be a number"));
            Some(number.ok_or_else(invalid)?)
        }
        (None, None, None) => None,
    };
    Ok(delay.filter(|delay| *delay > 0))
}

/// The message's headers as it arrives.
fn negated(headers: Table, delay_ms: i64) -> Table {
    let negate = |(name, value): &(ShortStr, Value)| {
        let value = if *name == *DELAY { Value::Int64(-delay_ms) } else { value.clone() };
        (name.clone(), value)
    };
    headers.iter().map(negate).collect()
}

/// Notes the further keys of a message.
fn with_keys(mut record: Record, further: &FurtherKeys) -> Record {
    record.headers.extend(keys_header(further));
    record
}

impl Connection {
    /// Parks a message for each exchange that keeps it back, and publishes it where it goes now.
    pub(super) async fn delay(&mut self, number: u16, delayed: Delayed) -> Result<(), Failure> {
        let Delayed { delay_ms, held_by, now: destinations, keys, further, mandatory, mut message, tag } =
            delayed;
        let broker = Arc::clone(&self.front.broker);
        let now = broker.now_ms();
        if destinations.is_empty() && mandatory {
            self.flush_messages().await;
            let Message { exchange, routing_key, properties, body } = &message;
            self.return_message(number, exchange.clone(), routing_key.clone(), properties, body);
        }
        let expires_after_ms = message.properties.expiration.as_ref().and_then(expires_after);
        let copy = (!destinations.is_empty())
            .then(|| with_keys(expiring(message.clone().into_record(now), expires_after_ms, now), &further));
        message.properties.headers = message.properties.headers.map(|headers| negated(headers, delay_ms));
        let properties = RoutingProperties::of(&Asked::new(&message.properties));
        let record = with_keys(message.into_record(now), &further);
        let at = now.saturating_add(delay_ms);
        let due = |exchange: &Arc<str>| Due {
            namespace: self.namespace.clone(),
            target: Target::Exchange {
                name: exchange.to_string(),
                keys: keys.clone(),
                properties: properties.clone(),
            },
            expires_after_ms,
        };
        let dues: Vec<Due> = held_by.iter().map(due).collect();
        match (&dues[..], copy) {
            ([due], None) => self.park_with_others(number, due, record, at, tag).await,
            (_, copy) => self.park_alone(number, &dues, record, at, destinations, copy, tag).await,
        }
    }

    /// The usual case: one exchange keeps the message back, and it goes nowhere else.
    async fn park_with_others(
        &mut self,
        number: u16,
        due: &Due,
        record: Record,
        at: i64,
        tag: Option<u64>,
    ) -> Result<(), Failure> {
        let lot = self.front.broker.lot_for(due).await?;
        let fits = |parked: &ParkedMessages| {
            parked.number == number && parked.lot.id() == lot.id() && !parked.batch.is_full()
        };
        if !self.parked.as_ref().is_some_and(fits) {
            self.flush_parked().await;
        }
        let fresh = || ParkedMessages { number, lot, batch: ParkedBatch::new(), tags: Vec::new() };
        let parked = self.parked.get_or_insert_with(fresh);
        parked.batch.push(record, due, at);
        parked.tags.extend(tag);
        Ok(())
    }

    /// A message that goes several ways is confirmed when it has gone all of them.
    async fn park_alone(
        &mut self,
        number: u16,
        dues: &[Due],
        record: Record,
        at: i64,
        destinations: Destinations,
        copy: Option<Record>,
        tag: Option<u64>,
    ) -> Result<(), Failure> {
        self.flush_messages().await;
        let owner = self.channel(number)?.owner;
        let broker = Arc::clone(&self.front.broker);
        let mut parking = Vec::new();
        for due in dues {
            let lot = broker.lot_for(due).await?;
            let mut batch = ParkedBatch::new();
            batch.push(record.clone(), due, at);
            parking.push(broker.park(&lot, batch).await);
        }
        let publishing = match copy {
            None => None,
            Some(record) => {
                let mut builder = BatchBuilder::new();
                builder.push(record.timestamp, None, record.value.as_deref(), &record.headers);
                Some(broker.publish_to(&destinations, builder.build()).await)
            }
        };
        self.confirmed.push(Box::pin(async move {
            let result = async {
                let parking: Result<Vec<_>, PublishError> = parking.into_iter().collect();
                try_join_all(parking?).await?;
                match publishing {
                    Some(publishing) => publishing?.await,
                    None => Ok(()),
                }
            };
            Confirmed { number, owner, tags: tag.into_iter().collect(), result: result.await }
        }));
        Ok(())
    }

    /// Puts the messages that are gathered in their lot's line.
    pub(super) async fn flush_parked(&mut self) {
        let Some(parked) = self.parked.take() else { return };
        let ParkedMessages { number, lot, batch, tags } = parked;
        let Some(owner) = self.channels.get(&number).map(|channel| channel.owner) else { return };
        let parking = self.front.broker.park(&lot, batch).await;
        self.confirmed.push(Box::pin(async move {
            let result = match parking {
                Ok(parking) => parking.await.map(drop),
                Err(error) => Err(error),
            };
            Confirmed { number, owner, tags, result }
        }));
    }
}

#[cfg(test)]
mod tests {
    use weir_amqp_wire::ReplyCode;

    use super::*;

    fn delay(value: impl Into<Value>) -> Result<Option<i64>, Failure> {
        let headers = Some(Table::default().with(DELAY, value));
        delay_of(&BasicProperties { headers, ..BasicProperties::default() })
    }

    #[test]
    fn a_delay_is_a_number_in_whatever_form() {
        assert_eq!(delay_of(&BasicProperties::default()), Ok(None));
        assert_eq!(delay(Value::Int32(500)), Ok(Some(500)));
        assert_eq!(delay(Value::Int64(1 << 40)), Ok(Some(1 << 40)));
        assert_eq!(delay(Value::UInt8(1)), Ok(Some(1)));
        assert_eq!(delay(Value::Double(2.9)), Ok(Some(2)));
        assert_eq!(delay(Value::LongStr("500".into())), Ok(Some(500)));
        assert_eq!(delay(Value::Int32(0)), Ok(None));
        assert_eq!(delay(Value::Int32(-500)), Ok(None));
        assert_eq!(delay(Value::Double(f64::NAN)), Ok(None));
        assert_eq!(delay(Value::Bool(true)), Ok(None));
        let refused = delay(Value::LongStr("soon".into())).unwrap_err();
        assert_eq!(refused.code, ReplyCode::PreconditionFailed);
    }

    #[test]
    fn the_delay_is_negated_and_everything_else_stays() {
        let table = Table::default().with("a", Value::Bool(true)).with(DELAY, Value::LongStr("500".into()));
        let expected = Table::default().with("a", Value::Bool(true)).with(DELAY, Value::Int64(-500));
        assert_eq!(negated(table, 500), expected);
    }
}
