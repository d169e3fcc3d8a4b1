//! The hash by which RabbitMQ names the arguments of a binding: Erlang's `phash2` of the table, as a term. It is the
//! same on every version of Erlang and on every machine, so that a name made by one broker is good for another.
//!
//! A table is a list of `{Name, Type, Value}`, where names are binaries and types atoms.

use weir_model::routing::{ArgumentValue, Arguments};

/// The golden ratio, multiples of which tell terms of different types apart.
const RATIO: u32 = 0x9e37_79b9;

const fn ratio(times: u32) -> u32 {
    RATIO.wrapping_mul(times)
}

/// What stands for the end of a list.
const NIL: u32 = 2;

/// The hash of a table alone that is empty.
const NIL_ALONE: u32 = 3_468_870_702;

/// Whole numbers from here on are hashed as large ones.
const SMALL_BITS: u32 = 27;

/// `phash2` of arguments, over its whole range.
pub(crate) fn hash(arguments: &Arguments) -> u32 {
    if arguments.is_empty() {
        return NIL_ALONE;
    }
    let mut hash = Hash(0);
    hash.table(arguments);
    hash.0
}

/// A hash that terms are mixed into, one after the other.
struct Hash(u32);

impl Hash {
    fn table(&mut self, arguments: &Arguments) {
        for (name, value) in arguments {
            self.tuple(3);
            self.binary(name.as_bytes());
            self.typed(value);
        }
        self.pair(NIL, 0, ratio(2));
    }

    /// The name of the type, and the value.
    fn typed(&mut self, value: &ArgumentValue) {
        match value {
            ArgumentValue::Void => {
                self.atom("void");
                self.atom("undefined");
            }
            ArgumentValue::Bool(truth) => {
                self.atom("bool");
                self.atom(if *truth { "true" } else { "false" });
            }
            ArgumentValue::Integer(number) => {
                self.atom("long");
                self.integer(i128::from(*number));
            }
            ArgumentValue::Float(bits) => {
                self.atom("double");
                self.float(*bits);
            }
            ArgumentValue::Bytes(bytes) => {
                self.atom("longstr");
                self.binary(bytes);
            }
            ArgumentValue::Timestamp(seconds) => {
                self.atom("timestamp");
                self.integer(i128::from(*seconds));
            }
            ArgumentValue::Decimal { scale, digits } => {
                self.atom("decimal");
                self.tuple(2);
                self.integer(i128::from(*scale));
                self.integer(i128::from(*digits));
            }
            ArgumentValue::List(values) => {
                self.atom("array");
                for value in values {
                    self.tuple(2);
                    self.typed(value);
                }
                self.pair(NIL, 0, ratio(2));
            }
            ArgumentValue::Table(table) => {
                self.atom("table");
                self.table(table);
            }
        }
    }

    fn tuple(&mut self, arity: u32) {
        self.pair(arity, 0, ratio(9));
    }

    fn atom(&mut self, name: &str) {
        self.pair(atom_hash(name), 0, ratio(3));
    }

    fn integer(&mut self, number: i128) {
        let magnitude = number.unsigned_abs();
        let (low, high) = (magnitude as u32, (magnitude >> 32) as u32);
        if (-(1 << SMALL_BITS)..1 << SMALL_BITS).contains(&number) {
            let number = number as i32;
            if number < 0 {
                self.pair(number.unsigned_abs(), 0, RATIO);
            }
            self.pair(number.cast_unsigned(), 0, RATIO);
        } else {
            self.pair(low, high, ratio(if number < 0 { 10 } else { 11 }));
        }
    }

    fn float(&mut self, bits: u64) {
        // Both zeros are one.
        let bits = if f64::from_bits(bits) == 0.0 { 0 } else { bits };
        self.pair((bits >> 32) as u32, bits as u32, ratio(12));
    }

    fn binary(&mut self, bytes: &[u8]) {
        let start = ratio(13).wrapping_add(self.0);
        self.0 = if bytes.is_empty() { start } else { block_hash(bytes, start) };
    }

    fn pair(&mut self, first: u32, second: u32, kind: u32) {
        let (_, _, hash) = mix(kind.wrapping_add(first), kind.wrapping_add(second), self.0);
        self.0 = hash;
    }
}

