//! Class basic on its way in: messages are routed, gathered, published and confirmed.

use weir_amqp_message::{Asked, EXPIRES_HEADER, Message, expiration_ms, expires_after, take_copies};
use weir_amqp_wire::methods::{basic, confirm};
use weir_amqp_wire::{BasicProperties, Content, ReplyCode, ShortStr};
use weir_broker::errors::PublishError;
use weir_broker::queues::keys_header;
use weir_broker::topology::Destinations;
use weir_broker::{Operation, Parties};
use weir_model::batch::{BatchBuilder, Header, Record};
use weir_router::{NoSuchExchange, Route, Routed};

use super::Connection;
use super::declare::asked;
use super::delay::{Delayed, delay_of};
use super::permission::further_keys;
use crate::channel::{Addressed, Confirm, Mode};
use crate::errors::Failure;

/// Bytes of messages that go together.
const BATCH_BYTES: usize = 256 << 10;

/// Messages that go together.
const BATCH_MESSAGES: i32 = 4_096;

/// Messages that go together: of one channel, to the same queues.
pub(super) struct Batch {
    number: u16,
    destinations: Destinations,
    builder: BatchBuilder,
    /// Numbers of those that are to be confirmed.
    tags: Vec<u64>,
}

/// Messages of a channel whose fate is known.
pub(super) struct Confirmed {
    pub number: u16,
    /// The channel may be another by now that has the same number.
    pub owner: weir_broker::queues::OwnerId,
    pub tags: Vec<u64>,
    pub result: Result<(), PublishError>,
}

impl Connection {
    pub(super) async fn publish(
        &mut self,
        number: u16,
        publish: basic::Publish,
        content: Content,
    ) -> Result<(), Failure> {
        if publish.immediate {
            return Err(Failure::new(ReplyCode::NotImplemented, "immediate=true"));
        }
        let mut route = std::mem::take(&mut self.route);
        let addressed = self.address(number, publish, content, &mut route);
        let sent = match addressed {
            Ok(addressed) => self.take_in(number, addressed, &mut route).await,
            Err(failure) => Err(failure),
        };
        self.route = route;
        sent
    }

    /// What becomes of a message depends on its channel. A transaction keeps the route.
    async fn take_in(&mut self, number: u16, message: Addressed, route: &mut Route) -> Result<(), Failure> {
        let channel = self.channel(number)?;
        match &mut channel.mode {
            Mode::Transaction(transaction) => Ok(transaction.publish(message, std::mem::take(route))?),
            Mode::Plain => self.send_on(number, message, route, None).await,
            Mode::Confirm => {
                let tag = channel.confirms.publish();
                self.send_on(number, message, route, Some(tag)).await
            }
        }
    }

    /// Checks a message, in RabbitMQ's order, and finds its queues. Direct replies go out.
    fn address(
        &mut self,
        number: u16,
        publish: basic::Publish,
        content: Content,
        route: &mut Route,
    ) -> Result<Addressed, Failure> {
        let basic::Publish { exchange, routing_key, mandatory, .. } = publish;
        let Content { mut properties, body } = content;
        let exchange_name = asked(&exchange)?;
        self.check_exchange(&exchange_name, &routing_key, &properties)?;
        self.fill_in_reply_to(number, &mut properties)?;
        self.check_properties(&properties)?;
        let further = take_copies(&mut properties)?;
        if let Some(mode) = properties.delivery_mode.filter(|mode| !(1..=2).contains(mode)) {
            return Err(Failure::precondition(format!("invalid message: {{delivery_mode_unknown,{mode}}}")));
        }
        let body = body.into_contiguous();
        let mut keys: Vec<&[u8]> = Vec::with_capacity(1 + further.copies.len() + further.blind.len());
        keys.push(routing_key.as_bytes());
        keys.extend(further.copies.iter().chain(&further.blind).map(|key| &key[..]));
        if exchange.is_empty() {
            self.reply(&keys, &properties, &body);
        }
        let random = self.next_random();
        let delay = delay_of(&properties);
        let found = {
            let wanted = Asked::new(&properties);
            let is_delayed = !matches!(delay, Ok(None));
            let routed =
                Routed { properties: &wanted, is_delayed, random, ..Routed::new(&exchange_name, &keys) };
            self.router()?.route(&routed, route)
        };
        if let Err(NoSuchExchange) = found {
            return Err(Failure::no_exchange(&exchange_name, &self.namespace));
        }
        let delay_ms = if route.held_by().is_empty() { 0 } else { delay?.unwrap_or_default() };
        Ok(Addressed { exchange, routing_key, further, mandatory, properties, body, delay_ms })
    }

