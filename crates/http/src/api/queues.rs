//! `/api/v1/queues`. The namespace is `?namespace=`, the default one if there is none.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, Query, State};
use serde::{Deserialize, Serialize};
use weir_broker::Broker;
use weir_broker::queues::{BROWSED_MAX, Browsed, Deaths, QueueContents, QueueFigures, REDRIVEN_MAX, Redrive};
use weir_broker::topology::QueueInfo;
use weir_model::queue::{DEFAULT_NAMESPACE, split_name};
use weir_model::routing::ArgumentValue;
use weir_model::subscription::DeadReason;

use super::{Answer, body};
use crate::error::ApiError;
use crate::front::Front;

/// Bytes of a value that are shown of a record.
const SHOWN_BYTES: usize = 4 << 10;

/// Records shown where nobody says how many.
const BROWSED_DEFAULT: usize = 10;

/// A queue in a listing.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    name: String,
    namespace: String,
    kind: &'static str,
    durable: bool,
    /// Records that are not settled: those that wait, and those that are with somebody.
    records: u64,
    /// Of these, records that are with somebody on this node.
    unsettled: u64,
    /// Consumers on this node.
    consumers: usize,
    bytes: u64,
}

/// A queue in full.
#[derive(Debug, Serialize)]
pub(super) struct Described {
    #[serde(flatten)]
    listed: Listed,
    auto_delete: bool,
    exclusive: bool,
    arguments: BTreeMap<String, String>,
    /// Where its dead records go, by the names of exchange and key.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_exchange: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter_routing_key: Option<String>,
}

/// In which namespace.
#[derive(Debug, Deserialize)]
pub(super) struct Within {
    namespace: Option<String>,
    /// Records to look at.
    count: Option<usize>,
}

/// A record in a queue. Nothing is settled by looking at it.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    lane: u8,
    offset: i64,
    timestamp_ms: i64,
    headers: Vec<(String, Option<String>)>,
    value: String,
    value_bytes: usize,
    /// How often it was handed out and came back.
    returns: u16,
    /// How often its delivery failed.
    failures: u16,
    /// Why nobody gets it any more; it waits for being published where the dead go.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead: Option<&'static str>,
    /// In which queues it died before, the last one first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    deaths: Vec<ShownDeath>,
}

#[derive(Debug, Serialize)]
struct ShownDeath {
    queue: String,
    reason: &'static str,
    count: u64,
    time_ms: i64,
}

/// What is to be taken back.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct RedriveBody {
    /// At most so many records; all that are there, up to a bound, if it does not say.
    count: Option<usize>,
    /// To this queue.
    to: Option<String>,
}

