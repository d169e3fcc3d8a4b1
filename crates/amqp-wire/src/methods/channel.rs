//! Class channel: the life of one channel (section 1.5).

use crate::schema::methods;
use crate::short_str::ShortStr;
use bytes::Bytes;

methods! {
    "channel" = 20;

    /// Opens the channel that it is sent on.
    Open = 10 "open" {
        _: ShortStr,
    }

    /// The channel is open.
    OpenOk = 11 "open-ok" {
        _: Bytes,
    }

    /// Asks the peer to stop or resume sending content.
    Flow = 20 "flow" {
        /// Whether content may be sent.
        active: bool,
    }

    /// What the peer made of it.
    FlowOk = 21 "flow-ok" {
        active: bool,
    }

    /// The end of the channel, with a reason; either side may send it.
    Close = 40 "close" {
        /// The number of a [`ReplyCode`](crate::ReplyCode), or [`REPLY_SUCCESS`](crate::REPLY_SUCCESS).
        reply_code: u16,
        reply_text: ShortStr,
        /// The class of the method at fault, or 0.
        class_id: u16,
        /// The method at fault, or 0.
        method_id: u16,
    }

    /// The last frame of a channel, whose number is free again.
    CloseOk = 41 "close-ok" {}
}
