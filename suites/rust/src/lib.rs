//! What the checks of lapin share: a connection to the broker that the suite was given, names that nobody else has, and
//! every step of lapin's that a check waits for with a limit, so that what does not come fails in words and not in silence.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::panic::Location;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lapin::message::{BasicGetMessage, Delivery};
use lapin::options::{
    BasicConsumeOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions, QueueDeclareOptions,
};
use lapin::protocol::AMQPError;
use lapin::types::{AMQPValue, FieldArray, FieldTable, ShortString};
use lapin::{
    BasicProperties, Channel, Confirmation, Connection, ConnectionProperties, Consumer, ErrorKind, Event,
};
use tokio_stream::{Stream, StreamExt};

/// How long a check waits for one thing.
pub const WAIT: Duration = Duration::from_secs(20);

/// How long a check looks for what must not come.
pub const QUIET: Duration = Duration::from_millis(200);

/// The broker's address as a URI: of whom, and with which path and settings.
pub fn uri(user: &str, rest: &str) -> String {
    let address = std::env::var("SUITE_AMQP").expect("SUITE_AMQP names the broker");
    format!("amqp://{user}@{address}/{rest}")
}

/// A name that is used once.
pub fn fresh(words: &str) -> String {
    static USED: AtomicUsize = AtomicUsize::new(0);
    format!("{words}-{}-{}", std::process::id(), USED.fetch_add(1, Ordering::Relaxed))
}

/// The outcome of something that has to come in time.
pub async fn within<T>(what: &str, coming: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WAIT, coming).await {
        Ok(outcome) => outcome,
        Err(_) => panic!("not in time: {what}"),
    }
}

/// Waits until something is so that lapin does behind the scenes.
pub async fn becomes(what: &str, is_so: impl Fn() -> bool) {
    let looking = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(what, looking).await;
}

/// What lapin was asked for, which has to be granted in time.
#[track_caller]
pub fn ok<T>(asked: impl Future<Output = lapin::Result<T>>) -> impl Future<Output = T> {
    let place = Location::caller();
    async move {
        let granted = within(&format!("what was asked for at {place}"), asked).await;
        granted.unwrap_or_else(|error| panic!("what was asked for at {place} failed: {error:?}"))
    }
}

/// How the broker refuses what lapin was asked for.
#[track_caller]
pub fn refused<T: Debug>(asked: impl Future<Output = lapin::Result<T>>) -> impl Future<Output = AMQPError> {
    let place = Location::caller();
    async move {
        let answer = within(&format!("a refusal at {place}"), asked).await;
        match answer.as_ref().map_err(lapin::Error::kind) {
            Err(ErrorKind::ProtocolError(error)) => error.clone(),
            _ => panic!("{answer:?} came where a refusal was expected, at {place}"),
        }
    }
}

pub async fn connect() -> Connection {
    connect_with("%2f", ConnectionProperties::default()).await
}

pub async fn connect_with(rest: &str, properties: ConnectionProperties) -> Connection {
    ok(Connection::connect(&uri("guest:guest", rest), properties)).await
}

pub async fn channel(connection: &Connection) -> Channel {
    ok(connection.create_channel()).await
}

/// A channel whose publishes are confirmed.
pub async fn confirming(connection: &Connection) -> Channel {
    let channel = channel(connection).await;
    ok(channel.confirm_select(ConfirmSelectOptions::default())).await;
    channel
}

/// A queue that goes with its connection.
pub async fn own_queue<const N: usize>(channel: &Channel, arguments: [(&str, AMQPValue); N]) -> String {
    let declared = channel.queue_declare("".into(), QueueDeclareOptions::exclusive(), table(arguments));
    ok(declared).await.name().to_string()
}

/// A durable queue with a name of its own.
pub async fn durable_queue<const N: usize>(
    channel: &Channel,
    words: &str,
    arguments: [(&str, AMQPValue); N],
) -> String {
    let name = fresh(words);
    let declared =
        channel.queue_declare(name.as_str().into(), QueueDeclareOptions::durable(), table(arguments));
    ok(declared).await;
    name
}