/// What was taken back.
#[derive(Debug, Serialize)]
pub(super) struct Redriven {
    moved: u64,
    by_queue: BTreeMap<String, u64>,
    kept: u64,
    /// Whether nothing is left that could be taken back now.
    finished: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct Purged {
    purged: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Deleted {
    deleted: String,
}

impl Within {
    fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or(DEFAULT_NAMESPACE)
    }
}

pub(super) async fn list(
    State(front): State<Arc<Front>>,
    Query(within): Query<Within>,
) -> Answer<Vec<Listed>> {
    let mut listed = Vec::new();
    for queue in front.broker.queues(Some(within.namespace()))? {
        let (_, name) = split_name(queue.topic.name());
        listed.push(self::listed(&front.broker, within.namespace(), name, &queue).await);
    }
    Ok(Json(listed))
}

pub(super) async fn describe(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    Query(within): Query<Within>,
) -> Answer<Described> {
    let queue = find(&front.broker, &within, &name)?;
    let dead_letters = queue.arguments.dead_letters.clone();
    let arguments = queue.meta.arguments.iter().map(|(name, value)| (name.clone(), text_of(value)));
    Ok(Json(Described {
        listed: listed(&front.broker, within.namespace(), &name, &queue).await,
        auto_delete: queue.meta.auto_delete,
        exclusive: queue.meta.exclusive,
        arguments: arguments.collect(),
        dead_letter_exchange: dead_letters.as_ref().map(|letters| letters.exchange.clone()),
        dead_letter_routing_key: dead_letters.and_then(|letters| letters.routing_key),
    }))
}

pub(super) async fn delete(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    Query(within): Query<Within>,
) -> Answer<Deleted> {
    let queue = find(&front.broker, &within, &name)?;
    front.broker.delete_queue(&queue).await?;
    Ok(Json(Deleted { deleted: name }))
}

pub(super) async fn purge(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    Query(within): Query<Within>,
) -> Answer<Purged> {
    let queue = find(&front.broker, &within, &name)?;
    let purged = front.broker.open_queue(&queue).await?.purge().await?;
    Ok(Json(Purged { purged }))
}

pub(super) async fn browse(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    Query(within): Query<Within>,
) -> Answer<Vec<Shown>> {
    let queue = find(&front.broker, &within, &name)?;
    let count = within.count.unwrap_or(BROWSED_DEFAULT);
    if count > BROWSED_MAX {
        let remedy = format!("ask for at most {BROWSED_MAX}");
        return Err(ApiError::bad_request(format!("{count} records are too many at a time"), remedy));
    }
    let browsed = front.broker.browse(&queue, count).await?;
    Ok(Json(browsed.into_iter().map(shown).collect()))
}

pub(super) async fn redrive(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    Query(within): Query<Within>,
    bytes: Result<Bytes, BytesRejection>,
) -> Answer<Redriven> {
    let RedriveBody { count, to } = body(bytes)?;
    let what = Redrive { count: count.unwrap_or(REDRIVEN_MAX), to };
    let redriven = front.broker.redrive(within.namespace(), &name, what).await?;
    Ok(Json(Redriven {
        moved: redriven.moved.values().sum(),
        by_queue: redriven.moved,
        kept: redriven.kept,
        finished: redriven.finished,
    }))
}

fn find(broker: &Broker, within: &Within, name: &str) -> Result<QueueInfo, ApiError> {
    broker.find_queue(within.namespace(), name)?.ok_or_else(|| ApiError::unknown_queue(name))
}

async fn listed(broker: &Broker, namespace: &str, name: &str, queue: &QueueInfo) -> Listed {
    let QueueContents { records, bytes } = broker.queue_contents(queue);
    let QueueFigures { leased, consumers, .. } = broker.queue_figures(queue).await.unwrap_or_default();
    Listed {
        name: name.to_owned(),
        namespace: namespace.to_owned(),
        kind: queue.meta.kind.name(),
        durable: queue.meta.durable,
        records,
        unsettled: leased,
        consumers,
        bytes,
    }
}

fn shown(browsed: Browsed) -> Shown {
    let Browsed { lane, record, marks } = browsed;
    let deaths = Deaths::of(&record).map(|deaths| deaths.all).unwrap_or_default();
    let value = record.value.unwrap_or_default();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let headers = record.headers.iter().filter(|header| header.key != weir_broker::queues::DEATHS_HEADER);
    let died = |death: weir_broker::queues::Death| ShownDeath {
        queue: death.queue,
        reason: reason(death.reason),
        count: death.count,
        time_ms: death.time,
    };
    Shown {
        lane,
        offset: record.offset,
        timestamp_ms: record.timestamp,
        headers: headers.map(|header| (header.key.clone(), header.value.as_deref().map(text))).collect(),
        value: text(&value[..value.len().min(SHOWN_BYTES)]),
        value_bytes: value.len(),
        returns: marks.returns,
        failures: marks.failures,
        dead: marks.dead.map(reason),
        deaths: deaths.into_iter().map(died).collect(),
    }
}

fn reason(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::Rejected => "rejected",
        DeadReason::Expired => "expired",
        DeadReason::MaxLength => "maxlen",
        DeadReason::DeliveryLimit => "delivery_limit",
    }
}

fn text_of(value: &ArgumentValue) -> String {
    match value {
        ArgumentValue::Bool(value) => value.to_string(),
        ArgumentValue::Integer(value) => value.to_string(),
        ArgumentValue::Float(bits) => f64::from_bits(*bits).to_string(),
        ArgumentValue::Bytes(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        ArgumentValue::Timestamp(seconds) => seconds.to_string(),
        ArgumentValue::Decimal { scale, digits } => format!("{digits}e-{scale}"),
        ArgumentValue::Void | ArgumentValue::List(_) | ArgumentValue::Table(_) => format!("{value:?}"),
    }
}
