//! Class basic on its way out: consumers, deliveries, and what becomes of them.

use std::sync::Arc;
use std::time::Duration;

use weir_amqp_message::{arguments, delivered};
use weir_amqp_wire::methods::basic;
use weir_amqp_wire::{ReplyCode, ShortStr, Table};
use weir_broker::queues::{GetError, QueueDelivery, QueueRef};
use weir_broker::topology::queue_in;
use weir_broker::{Operation, Parties};
use weir_dispatch::{Gate, NewConsumer};
use weir_model::queue::QueueKind;
use weir_model::subscription::{DeadReason, Disposition};

use super::declare::asked;
use super::streams::{OFFSET, Source};
use super::{Connection, Feed, NextDeliveries};
use crate::channel::{Consumer, ConsumerKey, Delivered, Leased, Mode, Unshared};
use crate::errors::Failure;
use crate::handshake::generated;
use crate::replies::REPLY_TO;

/// What refusing a message comes to. Only `basic.reject` counts as a failure, as in RabbitMQ from 4.3 on.
pub(super) fn refused(requeue: bool, failed: bool) -> Disposition {
    if requeue {
        Disposition::Release { failed }
    } else {
        Disposition::Reject { reason: DeadReason::Rejected }
    }
}

impl Connection {
    pub(super) fn qos(&mut self, number: u16, method: &basic::Qos) -> Result<(), Failure> {
        if method.prefetch_size != 0 {
            let words = format!("prefetch_size!=0 ({})", method.prefetch_size);
            return Err(Failure::new(ReplyCode::NotImplemented, words));
        }
        let channel = self.channel(number)?;
        if method.global {
            channel.shared_prefetch.set_limit(method.prefetch_count);
            channel.queues.values().for_each(QueueRef::wake);
        } else {
            // It ends the other kind of limit, as in RabbitMQ.
            channel.prefetch = method.prefetch_count;
            channel.shared_prefetch.set_limit(0);
            channel.queues.values().for_each(QueueRef::wake);
        }
        self.send(number, basic::QosOk {});
        Ok(())
    }

    pub(super) async fn consume(&mut self, number: u16, method: basic::Consume) -> Result<(), Failure> {
        let tag = match method.consumer_tag.is_empty() {
            true => generated("amq.ctag-", self.front.broker.random_bytes()),
            false => method.consumer_tag.detached(),
        };
        let named = self.queue_name(number, &method.queue)?;
        self.check_tag_is_free(number, &tag)?;
        if named == REPLY_TO {
            return self.consume_replies(number, tag, &method);
        }
        let name = asked(&named)?;
        self.check(Operation::BasicConsume, Parties::one(&name))?;
        let info = match self.source(&name)? {
            Source::Queue(info) => info,
            Source::Stream(topic) => return self.consume_stream(number, tag, &topic, named, &method).await,
        };
        let of = queue_in(&self.namespace, &name);
        self.check_not_others(&info, &name)?;
        let priority = priority(&method.arguments, &of)?;
        let timeout = timeout(&method.arguments, &of)?;
        refuse_argument(&method.arguments, OFFSET, &of, info.meta.kind)?;
        if info.meta.kind == QueueKind::Quorum && self.channel(number)?.shared_prefetch.is_limited() {
            let words = format!("{of} does not support global qos");
            return Err(Failure::new(ReplyCode::NotImplemented, words));
        }
        let in_use = Failure::new(ReplyCode::AccessRefused, format!("{of} in exclusive use"));
        // Quorum queues only note that somebody wants to be alone, as in every version of RabbitMQ.
        let alone = method.exclusive && info.meta.kind == QueueKind::Classic;
        if alone && info.arguments.single_active {
            return Err(in_use);
        }
        let channel = self.channel(number)?;
        let prefetch = channel.prefetch;
        let gate: Option<Arc<dyn Gate>> = match (info.meta.kind, method.no_ack) {
            // A limit that is set later does not count for them either, as in RabbitMQ.
            (QueueKind::Quorum | QueueKind::Stream, _) => None,
            (QueueKind::Classic, false) => Some(channel.shared_prefetch.clone()),
            (QueueKind::Classic, true) => Some(Arc::new(Unshared(channel.shared_prefetch.clone()))),
        };
        let bounded = prefetch > 0 && !method.no_ack;
        let asking = NewConsumer {
            owner: channel.owner,
            credit: bounded.then_some(u32::from(prefetch)),
            priority,
            exclusive: alone,
            settled: method.no_ack,
            gate,
        };
        let subscribe = |queue: QueueRef| {
            let consumer = asking.clone();
            async move { queue.subscribe(consumer).await }
        };
        let (info, queue, subscribed) = self.ask_queue(&name, subscribe).await?;
        let (id, deliveries) = subscribed.map_err(|_| in_use)?;
        let timeout = self.look_within(timeout.or(info.arguments.consumer_timeout));
        let channel = self.channel(number)?;
        let topic = info.topic.id();
        channel.queues.insert(topic, queue.clone());
        let feed = Feed {
            channel: number,
            owner: channel.owner,
            tag: tag.clone(),
            consumer: ConsumerKey { topic, id },
            shared: info.meta.kind == QueueKind::Classic && !method.no_ack,
            queue: queue.clone(),
            deliveries,
        };
        let consumer = Consumer {
            info,
            queue,
            id,
            no_ack: method.no_ack,
            bounded,
            exclusive: method.exclusive,
            prefetch,
            arguments: arguments(&method.arguments),
            timeout,
            asked: asking,
        };
        channel.consumers.insert(tag.clone(), consumer);
        if !method.no_wait {
            self.send(number, basic::ConsumeOk { consumer_tag: tag });
        }
        self.deliveries.push(next(feed));
        Ok(())
    }

