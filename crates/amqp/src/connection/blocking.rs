//! Holding back a publisher while the disk has no room: the message that came is kept, nothing more is read of the client,
//! and it is told.

use weir_amqp_wire::methods::{basic, connection};
use weir_amqp_wire::{Content, ShortStr};

use super::{Connection, Ended};

/// Class and method of `basic.publish`.
const PUBLISH: (u16, u16) = (60, 40);

impl Connection {
    /// Keeps a message until there is room for it.
    pub(super) fn block(&mut self, number: u16, publish: basic::Publish, content: Content) {
        tracing::warn!("a publisher is held back: the disk is nearly full");
        self.blocked = Some((number, publish, content));
        if self.client.takes_blocked && !self.blocked_told {
            self.blocked_told = true;
            self.send(0, connection::Blocked { reason: ShortStr::from_static("low on disk") });
        }
    }

    /// Publishes the message that was kept, if there is room by now. Whether there is nothing more in the way.
    pub(super) async fn go_on_publishing(&mut self) -> Result<bool, Ended> {
        let Some((number, publish, content)) = self.blocked.take() else { return Ok(true) };
        if !self.front.broker.has_disk_space() {
            self.blocked = Some((number, publish, content));
            return Ok(false);
        }
        if std::mem::take(&mut self.blocked_told) {
            self.send(0, connection::Unblocked {});
        }
        let (class_id, method_id) = PUBLISH;
        match self.publish(number, publish, content).await {
            Ok(()) => Ok(true),
            Err(failure) => self.failed(number, failure, class_id, method_id).await.map(|()| true),
        }
    }
}
