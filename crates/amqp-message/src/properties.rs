//! What properties of a message say to the broker.

use weir_amqp_wire::{BasicProperties, ShortStr, Value};
use weir_broker::queues::FurtherKeys;

/// Header of a record that expires; see the broker's queues.
pub const EXPIRES_HEADER: &str = "weir.expires";

/// A header that names further routing keys is no list of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid value for header '{0}': it must be an array")]
pub struct NotAList(pub &'static str);

/// The further keys of a message, out of whose headers `BCC` is taken.
pub fn take_copies(properties: &mut BasicProperties) -> Result<FurtherKeys, NotAList> {
    let Some(headers) = &mut properties.headers else { return Ok(FurtherKeys::default()) };
    let mut found = FurtherKeys::default();
    for (name, keys) in [("CC", &mut found.copies), ("BCC", &mut found.blind)] {
        match headers.get(name) {
            None => {}
            Some(Value::Array(values)) => {
                keys.extend(values.iter().filter_map(|value| value.as_bytes().cloned()));
            }
            Some(_) => return Err(NotAList(name)),
        }
    }
    if headers.get("BCC").is_some() {
        *headers = headers.iter().filter(|(name, _)| *name != "BCC").cloned().collect();
    }
    Ok(found)
}

/// Milliseconds that a message may wait by its `expiration`; none if that is not a number.
pub fn expires_after(expiration: &ShortStr) -> Option<i64> {
    let digits = expiration.as_str()?;
    let all_digits = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    all_digits.then(|| digits.parse().ok()).flatten()
}