    pub(super) async fn cancel(&mut self, number: u16, method: basic::Cancel) -> Result<(), Failure> {
        let tag = method.consumer_tag.detached();
        self.cancel_replies(number, Some(&tag));
        self.channel(number)?.streams.remove(&tag);
        let consumer = self.channel(number)?.consumers.remove(&tag);
        if let Some(consumer) = consumer {
            let _ = consumer.queue.cancel(consumer.id).await;
            self.drop_if_unused(&consumer).await;
        }
        if !method.no_wait {
            self.send(number, basic::CancelOk { consumer_tag: tag });
        }
        Ok(())
    }

    /// A queue that goes with its last consumer goes.
    pub(super) async fn drop_if_unused(&mut self, consumer: &Consumer) {
        if !consumer.info.meta.auto_delete {
            return;
        }
        let figures = match consumer.queue.figures().await {
            // Another node may lead it by now, if it is there.
            Err(_) => match self.front.broker.open_queue(&consumer.info).await {
                Ok(queue) => queue.figures().await,
                Err(_) => return,
            },
            figures => figures,
        };
        let unused = figures.is_ok_and(|figures| figures.consumers == 0);
        if unused && let Err(failure) = self.drop_queue(&consumer.info).await {
            tracing::warn!("an auto-delete queue could not be deleted: {}", failure.words);
        }
    }

    /// Records for a consumer; none if its queue is gone.
    pub(super) fn deliver(&mut self, feed: Feed, records: Option<Vec<QueueDelivery>>) {
        // With its channel everything that it had was given back.
        let Some(channel) =
            self.channels.get_mut(&feed.channel).filter(|channel| channel.owner == feed.owner)
        else {
            return;
        };
        let key = |consumer: &Consumer| ConsumerKey { topic: consumer.info.topic.id(), id: consumer.id };
        let is_there = channel.consumers.get(&feed.tag).is_some_and(|there| key(there) == feed.consumer);
        match records {
            None if is_there => self.resubscribe(feed),
            None => {}
            Some(records) if is_there => {
                for delivery in records {
                    self.deliver_one(feed.channel, &feed.tag, delivery);
                }
                self.deliveries.push(next(feed));
            }
            // It was cancelled while these were on their way: they are handed to somebody else.
            Some(records) => {
                let leased = |QueueDelivery { place, .. }| Leased {
                    topic: feed.consumer.topic,
                    queue: feed.queue.clone(),
                    place,
                    consumer: None,
                    credited: false,
                    timeout: None,
                    shared: feed.shared,
                    again: false,
                };
                let leased = records.into_iter().map(leased).collect();
                self.give_back(feed.channel, leased);
                self.deliveries.push(next(feed));
            }
        }
    }

