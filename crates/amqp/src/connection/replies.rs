//! A requester's side of direct replies, and that of whoever replies.

use bytes::Bytes;
use weir_amqp_wire::methods::{basic, queue};
use weir_amqp_wire::{BasicProperties, ReplyCode, ShortStr};

use super::Connection;
use crate::channel::ReplyConsumer;
use crate::errors::Failure;
use crate::handshake::generated;
use crate::replies::{REPLY_TO, Reply, is_mailbox};

impl Connection {
    /// A channel is to get direct replies.
    pub(super) fn consume_replies(
        &mut self,
        number: u16,
        tag: ShortStr,
        method: &basic::Consume,
    ) -> Result<(), Failure> {
        if !method.no_ack {
            return Err(Failure::precondition("reply consumer cannot acknowledge"));
        }
        let mailbox = generated(&format!("{REPLY_TO}."), self.front.broker.random_bytes());
        let sender = self.reply_sender.clone();
        let channel = self.channel(number)?;
        if channel.reply_consumer.is_some() {
            return Err(Failure::precondition("reply consumer already set"));
        }
        let owner = channel.owner;
        channel.reply_consumer = Some(ReplyConsumer { tag: tag.clone(), mailbox: mailbox.clone() });
        self.front.mailboxes.open(mailbox, number, owner, sender);
        if !method.no_wait {
            self.send(number, basic::ConsumeOk { consumer_tag: tag });
        }
        Ok(())
    }

    /// A channel is to get no more direct replies. Whether it got them under this tag.
    pub(super) fn cancel_replies(&mut self, number: u16, tag: Option<&ShortStr>) -> bool {
        let Some(channel) = self.channels.get_mut(&number) else { return false };
        let is_it = |consumer: &mut ReplyConsumer| tag.is_none_or(|tag| *tag == consumer.tag);
        match channel.reply_consumer.take_if(is_it) {
            Some(consumer) => {
                self.front.mailboxes.close(&consumer.mailbox);
                true
            }
            None => false,
        }
    }

    /// Puts the channel's mailbox in place of the name that stands for it.
    pub(super) fn fill_in_reply_to(
        &mut self,
        number: u16,
        properties: &mut BasicProperties,
    ) -> Result<(), Failure> {
        if properties.reply_to.as_ref().is_none_or(|name| *name != REPLY_TO) {
            return Ok(());
        }
        match &self.channel(number)?.reply_consumer {
            Some(consumer) => properties.reply_to = Some(consumer.mailbox.clone()),
            None => return Err(Failure::precondition("fast reply consumer does not exist")),
        }
        Ok(())
    }

    /// Hands a message that goes through the default exchange to those of its keys that are mailboxes.
    pub(super) fn reply(&self, keys: &[&[u8]], properties: &BasicProperties, body: &Bytes) {
        for key in keys.iter().filter(|key| is_mailbox(key)) {
            if let Ok(name) = ShortStr::from_bytes(Bytes::copy_from_slice(key)) {
                self.front.mailboxes.deliver(&name, &ShortStr::default(), properties, body);
            }
        }
    }

    /// A reply has come for one of this connection's channels.
    pub(super) fn deliver_reply(&mut self, reply: Reply) {
        let Reply { channel: number, owner, exchange, routing_key, properties, body } = reply;
        let Some(channel) = self.channels.get(&number).filter(|channel| channel.owner == owner) else {
            return;
        };
        let Some(consumer) = channel.reply_consumer.as_ref().filter(|own| own.mailbox == routing_key) else {
            return;
        };
        let deliver = basic::Deliver {
            consumer_tag: consumer.tag.clone(),
            // It is not counted: nobody settles it.
            delivery_tag: channel.unsettled.next_tag(),
            redelivered: false,
            exchange,
            routing_key,
        };
        if let Err(error) = self.out.content(number, &deliver, &properties, &body) {
            tracing::error!(%error, "a direct reply could not be delivered");
        }
    }

    /// Answers whether a mailbox is there to whoever declares its name as that of a queue.
    pub(super) fn declare_mailbox(&mut self, number: u16, method: &queue::Declare) -> Result<(), Failure> {
        let name = method.queue.detached();
        if name != REPLY_TO && !self.front.mailboxes.is_open(&name) {
            return Err(Failure::no_queue(&String::from_utf8_lossy(name.as_bytes()), &self.namespace));
        }
        if !method.no_wait {
            self.send(number, queue::DeclareOk { queue: name, message_count: 0, consumer_count: 1 });
        }
        Ok(())
    }

    /// Refuses a tag that is in use on this channel.
    pub(super) fn check_tag_is_free(&mut self, number: u16, tag: &ShortStr) -> Result<(), Failure> {
        let channel = self.channel(number)?;
        let replies = channel.reply_consumer.as_ref().is_some_and(|consumer| consumer.tag == *tag);
        if replies || channel.consumers.contains_key(tag) || channel.streams.contains_key(tag) {
            let words = format!("attempt to reuse consumer tag '{tag}'");
            return Err(Failure::new(ReplyCode::NotAllowed, words));
        }
        Ok(())
    }
}
