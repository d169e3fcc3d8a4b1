//! SaslHandshake: the choice of a mechanism.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;

messages! {
    /// The mechanism the client wants.
    SaslHandshakeRequest {
        [0+]    mechanism: KafkaStr,
    }

    /// Whether it is to be had, and which are.
    SaslHandshakeResponse {
        [0+]    error_code: ErrorCode,
        [0+]    mechanisms: Vec<KafkaStr>,
    }
}