/// Bob Jenkins' hash of 1996, of three words.
fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 13);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 8);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 13);
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 12);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 16);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 5);
    a = a.wrapping_sub(b).wrapping_sub(c) ^ (c >> 3);
    b = b.wrapping_sub(c).wrapping_sub(a) ^ (a << 10);
    c = c.wrapping_sub(a).wrapping_sub(b) ^ (b >> 15);
    (a, b, c)
}

/// The same, of bytes.
fn block_hash(bytes: &[u8], start: u32) -> u32 {
    let word =
        |bytes: &[u8]| bytes.iter().rev().fold(0_u32, |word, byte| word.wrapping_shl(8) | u32::from(*byte));
    let (mut a, mut b, mut c) = (RATIO, RATIO, start);
    let (blocks, rest) = bytes.as_chunks::<12>();
    for block in blocks {
        (a, b, c) = mix(
            a.wrapping_add(word(&block[..4])),
            b.wrapping_add(word(&block[4..8])),
            c.wrapping_add(word(&block[8..])),
        );
    }
    let part = |from: usize, to: usize| word(&rest[from.min(rest.len())..to.min(rest.len())]);
    a = a.wrapping_add(part(0, 4));
    b = b.wrapping_add(part(4, 8));
    // The lowest byte of the last word is the length's.
    c = c.wrapping_add(bytes.len() as u32).wrapping_add(part(8, 11) << 8);
    mix(a, b, c).2
}

/// P. J. Weinberger's hash, of an atom's name.
fn atom_hash(name: &str) -> u32 {
    name.bytes().fold(0, |hash, byte| {
        let hash = (hash << 4) + u32::from(byte);
        let high = hash & 0xf000_0000;
        (hash ^ (high >> 24)) ^ high
    })
}

#[cfg(test)]
mod tests {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use serde_json::json;

    use super::*;

    /// What RabbitMQ 3.10.8 calls bindings with these arguments.
    #[test]
    fn arguments_have_the_hash_that_rabbitmq_gives_them() {
        let known = [
            (json!({"foo": "bar"}), "lwiNYA"),
            (json!({"a": 0}), "sAeYDw"),
            (json!({"a": 1}), "Ajat_Q"),
            (json!({"a": -1}), "ElVmZA"),
            (json!({"a": -134_217_728}), "qcwLvg"),
            (json!({"a": 134_217_727}), "rEKsPQ"),
            (json!({"a": 134_217_728}), "b_w2HQ"),
            (json!({"a": -134_217_729}), "VfHuLA"),
            (json!({"a": 1_099_511_627_776_i64}), "B_0fhA"),
            (json!({"a": -1_099_511_627_776_i64}), "dCVosQ"),
            (json!({"a": i64::MAX}), "vTONBA"),
            (json!({"a": true}), "a2lJKQ"),
            (json!({"a": false}), "jVo0GA"),
            (json!({"a": 0.5}), "0L2aaw"),
            (json!({"a": -1.5e300}), "88k8zQ"),
            (json!({"a": ""}), "ZkKYww"),
            (json!({"a": "xxxxxxxxxxx"}), "RbycsA"),
            (json!({"a": "xxxxxxxxxxxx"}), "bnsTQA"),
            (json!({"a": "xxxxxxxxxxxxx"}), "_UavoA"),
            (json!({"a": "grün"}), "7EgBsw"),
            (json!({"b": "2", "a": "1"}), "DRJqbA"),
            (json!({"a": [1, "two", true, []]}), "jhpFpA"),
            (json!({"a": {"b": {"c": 1}}}), "sJOChA"),
            (json!({"a": [], "b": {}}), "VrIZIg"),
            (json!({"x-match": "any", "h1": 5, "h2": "v"}), "RosiIA"),
        ];
        for (arguments, expected) in known {
            let object = json!({ "arguments": arguments });
            let stored = crate::json::arguments(object.as_object().unwrap(), "arguments").unwrap();
            assert_eq!(URL_SAFE_NO_PAD.encode(hash(&stored).to_be_bytes()), expected, "{arguments}");
        }
    }
}
