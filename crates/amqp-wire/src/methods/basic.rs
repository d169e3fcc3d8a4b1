//! Class basic: messages on their way in and out (section 1.8). The reserved field in front is the ticket of 0-8.

use crate::schema::methods;
use crate::short_str::ShortStr;
use crate::table::Table;

methods! {
    "basic" = 60;

    /// How much may be on its way to consumers without being acknowledged.
    Qos = 10 "qos" {
        /// In bytes; 0 for no limit, which is all that RabbitMQ takes.
        prefetch_size: u32,
        /// In messages; 0 for no limit.
        prefetch_count: u16,
        /// For RabbitMQ: shared by the channel's consumers, not for each of those to come.
        global: bool,
    }

    /// The limits are in force.
    QosOk = 11 "qos-ok" {}

    /// Starts a consumer.
    Consume = 20 "consume" {
        _: u16,
        /// Empty: the queue declared last on this channel.
        queue: ShortStr,
        /// Empty: the broker makes one up.
        consumer_tag: ShortStr,
        no_local: bool,
        /// Messages count as acknowledged when they are sent.
        no_ack: bool,
        exclusive: bool,
        no_wait: bool,
        arguments: Table,
    }

    /// The consumer is there.
    ConsumeOk = 21 "consume-ok" {
        consumer_tag: ShortStr,
    }

    /// Ends a consumer. The broker sends it too, when the queue goes (RabbitMQ).
    Cancel = 30 "cancel" {
        consumer_tag: ShortStr,
        no_wait: bool,
    }

    /// The consumer is gone.
    CancelOk = 31 "cancel-ok" {
        consumer_tag: ShortStr,
    }

    /// A message on its way in.
    Publish = 40 "publish" + content {
        _: u16,
        /// Empty: the default exchange, which takes the routing key for the name of a queue.
        exchange: ShortStr,
        routing_key: ShortStr,
        /// To be returned if no queue gets it.
        mandatory: bool,
        /// To be returned if no consumer gets it at once; RabbitMQ refuses it.
        immediate: bool,
    }

    /// A message on its way back to its publisher.
    Return = 50 "return" + content {
        /// The number of a [`ReplyCode`](crate::ReplyCode).
        reply_code: u16,
        reply_text: ShortStr,
        exchange: ShortStr,
        routing_key: ShortStr,
    }

    /// A message on its way to a consumer.
    Deliver = 60 "deliver" + content {
        consumer_tag: ShortStr,
        /// Number of the message within its channel, from 1.
        delivery_tag: u64,
        /// Whether it may have been delivered before.
        redelivered: bool,
        exchange: ShortStr,
        routing_key: ShortStr,
    }

    /// Asks for one message.
    Get = 70 "get" {
        _: u16,
        queue: ShortStr,
        no_ack: bool,
    }

    /// The message.
    GetOk = 71 "get-ok" + content {
        delivery_tag: u64,
        redelivered: bool,
        exchange: ShortStr,
        routing_key: ShortStr,
        /// Messages that are left.
        message_count: u32,
    }

    /// There is none.
    GetEmpty = 72 "get-empty" {
        _: ShortStr,
    }

    /// Accepts messages; sent by the broker, it confirms published ones (RabbitMQ).
    Ack = 80 "ack" {
        /// 0 with `multiple`: all so far.
        delivery_tag: u64,
        /// All up to this one.
        multiple: bool,
    }

    /// Refuses a message.
    Reject = 90 "reject" {
        delivery_tag: u64,
        /// Back into the queue; otherwise dropped or dead-lettered.
        requeue: bool,
    }

    /// Gives everything that is not acknowledged back, without an answer.
    RecoverAsync = 100 "recover-async" {
        /// For other consumers too; RabbitMQ knows nothing else.
        requeue: bool,
    }

    /// Gives everything that is not acknowledged back.
    Recover = 110 "recover" {
        requeue: bool,
    }

    /// It is given back.
    RecoverOk = 111 "recover-ok" {}

    /// Refuses messages; sent by the broker, it says that published ones are not safe (RabbitMQ).
    Nack = 120 "nack" {
        /// 0 with `multiple`: all so far.
        delivery_tag: u64,
        /// All up to this one.
        multiple: bool,
        /// Back into the queue; otherwise dropped or dead-lettered.
        requeue: bool,
    }
}
