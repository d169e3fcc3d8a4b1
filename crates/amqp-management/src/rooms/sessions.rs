//! `/api/connections`, `/api/channels`, `/api/consumers`: what the fronts tell of their sessions.
//!
//! Connections are listed by what was noted when they were opened. Channels and consumers are asked for: a connection
//! that has ended meanwhile, or is too busy to answer for seconds, is left out.

use serde_json::{Value, json};
use weir_broker::sessions::{ChannelState, ConsumerState, Session};

use super::nodes::this_node;
use super::put;
use crate::ask::Ask;
use crate::failure::{Failure, Result};
use crate::front::Answer;
use crate::json;
use crate::listing;
use crate::resource::Named;

/// The header that says why a connection is closed.
const REASON_HEADER: &str = "x-reason";

/// Why, where it does not.
const REASON_DEFAULT: &str = "Closed via management plugin";

/// Longest reason, in bytes: with the name of its code it has to fit into a short string.
const REASON_BYTES_MAX: usize = 200;

/// The sessions that the user may see: all for who monitors, and otherwise the user's own.
fn seen(ask: &Ask) -> Vec<Session> {
    let mut sessions = ask.broker.sessions();
    if !ask.user.may_monitor() {
        sessions.retain(|session| session.facts().user.as_deref() == Some(ask.user.name.as_str()));
    }
    sessions
}

fn of_namespace(ask: &Ask, namespace: Option<&str>) -> Result<Vec<Session>> {
    let mut sessions = seen(ask);
    if let Some(namespace) = namespace {
        ask.need_namespace(namespace).map_err(|_| Failure::nothing_there())?;
        sessions.retain(|session| session.facts().namespace == namespace);
    }
    Ok(sessions)
}

fn find(ask: &Ask, name: &str) -> Result<Session> {
    let session = ask.broker.session(name).ok_or_else(Failure::nothing_there)?;
    if ask.user.may_monitor() || session.facts().user.as_deref() == Some(ask.user.name.as_str()) {
        return Ok(session);
    }
    Err(Failure::not_authorised("User not authorised to access object"))
}

pub(super) fn list(ask: &Ask, namespace: Option<&str>) -> Result<Answer> {
    let sessions = of_namespace(ask, namespace)?;
    let shown = sessions.iter().map(|session| connection(ask, session)).collect();
    Ok(Answer::Json(listing::list(shown, &ask.query, &["vhost", "name"])?))
}

pub(super) fn list_of(ask: &Ask, user: &str) -> Result<Answer> {
    if ask.user.name != user {
        ask.user.need_monitor()?;
    }
    let of_user = |session: &&Session| session.facts().user.as_deref() == Some(user);
    let shown =
        ask.broker.sessions().iter().filter(of_user).map(|session| connection(ask, session)).collect();
    Ok(Answer::Json(listing::list(shown, &ask.query, &["vhost", "name"])?))
}

pub(super) fn describe(ask: &Ask, name: &str) -> Result<Answer> {
    let session = find(ask, name)?;
    Ok(Answer::Json(listing::with_columns(connection(ask, &session), &ask.query)))
}

pub(super) async fn close(ask: &Ask, name: &str) -> Result<Answer> {
    let session = find(ask, name)?;
    if session.facts().user.as_deref() != Some(ask.user.name.as_str()) {
        ask.user.need_administrator()?;
    }
    session.close(reason(ask)).await;
    Ok(Answer::Done)
}

pub(super) async fn close_all_of(ask: &Ask, user: &str) -> Result<Answer> {
    if ask.user.name != user {
        ask.user.need_administrator()?;
    }
    let sessions = ask.broker.sessions().into_iter();
    let of_user = sessions.filter(|session| session.facts().user.as_deref() == Some(user));
    futures_util::future::join_all(of_user.map(|session| {
        let reason = reason(ask);
        async move { session.close(reason).await }
    }))
    .await;
    Ok(Answer::Done)
}

fn reason(ask: &Ask) -> String {
    let header = ask.headers.get(REASON_HEADER).map(|value| json::text(value.as_bytes()));
    let mut reason = header.filter(|reason| !reason.is_empty()).unwrap_or_else(|| REASON_DEFAULT.to_owned());
    reason.truncate(reason.floor_char_boundary(REASON_BYTES_MAX));
    reason
}

fn connection(ask: &Ask, session: &Session) -> Value {
    let (facts, counters) = (session.facts(), session.counters());
    let mut shown = json!({
        "name": facts.name(),
        "node": this_node(&ask.broker),
        "type": "network",
        "protocol": facts.protocol,
        "vhost": facts.namespace,
        "host": facts.local.ip().to_string(),
        "port": facts.local.port(),
        "peer_host": facts.peer.ip().to_string(),
        "peer_port": facts.peer.port(),
        "ssl": false,
        "state": "running",
        "connected_at": facts.connected_at,
        "client_properties": json::from_arguments(&facts.client_properties),
        "channels": counters.channels(),
    });
    put(&mut shown, "user", facts.user.clone());
    put(&mut shown, "user_provided_name", user_provided_name(session));
    put(&mut shown, "auth_mechanism", facts.auth_mechanism.clone());
    put(&mut shown, "channel_max", facts.channels_max);
    put(&mut shown, "frame_max", facts.frame_bytes_max);
    put(&mut shown, "timeout", facts.heartbeat_seconds);
    // A front that does not count has received nothing by its count.
    put(&mut shown, "recv_oct", Some(counters.received_bytes()).filter(|bytes| *bytes > 0));
    put(&mut shown, "send_oct", Some(counters.sent_bytes()).filter(|bytes| *bytes > 0));
    shown
}