    fn deliver_one(&mut self, number: u16, tag: &ShortStr, delivery: QueueDelivery) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let Some(consumer) = channel.consumers.get(tag) else { return };
        let topic = consumer.info.topic.id();
        let delivery_tag = if consumer.no_ack {
            channel.unsettled.deliver_settled()
        } else {
            channel.unsettled.deliver(Delivered::Leased(Leased {
                topic,
                queue: consumer.queue.clone(),
                place: delivery.place,
                consumer: Some(ConsumerKey { topic, id: consumer.id }),
                credited: consumer.bounded,
                timeout: consumer.timeout,
                shared: consumer.info.meta.kind == QueueKind::Classic,
                again: false,
            }))
        };
        let (_, name) = weir_model::queue::split_name(consumer.info.topic.name());
        let name = ShortStr::truncated(name);
        let quorum = consumer.info.meta.kind == QueueKind::Quorum;
        let redelivered = delivery.redelivered;
        let message = delivered(delivery, &name, quorum);
        let deliver = basic::Deliver {
            consumer_tag: tag.clone(),
            delivery_tag,
            redelivered,
            exchange: message.exchange,
            routing_key: message.routing_key,
        };
        if let Err(error) = self.out.content(number, &deliver, &message.properties, &message.body) {
            tracing::error!(%error, "a message could not be delivered");
        }
    }

    pub(super) async fn get(&mut self, number: u16, method: basic::Get) -> Result<(), Failure> {
        let named = self.queue_name(number, &method.queue)?;
        let name = asked(&named)?;
        self.check(Operation::BasicGet, Parties::one(&name))?;
        let info = match self.source(&name)? {
            Source::Queue(info) => info,
            Source::Stream(_) => {
                let of = queue_in(&self.namespace, &name);
                let words = format!("basic.get not supported by stream queues {of}");
                return Err(Failure::new(ReplyCode::NotImplemented, words));
            }
        };
        self.check_not_others(&info, &name)?;
        if info.arguments.single_active && info.meta.kind == QueueKind::Quorum {
            let words = format!(
                "cannot obtain access to locked {}. basic.get operations are not supported by quorum queues with single \
                 active consumer",
                queue_in(&self.namespace, &name)
            );
            return Err(Failure::new(ReplyCode::ResourceLocked, words));
        }
        let owner = self.channel(number)?.owner;
        let get = |queue: QueueRef| async move {
            let got = match queue.get(owner, method.no_ack).await {
                Err(GetError::Gone(gone)) => return Err(gone),
                got => got,
            };
            // What was got is its owner's, also if the queue's leader is gone by now.
            Ok((got, queue.figures().await.unwrap_or_default().ready))
        };
        let (info, queue, (got, ready)) = self.ask_queue(&name, get).await?;
        let Some(delivery) = got? else {
            self.send(number, basic::GetEmpty::default());
            return Ok(());
        };
        let timeout = self.look_within(info.arguments.consumer_timeout);
        let channel = self.channel(number)?;
        let topic = info.topic.id();
        channel.queues.insert(topic, queue.clone());
        let delivery_tag = if method.no_ack {
            channel.unsettled.deliver_settled()
        } else {
            let place = delivery.place;
            let (consumer, credited, shared, again) = (None, false, false, false);
            let leased = Leased { topic, queue, place, consumer, credited, timeout, shared, again };
            channel.unsettled.deliver(Delivered::Leased(leased))
        };
        let redelivered = delivery.redelivered;
        let message = delivered(delivery, &named, info.meta.kind == QueueKind::Quorum);
        let ok = basic::GetOk {
            delivery_tag,
            redelivered,
            exchange: message.exchange,
            routing_key: message.routing_key,
            message_count: u32::try_from(ready).unwrap_or(u32::MAX),
        };
        if let Err(error) = self.out.content(number, &ok, &message.properties, &message.body) {
            return Err(Failure::new(ReplyCode::InternalError, error.to_string()));
        }
        Ok(())
    }

    pub(super) async fn settle(
        &mut self,
        number: u16,
        tag: u64,
        multiple: bool,
        disposition: Disposition,
    ) -> Result<(), Failure> {
        let channel = self.channel(number)?;
        let settled = channel.unsettled.settle(tag, multiple)?;
        if let Mode::Transaction(transaction) = &mut channel.mode {
            transaction.settle(settled, disposition);
            return Ok(());
        }
        self.settle_all(number, settled, disposition);
        Ok(())
    }

    /// Gathers settlements, and gives consumers credit for them.
    pub(super) fn settle_all(
        &mut self,
        number: u16,
        settled: Vec<(u64, Delivered)>,
        disposition: Disposition,
    ) {
        let settled = settled.into_iter().filter_map(|(_, delivered)| of_a_queue(delivered));
        self.settle_leased(number, settled.collect(), disposition);
    }

    /// What was delivered comes back without having failed.
    pub(super) fn give_back_all(&mut self, number: u16, delivered: Vec<Delivered>) {
        self.give_back(number, delivered.into_iter().filter_map(of_a_queue).collect());
    }

    /// Nobody has seen these.
    fn give_back(&mut self, number: u16, leased: Vec<Leased>) {
        self.settle_leased(number, leased, Disposition::Release { failed: false });
    }

    fn settle_leased(&mut self, number: u16, settled: Vec<Leased>, disposition: Disposition) {
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let owner = channel.owner;
        let shared = settled.iter().filter(|leased| leased.shared).count();
        channel.shared_prefetch.settled(shared as u32);
        if channel.shared_prefetch.is_limited() {
            // The queue that had the place is told last: it would otherwise get it again and again.
            let had_it = settled.last().map(|leased| leased.topic);
            let (first, behind): (Vec<_>, Vec<_>) =
                channel.queues.iter().partition(|(topic, _)| Some(**topic) <= had_it);
            behind.into_iter().chain(first).for_each(|(_, queue)| queue.wake());
        }
        for leased in settled {
            if let Some(key) = leased.consumer.filter(|_| leased.credited) {
                self.credit.entry(key).or_insert_with(|| (leased.queue.clone(), 0)).1 += 1;
            }
            self.gather(owner, leased, disposition);
        }
    }

    pub(super) async fn recover(
        &mut self,
        number: u16,
        requeue: bool,
        answered: bool,
    ) -> Result<(), Failure> {
        if !requeue {
            return Err(Failure::new(ReplyCode::NotImplemented, "requeue=false"));
        }
        let all = self.channel(number)?.unsettled.take_all();
        self.give_back_all(number, all);
        if answered {
            self.send(number, basic::RecoverOk {});
        }
        Ok(())
    }
}

