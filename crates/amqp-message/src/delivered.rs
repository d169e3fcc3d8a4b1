//! Messages on their way out of a queue.

use weir_amqp_wire::{ShortStr, Table, Value};
use weir_broker::queues::{Death, Deaths, KEYS_HEADER, QueueDelivery};
use weir_model::batch::Record;
use weir_model::subscription::DeadReason;

use crate::message::Message;

/// Headers of records that are the broker's own and no message's.
const OWN_HEADERS: &str = "weir.";

/// The message that a delivery from this queue is, with the deaths that it died, and with what a quorum queue adds.
pub fn delivered(delivery: QueueDelivery, queue: &ShortStr, quorum: bool) -> Message {
    let QueueDelivery { record, marks, .. } = delivery;
    let mut message = message_of(record.record, queue);
    if quorum && marks.returns > 0 {
        let headers = message.properties.headers.get_or_insert_with(Table::new);
        let count =
            |name: &'static str, value: u16| (ShortStr::from_static(name), Value::Int64(i64::from(value)));
        for (name, value) in
            [count("x-delivery-count", marks.failures), count("x-acquired-count", marks.returns)]
        {
            headers.push(name, value);
        }
    }
    message
}

/// The message that a record of this topic is, with the deaths that it died.
pub fn message_of(mut record: Record, topic: &ShortStr) -> Message {
    let deaths = Deaths::of(&record);
    let has_copies = record.headers.iter().any(|header| header.key == KEYS_HEADER);
    record.headers.retain(|header| !header.key.starts_with(OWN_HEADERS));
    let mut message = Message::from_record(record, topic);
    if let Some(deaths) = deaths {
        let headers = message.properties.headers.get_or_insert_with(Table::new);
        // The queue that it died in said where it goes.
        if !has_copies && headers.get("CC").is_some() {
            *headers = headers.iter().filter(|(name, _)| *name != "CC").cloned().collect();
        }
        death_headers(&deaths, headers);
    }
    message
}

/// The headers by which RabbitMQ tells of deaths: `x-death`, and the first and the last of them apart.
fn death_headers(deaths: &Deaths, headers: &mut Table) {
    let list = deaths.all.iter().map(|death| Value::Table(death_table(death))).collect();
    let mut fresh: Vec<(ShortStr, Value)> = vec![(ShortStr::from_static("x-death"), Value::Array(list))];
    let (queue, reason, exchange) = &deaths.first;
    fresh.extend(named("first", queue, reason_name(*reason), exchange));
    if let Some(last) = deaths.all.first() {
        fresh.extend(named("last", &last.queue, reason_name(last.reason), &last.exchange));
    }
    // A client may have sent such headers itself: what the broker knows counts.
    let known = |name: &ShortStr| fresh.iter().any(|(own, _)| own == name);
    let kept: Vec<(ShortStr, Value)> = headers.iter().filter(|(name, _)| !known(name)).cloned().collect();
    *headers = kept.into_iter().chain(fresh).collect();
}

fn named(which: &str, queue: &str, reason: &'static str, exchange: &str) -> [(ShortStr, Value); 3] {
    let name = |what: &str| ShortStr::truncated(&format!("x-{which}-death-{what}"));
    [
        (name("exchange"), Value::from(exchange.to_owned())),
        (name("queue"), Value::from(queue.to_owned())),
        (name("reason"), Value::from(reason)),
    ]
}

fn death_table(death: &Death) -> Table {
    let keys = death.keys.iter().map(|key| Value::LongStr(key.clone())).collect::<Vec<_>>();
    let table = Table::new()
        .with("count", death.count.cast_signed())
        .with("reason", reason_name(death.reason))
        .with("queue", death.queue.clone())
        .with("time", Value::Timestamp((death.time / 1_000).max(0).cast_unsigned()))
        .with("exchange", death.exchange.clone())
        .with("routing-keys", keys);
    match &death.expiration {
        Some(expiration) => table.with("original-expiration", expiration.clone()),
        None => table,
    }
}

fn reason_name(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::Rejected => "rejected",
        DeadReason::Expired => "expired",
        DeadReason::MaxLength => "maxlen",
        DeadReason::DeliveryLimit => "delivery_limit",
    }
}
