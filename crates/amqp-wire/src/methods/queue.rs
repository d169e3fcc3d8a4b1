//! Class queue: what messages are consumed from (section 1.7). The reserved field in front is the ticket of 0-8.

use crate::schema::methods;
use crate::short_str::ShortStr;
use crate::table::Table;

methods! {
    "queue" = 50;

    /// Creates a queue, or checks that it is there.
    Declare = 10 "declare" {
        _: u16,
        /// Empty: the broker makes up a name.
        queue: ShortStr,
        /// Only look whether there is one of this name.
        passive: bool,
        durable: bool,
        /// Belongs to this connection and goes with it.
        exclusive: bool,
        /// Goes with its last consumer.
        auto_delete: bool,
        no_wait: bool,
        arguments: Table,
    }

    /// It is there.
    DeclareOk = 11 "declare-ok" {
        queue: ShortStr,
        /// Messages that are ready.
        message_count: u32,
        consumer_count: u32,
    }

    /// Binds a queue to an exchange.
    Bind = 20 "bind" {
        _: u16,
        /// Empty: the queue declared last on this channel.
        queue: ShortStr,
        exchange: ShortStr,
        routing_key: ShortStr,
        no_wait: bool,
        arguments: Table,
    }

    /// The binding is there.
    BindOk = 21 "bind-ok" {}

    /// Drops all messages that are ready.
    Purge = 30 "purge" {
        _: u16,
        queue: ShortStr,
        no_wait: bool,
    }

    /// They are dropped.
    PurgeOk = 31 "purge-ok" {
        message_count: u32,
    }

    /// Deletes a queue.
    Delete = 40 "delete" {
        _: u16,
        queue: ShortStr,
        if_unused: bool,
        if_empty: bool,
        no_wait: bool,
    }

    /// It is gone, and these were in it.
    DeleteOk = 41 "delete-ok" {
        message_count: u32,
    }

    /// Takes a binding away. Unlike its kin it cannot go unanswered.
    Unbind = 50 "unbind" {
        _: u16,
        queue: ShortStr,
        exchange: ShortStr,
        routing_key: ShortStr,
        arguments: Table,
    }

    /// The binding is gone.
    UnbindOk = 51 "unbind-ok" {}
}
