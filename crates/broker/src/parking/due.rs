//! What is to become of a parked record, as it stands in a header of it.
//!
//! ```text
//! due        = version u8 (1), namespace string, target, expires flag, expires after ms i64
//! target     = 0 u8, exchange string, key bytes*, properties flag, properties if there are any
//!            | 1 u8, queue or topic string
//! properties = headers, message id flag, message id bytes, correlation id flag, correlation id bytes,
//!              timestamp flag, timestamp u64
//! ```

use bytes::Bytes;
use weir_model::TimestampMs;
use weir_model::batch::{Header, Record};
use weir_model::routing::{ArgumentValue, Arguments, decode_arguments, encode_arguments};
use weir_model::wire::{DecodeError, Reader, Writer};
use weir_router::Properties;

/// The header of a parked record. It is gone when the record is released.
pub const DUE_HEADER: &str = "weir.due";

const VERSION: u8 = 1;
const TO_EXCHANGE: u8 = 0;
const TO_QUEUE: u8 = 1;

/// What is to become of a record when its time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The namespace of its target.
    pub namespace: String,
    /// Where it goes.
    pub target: Target,
    /// It expires so long after its release, in milliseconds.
    pub expires_after_ms: Option<TimestampMs>,
}

/// Where a record goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// To an exchange, which routes it as its bindings are then. One that is gone takes it with it.
    Exchange {
        /// Its name.
        name: String,
        /// The record's routing key, then those of its copies.
        keys: Vec<Bytes>,
        /// What some exchanges ask for beside keys; none if there is nothing.
        properties: Option<Box<RoutingProperties>>,
    },
    /// To a queue or topic. One that is gone takes it with it.
    Queue(String),
}

/// What routing may ask of a message, kept until then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutingProperties {
    headers: Vec<(Bytes, ArgumentValue)>,
    message_id: Option<Bytes>,
    correlation_id: Option<Bytes>,
    timestamp: Option<u64>,
}

impl RoutingProperties {
    /// Those of a message; none if there is nothing in them. A name of a header that is not UTF-8 matches no binding
    /// and is left out.
    pub fn of(message: &dyn Properties) -> Option<Box<RoutingProperties>> {
        let bytes = |text: Option<&[u8]>| text.map(Bytes::copy_from_slice);
        let is_text = |(name, _): &&(Bytes, ArgumentValue)| std::str::from_utf8(name).is_ok();
        let properties = RoutingProperties {
            headers: message.headers().iter().filter(is_text).cloned().collect(),
            message_id: bytes(message.message_id()),
            correlation_id: bytes(message.correlation_id()),
            timestamp: message.timestamp(),
        };
        (properties != RoutingProperties::default()).then(|| Box::new(properties))
    }

    fn encode(&self, out: &mut Writer) {
        let text = |name: &Bytes| String::from_utf8_lossy(name).into_owned();
        let headers: Arguments =
            self.headers.iter().map(|(name, value)| (text(name), value.clone())).collect();
        encode_arguments(&headers, out);
        for field in [&self.message_id, &self.correlation_id] {
            out.u8(u8::from(field.is_some()));
            out.bytes(field.as_deref().unwrap_or_default());
        }
        out.u8(u8::from(self.timestamp.is_some()));
        out.u64(self.timestamp.unwrap_or_default());
    }

    fn decode(reader: &mut Reader) -> Result<RoutingProperties, DecodeError> {
        let headers = decode_arguments(reader)?;
        let field = |reader: &mut Reader| {
            let is_there = reader.bool()?;
            Ok(Some(reader.bytes()?).filter(|_| is_there))
        };
        let (message_id, correlation_id) = (field(reader)?, field(reader)?);
        let has_timestamp = reader.bool()?;
        let timestamp = Some(reader.u64()?).filter(|_| has_timestamp);
        let headers = headers.into_iter().map(|(name, value)| (Bytes::from(name), value)).collect();
        Ok(RoutingProperties { headers, message_id, correlation_id, timestamp })
    }
}

impl Properties for RoutingProperties {
    fn headers(&self) -> &[(Bytes, ArgumentValue)] {
        &self.headers
    }

