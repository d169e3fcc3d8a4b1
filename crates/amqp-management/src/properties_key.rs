//! The name of a binding in a path, `properties_key`: its routing key and, behind a `~`, a hash of its arguments.
//! Without either it is `~`. What is in it is quoted once, and once more when it becomes a part of a path.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use weir_model::routing::{Arguments, BindingMeta};

use crate::erlang_hash;
use crate::json::{quote_plus, unquote_plus};

/// The name of a binding with this key and these arguments.
pub(crate) fn properties_key(key: &[u8], arguments: &Arguments) -> String {
    match (key.is_empty(), arguments.is_empty()) {
        (true, true) => "~".to_owned(),
        (false, true) => quote(key),
        (_, false) => format!("{}~{}", quote(key), quote(arguments_hash(arguments).as_bytes())),
    }
}

/// Whether a binding has this name.
pub(crate) fn is_named(binding: &BindingMeta, name: &str) -> bool {
    let (key, hash) = match name.split_once('~') {
        None => (name, ""),
        Some((key, hash)) => (key, hash),
    };
    if unquote_plus(key).as_bytes() != &binding.key[..] {
        return false;
    }
    match hash.is_empty() {
        true => binding.arguments.is_empty(),
        false => !binding.arguments.is_empty() && unquote_plus(hash) == arguments_hash(&binding.arguments),
    }
}

fn arguments_hash(arguments: &Arguments) -> String {
    URL_SAFE_NO_PAD.encode(erlang_hash::hash(arguments).to_be_bytes())
}

fn quote(text: &[u8]) -> String {
    quote_plus(text).replace('~', "%7E")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use weir_model::routing::{ArgumentValue, Destination};

    use super::*;

    fn binding(key: &'static str, arguments: Arguments) -> BindingMeta {
        let destination = Destination::Queue("q".into());
        BindingMeta::new("/".into(), "x".into(), destination, Bytes::from_static(key.as_bytes()), arguments)
    }

    fn name(binding: &BindingMeta) -> String {
        properties_key(&binding.key, &binding.arguments)
    }

    #[test]
    fn a_binding_is_found_by_its_name_and_no_other_is() {
        let argument = |value: i64| vec![("x".to_owned(), ArgumentValue::Integer(value))];
        let bindings = [
            binding("", Vec::new()),
            binding("", argument(1)),
            binding("key", Vec::new()),
            binding("key", argument(1)),
            binding("key", argument(2)),
            binding("a.b c/~%", Vec::new()),
            binding("a.b c/~%", argument(1)),
        ];
        assert_eq!(name(&bindings[0]), "~");
        assert_eq!(name(&bindings[2]), "key");
        assert_eq!(name(&bindings[5]), "a.b+c%2F%7E%25");
        for (index, one) in bindings.iter().enumerate() {
            for (other_index, other) in bindings.iter().enumerate() {
                assert_eq!(
                    is_named(other, &name(one)),
                    index == other_index,
                    "{} {}",
                    name(one),
                    name(other)
                );
            }
        }
        assert!(!is_named(&bindings[3], "key~"));
        assert!(!is_named(&bindings[3], "key~a~b"));
    }
}
