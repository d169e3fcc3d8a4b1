//! The protocol's error codes, what they are called, and what they end: a channel or the connection.

use crate::short_str::ShortStr;
use std::fmt;

/// The code with which a connection or a channel is closed when nothing is wrong.
pub const REPLY_SUCCESS: u16 = 200;

/// What an error ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Scope {
    /// A soft error: the channel is closed with `channel.close`.
    Channel,
    /// A hard error: the connection is closed with `connection.close` on channel 0.
    Connection,
}

macro_rules! reply_codes {
    ($( $code:literal $variant:ident $name:literal $scope:ident $doc:literal; )*) => {
        /// Why a channel or a connection is closed, or a message comes back (AMQP 0-9-1, section 1.2.2).
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum ReplyCode {
            $( #[doc = $doc] $variant = $code, )*
        }

        impl ReplyCode {
            /// Every code, in the order of the numbers.
            pub const ALL: &[ReplyCode] = &[$( ReplyCode::$variant, )*];

            /// The code of this number; `None` if the protocol has none.
            pub fn from_number(number: u16) -> Option<ReplyCode> {
                match number {
                    $( $code => Some(ReplyCode::$variant), )*
                    _ => None,
                }
            }

            /// The protocol's name for it, as RabbitMQ writes it at the beginning of a reply text.
            pub fn name(self) -> &'static str {
                match self {
                    $( ReplyCode::$variant => $name, )*
                }
            }

            /// What it ends.
            pub fn scope(self) -> Scope {
                match self {
                    $( ReplyCode::$variant => Scope::$scope, )*
                }
            }
        }
    };
}

reply_codes! {
    311 ContentTooLarge "CONTENT_TOO_LARGE" Channel "The message is larger than the peer takes at present.";
    312 NoRoute "NO_ROUTE" Channel "A mandatory message reached no queue; only `basic.return` carries it.";
    313 NoConsumers "NO_CONSUMERS" Channel "An immediate message found no consumer; only `basic.return` carries it.";
    320 ConnectionForced "CONNECTION_FORCED" Connection "An operator closed the connection, or the broker stops.";
    402 InvalidPath "INVALID_PATH" Connection "The virtual host is not known.";
    403 AccessRefused "ACCESS_REFUSED" Channel "The user may not do this.";
    404 NotFound "NOT_FOUND" Channel "There is no such queue or exchange.";
    405 ResourceLocked "RESOURCE_LOCKED" Channel "The queue belongs to another connection or consumer.";
    406 PreconditionFailed "PRECONDITION_FAILED" Channel "What was asked for contradicts what is there.";
    501 FrameError "FRAME_ERROR" Connection "A frame cannot be read.";
    502 SyntaxError "SYNTAX_ERROR" Connection "A field of a frame has a value that is not allowed.";
    503 CommandInvalid "COMMAND_INVALID" Connection "The method is not allowed at this point.";
    504 ChannelError "CHANNEL_ERROR" Connection "The channel is not open, or is open already.";
    505 UnexpectedFrame "UNEXPECTED_FRAME" Connection "A frame came where another kind was due.";
    506 ResourceError "RESOURCE_ERROR" Connection "The broker lacks the resources for it.";
    530 NotAllowed "NOT_ALLOWED" Connection "The peer negotiated, or was told, otherwise.";
    540 NotImplemented "NOT_IMPLEMENTED" Connection "The broker does not have this function.";
    541 InternalError "INTERNAL_ERROR" Connection "The broker met an error that it did not expect.";
}

impl ReplyCode {
    /// Its number on the wire.
    pub fn number(self) -> u16 {
        self as u16
    }

    /// The reply text in RabbitMQ's form, `NAME - words`, on which clients' own tests insist; cut to what a short
    /// string holds.
    pub fn text(self, words: &str) -> ShortStr {
        ShortStr::truncated(&format!("{} - {words}", self.name()))
    }
}

impl fmt::Debug for ReplyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.name(), self.number())
    }
}

impl fmt::Display for ReplyCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.number())
    }
}
