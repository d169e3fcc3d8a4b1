//! What properties of a message say to the broker.

use weir_amqp_wire::{BasicProperties, ShortStr, Value};
use weir_broker::queues::FurtherKeys;

/// Header of a record that expires; see the broker's queues.
pub const EXPIRES_HEADER: &str = "weir.expires";

/// Longest time that a message or a queue may be given, in milliseconds: ten years, as in RabbitMQ.
pub const EXPIRY_MS_MAX: i64 = weir_broker::topology::EXPIRY_MS_MAX;

/// A header that names further routing keys is no list of them; in RabbitMQ's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid message: {{unacceptable_type_in_header,\"{header}\",{found}}}")]
pub struct NotAList {
    /// Which header.
    pub header: &'static str,
    /// The type of its value.
    pub found: &'static str,
}

/// Why an `expiration` is none; in RabbitMQ's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidExpiration {
    /// It does not begin with a number.
    #[error("no_integer")]
    NoNumber,
    /// Something follows the number.
    #[error("{{leftover_string,\"{}\"}}", escaped(.0))]
    Leftover(String),
    /// The number is below zero.
    #[error("{{value_negative,{0}}}")]
    Negative(i128),
    /// The number is larger than [`EXPIRY_MS_MAX`].
    #[error("{{value_too_large,{0}}}")]
    TooLarge(i128),
}

fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}

/// The further keys of a message, out of whose headers `BCC` is taken.
pub fn take_copies(properties: &mut BasicProperties) -> Result<FurtherKeys, NotAList> {
    let Some(headers) = &mut properties.headers else { return Ok(FurtherKeys::default()) };
    let mut found = FurtherKeys::default();
    for (name, keys) in [("CC", &mut found.copies), ("BCC", &mut found.blind)] {
        match headers.get(name) {
            None => {}
            Some(Value::Array(values)) => {
                let texts = values.iter().filter_map(|value| match value {
                    Value::LongStr(key) => Some(key.clone()),
                    _ => None,
                });
                keys.extend(texts);
            }
            Some(other) => return Err(NotAList { header: name, found: other.type_name() }),
        }
    }
    if headers.get("BCC").is_some() {
        *headers = headers.iter().filter(|(name, _)| *name != "BCC").cloned().collect();
    }
    Ok(found)
}

/// Milliseconds that a message may wait by its `expiration`; none if that is no time.
pub fn expires_after(expiration: &ShortStr) -> Option<i64> {
    expiration_ms(expiration).ok()
}

/// Milliseconds that an `expiration` says. A number may have a sign, and nothing may follow it.
pub fn expiration_ms(expiration: &ShortStr) -> Result<i64, InvalidExpiration> {
    let text = expiration.to_string_lossy();
    let signed = text.strip_prefix(['+', '-']).unwrap_or(&text);
    let rest = signed.trim_start_matches(|letter: char| letter.is_ascii_digit());
    let digits = &signed[..signed.len() - rest.len()];
    if digits.is_empty() {
        return Err(InvalidExpiration::NoNumber);
    }
    if !rest.is_empty() {
        return Err(InvalidExpiration::Leftover(rest.to_owned()));
    }
    let number: i128 = digits.parse().unwrap_or(i128::MAX);
    match (text.starts_with('-'), i64::try_from(number)) {
        (true, _) if number > 0 => Err(InvalidExpiration::Negative(-number)),
        (_, Ok(ms)) if ms <= EXPIRY_MS_MAX => Ok(ms),
        _ => Err(InvalidExpiration::TooLarge(number)),
    }
}

#[cfg(test)]
mod tests {
    use weir_amqp_wire::Table;

    use super::*;

    #[test]
    fn an_expiration_is_a_number_or_is_refused_in_words() {
        let check = |text: &'static str, expected: Result<i64, &str>| {
            let read = expiration_ms(&ShortStr::from_static(text)).map_err(|error| error.to_string());
            assert_eq!(read, expected.map_err(str::to_owned), "{text}");
        };
        check("0", Ok(0));
        check("600000", Ok(600_000));
        check("+5", Ok(5));
        check("007", Ok(7));
        check("-0", Ok(0));
        check("315360000000", Ok(EXPIRY_MS_MAX));
        check("315360000001", Err("{value_too_large,315360000001}"));
        check("-1", Err("{value_negative,-1}"));
        check("1.5", Err("{leftover_string,\".5\"}"));
        check("5\"", Err("{leftover_string,\"\\\"\"}"));
        for nothing in ["", "soon", " 5", "-", "+-5"] {
            check(nothing, Err("no_integer"));
        }
    }

    #[test]
    fn further_keys_are_lists_of_texts() {
        let of = |value: Value| {
            let headers = Some(Table::new().with("BCC", value));
            take_copies(&mut BasicProperties { headers, ..BasicProperties::default() })
        };
        let keys = of(Value::Array(vec![Value::from("a"), Value::Int32(1), Value::from("")])).unwrap();
        assert_eq!(keys.blind, ["a", ""]);
        let words = of(Value::from("a")).unwrap_err().to_string();
        assert_eq!(words, "invalid message: {unacceptable_type_in_header,\"BCC\",longstr}");
    }
}
