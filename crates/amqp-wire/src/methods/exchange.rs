//! Class exchange: what messages are published to (section 1.6). The reserved field in front is the ticket of 0-8.

use crate::schema::methods;
use crate::short_str::ShortStr;
use crate::table::Table;

methods! {
    "exchange" = 40;

    /// Creates an exchange, or checks that it is there.
    Declare = 10 "declare" {
        _: u16,
        exchange: ShortStr,
        /// The field `type`: `direct`, `fanout`, `topic`, `headers` and others.
        exchange_type: ShortStr,
        /// Only look whether there is one of this name.
        passive: bool,
        durable: bool,
        /// Goes with its last binding.
        auto_delete: bool,
        /// Takes messages from other exchanges only.
        internal: bool,
        no_wait: bool,
        arguments: Table,
    }

    /// It is there.
    DeclareOk = 11 "declare-ok" {}

    /// Deletes an exchange.
    Delete = 20 "delete" {
        _: u16,
        exchange: ShortStr,
        if_unused: bool,
        no_wait: bool,
    }

    /// It is gone.
    DeleteOk = 21 "delete-ok" {}

    /// Binds an exchange to another (RabbitMQ).
    Bind = 30 "bind" {
        _: u16,
        destination: ShortStr,
        source: ShortStr,
        routing_key: ShortStr,
        no_wait: bool,
        arguments: Table,
    }

    /// The binding is there (RabbitMQ).
    BindOk = 31 "bind-ok" {}

    /// Takes a binding between exchanges away (RabbitMQ).
    Unbind = 40 "unbind" {
        _: u16,
        destination: ShortStr,
        source: ShortStr,
        routing_key: ShortStr,
        no_wait: bool,
        arguments: Table,
    }

    /// The binding is gone (RabbitMQ). Its id is 51, and not the 41 that one would expect.
    UnbindOk = 51 "unbind-ok" {}
}
