//! SaslAuthenticate: the mechanism's own messages, one at a time.

use crate::error_code::ErrorCode;
use crate::schema::messages;
use crate::text::KafkaStr;
use bytes::Bytes;

messages! {
    /// The client's message.
    SaslAuthenticateRequest {
        [0+]    auth_bytes: Bytes,
    }

    /// The broker's message. The session must be authenticated anew within `session_lifetime_ms`, unless it is 0.
    SaslAuthenticateResponse {
        [0+]    error_code: ErrorCode,
        [0+]    error_message: Option<KafkaStr>,
        [0+]    auth_bytes: Bytes,
        [1+]    session_lifetime_ms: i64,
    }
}
