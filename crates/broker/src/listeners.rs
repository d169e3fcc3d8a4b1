//! Where this node listens, as whoever opened the listeners has told.

use std::net::SocketAddr;

use crate::broker::Broker;

/// One address on which this node listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerInfo {
    /// What is spoken there, by Weir's name: `kafka`, `amqp`.
    pub protocol: &'static str,
    /// Where.
    pub address: SocketAddr,
}

impl Broker {
    /// Notes where this node listens. What was noted before is forgotten. From the first time on, the other nodes are
    /// told what this one says of itself.
    pub fn note_listeners(&self, listeners: Vec<ListenerInfo>) {
        self.listeners.send_replace(Some(listeners));
    }

    /// Where this node listens; nothing until it is noted.
    pub fn listeners(&self) -> Vec<ListenerInfo> {
        self.listeners.borrow().clone().unwrap_or_default()
    }
}
