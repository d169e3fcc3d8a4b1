//! The eight octets with which a client begins, and with which a broker answers those that it does not serve.

/// Length of a protocol header.
pub const PROTOCOL_HEADER_BYTES: usize = 8;

/// What a client wants to speak (AMQP 0-9-1, section 4.2.2; AMQP 1.0, section 2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProtocolHeader {
    /// AMQP 0-9-1.
    Amqp091,
    /// AMQP 0-9, whose clients get along with a broker of 0-9-1; RabbitMQ takes them in.
    Amqp09,
    /// AMQP 1.0 in one of its layers.
    Amqp10(Amqp10Layer),
    /// Anything else: another version, another protocol, or TLS on the port without.
    Other([u8; PROTOCOL_HEADER_BYTES]),
}

/// Which layer of AMQP 1.0 a header opens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Amqp10Layer {
    /// AMQP itself.
    Amqp,
    /// TLS, negotiated within the connection.
    Tls,
    /// SASL.
    Sasl,
}

impl ProtocolHeader {
    /// What a broker that serves 0-9-1 sends, and then closes, where it cannot serve what was asked for.
    pub const SUPPORTED: [u8; PROTOCOL_HEADER_BYTES] = *b"AMQP\x00\x00\x09\x01";

    /// The header at the beginning of what has come; `None` as long as that is less than
    /// [`PROTOCOL_HEADER_BYTES`]. Frames, or whatever else, follow behind it.
    pub fn parse(received: &[u8]) -> Option<ProtocolHeader> {
        let header = received.first_chunk::<PROTOCOL_HEADER_BYTES>()?;
        Some(match header {
            b"AMQP\x00\x00\x09\x01" => ProtocolHeader::Amqp091,
            b"AMQP\x01\x01\x00\x09" => ProtocolHeader::Amqp09,
            b"AMQP\x00\x01\x00\x00" => ProtocolHeader::Amqp10(Amqp10Layer::Amqp),
            b"AMQP\x02\x01\x00\x00" => ProtocolHeader::Amqp10(Amqp10Layer::Tls),
            b"AMQP\x03\x01\x00\x00" => ProtocolHeader::Amqp10(Amqp10Layer::Sasl),
            other => ProtocolHeader::Other(*other),
        })
    }
}
