//! How an AMQP message is a record, and how any record is an AMQP message.
//!
//! A message becomes a record without a key. Its body is the value, and everything else is record headers, in this
//! order:
//!
//! ```text
//! amqp.exchange         the exchange it was published to; always there, and empty for the default exchange
//! amqp.routing-key      the routing key; always there
//! amqp.<property>       each property that it has, but `headers`: content-type, content-encoding, correlation-id,
//!                       reply-to, expiration, message-id, type, user-id, app-id, cluster-id as their bytes;
//!                       delivery-mode, priority, timestamp (seconds) as decimal digits
//! amqp.types            one octet for each of its readable headers, in order: the tag of its type in AMQP's tables.
//!                       Left out where all are strings (`S`) or nothing (`V`); empty for a table without fields,
//!                       which is not the same as no table
//! <name>                a readable header, under its own name
//! amqp.field            any other header: name, tag and value as they lie in an AMQP table
//! ```
//!
//! A header of the message is readable if its name is UTF-8 and does not begin with `amqp.`, and its value is one of
//! these. What its record header holds is
//!
//! ```text
//! S x                   the bytes
//! t                     true or false
//! b B s u I i l L T     decimal digits
//! f d                   the shortest decimal fraction that reads back to the same number; but not for NaN, of which
//!                       there are many
//! V                     null
//! ```
//!
//! so that every other protocol sees text as text. Tables, arrays and decimals are not readable. Readable headers and
//! `amqp.field` keep the order that the fields have in the table. So the record gives the message back exactly: types,
//! order, duplicates, nested tables and names of any bytes.
//!
//! A record that another protocol wrote has no `amqp.exchange`. It comes out as if it had been published to the
//! default exchange: its headers are strings, `kafka.key` among them if it has a key, and its time is the property
//! `timestamp`. Nor must headers be as above: whoever copies a record may add some, and take some away. What does not
//! read as its type is a string, and what cannot be anything of the above is a header of the message.

use bytes::Bytes;
use weir_amqp_wire::{BasicProperties, ShortStr, Table, Value};
use weir_model::batch::{Header, Record};

/// What our own headers begin with.
const PREFIX: &str = "amqp.";
const EXCHANGE: &str = "amqp.exchange";
const ROUTING_KEY: &str = "amqp.routing-key";
const CONTENT_TYPE: &str = "amqp.content-type";
const CONTENT_ENCODING: &str = "amqp.content-encoding";
const DELIVERY_MODE: &str = "amqp.delivery-mode";
const PRIORITY: &str = "amqp.priority";
const CORRELATION_ID: &str = "amqp.correlation-id";
const REPLY_TO: &str = "amqp.reply-to";
const EXPIRATION: &str = "amqp.expiration";
const MESSAGE_ID: &str = "amqp.message-id";
const TIMESTAMP: &str = "amqp.timestamp";
const TYPE: &str = "amqp.type";
const USER_ID: &str = "amqp.user-id";
const APP_ID: &str = "amqp.app-id";
const CLUSTER_ID: &str = "amqp.cluster-id";
const TYPES: &str = "amqp.types";
const FIELD: &str = "amqp.field";

/// The key of a record that another protocol wrote, as a header of the message.
const KAFKA_KEY: &str = "kafka.key";
const MS_PER_SECOND: u64 = 1_000;

/// A message with its address.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Message {
    /// The exchange it was published to; empty for the default one.
    pub exchange: ShortStr,
    /// The routing key it was published with.
    pub routing_key: ShortStr,
    /// Its properties, with its headers.
    pub properties: BasicProperties,
    /// Its body.
    pub body: Bytes,
}

impl Message {
    /// The record that this message is, with the time in milliseconds at which the broker took it. Its offset is 0.
    pub fn into_record(self, timestamp: i64) -> Record {
        let headers = headers_of(&self);
        Record { offset: 0, timestamp, key: None, value: Some(self.body), headers }
    }

    /// The priority of the message that a record is.
    pub(crate) fn priority_of(record: &Record) -> Option<u8> {
        let header = record.headers.iter().find(|header| header.key == PRIORITY)?;
        std::str::from_utf8(header.value.as_deref()?).ok()?.parse().ok()
    }

