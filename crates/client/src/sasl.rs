//! Saying who the client is: SASL PLAIN, behind a handshake of version 1.

use bytes::{BufMut, Bytes, BytesMut};
use std::sync::Arc;
use weir_kafka_wire::{KafkaStr, SaslAuthenticateRequest, SaslHandshakeRequest};

use crate::connection::Connection;
use crate::error::ClientError;
use crate::options::Credentials;

/// Authenticates a connection that was just opened.
pub(crate) async fn authenticate(
    connection: &Arc<Connection>,
    credentials: &Credentials,
) -> Result<(), ClientError> {
    let what = || format!("authenticating as '{}' with {}", credentials.user, connection.address());
    let handshake = SaslHandshakeRequest { mechanism: KafkaStr::from_static("PLAIN") };
    let answer = connection.call(&handshake).await?;
    ClientError::check(answer.error_code, what)?;
    let mut message = BytesMut::new();
    message.put_u8(0);
    message.put_slice(credentials.user.as_bytes());
    message.put_u8(0);
    message.put_slice(credentials.password.as_bytes());
    let request = SaslAuthenticateRequest { auth_bytes: Bytes::from(message) };
    let answer = connection.call(&request).await?;
    match answer.error_code.ok() {
        Ok(()) => Ok(()),
        Err(code) => {
            Err(ClientError::Refused { what: what(), code, message: answer.error_message.map(String::from) })
        }
    }
}
