//! The end of a channel and of a connection: what they had is given back, and what was theirs alone is deleted.

use std::net::SocketAddr;

use bytes::BytesMut;
use tokio::io::AsyncRead;
use weir_amqp_wire::methods::connection;
use weir_amqp_wire::{FrameType, Method, ReplyCode};

use super::{CLOSING, Connection, Ended, next_frame};
use crate::errors::Failure;

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
        let told = match ended {
            Ended::ByPeer => None,
            Ended::Silent => {
                tracing::warn!(%peer, "connection closed: nothing was heard of the client for too long");
                None
            }
            Ended::Failed(failure, class_id, method_id) => {
                tracing::warn!(%peer, "connection closed: {} - {}", failure.code, failure.words);
                Some((failure, class_id, method_id))
            }
            Ended::Closed(reason) => {
                tracing::info!(%peer, reason, "connection closed by an operator");
                Some((Failure::new(ReplyCode::ConnectionForced, reason), 0, 0))
            }
            Ended::Draining => {
                let words = "broker forced connection closure with reason 'shutdown'";
                Some((Failure::new(ReplyCode::ConnectionForced, words), 0, 0))
            }
        };
        if let Some((failure, class_id, method_id)) = &told {
            let close = connection::Close {
                reply_code: failure.code.number(),
                reply_text: failure.code.text(&failure.words),
                class_id: *class_id,
                method_id: *method_id,
            };
            self.send(0, close);
        }
        self.outbox.send(self.out.take());
        let numbers: Vec<u16> = self.channels.keys().copied().collect();
        for number in numbers {
            self.close_channel(number).await;
        }
        self.drop_exclusive().await;
        if told.is_some() {
            // A peer that is still sending would otherwise be cut off before it reads why.
            let _ = tokio::time::timeout(CLOSING, until_closed(read, buffer, self.agreed.frame_max)).await;
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

/// Reads on until the peer has closed the connection too.
async fn until_closed<R: AsyncRead + Unpin>(read: &mut R, buffer: &mut BytesMut, frame_max: u32) {
    while let Some(Ok(frame)) = next_frame(read, buffer, frame_max).await {
        if frame.frame_type == FrameType::Method
            && frame.channel == 0
            && matches!(
                Method::decode(frame.payload),
                Ok(Method::ConnectionCloseOk(_) | Method::ConnectionClose(_))
            )
        {
            return;
        }
    }
}
