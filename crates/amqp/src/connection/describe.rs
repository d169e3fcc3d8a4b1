//! What a connection says of itself: to the broker's list of sessions, and when it is asked.

use std::net::SocketAddr;

use weir_amqp_message::arguments;
use weir_amqp_wire::ShortStr;
use weir_broker::sessions::{ChannelState, ConsumerState, SessionFacts};
use weir_model::TimestampMs;
use weir_model::queue::split_name;

use super::Connection;
use crate::channel::{Channel, Consumer, Mode, StreamConsumer};
use crate::handshake::{Agreed, Client};

/// What the version of the protocol is called.
const PROTOCOL: &str = "AMQP 0-9-1";

/// The addresses of both ends.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub peer: SocketAddr,
    pub local: SocketAddr,
    /// Whether there are as many connections as allowed without it: it is told so once it is known who it is.
    pub is_too_many: bool,
}

/// What does not change about a connection that was opened.
pub(super) fn facts(
    ends: Ends,
    client: &Client,
    agreed: &Agreed,
    namespace: &str,
    now: TimestampMs,
) -> SessionFacts {
    SessionFacts {
        protocol: PROTOCOL,
        peer: ends.peer,
        local: ends.local,
        user: Some(client.user.clone()),
        namespace: namespace.to_owned(),
        connected_at: now,
        client_properties: arguments(&client.properties),
        auth_mechanism: Some(client.mechanism.clone()),
        channels_max: Some(agreed.channel_max.into()),
        frame_bytes_max: Some(agreed.frame_max),
        heartbeat_seconds: Some(agreed.heartbeat.into()),
    }
}

impl Connection {
    /// Its channels, as they are now.
    pub(super) fn describe(&self) -> Vec<ChannelState> {
        let open = self.channels.iter().filter(|(_, channel)| !channel.closing);
        open.map(|(number, channel)| channel_state(*number, channel)).collect()
    }

    /// Channels have come or gone.
    pub(super) fn count_channels(&self) {
        self.seat.counters().set_channels(self.channels.len());
    }
}

fn channel_state(number: u16, channel: &Channel) -> ChannelState {
    let (uncommitted, uncommitted_settlements) = match &channel.mode {
        Mode::Transaction(transaction) => transaction.counts(),
        Mode::Plain | Mode::Confirm => (0, 0),
    };
    let queues = channel.consumers.iter().map(|(tag, consumer)| consumer_state(tag, consumer));
    let streams = channel.streams.iter().map(|(tag, consumer)| stream_consumer_state(tag, consumer));
    let consumers = queues.chain(streams).collect();
    ChannelState {
        number,
        prefetch: channel.prefetch.into(),
        shared_prefetch: channel.shared_prefetch.limit(),
        unsettled: channel.unsettled.len() as u64,
        confirms: matches!(channel.mode, Mode::Confirm),
        unconfirmed: channel.confirms.pending() as u64,
        transactional: matches!(channel.mode, Mode::Transaction { .. }),
        uncommitted: uncommitted as u64,
        uncommitted_settlements: uncommitted_settlements as u64,
        consumers,
    }
}

fn consumer_state(tag: &ShortStr, consumer: &Consumer) -> ConsumerState {
    let (_, queue) = split_name(consumer.info.topic.name());
    ConsumerState {
        tag: tag.to_string_lossy().into_owned(),
        queue: queue.to_owned(),
        settles: !consumer.no_ack,
        exclusive: consumer.exclusive,
        prefetch: consumer.prefetch.into(),
        arguments: consumer.arguments.clone(),
    }
}

fn stream_consumer_state(tag: &ShortStr, consumer: &StreamConsumer) -> ConsumerState {
    ConsumerState {
        tag: tag.to_string_lossy().into_owned(),
        queue: consumer.queue.clone(),
        settles: true,
        exclusive: false,
        prefetch: consumer.prefetch.into(),
        arguments: consumer.arguments.clone(),
    }
}