/// Publishes, and waits for the confirm where the channel has them.
pub async fn publish(
    channel: &Channel,
    exchange: &str,
    key: &str,
    body: impl AsRef<[u8]>,
    properties: BasicProperties,
) -> Confirmation {
    let options = BasicPublishOptions { mandatory: true, ..Default::default() };
    let confirm =
        ok(channel.basic_publish(exchange.into(), key.into(), options, body.as_ref(), properties)).await;
    ok(confirm).await
}

/// Publishes to a queue without properties.
pub async fn send(channel: &Channel, queue: &str, body: impl AsRef<[u8]>) {
    let confirmation = publish(channel, "", queue, body, BasicProperties::default()).await;
    assert!(matches!(confirmation, Confirmation::Ack(None) | Confirmation::NotRequested), "{confirmation:?}");
}

pub async fn consume(channel: &Channel, queue: &str) -> Consumer {
    consume_with(channel, queue, "", BasicConsumeOptions::default(), []).await
}

pub async fn consume_with<const N: usize>(
    channel: &Channel,
    queue: &str,
    tag: &str,
    options: BasicConsumeOptions,
    arguments: [(&str, AMQPValue); N],
) -> Consumer {
    within("a consumer", channel.basic_consume(queue.into(), tag.into(), options, table(arguments)))
        .await
        .unwrap()
}

pub async fn next(consumer: &mut Consumer) -> Delivery {
    within("a delivery", consumer.next()).await.expect("the consumer ended").unwrap()
}

pub async fn nothing_comes(consumer: &mut Consumer) {
    if let Ok(came) = tokio::time::timeout(QUIET, consumer.next()).await {
        panic!("{came:?} came");
    }
}

/// What lies first in a queue, if there is something. It is to be acknowledged.
pub async fn get(channel: &Channel, queue: &str) -> Option<BasicGetMessage> {
    ok(channel.basic_get(queue.into(), BasicGetOptions::default())).await
}

/// What lies first in a queue, as soon as there is something, and then no longer lies there.
pub async fn take(channel: &Channel, queue: &str) -> BasicGetMessage {
    let taken = async {
        loop {
            let options = BasicGetOptions { no_ack: true };
            if let Some(message) = ok(channel.basic_get(queue.into(), options)).await {
                return message;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within("a message in the queue", taken).await
}

/// The bodies of everything in a queue, which is empty then.
pub async fn drain(channel: &Channel, queue: &str) -> Vec<String> {
    let mut bodies = Vec::new();
    let options = BasicGetOptions { no_ack: true };
    while let Some(message) = ok(channel.basic_get(queue.into(), options)).await {
        bodies.push(String::from_utf8(message.delivery.data).unwrap());
    }
    bodies
}

/// The error that the connection tells of next.
pub async fn error_event(events: &mut (impl Stream<Item = Event> + Unpin)) -> lapin::Error {
    let told = async {
        loop {
            match events.next().await {
                Some(Event::Error(error)) => return error,
                Some(_) => {}
                None => panic!("no more events"),
            }
        }
    };
    within("an error of the connection", told).await
}

pub fn table<const N: usize>(entries: [(&str, AMQPValue); N]) -> FieldTable {
    let entries = entries.into_iter().map(|(name, value)| (ShortString::from(name), value));
    entries.collect::<BTreeMap<_, _>>().into()
}

/// No arguments.
pub fn none() -> FieldTable {
    FieldTable::default()
}

pub fn text(words: &str) -> AMQPValue {
    AMQPValue::LongString(words.into())
}

pub fn list<const N: usize>(values: [AMQPValue; N]) -> AMQPValue {
    AMQPValue::FieldArray(FieldArray::from(Vec::from(values)))
}

/// The value of a header.
pub fn header<'a>(properties: &'a BasicProperties, name: &str) -> &'a AMQPValue {
    let headers = properties.headers().as_ref().expect("it has headers");
    headers.inner().get(name).unwrap_or_else(|| panic!("no header {name} among {headers:?}"))
}

/// The entries of `x-death`, the last death first.
pub fn deaths(properties: &BasicProperties) -> Vec<BTreeMap<ShortString, AMQPValue>> {
    let all = header(properties, "x-death").as_array().expect("x-death is a list");
    all.as_slice()
        .iter()
        .map(|death| death.as_field_table().expect("a death is a table").inner().clone())
        .collect()
}
