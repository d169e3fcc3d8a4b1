//! The end of a channel and of a connection: what they had is given back, and what was theirs alone is deleted.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};
use weir_amqp_wire::methods::connection;
use weir_amqp_wire::{Frame, FrameType, Method, ReplyCode};

use super::{CLOSING, Connection, Ended, next_frame};
use crate::errors::Failure;

/// How long a broker that stops waits until clients can be told what became of what they published.
const TELLING_MAX: Duration = Duration::from_secs(5);

impl Connection {
    /// A channel ends: its consumers do, and what it did not settle comes back.
    pub(super) async fn close_channel(&mut self, number: u16) {
        self.flush_settlements().await;
        self.cancel_replies(number, None);
        let Some(channel) = self.channels.get_mut(&number) else { return };
        let owner = channel.owner;
        let _ = channel.unsettled.take_all();
        channel.streams.clear();
        let consumers = std::mem::take(&mut channel.consumers);
        let queues = std::mem::take(&mut channel.queues);
        for queue in queues.into_values() {
            let _ = queue.close_owner(owner, true).await;
        }
        for consumer in consumers.into_values() {
            self.drop_if_unused(&consumer).await;
        }
    }

    /// The connection ends.
    pub(super) async fn end<R: AsyncRead + Unpin>(
        mut self,
        ended: Ended,
        read: &mut R,
        buffer: &mut BytesMut,
        peer: SocketAddr,
    ) {
        self.flush_messages().await;
        let mut last_word: Option<Method> = None;
        // Whether the peer has a last word too.
        let mut is_answered = false;
        let mut is_told = false;
        match ended {
            Ended::Gone => {}
            Ended::Silent => {
                tracing::warn!(%peer, "connection closed: nothing was heard of the client for too long");
            }
            Ended::Closed => {
                self.until_published().await;
                last_word = Some(connection::CloseOk {}.into());
                is_told = true;
            }
            Ended::Failed(failure, class_id, method_id) => {
                tracing::warn!(%peer, "connection closed: {} - {}", failure.code, failure.words);
                last_word = Some(close_of(&failure, class_id, method_id).into());
                (is_told, is_answered) = (true, true);
            }
            Ended::Ordered(reason) => {
                tracing::info!(%peer, reason, "connection closed by an operator");
                let failure = Failure::new(ReplyCode::ConnectionForced, reason);
                last_word = Some(close_of(&failure, 0, 0).into());
                (is_told, is_answered) = (true, true);
            }
            Ended::Draining => {
                // What it published it hears of before, so that it sends nothing again that is stored; what it had settled is.
                let told = async {
                    self.flush_settlements().await;
                    self.until_published().await;
                };
                if tokio::time::timeout(TELLING_MAX, told).await.is_err() {
                    tracing::warn!(%peer, "the client is not told what became of everything that it published");
                }
                let words = "broker forced connection closure with reason 'shutdown'";
                // Nobody is served any more.
                self.send(0, close_of(&Failure::new(ReplyCode::ConnectionForced, words), 0, 0));
                (is_told, is_answered) = (true, true);
            }
        }
        self.outbox.send(self.out.take());
        // Who is told that the connection is closed relies on it that nothing of it is left: its exclusive queues can
        // be declared by the next one, and what it did not settle is back.
        self.cancel_all().await;
        let numbers: Vec<u16> = self.channels.keys().copied().collect();
        for number in numbers {
            self.close_channel(number).await;
        }
        self.drop_exclusive().await;
        if let Some(method) = last_word {
            self.send(0, method);
            self.outbox.send(self.out.take());
        }
        let Connection { outbox, agreed, .. } = self;
        if !is_answered {
            // The end of the stream tells the peer that there is nothing more to come.
            drop(outbox);
        }
        if is_told {
            // A peer that is still sending would otherwise be cut off before it reads why.
            let _ = tokio::time::timeout(CLOSING, until_closed(read, buffer, agreed.frame_max)).await;
        }
    }

    /// Nothing more is handed to any channel: what one of them gives back is not for another that ends as well.
    async fn cancel_all(&mut self) {
        let consumers = self.channels.values().flat_map(|channel| channel.consumers.values());
        let consumers: Vec<_> = consumers.map(|consumer| (consumer.queue.clone(), consumer.id)).collect();
        for (queue, id) in consumers {
            let _ = queue.cancel(id).await;
        }
    }

    async fn drop_exclusive(&mut self) {
        for id in std::mem::take(&mut self.exclusive) {
            self.front.exclusive.lock().remove(&id);
            if let Err(error) = self.front.broker.delete_topic(id).await {
                tracing::debug!(%error, %id, "an exclusive queue could not be deleted");
            }
        }
    }
}

fn close_of(failure: &Failure, class_id: u16, method_id: u16) -> connection::Close {
    connection::Close {
        reply_code: failure.code.number(),
        reply_text: failure.code.text(&failure.words),
        class_id,
        method_id,
    }
}

/// Reads on until the peer has closed the connection too. What is no frame is passed over.
pub(super) async fn until_closed<R: AsyncRead + Unpin>(read: &mut R, buffer: &mut BytesMut, frame_max: u32) {
    while let Some(frame) = next_frame(read, buffer, frame_max).await {
        match frame {
            Ok(Frame { frame_type: FrameType::Method, channel: 0, payload }) => {
                let method = Method::decode(payload);
                if matches!(method, Ok(Method::ConnectionCloseOk(_) | Method::ConnectionClose(_))) {
                    return;
                }
            }
            Ok(_) => {}
            Err(_) => break,
        }
    }
    loop {
        buffer.clear();
        if !matches!(read.read_buf(buffer).await, Ok(1..)) {
            return;
        }
    }
}