/// What was leased. What came from a stream only lets another record come.
fn of_a_queue(delivered: Delivered) -> Option<Leased> {
    match delivered {
        Delivered::Leased(leased) => Some(leased),
        Delivered::Streamed(credit) => {
            credit.add(1);
            None
        }
        Delivered::TakenBack => None,
    }
}

/// The priority of a consumer, 0 where none is given.
fn priority(arguments: &Table, of: &str) -> Result<i32, Failure> {
    let Some(value) = arguments.get("x-priority") else { return Ok(0) };
    let number = value.as_i64().ok_or_else(|| {
        let got = value.type_name();
        Failure::precondition(format!("invalid arg 'x-priority' for {of}: \"expected integer, got {got}\""))
    })?;
    Ok(number.clamp(i32::MIN.into(), i32::MAX.into()) as i32)
}

/// How long a consumer takes to settle what it gets at most, where it says so.
fn timeout(arguments: &Table, of: &str) -> Result<Option<Duration>, Failure> {
    let Some(value) = arguments.get("x-consumer-timeout") else { return Ok(None) };
    match value.as_i64() {
        Some(ms @ 1..) => Ok(Some(Duration::from_millis(ms.cast_unsigned()))),
        Some(ms) => {
            let words = format!("invalid arg 'x-consumer-timeout' for {of}: {{value_too_small,{ms}}}");
            Err(Failure::precondition(words))
        }
        None => {
            let got = value.type_name();
            let words = format!("invalid arg 'x-consumer-timeout' for {of}: \"expected integer, got {got}\"");
            Err(Failure::precondition(words))
        }
    }
}

/// Refuses an argument of consumers that a kind of queue does not have.
pub(super) fn refuse_argument(
    arguments: &Table,
    argument: &str,
    of: &str,
    kind: QueueKind,
) -> Result<(), Failure> {
    match arguments.get(argument) {
        None => Ok(()),
        Some(_) => {
            let words = format!("invalid arg '{argument}' for {of} of queue type rabbit_{kind}_queue");
            Err(Failure::precondition(words))
        }
    }
}

/// Waits for the next records of a consumer.
pub(super) fn next(mut feed: Feed) -> NextDeliveries {
    Box::pin(async move {
        let records = feed.deliveries.next().await;
        (feed, records)
    })
}
