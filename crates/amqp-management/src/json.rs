//! Tables, properties and bodies as JSON, and back; by RabbitMQ's rules.
//!
//! JSON has fewer types than AMQP: whole numbers become 64 bits wide, fractions doubles, and there is no way to
//! write a timestamp or bytes in a table. Text that is not UTF-8 is shown with the replacement character.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};
use weir_amqp_wire::{BasicProperties, ShortStr, Table, Value as Field};
use weir_model::routing::{ArgumentValue, Arguments};

use crate::failure::{Failure, Result};

/// Text in which spaces are `+`, as in forms.
pub(crate) fn unquote_plus(text: &str) -> String {
    unquote(&text.replace('+', " "))
}

/// A part of a path or a query without its percent signs.
pub(crate) fn unquote(text: &str) -> String {
    percent_decode_str(text).decode_utf8_lossy().into_owned()
}

/// Text for a path, as RabbitMQ writes it: a space is `+`.
pub(crate) fn quote_plus(text: &[u8]) -> String {
    let mut quoted = String::with_capacity(text.len());
    for byte in text {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'~' | b'_' => {
                quoted.push(char::from(*byte))
            }
            b' ' => quoted.push('+'),
            other => quoted.push_str(&format!("%{other:02X}")),
        }
    }
    quoted
}

/// Bytes that are text, mostly.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Arguments as an object.
pub(crate) fn from_arguments(arguments: &Arguments) -> Value {
    // The first of a name counts.
    let mut object = Map::new();
    for (name, value) in arguments {
        object.entry(name.clone()).or_insert_with(|| from_argument(value));
    }
    Value::Object(object)
}

fn from_argument(value: &ArgumentValue) -> Value {
    match value {
        ArgumentValue::Void => Value::Null,
        ArgumentValue::Bool(truth) => json!(truth),
        ArgumentValue::Integer(number) => json!(number),
        ArgumentValue::Float(bits) => json!(f64::from_bits(*bits)),
        ArgumentValue::Bytes(bytes) => json!(text(bytes)),
        ArgumentValue::Timestamp(seconds) => json!(seconds),
        ArgumentValue::Decimal { scale, digits } => {
            json!(f64::from(*digits) / 10f64.powi(i32::from(*scale)))
        }
        ArgumentValue::List(values) => values.iter().map(from_argument).collect(),
        ArgumentValue::Table(table) => from_arguments(table),
    }
}

/// The arguments in an object under this name. RabbitMQ takes an empty array for an empty object.
pub(crate) fn arguments(object: &Map<String, Value>, name: &str) -> Result<Arguments> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(Arguments::new()),
        Some(Value::Array(values)) if values.is_empty() => Ok(Arguments::new()),
        Some(Value::Object(table)) => to_arguments(table),
        Some(_) => Err(Failure::bad_request(format!("'{name}' must be an object"))),
    }
}

fn to_arguments(table: &Map<String, Value>) -> Result<Arguments> {
    table.iter().map(|(name, value)| Ok((name.clone(), to_argument(value)?))).collect()
}

fn to_argument(value: &Value) -> Result<ArgumentValue> {
    Ok(match value {
        Value::Null => return Err(null_not_allowed()),
        Value::Bool(truth) => ArgumentValue::Bool(*truth),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => ArgumentValue::Integer(whole),
            (None, Some(fraction)) if !number.is_u64() => ArgumentValue::float(fraction),
            _ => return Err(too_large(number)),
        },
        Value::String(text) => ArgumentValue::text(text.clone()),
        Value::Array(values) => ArgumentValue::List(values.iter().map(to_argument).collect::<Result<_>>()?),
        Value::Object(table) => ArgumentValue::Table(to_arguments(table)?),
    })
}

fn null_not_allowed() -> Failure {
    Failure::bad_request("null_not_allowed")
}

fn too_large(number: &serde_json::Number) -> Failure {
    Failure::bad_request(format!("{number} is too large for a table"))
}

