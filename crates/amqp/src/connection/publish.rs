//! Class basic on its way in: messages are routed, gathered, published and confirmed.

use weir_amqp_wire::methods::{basic, confirm};
use weir_amqp_wire::{BasicProperties, Content, ReplyCode, ShortStr, Value};
use weir_broker::errors::PublishError;
use weir_broker::queues::copies_header;
use weir_broker::topology::Destinations;
use weir_model::batch::{BatchBuilder, Header};
use weir_router::{NoSuchExchange, Routed};

use super::Connection;
use super::declare::text;
use crate::channel::{Confirm, Held, Mode};
use crate::errors::Failure;
use crate::message::Message;
use crate::values::Asked;

/// Bytes of messages that go together.
const BATCH_BYTES: usize = 256 << 10;

/// Messages that go together.
const BATCH_MESSAGES: i32 = 4_096;

/// Header of a record that expires; see the broker's queues.
const EXPIRES_HEADER: &str = "weir.expires";

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
    number: u16,
    /// The channel may be another by now that has the same number.
    owner: weir_broker::queues::OwnerId,
    tags: Vec<u64>,
    result: Result<(), PublishError>,
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
        let held = Held {
            exchange: publish.exchange,
            routing_key: publish.routing_key,
            mandatory: publish.mandatory,
            properties: content.properties,
            body: content.body.into_contiguous(),
        };
        self.check_message(&held)?;
        let channel = self.channel(number)?;
        match &mut channel.mode {
            Mode::Transaction(transaction) => Ok(transaction.publish(held)?),
            Mode::Plain => self.route(number, held, None).await,
            Mode::Confirm => {
                let tag = channel.confirms.publish();
                self.route(number, held, Some(tag)).await
            }
        }
    }

    /// What can be told of a message before it is routed.
    fn check_message(&mut self, held: &Held) -> Result<(), Failure> {
        let exchange = text(&held.exchange)?;
        if !exchange.is_empty() {
            let namespace = self.namespace.clone();
            match self.router()?.exchange(&exchange) {
                None => return Err(Failure::no_exchange(&exchange, &namespace)),
                Some(meta) if meta.internal => {
                    let words =
                        format!("cannot publish to internal exchange '{exchange}' in vhost '{namespace}'");
                    return Err(Failure::new(ReplyCode::AccessRefused, words));
                }
                Some(_) => {}
            }
        }
        if let Some(user) = &held.properties.user_id
            && *user != *self.client.user.as_str()
        {
            let words =
                format!("user_id property set to '{user}' but authenticated user was '{}'", self.client.user);
            return Err(Failure::precondition(words));
        }
        if let Some(expiration) = &held.properties.expiration
            && expires_after(expiration).is_none()
        {
            return Err(Failure::precondition(format!("invalid expiration '{expiration}'")));
        }
        Ok(())
    }

    /// Finds a message's queues, and puts it with others that go there.
    pub(super) async fn route(&mut self, number: u16, held: Held, tag: Option<u64>) -> Result<(), Failure> {
        let Held { exchange, routing_key, mandatory, mut properties, body } = held;
        let exchange_name = text(&exchange)?;
        let copies = copies(&mut properties)?;
        let mut keys: Vec<&[u8]> = Vec::with_capacity(1 + copies.len());
        keys.push(routing_key.as_bytes());
        keys.extend(copies.iter().map(|key| &key[..]));
        let mut route = std::mem::take(&mut self.route);
        let random = self.next_random();
        let found = {
            let asked = Asked::new(&properties);
            let routed = Routed { properties: &asked, random, ..Routed::new(&exchange_name, &keys) };
            self.router()?.route(&routed, &mut route)
        };
        if let Err(NoSuchExchange) = found {
            self.route = route;
            return Err(Failure::no_exchange(&exchange_name, &self.namespace));
        }
        if route.is_empty() {
            self.route = route;
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
        let broker = &self.front.broker;
        let names = route.queues().map(|name| &**name);
        let destinations = broker.destinations(&self.namespace, names, properties.priority, random);
        self.route = route;
        let destinations = destinations?;
        let now = broker.now_ms();
        let expires = properties.expiration.as_ref().and_then(expires_after);
        let visible = further_keys(&properties, CC)?;
        let mut record = Message { exchange, routing_key, properties, body }.into_record(now);
        if !visible.is_empty() {
            record.headers.push(copies_header(&visible));
        }
        if let Some(after) = expires {
            let at = now.saturating_add(after);
            let value = Some(bytes::Bytes::copy_from_slice(&at.to_be_bytes()));
            record.headers.push(Header { key: EXPIRES_HEADER.to_owned(), value });
        }
        let fits = |batch: &Batch| {
            batch.number == number
                && batch.builder.record_count() < BATCH_MESSAGES
                && batch.builder.section_bytes() < BATCH_BYTES
                && batch.destinations.are_those_of(&destinations)
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
        Ok(())
    }

    fn return_message(
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
        if let Err(error) = &result {
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

/// The header of further keys, and of those that nobody gets to see.
const CC: &str = "CC";
const BCC: &str = "BCC";

/// The further keys of a message, of which `BCC` is taken out.
fn copies(properties: &mut BasicProperties) -> Result<Vec<bytes::Bytes>, Failure> {
    let mut keys = further_keys(properties, CC)?;
    keys.extend(further_keys(properties, BCC)?);
    if let Some(headers) = &mut properties.headers
        && headers.get(BCC).is_some()
    {
        *headers = headers.iter().filter(|(name, _)| *name != BCC).cloned().collect();
    }
    Ok(keys)
}

fn further_keys(properties: &BasicProperties, name: &str) -> Result<Vec<bytes::Bytes>, Failure> {
    match properties.headers.as_ref().and_then(|headers| headers.get(name)) {
        None => Ok(Vec::new()),
        Some(Value::Array(values)) => {
            Ok(values.iter().filter_map(|value| value.as_bytes().cloned()).collect())
        }
        Some(_) => {
            let words = format!("invalid value for header '{name}': it must be an array");
            Err(Failure::precondition(words))
        }
    }
}

/// Milliseconds that a message may wait; none if that is not a number.
fn expires_after(expiration: &ShortStr) -> Option<i64> {
    let digits = expiration.as_str()?;
    let all_digits = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    all_digits.then(|| digits.parse().ok()).flatten()
}
