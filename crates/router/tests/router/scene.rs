//! Declarations and messages as lines of text. `tests/transcripts/README.md` lists them.

use std::fmt::Write;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use weir_model::routing::{ArgumentValue, Arguments, BindingMeta, Destination, ExchangeMeta};
use weir_router::{Removal, Route, Routed, Router};

use super::{Carried, binding, exchange, queue, queues};

/// A router, and how many lines changed it.
#[derive(Default)]
pub(super) struct Scene {
    router: Router,
    serial: u64,
    route: Route,
}

/// The words of one line: those without `=` in order, and those with it.
struct Words<'a> {
    line: &'a str,
    plain: Vec<&'a str>,
    named: Vec<(&'a str, &'a str)>,
}

impl<'a> Words<'a> {
    fn of(line: &'a str) -> Words<'a> {
        let (named, plain): (Vec<_>, Vec<_>) = line.split_whitespace().partition(|word| word.contains('='));
        let named = named.into_iter().filter_map(|word| word.split_once('=')).collect();
        Words { line, plain, named }
    }

    /// A word, of which `""` is the empty one.
    fn text(&self, at: usize) -> &'a str {
        match self.plain.get(at) {
            Some(&"\"\"") => "",
            Some(word) => word,
            None => panic!("word {at} is missing in '{}'", self.line),
        }
    }

    fn flag(&self, name: &str) -> bool {
        self.plain.contains(&name)
    }

    fn option(&self, name: &str) -> Option<&'a str> {
        self.named.iter().find(|(known, _)| *known == name).map(|(_, value)| *value)
    }

    fn list(&self, name: &str) -> Vec<&'a str> {
        self.option(name).map(|list| list.split(',').collect()).unwrap_or_default()
    }

    /// Named words as values; those of a message begin with `h.`, which is left out.
    fn values(&self, prefix: &str) -> Arguments {
        let named = self.named.iter().filter_map(|(name, text)| Some((name.strip_prefix(prefix)?, text)));
        named.map(|(name, text)| (name.to_owned(), value(text, self.line))).collect()
    }

    fn binding(&self) -> Arc<BindingMeta> {
        let destination = match self.text(2).strip_prefix('@') {
            Some(name) => Destination::Exchange(name.into()),
            None => queue(self.text(2)),
        };
        binding(self.text(1), destination, self.text(3), self.values(""))
    }
}

fn parse<T: FromStr>(text: &str, line: &str) -> T {
    text.parse().unwrap_or_else(|_| panic!("'{text}' in '{line}' is not what is expected there"))
}

/// `i:5`, `f:0.5`, `b:true`, `t:100`, `void`; anything else is a string.
fn value(text: &str, line: &str) -> ArgumentValue {
    match text.split_once(':') {
        Some(("i", number)) => ArgumentValue::Integer(parse(number, line)),
        Some(("f", number)) => ArgumentValue::float(parse(number, line)),
        Some(("b", flag)) => ArgumentValue::Bool(parse(flag, line)),
        Some(("t", seconds)) => ArgumentValue::Timestamp(parse(seconds, line)),
        _ if text == "void" => ArgumentValue::Void,
        _ => ArgumentValue::text(text),
    }
}

impl Scene {
    /// Does what a line says, and says what came of it.
    pub(super) fn run(&mut self, line: &str) -> String {
        let words = Words::of(line);
        self.serial += 1;
        match words.text(0) {
            "queue" => {
                words.plain[1..].iter().for_each(|name| self.router = self.router.with_queue(name));
                String::new()
            }
            "exchange" => self.declare(&words),
            "bind" => {
                let bound = self.router.with_binding(&words.binding(), self.serial);
                self.changed(bound.map_err(|error| error.to_string()))
            }
            "unbind" => self.removed(self.router.without_binding(&words.binding())),
            "delete-queue" => self.removed(self.router.without_queue(words.text(1))),
            "delete-exchange" => self.removed(self.router.without_exchange(words.text(1))),
            "publish" => self.publish(&words),
            "show" => self.show(),
            other => panic!("there is no command '{other}'"),
        }
    }

    fn declare(&mut self, words: &Words<'_>) -> String {
        let declared = exchange(words.text(1), words.text(2), words.values(""));
        let (auto_delete, internal) = (words.flag("auto-delete"), words.flag("internal"));
        let meta = ExchangeMeta { auto_delete, internal, ..(*declared).clone() };
        let changed = self.router.with_exchange(Arc::new(meta));
        self.changed(changed.map_err(|error| error.to_string()))
    }

    fn changed(&mut self, changed: Result<Router, String>) -> String {
        match changed {
            Ok(router) => {
                self.router = router;
                String::new()
            }
            Err(why) => format!("refused: {why}\n"),
        }
    }

    fn removed(&mut self, removal: Removal) -> String {
        self.router = removal.router;
        let mut out = String::new();
        for binding in removal.bindings {
            writeln!(out, "gone: {}", describe(&binding)).unwrap();
        }
        for exchange in removal.unused {
            writeln!(out, "unused: {}", exchange.name).unwrap();
        }
        if out.is_empty() { "nothing gone\n".into() } else { out }
    }

    fn publish(&mut self, words: &Words<'_>) -> String {
        let mut keys = vec![words.text(2).as_bytes()];
        keys.extend(words.list("cc").into_iter().map(str::as_bytes));
        let bytes = |name| words.option(name).map(|text| Bytes::copy_from_slice(text.as_bytes()));
        let carried = Carried {
            headers: words.values("h.").into_iter().map(|(name, value)| (Bytes::from(name), value)).collect(),
            message_id: bytes("message-id"),
            correlation_id: bytes("correlation-id"),
            timestamp: words.option("timestamp").map(|text| parse(text, words.line)),
        };
        let local = words.list("local");
        let message = Routed {
            properties: &carried,
            is_delayed: words.flag("delayed"),
            random: words.option("random").map_or(0, |text| parse(text, words.line)),
            is_local: &|queue: &str| local.contains(&queue),
            ..Routed::new(words.text(1), &keys)
        };
        let named = words.line.strip_prefix("publish ").unwrap_or_default();
        match self.router.route(&message, &mut self.route) {
            Ok(()) => format!("{named} -> {}\n", self.goes_to()),
            Err(error) => format!("{named} -> {error}\n"),
        }
    }

    fn goes_to(&self) -> String {
        let mut parts: Vec<String> = queues(&self.route).into_iter().collect();
        parts.extend(self.route.held_by().iter().map(|exchange| format!("(held by {exchange})")));
        if self.route.is_cut_short() {
            parts.push("(cut short)".into());
        }
        if parts.is_empty() { "nowhere".into() } else { parts.join(" ") }
    }

    fn show(&self) -> String {
        let mut out = String::new();
        for exchange in self.router.exchanges() {
            let internal = if exchange.internal { ", internal" } else { "" };
            writeln!(out, "{} is {}{internal}", exchange.name, exchange.kind).unwrap();
            for binding in self.router.bindings_from(&exchange.name) {
                writeln!(out, "  {}", describe(&binding)).unwrap();
            }
        }
        out
    }
}

fn describe(binding: &BindingMeta) -> String {
    let key = String::from_utf8_lossy(&binding.key);
    let names: Vec<&str> = binding.arguments.iter().map(|(name, _)| name.as_str()).collect();
    let arguments = if names.is_empty() { String::new() } else { format!(" with {}", names.join(", ")) };
    format!("{} to {} by '{key}'{arguments}", binding.source, binding.destination)
}