    /// The message that a record is. One that another protocol wrote is addressed to `queue`, from which it is read.
    /// Names of headers that are longer than a short string have no place in a message and are left out.
    pub fn from_record(record: Record, queue: &ShortStr) -> Message {
        let mut reading = Reading::default();
        for header in record.headers {
            reading.header(header);
        }
        let Reading { exchange, routing_key, mut properties, mut table, .. } = reading;
        if exchange.is_none() {
            if let Some(key) = record.key {
                table.get_or_insert_default().push(ShortStr::from_static(KAFKA_KEY), Value::LongStr(key));
            }
            let seconds = u64::try_from(record.timestamp).ok().map(|ms| ms / MS_PER_SECOND);
            properties.timestamp = properties.timestamp.or(seconds);
        }
        properties.headers = table;
        Message {
            routing_key: routing_key.unwrap_or_else(|| match exchange {
                Some(_) => ShortStr::new(),
                None => queue.clone(),
            }),
            exchange: exchange.unwrap_or_default(),
            properties,
            body: record.value.unwrap_or_default(),
        }
    }
}

fn headers_of(message: &Message) -> Vec<Header> {
    let properties = &message.properties;
    let texts = [
        (CONTENT_TYPE, &properties.content_type),
        (CONTENT_ENCODING, &properties.content_encoding),
        (CORRELATION_ID, &properties.correlation_id),
        (REPLY_TO, &properties.reply_to),
        (EXPIRATION, &properties.expiration),
        (MESSAGE_ID, &properties.message_id),
        (TYPE, &properties.message_type),
        (USER_ID, &properties.user_id),
        (APP_ID, &properties.app_id),
        (CLUSTER_ID, &properties.cluster_id),
    ];
    let numbers = [
        (DELIVERY_MODE, properties.delivery_mode.map(u64::from)),
        (PRIORITY, properties.priority.map(u64::from)),
        (TIMESTAMP, properties.timestamp),
    ];
    let own_count = 2
        + texts.iter().filter(|(_, text)| text.is_some()).count()
        + numbers.iter().filter(|(_, number)| number.is_some()).count();
    let table_count = properties.headers.as_ref().map_or(0, |table| table.len() + 1);

    let mut headers = Vec::with_capacity(own_count + table_count);
    headers.push(own(EXCHANGE, message.exchange.as_bytes().clone()));
    headers.push(own(ROUTING_KEY, message.routing_key.as_bytes().clone()));
    for (name, text) in texts {
        headers.extend(text.as_ref().map(|text| own(name, text.as_bytes().clone())));
    }
    for (name, number) in numbers {
        headers.extend(number.map(|number| own(name, digits(number))));
    }
    if let Some(table) = &properties.headers {
        table_headers(table, &mut headers);
    }
    headers
}

fn own(name: &'static str, value: Bytes) -> Header {
    Header { key: name.to_owned(), value: Some(value) }
}

/// The number in decimal digits; most have but one.
fn digits(number: u64) -> Bytes {
    const SMALL: &[u8; 10] = b"0123456789";
    match usize::try_from(number) {
        Ok(small) if small < SMALL.len() => Bytes::from_static(&SMALL[small..=small]),
        _ => Bytes::from(number.to_string()),
    }
}

fn table_headers(table: &Table, headers: &mut Vec<Header>) {
    if let Some(types) = types_of(table) {
        headers.push(own(TYPES, types));
    }
    for (name, value) in table {
        headers.push(match readable_name(name, value) {
            Some(name) => Header { key: name.to_owned(), value: text_of(value) },
            None => {
                let field: Table = [(name.clone(), value.clone())].into_iter().collect();
                own(FIELD, field.encode())
            }
        });
    }
}

/// What `amqp.types` says; `None` if there need not be one.
fn types_of(table: &Table) -> Option<Bytes> {
    let readable = || table.iter().filter(|(name, value)| readable_name(name, value).is_some());
    let is_plain = |value: &Value| matches!(value, Value::LongStr(_) | Value::Void);
    if !table.is_empty() && readable().all(|(_, value)| is_plain(value)) {
        return None;
    }
    Some(readable().map(|(_, value)| value.tag()).collect())
}

/// The name of the record header, if the field can be a readable one.
fn readable_name<'a>(name: &'a ShortStr, value: &Value) -> Option<&'a str> {
    let is_readable = match value {
        Value::Table(_) | Value::Array(_) | Value::Decimal(_) => false,
        Value::Float(number) => !number.is_nan(),
        Value::Double(number) => !number.is_nan(),
        _ => true,
    };
    name.as_str().filter(|name| is_readable && !name.starts_with(PREFIX))
}

/// What a readable header holds.
fn text_of(value: &Value) -> Option<Bytes> {
    Some(match value {
        Value::LongStr(bytes) | Value::Binary(bytes) => bytes.clone(),
        Value::Bool(true) => Bytes::from_static(b"true"),
        Value::Bool(false) => Bytes::from_static(b"false"),
        Value::Timestamp(seconds) => digits(*seconds),
        // The form that `Debug` gives is the one with an exponent where digits would be many.
        Value::Float(number) => Bytes::from(format!("{number:?}")),
        Value::Double(number) => Bytes::from(format!("{number:?}")),
        whole => Bytes::from(whole.as_i64()?.to_string()),
    })
}

