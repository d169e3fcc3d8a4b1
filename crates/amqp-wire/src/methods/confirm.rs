//! Class confirm: a channel on which the broker acknowledges what is published (RabbitMQ).

use crate::schema::methods;

methods! {
    "confirm" = 85;

    /// Confirms from here on.
    Select = 10 "select" {
        no_wait: bool,
    }

    /// It does.
    SelectOk = 11 "select-ok" {}
}
