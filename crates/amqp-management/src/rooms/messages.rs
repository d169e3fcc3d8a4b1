//! Publishing to an exchange and getting from a queue: for a look, and for tests. Clients speak AMQP for the rest.

use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use bytes::Bytes;
use serde_json::{Value, json};
use weir_amqp_message::{Asked, EXPIRES_HEADER, Message, delivered, expires_after, take_copies};
use weir_amqp_wire::ReplyCode;
use weir_broker::Broker;
use weir_broker::queues::{FurtherKeys, Place, QueueDelivery, keys_header};
use weir_broker::topology::QueueInfo;
use weir_broker::{Operation, Parties};
use weir_model::batch::{BatchBuilder, Header};
use weir_model::queue::QueueKind;
use weir_model::routing::RoutingKind;
use weir_model::subscription::{DeadReason, Disposition};
use weir_router::{Route, Routed};

use super::{exchanges, queues};
use crate::ask::Ask;
use crate::failure::{Failure, Result};
use crate::front::Answer;
use crate::json;
use crate::resource::Named;

/// Largest message, in bytes of its body: as large as AMQP's clients may send.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// How long a message may take to become durable before whoever published it is told that it may not be.
const PUBLISH_WITHIN: Duration = Duration::from_secs(10);

/// Messages of one answer.
const MESSAGES_MAX: u64 = 1_000;

/// Bytes of bodies in one answer: with the message that reaches it an answer ends.
const ANSWER_BYTES_MAX: usize = 16 << 20;

pub(super) async fn publish(ask: Ask, named: Named) -> Result<Answer> {
    let Named { namespace, name } = &named;
    ask.need_entry(namespace).map_err(|_| Failure::nothing_there())?;
    exchanges::need(&ask, &named)?;
    let body = ask.object()?;
    let key = json::need_text(&body, "routing_key")?;
    let properties =
        body.get("properties").ok_or_else(|| Failure::bad_request("the key 'properties' is missing"))?;
    let properties = json::to_properties(properties)?;
    let payload = json::need_text(&body, "payload")?;
    let encoding = json::need_text(&body, "payload_encoding")?;
    let message = Message {
        exchange: json::short("exchange", name)?,
        routing_key: json::short("routing_key", key)?,
        properties,
        body: json::to_payload(payload, encoding)?,
    };
    check(&ask, namespace, name, &message)?;
    let broker = Arc::clone(&ask.broker);
    // What was begun is finished, whether somebody waits for it or not.
    let publishing = tokio::spawn(route(broker, named, message));
    match tokio::time::timeout(PUBLISH_WITHIN, publishing).await {
        Ok(Ok(routed)) => Ok(Answer::Json(json!({ "routed": routed? }))),
        Ok(Err(_)) => Err(failed("the message was not published")),
        Err(_) => Err(Failure::bad_request(
            "confirm_timeout: the message is not confirmed yet, and may still be stored".to_owned(),
        )),
    }
}

fn failed(reason: &str) -> Failure {
    Failure::new(StatusCode::INTERNAL_SERVER_ERROR, "internal_server_error", reason)
}