/// The value with this tag that a readable header holds; a string if the text is nothing of the kind.
fn value_of(tag: u8, bytes: Option<Bytes>) -> Value {
    let Some(bytes) = bytes else { return Value::Void };
    if tag == b'S' {
        return Value::LongStr(bytes);
    }
    let text = std::str::from_utf8(&bytes).ok();
    match text.and_then(|text| scalar_of(tag, text)) {
        Some(scalar) => scalar,
        None if tag == b'x' => Value::Binary(bytes),
        None => Value::LongStr(bytes),
    }
}

fn scalar_of(tag: u8, text: &str) -> Option<Value> {
    match tag {
        b't' => text.parse().ok().map(Value::Bool),
        b'b' => text.parse().ok().map(Value::Int8),
        b'B' => text.parse().ok().map(Value::UInt8),
        b's' => text.parse().ok().map(Value::Int16),
        b'u' => text.parse().ok().map(Value::UInt16),
        b'I' => text.parse().ok().map(Value::Int32),
        b'i' => text.parse().ok().map(Value::UInt32),
        b'l' => text.parse().ok().map(Value::Int64),
        b'L' => text.parse().ok().map(Value::Int64CapitalL),
        b'T' => text.parse().ok().map(Value::Timestamp),
        b'f' => text.parse().ok().map(Value::Float),
        b'd' => text.parse().ok().map(Value::Double),
        _ => None,
    }
}

/// A message while the headers of its record are read.
#[derive(Debug, Default)]
struct Reading {
    exchange: Option<ShortStr>,
    routing_key: Option<ShortStr>,
    properties: BasicProperties,
    table: Option<Table>,
    /// What is left of `amqp.types`.
    types: Bytes,
}

impl Reading {
    fn header(&mut self, Header { key, value }: Header) {
        if !key.starts_with(PREFIX) {
            let tag = if self.types.is_empty() { b'S' } else { self.types.split_to(1)[0] };
            self.field(key, value_of(tag, value));
        } else if !self.own(&key, value.as_ref()) {
            self.field(key, value_of(b'S', value));
        }
    }

    fn field(&mut self, name: String, value: Value) {
        if let Ok(name) = ShortStr::try_from(name) {
            self.table.get_or_insert_default().push(name, value);
        }
    }

    /// Whether it is one of our own headers, and as it should be.
    fn own(&mut self, name: &str, value: Option<&Bytes>) -> bool {
        let Some(value) = value else { return false };
        let properties = &mut self.properties;
        match name {
            EXCHANGE => set_text(&mut self.exchange, value),
            ROUTING_KEY => set_text(&mut self.routing_key, value),
            CONTENT_TYPE => set_text(&mut properties.content_type, value),
            CONTENT_ENCODING => set_text(&mut properties.content_encoding, value),
            CORRELATION_ID => set_text(&mut properties.correlation_id, value),
            REPLY_TO => set_text(&mut properties.reply_to, value),
            EXPIRATION => set_text(&mut properties.expiration, value),
            MESSAGE_ID => set_text(&mut properties.message_id, value),
            TYPE => set_text(&mut properties.message_type, value),
            USER_ID => set_text(&mut properties.user_id, value),
            APP_ID => set_text(&mut properties.app_id, value),
            CLUSTER_ID => set_text(&mut properties.cluster_id, value),
            DELIVERY_MODE => set_number(&mut properties.delivery_mode, value),
            PRIORITY => set_number(&mut properties.priority, value),
            TIMESTAMP => set_number(&mut properties.timestamp, value),
            TYPES => {
                self.types = value.clone();
                self.table.get_or_insert_default();
                true
            }
            FIELD => match Table::decode(value.clone()) {
                Ok(fields) => {
                    self.table.get_or_insert_default().extend(fields);
                    true
                }
                Err(_) => false,
            },
            _ => false,
        }
    }
}

fn set_text(property: &mut Option<ShortStr>, value: &Bytes) -> bool {
    set(property, ShortStr::from_bytes(value.clone()).ok())
}

fn set_number<N: std::str::FromStr>(property: &mut Option<N>, value: &Bytes) -> bool {
    set(property, std::str::from_utf8(value).ok().and_then(|text| text.parse().ok()))
}

/// Sets the property if there is something to set it to, and says whether there was.
fn set<T>(property: &mut Option<T>, value: Option<T>) -> bool {
    let is_there = value.is_some();
    if is_there {
        *property = value;
    }
    is_there
}

#[cfg(test)]
mod tests;
