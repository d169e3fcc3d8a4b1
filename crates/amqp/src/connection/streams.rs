//! Consuming by offset: from streams, and from topics that are no queues.

use std::sync::Arc;

use weir_amqp_message::{arguments, message_of};
use weir_amqp_wire::methods::{basic, queue};
use weir_amqp_wire::{ReplyCode, ShortStr, Table, Value};
use weir_broker::Topic;
use weir_broker::streams::{StreamRecord, StreamStart};
use weir_broker::topology::{QueueInfo, interval_ms, queue_in};
use weir_model::queue::{QueueKind, full_name};

use super::basic::refuse_argument;
use super::filter::filter;
use super::{Connection, NextRecords, StreamFeed};
use crate::channel::{Delivered, StreamConsumer};
use crate::errors::Failure;

/// Where a consumer says where it begins, and a message where it lies.
pub(super) const OFFSET: &str = "x-stream-offset";

/// The header of a message of a topic that has several partitions: in which it lies.
const PARTITION: &str = "x-stream-partition";

/// What a consumer may consume from.
pub(super) enum Source {
    /// Records are handed out and settled.
    Queue(Box<QueueInfo>),
    /// Records are read by offset.
    Stream(Arc<Topic>),
}

impl Connection {
    /// What has this name.
    pub(super) fn source(&self, name: &str) -> Result<Source, Failure> {
        let topic = self.front.broker.topic(&full_name(&self.namespace, name));
        let topic = topic.ok_or_else(|| Failure::no_queue(name, &self.namespace))?;
        match &topic.queue {
            Some(queue) if queue.meta.kind != QueueKind::Stream => {
                self.need_queue(name).map(|info| Source::Queue(Box::new(info)))
            }
            _ => Ok(Source::Stream(topic)),
        }
    }

    pub(super) async fn consume_stream(
        &mut self,
        number: u16,
        tag: ShortStr,
        topic: &Topic,
        name: ShortStr,
        method: &basic::Consume,
    ) -> Result<(), Failure> {
        let of = queue_in(&self.namespace, &name.to_string_lossy());
        refuse_argument(&method.arguments, "x-priority", &of, QueueKind::Stream)?;
        let start = start(&method.arguments, self.front.broker.now_ms())
            .ok_or_else(|| Failure::precondition(format!("invalid arg '{OFFSET}' for {of}")))?;
        let filter = filter(&method.arguments, &name, &of)?;
        let channel = self.channel(number)?;
        if channel.prefetch == 0 {
            return Err(Failure::precondition(format!("consumer prefetch count is not set for '{of}'")));
        }
        if method.no_ack {
            let words = format!("automatic acknowledgement not supported by stream queues {of}");
            return Err(Failure::new(ReplyCode::NotImplemented, words));
        }
        if channel.shared_prefetch.is_limited() {
            return Err(Failure::new(ReplyCode::NotImplemented, format!("{of} does not support global qos")));
        }
        let (owner, prefetch) = (channel.owner, channel.prefetch);
        let (credit, records) = self.front.broker.read_stream(topic, start, prefetch.into(), filter).await?;
        let has_partitions = topic.partition_count() > 1;
        let queue = name.to_string_lossy().into_owned();
        let consumer = StreamConsumer { credit, queue, prefetch, arguments: arguments(&method.arguments) };
        let feed = StreamFeed { channel: number, owner, tag: tag.clone(), name, has_partitions, records };
        let channel = self.channel(number)?;
        channel.streams.insert(tag.clone(), consumer);
        if !method.no_wait {
            self.send(number, basic::ConsumeOk { consumer_tag: tag });
        }
        self.stream_records.push(next(feed));
        Ok(())
    }

