//! Class access: left over from 0-8, where a ticket was needed for everything. Old clients still ask for one, and
//! RabbitMQ gives everybody ticket 1.

use crate::schema::methods;
use crate::short_str::ShortStr;

methods! {
    "access" = 30;

    /// Asks for a ticket.
    Request = 10 "request" {
        realm: ShortStr,
        exclusive: bool,
        passive: bool,
        active: bool,
        write: bool,
        read: bool,
    }

    /// A ticket, which nobody looks at.
    RequestOk = 11 "request-ok" {
        ticket: u16,
    }
}
