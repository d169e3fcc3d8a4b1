//! Class connection: from the handshake to the end of a connection, always on channel 0 (section 1.4).

use crate::schema::methods;
use crate::secret::Secret;
use crate::short_str::ShortStr;
use crate::table::Table;
use bytes::Bytes;

methods! {
    "connection" = 10;

    /// The broker introduces itself.
    Start = 10 "start" {
        /// 0.
        version_major: u8,
        /// 9, for 0-9 and 0-9-1 alike.
        version_minor: u8,
        server_properties: Table,
        /// SASL mechanisms, with spaces between them.
        mechanisms: Bytes,
        /// Locales of texts, with spaces between them.
        locales: Bytes,
    }

    /// The client introduces itself and begins to authenticate.
    StartOk = 11 "start-ok" {
        client_properties: Table,
        mechanism: ShortStr,
        /// The first answer of the SASL mechanism.
        response: Secret,
        locale: ShortStr,
    }

    /// A further question of the SASL mechanism.
    Secure = 20 "secure" {
        challenge: Bytes,
    }

    /// The answer to it.
    SecureOk = 21 "secure-ok" {
        response: Secret,
    }

    /// What the broker proposes.
    Tune = 30 "tune" {
        /// Highest channel number; 0 for no limit.
        channel_max: u16,
        /// Largest frame in bytes; 0 for no limit.
        frame_max: u32,
        /// Seconds between signs of life; 0 for none.
        heartbeat: u16,
    }

    /// What the client settles on, no higher than proposed.
    TuneOk = 31 "tune-ok" {
        /// Highest channel number; 0 for no limit.
        channel_max: u16,
        /// Largest frame in bytes; 0 for no limit.
        frame_max: u32,
        /// Seconds between signs of life; 0 for none.
        heartbeat: u16,
    }

    /// Opens a virtual host. Its other fields are of older versions: capabilities and insistence.
    Open = 40 "open" {
        virtual_host: ShortStr,
        .. ShortStr, bool,
    }

    /// The connection is ready. The reserved field named hosts in older versions.
    OpenOk = 41 "open-ok" {
        _: ShortStr,
    }

    /// The end, with a reason; either side may send it, and nothing but the answer may follow.
    Close = 50 "close" {
        /// The number of a [`ReplyCode`](crate::ReplyCode), or [`REPLY_SUCCESS`](crate::REPLY_SUCCESS).
        reply_code: u16,
        reply_text: ShortStr,
        /// The class of the method at fault, or 0.
        class_id: u16,
        /// The method at fault, or 0.
        method_id: u16,
    }

    /// The last frame of a connection.
    CloseOk = 51 "close-ok" {}

    /// The broker does not read this connection for now (RabbitMQ).
    Blocked = 60 "blocked" {
        reason: ShortStr,
    }

    /// It reads again (RabbitMQ).
    Unblocked = 61 "unblocked" {}

    /// New credentials before the old ones expire (RabbitMQ).
    UpdateSecret = 70 "update-secret" {
        new_secret: Secret,
        reason: ShortStr,
    }

    /// They are in force (RabbitMQ).
    UpdateSecretOk = 71 "update-secret-ok" {}
}