/// A flag: JSON's, or the word, as RabbitMQ takes it.
pub(crate) fn flag(object: &Map<String, Value>, name: &str) -> Result<bool> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(truth)) => Ok(*truth),
        Some(Value::String(word)) if word == "true" => Ok(true),
        Some(Value::String(word)) if word == "false" => Ok(false),
        Some(other) => Err(Failure::bad_request(format!("'{name}' must be true or false, not {other}"))),
    }
}

/// A text that must be there.
pub(crate) fn need_text<'o>(object: &'o Map<String, Value>, name: &str) -> Result<&'o str> {
    match object.get(name) {
        None => Err(missing(name)),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(Failure::bad_request(format!("'{name}' must be a string"))),
    }
}

/// A text that may be absent.
pub(crate) fn some_text<'o>(object: &'o Map<String, Value>, name: &str) -> Result<Option<&'o str>> {
    match object.get(name) {
        None | Some(Value::Null) => Ok(None),
        Some(_) => need_text(object, name).map(Some),
    }
}

/// Words: an array of them, or a text with commas between them, as RabbitMQ takes both.
pub(crate) fn words(object: &Map<String, Value>, name: &str) -> Result<Vec<String>> {
    let wrong = || Failure::bad_request(format!("'{name}' must be an array of strings, or a string"));
    match object.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(text)) => {
            let words = text.split(',').map(str::trim).filter(|word| !word.is_empty());
            Ok(words.map(str::to_owned).collect())
        }
        Some(Value::Array(words)) => {
            words.iter().map(|word| word.as_str().map(str::to_owned).ok_or_else(wrong)).collect()
        }
        Some(_) => Err(wrong()),
    }
}

/// A whole number that must be there, in digits or in a string of digits.
pub(crate) fn need_number(object: &Map<String, Value>, name: &str) -> Result<u64> {
    let value = object.get(name).ok_or_else(|| missing(name))?;
    let number = match value {
        Value::String(digits) => digits.parse().ok(),
        number => number.as_u64(),
    };
    number.ok_or_else(|| Failure::bad_request(format!("'{name}' must be a whole number, not {value}")))
}

fn missing(name: &str) -> Failure {
    Failure::bad_request(format!("the key '{name}' is missing"))
}

/// A body as text where it is UTF-8, and in base64 otherwise, or always.
pub(crate) fn from_payload(body: &[u8], always_base64: bool) -> (String, &'static str) {
    match std::str::from_utf8(body) {
        Ok(text) if !always_base64 => (text.to_owned(), "string"),
        _ => (STANDARD.encode(body), "base64"),
    }
}

/// The body that a payload of this encoding is.
pub(crate) fn to_payload(payload: &str, encoding: &str) -> Result<Bytes> {
    match encoding {
        "string" => Ok(Bytes::copy_from_slice(payload.as_bytes())),
        "base64" => match STANDARD.decode(payload) {
            Ok(body) => Ok(body.into()),
            Err(error) => Err(Failure::bad_request(format!("the payload is not base64: {error}"))),
        },
        other => {
            Err(Failure::bad_request(format!("unsupported payload_encoding '{other}': use string or base64")))
        }
    }
}

/// Properties that a message has, as an object.
pub(crate) fn from_properties(properties: &BasicProperties) -> Value {
    let mut object = Map::new();
    let texts = [
        ("content_type", &properties.content_type),
        ("content_encoding", &properties.content_encoding),
        ("correlation_id", &properties.correlation_id),
        ("reply_to", &properties.reply_to),
        ("expiration", &properties.expiration),
        ("message_id", &properties.message_id),
        ("type", &properties.message_type),
        ("user_id", &properties.user_id),
        ("app_id", &properties.app_id),
        ("cluster_id", &properties.cluster_id),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            object.insert(name.into(), json!(value.to_string_lossy()));
        }
    }
    let numbers = [
        ("delivery_mode", properties.delivery_mode.map(u64::from)),
        ("priority", properties.priority.map(u64::from)),
        ("timestamp", properties.timestamp),
    ];
    for (name, value) in numbers {
        if let Some(value) = value {
            object.insert(name.into(), json!(value));
        }
    }
    if let Some(headers) = &properties.headers {
        object.insert("headers".into(), from_table(headers));
    }
    Value::Object(object)
}