/// What can be told of a message before it is routed.
fn check(ask: &Ask, namespace: &str, exchange: &str, message: &Message) -> Result<()> {
    let precondition = |words: String| Failure::amqp(ReplyCode::PreconditionFailed, words);
    let parties = Parties::one(exchange);
    let mut pass = ask.user.enter(namespace)?;
    let router = ask.broker.router(namespace)?;
    let mut checked = pass.check(Operation::BasicPublish, parties);
    if router.exchange(exchange).is_some_and(|meta| meta.kind.routing() == RoutingKind::Topic) {
        let FurtherKeys { copies, blind } = take_copies(&mut message.properties.clone())
            .map_err(|error| Failure::amqp(ReplyCode::PreconditionFailed, error))?;
        for key in std::iter::once(message.routing_key.as_bytes()).chain(&copies).chain(&blind) {
            checked = checked.and_then(|()| pass.check_routing(Operation::BasicPublish, parties, key));
        }
    }
    checked.map_err(|forbidden| Failure::not_authorised(forbidden.to_string()))?;
    if router.exchange(exchange).is_some_and(|meta| meta.internal) {
        let words = format!("cannot publish to internal exchange '{exchange}' in vhost '{namespace}'");
        return Err(Failure::amqp(ReplyCode::AccessRefused, words));
    }
    if message.body.len() > MESSAGE_BYTES_MAX {
        let words =
            format!("a message has at most {MESSAGE_BYTES_MAX} bytes, this one {}", message.body.len());
        return Err(precondition(words));
    }
    if let Some(user) = &message.properties.user_id
        && !ask.user.may_send_as(&user.to_string_lossy())
    {
        let name = ask.user.name();
        let words = format!("user_id property set to '{user}' but authenticated user was '{name}'");
        return Err(precondition(words));
    }
    if let Some(expiration) = &message.properties.expiration
        && expires_after(expiration).is_none()
    {
        return Err(precondition(format!("invalid expiration '{expiration}'")));
    }
    Ok(())
}

/// Finds a message's queues, and returns when it is durable in all of them. Whether there are any.
async fn route(broker: Arc<Broker>, named: Named, mut message: Message) -> Result<bool> {
    let Named { namespace, name } = &named;
    let further = take_copies(&mut message.properties)
        .map_err(|error| Failure::amqp(ReplyCode::PreconditionFailed, error))?;
    let random = u64::from_le_bytes(broker.random_bytes().first_chunk().copied().unwrap_or_default());
    let mut route = Route::new();
    {
        let mut keys: Vec<&[u8]> = vec![&message.routing_key.as_bytes()[..]];
        keys.extend(further.copies.iter().chain(&further.blind).map(|key| &key[..]));
        let asked = Asked::new(&message.properties);
        let routed = Routed { properties: &asked, random, ..Routed::new(name, &keys) };
        // It may have gone since it was looked for.
        broker.router(namespace)?.route(&routed, &mut route).map_err(|_| Failure::nothing_there())?;
    }
    if route.is_empty() {
        return Ok(false);
    }
    let names = route.queues().map(|name| &**name);
    let destinations = broker.destinations(namespace, names, message.properties.priority, random)?;
    let now = broker.now_ms();
    let expires = message.properties.expiration.as_ref().and_then(expires_after);
    let mut record = message.into_record(now);
    if let Some(after) = expires {
        let value = Some(Bytes::copy_from_slice(&now.saturating_add(after).to_be_bytes()));
        record.headers.push(Header { key: EXPIRES_HEADER.to_owned(), value });
    }
    record.headers.extend(keys_header(&further));
    let mut batch = BatchBuilder::new();
    batch.push(now, None, record.value.as_deref(), &record.headers);
    broker.publish_to(&destinations, batch.build()).await?.await?;
    Ok(true)
}

/// What becomes of messages that were got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AckMode {
    /// They are settled as they are got.
    Settled,
    /// They are shown, and then this.
    Then(Disposition),
}

impl AckMode {
    fn by_name(name: &str) -> Result<AckMode> {
        Ok(match name {
            "ack_requeue_false" => AckMode::Settled,
            "ack_requeue_true" => AckMode::Then(Disposition::Release { failed: false }),
            "reject_requeue_true" => AckMode::Then(Disposition::Release { failed: true }),
            "reject_requeue_false" => AckMode::Then(Disposition::Reject { reason: DeadReason::Rejected }),
            other => {
                return Err(Failure::bad_request(format!(
                    "invalid ackmode '{other}': use ack_requeue_true, ack_requeue_false, reject_requeue_true or \
                     reject_requeue_false"
                )));
            }
        })
    }
}

/// What is got.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    mode: AckMode,
    count: u64,
    always_base64: bool,
    /// Bytes of each body that are shown.
    truncate: Option<usize>,
}