    fn message_id(&self) -> Option<&[u8]> {
        self.message_id.as_deref()
    }

    fn correlation_id(&self) -> Option<&[u8]> {
        self.correlation_id.as_deref()
    }

    fn timestamp(&self) -> Option<u64> {
        self.timestamp
    }
}

impl Due {
    /// The header that says it.
    pub(super) fn header(&self) -> Header {
        let mut out = Writer::new();
        out.u8(VERSION);
        out.str(&self.namespace);
        match &self.target {
            Target::Exchange { name, keys, properties } => {
                out.u8(TO_EXCHANGE);
                out.str(name);
                out.list(keys, |out, key| out.bytes(key));
                out.u8(u8::from(properties.is_some()));
                if let Some(properties) = properties {
                    properties.encode(&mut out);
                }
            }
            Target::Queue(name) => {
                out.u8(TO_QUEUE);
                out.str(name);
            }
        }
        out.u8(u8::from(self.expires_after_ms.is_some()));
        out.i64(self.expires_after_ms.unwrap_or_default());
        Header { key: DUE_HEADER.to_owned(), value: Some(out.finish()) }
    }

    /// Takes it out of a record; an error if it does not say what is to become of it.
    pub(super) fn take(record: &mut Record) -> Result<Due, DecodeError> {
        let at = record.headers.iter().rposition(|header| header.key == DUE_HEADER);
        let header = at.map(|at| record.headers.remove(at));
        match header.and_then(|header| header.value) {
            Some(value) => Due::decode(value),
            None => Err(DecodeError::new("a parked record", "it does not say where it goes")),
        }
    }

    fn decode(bytes: Bytes) -> Result<Due, DecodeError> {
        let mut reader = Reader::new("a parked record", bytes);
        if reader.u8()? != VERSION {
            return Err(reader.error("its version is not known to this binary"));
        }
        let namespace = reader.str()?;
        let target = match reader.u8()? {
            TO_EXCHANGE => Target::Exchange {
                name: reader.str()?,
                keys: reader.list(4, |r| r.bytes())?,
                properties: match reader.bool()? {
                    true => Some(Box::new(RoutingProperties::decode(&mut reader)?)),
                    false => None,
                },
            },
            TO_QUEUE => Target::Queue(reader.str()?),
            _ => return Err(reader.error("a kind of target is not known to this binary")),
        };
        let expires = reader.bool()?;
        let expires_after_ms = Some(reader.i64()?).filter(|_| expires);
        reader.finish()?;
        Ok(Due { namespace, target, expires_after_ms })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_exchange(properties: Option<Box<RoutingProperties>>) -> Due {
        Due {
            namespace: "/".into(),
            target: Target::Exchange {
                name: "later".into(),
                keys: vec![Bytes::from_static(b"a.b"), Bytes::from_static(b"\xff")],
                properties,
            },
            expires_after_ms: Some(5_000),
        }
    }

    #[test]
    fn what_is_to_become_of_a_record_comes_back_as_it_went() {
        let properties = RoutingProperties {
            headers: vec![(Bytes::from_static(b"x-delay"), ArgumentValue::Integer(-500))],
            message_id: Some(Bytes::from_static(b"m")),
            correlation_id: None,
            timestamp: Some(9),
        };
        assert_eq!(RoutingProperties::of(&()), None);
        let kept = RoutingProperties::of(&properties);
        assert_eq!(kept.as_deref(), Some(&properties));
        let queue =
            Due { namespace: "other".into(), target: Target::Queue("q".into()), expires_after_ms: None };
        for due in [to_exchange(None), to_exchange(kept), queue] {
            let other = Header { key: "own".into(), value: None };
            let mut record = Record { headers: vec![other.clone(), due.header()], ..Record::default() };
            assert_eq!(Due::take(&mut record), Ok(due));
            assert_eq!(record.headers, [other]);
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        assert!(Due::take(&mut Record::default()).is_err());
        let whole = to_exchange(RoutingProperties::of(&())).header().value.unwrap();
        for end in 0..whole.len() {
            assert!(Due::decode(whole.slice(..end)).is_err(), "{end}");
        }
    }
}
