//! Which messages of a stream a consumer wants, by the value that their publisher gave them.
//!
//! RabbitMQ leaves out chunks in which no message has such a value, so that its clients must look once more; here only
//! messages that match are delivered, which they do not notice.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use weir_amqp_message::message_of;
use weir_amqp_wire::{ShortStr, Table, Value};
use weir_broker::streams::RecordFilter;
use weir_model::batch::Record;

use crate::errors::Failure;

/// The header by which a publisher gives a message its value.
const VALUE: &str = "x-stream-filter-value";

/// The argument of a consumer: one value or several.
const WANTED: &str = "x-stream-filter";

/// The argument of a consumer that also wants messages without a value.
const UNFILTERED: &str = "x-stream-match-unfiltered";

/// What a consumer of a stream wants; none if that is everything.
pub(super) fn filter(arguments: &Table, name: &ShortStr, of: &str) -> Result<Option<RecordFilter>, Failure> {
    let invalid = |name: &str| Failure::precondition(format!("invalid arg '{name}' for {of}"));
    let Some(value) = arguments.get(WANTED) else { return Ok(None) };
    let one = |value: &Value| value.as_bytes().cloned().ok_or_else(|| invalid(WANTED));
    let wanted: BTreeSet<Bytes> = match value {
        Value::Array(values) => values.iter().map(one).collect::<Result<_, _>>()?,
        value => [one(value)?].into(),
    };
    let unfiltered = match arguments.get(UNFILTERED) {
        None => false,
        Some(value) => value.as_bool().ok_or_else(|| invalid(UNFILTERED))?,
    };
    let name = name.clone();
    Ok(Some(Arc::new(move |record: &Record| match value_of(record, &name) {
        Some(value) => wanted.contains(&value),
        None => unfiltered,
    })))
}

fn value_of(record: &Record, name: &ShortStr) -> Option<Bytes> {
    let headers = message_of(record.clone(), name).properties.headers?;
    headers.get(VALUE)?.as_bytes().cloned()
}