fn from_table(table: &Table) -> Value {
    let mut object = Map::new();
    for (name, value) in table {
        object.entry(name.to_string_lossy().into_owned()).or_insert_with(|| from_field(value));
    }
    Value::Object(object)
}

fn from_field(field: &Field) -> Value {
    match field {
        Field::Void => Value::Null,
        Field::Bool(truth) => json!(truth),
        Field::Float(number) => json!(number),
        Field::Double(number) => json!(number),
        Field::Decimal(decimal) => json!(f64::from(decimal.value) / 10_f64.powi(i32::from(decimal.scale))),
        Field::LongStr(bytes) | Field::Binary(bytes) => json!(text(bytes)),
        Field::Timestamp(seconds) => json!(seconds),
        Field::Table(table) => from_table(table),
        Field::Array(values) => values.iter().map(from_field).collect(),
        whole => json!(whole.as_i64()),
    }
}

/// The properties that an object says a message has.
pub(crate) fn to_properties(value: &Value) -> Result<BasicProperties> {
    let nothing = Map::new();
    let object = match value {
        Value::Object(object) => object,
        Value::Array(values) if values.is_empty() => &nothing,
        _ => return Err(Failure::bad_request("'properties' must be an object")),
    };
    let text = |name: &str| match object.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => short(name, text).map(Some),
        Some(_) => Err(Failure::bad_request(format!("the property '{name}' must be a string"))),
    };
    let number = |name: &str, most: u64| match object.get(name) {
        None => Ok(None),
        Some(value) => match value.as_u64().filter(|number| *number <= most) {
            Some(number) => Ok(Some(number)),
            None => Err(Failure::bad_request(format!(
                "the property '{name}' must be a whole number of at most {most}"
            ))),
        },
    };
    let octet = |name: &str| {
        let number = number(name, u8::MAX.into())?;
        Ok::<_, Failure>(number.and_then(|number| u8::try_from(number).ok()))
    };
    let headers = match object.get("headers") {
        None => None,
        Some(Value::Array(values)) if values.is_empty() => Some(Table::new()),
        Some(Value::Object(headers)) => Some(to_table(headers)?),
        Some(_) => return Err(Failure::bad_request("the property 'headers' must be an object")),
    };
    Ok(BasicProperties {
        content_type: text("content_type")?,
        content_encoding: text("content_encoding")?,
        headers,
        delivery_mode: octet("delivery_mode")?,
        priority: octet("priority")?,
        correlation_id: text("correlation_id")?,
        reply_to: text("reply_to")?,
        expiration: text("expiration")?,
        message_id: text("message_id")?,
        timestamp: number("timestamp", u64::MAX)?,
        message_type: text("type")?,
        user_id: text("user_id")?,
        app_id: text("app_id")?,
        cluster_id: text("cluster_id")?,
    })
}

/// A text that AMQP has to carry as a short string.
pub(crate) fn short(name: &str, text: &str) -> Result<ShortStr> {
    let too_long = |_| Failure::bad_request(format!("'{name}' is longer than 255 bytes"));
    ShortStr::try_from(text.to_owned()).map_err(too_long)
}

fn to_table(object: &Map<String, Value>) -> Result<Table> {
    let mut table = Table::new();
    for (name, value) in object {
        table.push(short(name, name)?, to_field(value)?);
    }
    Ok(table)
}