    /// Records for a consumer; none if what it reads is gone.
    pub(super) fn deliver_stream(&mut self, feed: StreamFeed, records: Option<Vec<StreamRecord>>) {
        let number = feed.channel;
        let Some(channel) = self.channels.get_mut(&number).filter(|channel| channel.owner == feed.owner)
        else {
            return;
        };
        // A tag that was cancelled and used again belongs to another feed, whose credit is another.
        let Some(consumer) = channel.streams.get(&feed.tag).filter(|there| there.credit.is_of(&feed.records))
        else {
            return;
        };
        let credit = consumer.credit.clone();
        let Some(records) = records else {
            channel.streams.remove(&feed.tag);
            if self.client.takes_cancel {
                self.send(number, basic::Cancel { consumer_tag: feed.tag, no_wait: true });
            }
            return;
        };
        for StreamRecord { partition, offset, record } in records {
            let Some(channel) = self.channels.get_mut(&number) else { return };
            let delivery_tag = channel.unsettled.deliver(Delivered::Streamed(credit.clone()));
            let mut message = message_of(record, &feed.name);
            let headers = message.properties.headers.get_or_insert_with(Table::new);
            headers.push(ShortStr::from_static(OFFSET), Value::Int64(offset));
            if feed.has_partitions {
                headers.push(ShortStr::from_static(PARTITION), Value::Int32(partition));
            }
            let deliver = basic::Deliver {
                consumer_tag: feed.tag.clone(),
                delivery_tag,
                redelivered: false,
                exchange: message.exchange,
                routing_key: message.routing_key,
            };
            if let Err(error) = self.out.content(number, &deliver, &message.properties, &message.body) {
                tracing::error!(%error, "a message could not be delivered");
            }
        }
        self.stream_records.push(next(feed));
    }

    /// Answers whoever declares what is a stream, or no queue at all.
    pub(super) fn stream_declared(
        &mut self,
        number: u16,
        name: ShortStr,
        topic: &Topic,
        no_wait: bool,
    ) -> Result<(), Failure> {
        let mut records = 0;
        for index in 0..topic.partition_count() {
            if let Ok(partition) = self.front.broker.partition(topic, index as i32) {
                records += partition.next_offset() - partition.log_start();
            }
        }
        self.channel(number)?.last_queue = Some(name.clone());
        if !no_wait {
            let message_count = u32::try_from(records).unwrap_or(u32::MAX);
            self.send(number, queue::DeclareOk { queue: name, message_count, consumer_count: 0 });
        }
        Ok(())
    }
}

/// Waits for the next records of a consumer.
fn next(mut feed: StreamFeed) -> NextRecords {
    Box::pin(async move {
        let records = feed.records.next().await;
        (feed, records)
    })
}

/// Where a consumer begins; none if it says what is no offset.
fn start(arguments: &Table, now: i64) -> Option<StreamStart> {
    let Some(value) = arguments.get(OFFSET) else { return Some(StreamStart::Next) };
    if let Value::Timestamp(seconds) = value {
        return Some(StreamStart::At(i64::try_from(*seconds).ok()?.checked_mul(1_000)?));
    }
    if let Some(offset) = value.as_i64() {
        return (offset >= 0).then_some(StreamStart::Offset(offset));
    }
    match value.as_str()? {
        "first" => Some(StreamStart::First),
        "last" => Some(StreamStart::Last),
        "next" => Some(StreamStart::Next),
        interval => Some(StreamStart::At(now.saturating_sub(interval_ms(interval)?))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_consumer_says_where_it_begins_in_many_ways() {
        let of = |value: Value| start(&Table::new().with(OFFSET, value), 100_000);
        assert_eq!(start(&Table::new(), 0), Some(StreamStart::Next));
        assert_eq!(of(Value::from("first")), Some(StreamStart::First));
        assert_eq!(of(Value::from("last")), Some(StreamStart::Last));
        assert_eq!(of(Value::Int64(7)), Some(StreamStart::Offset(7)));
        assert_eq!(of(Value::Timestamp(3)), Some(StreamStart::At(3_000)));
        assert_eq!(of(Value::from("1m")), Some(StreamStart::At(40_000)));
        for wrong in [Value::Int64(-1), Value::from("soon"), Value::from("-1s"), Value::Bool(true)] {
            assert_eq!(of(wrong), None);
        }
    }
}