pub(super) async fn get(ask: Ask, named: Named) -> Result<Answer> {
    let info = queues::find_to_change(&ask, &named, Operation::BasicGet)?;
    let body = ask.object()?;
    let wanted = Wanted {
        mode: AckMode::by_name(json::need_text(&body, "ackmode")?)?,
        count: json::need_number(&body, "count")?,
        always_base64: match json::need_text(&body, "encoding")? {
            "auto" => false,
            "base64" => true,
            other => {
                return Err(Failure::bad_request(format!(
                    "unsupported encoding '{other}': use auto or base64"
                )));
            }
        },
        truncate: match body.get("truncate") {
            None => None,
            Some(_) => Some(usize::try_from(json::need_number(&body, "truncate")?).unwrap_or(usize::MAX)),
        },
    };
    if wanted.count > MESSAGES_MAX {
        return Err(Failure::bad_request(format!("an answer has at most {MESSAGES_MAX} messages")));
    }
    if info.meta.kind == QueueKind::Stream {
        let words = format!(
            "basic.get not supported by stream queue '{}' in vhost '{}'",
            named.name, named.namespace
        );
        return Err(Failure::amqp(ReplyCode::NotImplemented, words));
    }
    if info.arguments.single_active {
        let words = format!(
            "queue '{}' in vhost '{}' does not support basic.get: it has a single active consumer",
            named.name, named.namespace
        );
        return Err(Failure::amqp(ReplyCode::ResourceLocked, words));
    }
    // What was leased is given back, whether somebody waits for the answer or not.
    let got = tokio::spawn(get_all(Arc::clone(&ask.broker), info, named.name, wanted));
    match got.await {
        Ok(messages) => Ok(Answer::Json(Value::Array(messages?))),
        Err(_) => Err(failed("the messages could not be got")),
    }
}

async fn get_all(broker: Arc<Broker>, info: QueueInfo, name: String, wanted: Wanted) -> Result<Vec<Value>> {
    let queue = broker.open_queue(&info).await?;
    let owner = broker.new_owner();
    let name = json::short("queue", &name)?;
    let quorum = info.meta.kind == QueueKind::Quorum;
    let mut places: Vec<Place> = Vec::new();
    let mut shown = Vec::new();
    let mut bytes = 0;
    let mut result = Ok(());
    while (shown.len() as u64) < wanted.count && bytes < ANSWER_BYTES_MAX {
        let delivery = match queue.get(owner, wanted.mode == AckMode::Settled).await {
            Ok(Some(delivery)) => delivery,
            Ok(None) => break,
            // What was got before it is shown all the same.
            Err(error) if shown.is_empty() => {
                result = Err(error.into());
                break;
            }
            Err(_) => break,
        };
        places.push(delivery.place);
        let left = queue.figures().await.map(|figures| figures.ready).ok();
        let (message, body_bytes) = self::shown(delivery, &name, quorum, left, &wanted);
        bytes += body_bytes;
        shown.push(message);
    }
    if let AckMode::Then(disposition) = wanted.mode {
        // If the queue is gone its next leader hands out again what was not settled.
        let _ = queue.settle(owner, places, disposition).await;
    }
    let _ = queue.close_owner(owner, false).await;
    result.map(|()| shown)
}

/// A message, and how many bytes of it are shown.
fn shown(
    delivery: QueueDelivery,
    queue: &weir_amqp_wire::ShortStr,
    quorum: bool,
    left: Option<u64>,
    wanted: &Wanted,
) -> (Value, usize) {
    let redelivered = delivery.redelivered;
    let message = delivered(delivery, queue, quorum);
    let body = &message.body[..message.body.len().min(wanted.truncate.unwrap_or(usize::MAX))];
    let (payload, encoding) = json::from_payload(body, wanted.always_base64);
    let mut shown = json!({
        "payload_bytes": message.body.len(),
        "redelivered": redelivered,
        "exchange": message.exchange.to_string_lossy(),
        "routing_key": message.routing_key.to_string_lossy(),
        "properties": json::from_properties(&message.properties),
        "payload": payload,
        "payload_encoding": encoding,
    });
    super::put(&mut shown, "message_count", left);
    (shown, body.len())
}