fn to_field(value: &Value) -> Result<Field> {
    Ok(match value {
        Value::Null => return Err(null_not_allowed()),
        Value::Bool(truth) => Field::Bool(*truth),
        Value::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(whole), _) => Field::Int64(whole),
            (None, Some(fraction)) if !number.is_u64() => Field::Double(fraction),
            _ => return Err(too_large(number)),
        },
        Value::String(text) => Field::LongStr(Bytes::copy_from_slice(text.as_bytes())),
        Value::Array(values) => Field::Array(values.iter().map(to_field).collect::<Result<_>>()?),
        Value::Object(object) => Field::Table(to_table(object)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn arguments_come_back_as_they_were_written() {
        let written = json!({ "x": {
            "text": "grün", "whole": -5, "fraction": 0.5, "yes": true,
            "list": [1, "two", {"three": []}], "table": {"a": {"b": "c"}},
        }});
        assert_eq!(from_arguments(&arguments(&object(written.clone()), "x").unwrap()), written["x"]);
        for empty in [json!({}), json!({"x": null}), json!({"x": []}), json!({"x": {}})] {
            assert_eq!(arguments(&object(empty), "x"), Ok(Vec::new()));
        }
        for wrong in
            [json!({"x": "a"}), json!({"x": [1]}), json!({"x": {"a": null}}), json!({"x": {"a": u64::MAX}})]
        {
            assert!(arguments(&object(wrong), "x").is_err());
        }
    }

    #[test]
    fn arguments_of_other_types_can_be_shown() {
        let arguments = vec![
            ("void".to_owned(), ArgumentValue::Void),
            ("time".to_owned(), ArgumentValue::Timestamp(7)),
            ("bytes".to_owned(), ArgumentValue::Bytes(Bytes::from_static(b"a\xff"))),
            ("twice".to_owned(), ArgumentValue::Integer(1)),
            ("twice".to_owned(), ArgumentValue::Integer(2)),
            ("nan".to_owned(), ArgumentValue::float(f64::NAN)),
        ];
        let shown = json!({"void": null, "time": 7, "bytes": "a\u{fffd}", "twice": 1, "nan": null});
        assert_eq!(from_arguments(&arguments), shown);
    }

    #[test]
    fn properties_come_back_as_they_were_written() {
        let written = json!({
            "content_type": "text/plain", "content_encoding": "utf-8", "delivery_mode": 2, "priority": 9,
            "correlation_id": "c", "reply_to": "r", "expiration": "1000", "message_id": "m", "timestamp": 5,
            "type": "t", "user_id": "guest", "app_id": "a", "cluster_id": "x",
            "headers": {"text": "a", "number": 1, "fraction": 1.5, "list": [true, {"deep": "b"}]},
        });
        assert_eq!(from_properties(&to_properties(&written).unwrap()), written);
        assert_eq!(to_properties(&json!([])), Ok(BasicProperties::default()));
        for wrong in [
            json!("x"),
            json!({"priority": "high"}),
            json!({"priority": 256}),
            json!({"timestamp": "recently"}),
            json!({"expiration": 1234}),
            json!({"type": "x".repeat(256)}),
            json!({"headers": {"a": null}}),
            json!({"headers": 1}),
        ] {
            assert!(to_properties(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_payload_is_text_or_base64() {
        assert_eq!(from_payload("ü".as_bytes(), false), ("ü".to_owned(), "string"));
        assert_eq!(from_payload("ü".as_bytes(), true), ("w7w=".to_owned(), "base64"));
        assert_eq!(from_payload(b"\xff", false), ("/w==".to_owned(), "base64"));
        assert_eq!(to_payload("YWJjZA==", "base64").unwrap(), "abcd");
        assert_eq!(to_payload("abcd", "string").unwrap(), "abcd");
        assert!(to_payload("flibble", "base64").is_err());
        assert!(to_payload("abcd", "base99").is_err());
    }

    #[test]
    fn flags_and_numbers_may_be_words() {
        let given = object(json!({"a": true, "b": "false", "c": "troo", "n": "12", "m": 3, "o": -1}));
        assert_eq!(
            (flag(&given, "a"), flag(&given, "b"), flag(&given, "z")),
            (Ok(true), Ok(false), Ok(false))
        );
        assert!(flag(&given, "c").is_err());
        assert_eq!((need_number(&given, "n"), need_number(&given, "m")), (Ok(12), Ok(3)));
        assert!(need_number(&given, "o").is_err() && need_number(&given, "z").is_err());
    }

    #[test]
    fn paths_are_quoted_as_rabbitmq_quotes_them() {
        assert_eq!(quote_plus("a b/ü~.-_".as_bytes()), "a+b%2F%C3%BC~.-_");
        assert_eq!(unquote_plus(&quote_plus("a b+/ü~".as_bytes())), "a b+/ü~");
        assert_eq!(unquote("a+b%2"), "a+b%2");
    }
}