/// The name that a client gives its connection, among its properties.
fn user_provided_name(session: &Session) -> Option<String> {
    let properties = &session.facts().client_properties;
    let name = properties.iter().find(|(name, _)| name == "connection_name");
    name.and_then(|(_, value)| value.as_text()).map(str::to_owned)
}

pub(super) async fn list_channels(ask: &Ask, namespace: Option<&str>) -> Result<Answer> {
    let sessions = of_namespace(ask, namespace)?;
    channels_of(ask, sessions).await
}

pub(super) async fn list_channels_of(ask: &Ask, name: &str) -> Result<Answer> {
    let session = find(ask, name)?;
    channels_of(ask, vec![session]).await
}

async fn channels_of(ask: &Ask, sessions: Vec<Session>) -> Result<Answer> {
    let all = ask.broker.channels_of(sessions).await;
    let shown = all
        .iter()
        .flat_map(|(session, channels)| channels.iter().map(|one| channel(ask, session, one)))
        .collect();
    Ok(Answer::Json(listing::list(shown, &ask.query, &["vhost", "name"])?))
}

pub(super) async fn describe_channel(ask: &Ask, name: &str) -> Result<Answer> {
    let (of, _) = name.rsplit_once(" (").ok_or_else(Failure::nothing_there)?;
    let session = find(ask, of)?;
    let channels = session.channels().await.ok_or_else(Failure::nothing_there)?;
    let one = channels.iter().find(|one| channel_name(&session, one) == name);
    let one = one.ok_or_else(Failure::nothing_there)?;
    let mut shown = channel(ask, &session, one);
    let consumers: Vec<Value> =
        one.consumers.iter().map(|consumer| self::consumer(ask, &session, one, consumer)).collect();
    put(&mut shown, "consumer_details", Some(consumers));
    Ok(Answer::Json(listing::with_columns(shown, &ask.query)))
}

fn channel_name(session: &Session, channel: &ChannelState) -> String {
    format!("{} ({})", session.facts().name(), channel.number)
}

fn channel(ask: &Ask, session: &Session, channel: &ChannelState) -> Value {
    let facts = session.facts();
    let mut shown = json!({
        "name": channel_name(session, channel),
        "number": channel.number,
        "node": this_node(&ask.broker),
        "vhost": facts.namespace,
        "state": "running",
        "connection_details": {
            "name": facts.name(),
            "peer_host": facts.peer.ip().to_string(),
            "peer_port": facts.peer.port(),
        },
        "consumer_count": channel.consumers.len(),
        "prefetch_count": channel.prefetch,
        "global_prefetch_count": channel.shared_prefetch,
        "messages_unacknowledged": channel.unsettled,
        "confirm": channel.confirms,
        "messages_unconfirmed": channel.unconfirmed,
        "transactional": channel.transactional,
        "messages_uncommitted": channel.uncommitted,
        "acks_uncommitted": channel.uncommitted_settlements,
    });
    put(&mut shown, "user", facts.user.clone());
    shown
}

pub(super) async fn list_consumers(ask: &Ask, namespace: Option<&str>) -> Result<Answer> {
    let sessions = of_namespace(ask, namespace)?;
    let consumers = consumers(ask, sessions, |_| true).await;
    Ok(Answer::Json(listing::list(consumers, &ask.query, &["queue.vhost", "queue.name", "consumer_tag"])?))
}

/// The consumers of a queue that the user may see.
pub(super) async fn consumers_of_queue(ask: &Ask, named: &Named) -> Vec<Value> {
    let mut sessions = seen(ask);
    sessions.retain(|session| session.facts().namespace == named.namespace);
    consumers(ask, sessions, |consumer| consumer.queue == named.name).await
}

async fn consumers(ask: &Ask, sessions: Vec<Session>, wanted: impl Fn(&ConsumerState) -> bool) -> Vec<Value> {
    let all = ask.broker.channels_of(sessions).await;
    let mut shown = Vec::new();
    for (session, channels) in &all {
        for channel in channels {
            let consumers = channel.consumers.iter().filter(|consumer| wanted(consumer));
            shown.extend(consumers.map(|consumer| self::consumer(ask, session, channel, consumer)));
        }
    }
    shown
}

fn consumer(ask: &Ask, session: &Session, channel: &ChannelState, consumer: &ConsumerState) -> Value {
    let facts = session.facts();
    let mut details = json!({
        "name": channel_name(session, channel),
        "number": channel.number,
        "node": this_node(&ask.broker),
        "connection_name": facts.name(),
        "peer_host": facts.peer.ip().to_string(),
        "peer_port": facts.peer.port(),
    });
    put(&mut details, "user", facts.user.clone());
    json!({
        "consumer_tag": consumer.tag,
        "queue": { "name": consumer.queue, "vhost": facts.namespace },
        "channel_details": details,
        "ack_required": consumer.settles,
        "exclusive": consumer.exclusive,
        "prefetch_count": consumer.prefetch,
        "arguments": json::from_arguments(&consumer.arguments),
    })
}