    /// Whether the user may publish to an exchange by these keys, and it is there.
    fn check_exchange(
        &mut self,
        exchange: &str,
        routing_key: &ShortStr,
        properties: &BasicProperties,
    ) -> Result<(), Failure> {
        let parties = Parties::one(exchange);
        self.check(Operation::BasicPublish, parties)?;
        if exchange.is_empty() {
            return Ok(());
        }
        let namespace = self.namespace.clone();
        match self.router()?.exchange(exchange) {
            None => return Err(Failure::no_exchange(exchange, &namespace)),
            Some(meta) if meta.internal => {
                let words =
                    format!("cannot publish to internal exchange '{exchange}' in vhost '{namespace}'");
                return Err(Failure::new(ReplyCode::AccessRefused, words));
            }
            Some(_) => {}
        }
        let keys = std::iter::once(&routing_key.as_bytes()[..]).chain(further_keys(properties));
        self.check_keys(Operation::BasicPublish, parties, exchange, keys)
    }

    /// What must be true of properties that mean something to the broker.
    fn check_properties(&self, properties: &BasicProperties) -> Result<(), Failure> {
        if let Some(user) = &properties.user_id
            && !user.as_str().is_some_and(|user| self.pass.identity().may_send_as(user))
        {
            let words =
                format!("user_id property set to '{user}' but authenticated user was '{}'", self.client.user);
            return Err(Failure::precondition(words));
        }
        if let Some(expiration) = &properties.expiration
            && let Err(why) = expiration_ms(expiration)
        {
            return Err(Failure::precondition(format!("invalid expiration '{expiration}': {why}")));
        }
        Ok(())
    }

    /// Puts a message with others that go to the same queues.
    pub(super) async fn send_on(
        &mut self,
        number: u16,
        message: Addressed,
        route: &Route,
        tag: Option<u64>,
    ) -> Result<(), Failure> {
        let Addressed { exchange, routing_key, further, mandatory, properties, body, delay_ms } = message;
        if route.is_empty() && route.held_by().is_empty() {
            if mandatory {
                self.flush_messages().await;
                self.return_message(number, exchange, routing_key, &properties, &body);
            }
            if let Some(tag) = tag {
                self.channel(number)?.confirms.safe(tag);
                self.send_confirms(number);
            }
            return Ok(());
        }
        let random = self.next_random();
        let broker = &self.front.broker;
        let names = route.queues().map(|name| &**name);
        let destinations = broker.destinations(&self.namespace, names, properties.priority, random)?;
        if !route.held_by().is_empty() {
            let held_by = route.held_by().to_vec();
            let keys = std::iter::once(routing_key.as_bytes()).chain(&further.copies).chain(&further.blind);
            let keys = keys.map(|key| bytes::Bytes::copy_from_slice(key)).collect();
            let message = Message { exchange, routing_key, properties, body };
            let delayed =
                Delayed { delay_ms, held_by, now: destinations, keys, further, mandatory, message, tag };
            return self.delay(number, delayed).await;
        }
        let now = broker.now_ms();
        if destinations.take_nothing_twice() {
            self.flush_settlements().await;
        }
        let expires = properties.expiration.as_ref().and_then(expires_after);
        let mut record = Message { exchange, routing_key, properties, body }.into_record(now);
        record.headers.extend(keys_header(&further));
        let record = expiring(record, expires, now);
        let fits = |batch: &Batch| {
            batch.number == number
                && batch.builder.record_count() < BATCH_MESSAGES
                && batch.builder.section_bytes() < BATCH_BYTES
                && batch.destinations.may_go_with(&destinations)
        };
        if !self.batch.as_ref().is_some_and(fits) {
            self.flush_messages().await;
        }
        let batch = self.batch.get_or_insert_with(|| Batch {
            number,
            destinations,
            builder: BatchBuilder::new(),
            tags: Vec::new(),
        });
        batch.builder.push(now, None, record.value.as_deref(), &record.headers);
        batch.tags.extend(tag);
        if batch.destinations.goes_alone() {
            self.flush_messages().await;
        }
        Ok(())
    }

