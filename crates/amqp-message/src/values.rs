//! Between AMQP's tables as they come over the wire and as they are stored.

use bytes::Bytes;
use weir_amqp_wire::{BasicProperties, Decimal, Table, Value};
use weir_model::routing::{ArgumentValue, Arguments};
use weir_router::Properties;

/// A value as it is stored. Widths of numbers are forgotten: nothing that is stored depends on them.
pub fn argument(value: &Value) -> ArgumentValue {
    match value {
        Value::Void => ArgumentValue::Void,
        Value::Bool(value) => ArgumentValue::Bool(*value),
        Value::Timestamp(seconds) => ArgumentValue::Timestamp(*seconds),
        Value::Float(number) => ArgumentValue::float(f64::from(*number)),
        Value::Double(number) => ArgumentValue::float(*number),
        Value::LongStr(bytes) | Value::Binary(bytes) => ArgumentValue::Bytes(bytes.clone()),
        Value::Decimal(Decimal { scale, value }) => ArgumentValue::Decimal { scale: *scale, digits: *value },
        Value::Array(values) => ArgumentValue::List(values.iter().map(argument).collect()),
        Value::Table(table) => ArgumentValue::Table(arguments(table)),
        whole => match (whole.as_i64(), whole.as_f64()) {
            (Some(number), _) => ArgumentValue::Integer(number),
            (None, Some(number)) => ArgumentValue::float(number),
            (None, None) => ArgumentValue::Void,
        },
    }
}

/// A table as it is stored. Names that are not UTF-8 can mean nothing and are left out.
pub fn arguments(table: &Table) -> Arguments {
    let named = table.iter().filter_map(|(name, value)| Some((name.as_str()?.to_owned(), argument(value))));
    named.collect()
}

/// What routing asks of a message.
#[derive(Debug)]
pub struct Asked<'m> {
    properties: &'m BasicProperties,
    headers: std::cell::OnceCell<Vec<(Bytes, ArgumentValue)>>,
}

impl<'m> Asked<'m> {
    /// What is asked of a message with these properties.
    pub fn new(properties: &'m BasicProperties) -> Asked<'m> {
        Asked { properties, headers: std::cell::OnceCell::new() }
    }
}

impl Properties for Asked<'_> {
    fn headers(&self) -> &[(Bytes, ArgumentValue)] {
        self.headers.get_or_init(|| {
            let table = self.properties.headers.iter().flat_map(Table::iter);
            table.map(|(name, value)| (name.as_bytes().clone(), argument(value))).collect()
        })
    }

    fn message_id(&self) -> Option<&[u8]> {
        self.properties.message_id.as_ref().map(|text| &text.as_bytes()[..])
    }

    fn correlation_id(&self) -> Option<&[u8]> {
        self.properties.correlation_id.as_ref().map(|text| &text.as_bytes()[..])
    }

    fn timestamp(&self) -> Option<u64> {
        self.properties.timestamp
    }
}