    pub(super) fn return_message(
        &mut self,
        number: u16,
        exchange: ShortStr,
        routing_key: ShortStr,
        properties: &BasicProperties,
        body: &bytes::Bytes,
    ) {
        let returned = basic::Return {
            reply_code: ReplyCode::NoRoute.number(),
            reply_text: ShortStr::from_static(ReplyCode::NoRoute.name()),
            exchange,
            routing_key,
        };
        if let Err(error) = self.out.content(number, &returned, properties, body) {
            tracing::error!(%error, "a message could not be returned");
        }
    }

    /// Puts the messages that are gathered in their shards' lines.
    pub(super) async fn flush_messages(&mut self) {
        self.flush_parked().await;
        let Some(batch) = self.batch.take() else { return };
        let Batch { number, destinations, builder, tags } = batch;
        let Some(owner) = self.channels.get(&number).map(|channel| channel.owner) else { return };
        let publishing = self.front.broker.publish_to(&destinations, builder.build()).await;
        self.confirmed.push(Box::pin(async move {
            let result = match publishing {
                Ok(publishing) => publishing.await,
                Err(error) => Err(error),
            };
            Confirmed { number, owner, tags, result }
        }));
    }

    /// Waits until everything that was published is where it belongs.
    pub(super) async fn until_published(&mut self) {
        use futures_util::StreamExt;
        while let Some(confirmed) = self.confirmed.next().await {
            self.confirm(confirmed);
        }
    }

    /// Notes what became of messages.
    pub(super) fn confirm(&mut self, confirmed: Confirmed) {
        let Confirmed { number, owner, tags, result } = confirmed;
        if let Err(error) = &result
            && !matches!(error, PublishError::QueueFull(_))
        {
            tracing::warn!(%error, messages = tags.len(), "messages could not be published");
        }
        let Some(channel) = self.channels.get_mut(&number).filter(|channel| channel.owner == owner) else {
            return;
        };
        if let (Err(_), Mode::Transaction(transaction)) = (&result, &mut channel.mode) {
            transaction.failed = true;
        }
        for tag in tags {
            match result {
                Ok(()) => channel.confirms.safe(tag),
                Err(_) => channel.confirms.refused(tag),
            }
        }
        self.send_confirms(number);
    }

    fn send_confirms(&mut self, number: u16) {
        let mut confirms = Vec::new();
        if let Some(channel) = self.channels.get_mut(&number).filter(|channel| !channel.closing) {
            channel.confirms.take(&mut confirms);
        }
        for confirm in confirms {
            match confirm {
                Confirm::Ack { tag, multiple } => {
                    self.send(number, basic::Ack { delivery_tag: tag, multiple })
                }
                Confirm::Nack { tag } => {
                    self.send(number, basic::Nack { delivery_tag: tag, multiple: false, requeue: false });
                }
            }
        }
    }

    pub(super) fn select_confirms(&mut self, number: u16, no_wait: bool) -> Result<(), Failure> {
        let channel = self.channel(number)?;
        match channel.mode {
            Mode::Transaction(_) => {
                return Err(Failure::precondition("cannot switch from tx to confirm mode"));
            }
            Mode::Plain => channel.mode = Mode::Confirm,
            Mode::Confirm => {}
        }
        if !no_wait {
            self.send(number, confirm::SelectOk {});
        }
        Ok(())
    }
}

/// Notes on a record when it expires, if it does.
pub(super) fn expiring(mut record: Record, after_ms: Option<i64>, now: i64) -> Record {
    if let Some(after) = after_ms {
        let at = now.saturating_add(after);
        let value = Some(bytes::Bytes::copy_from_slice(&at.to_be_bytes()));
        record.headers.push(Header { key: EXPIRES_HEADER.to_owned(), value });
    }
    record
}
