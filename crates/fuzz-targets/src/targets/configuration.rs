//! The configuration file, the environment and the flags: any text gives settings or one sentence.

use std::path::Path;

use weir::config::keys::{KEYS, variable};
use weir::config::{ConfigError, Endpoint, Settings, sources};

/// The first byte says which source the rest stands in.
pub fn run(data: &[u8]) {
    let Some((source, text)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(text);
    let layer = match source % 4 {
        0 => sources::file(Path::new("weir.toml"), &text),
        1 => sources::environment(pairs(&text).map(|(name, value)| (format!("WEIR_{name}"), value))),
        2 => Ok(sources::flags(pairs(&text).map(|(name, value)| (name, vec![value])))),
        _ => {
            if let Ok(endpoint) = Endpoint::parse(&text) {
                assert!(!endpoint.host.is_empty());
            }
            return;
        }
    };
    match layer.and_then(|layer| Settings::resolve(&[layer])) {
        Ok(settings) => assert_eq!(settings.iter().count(), KEYS.len()),
        Err(error) => check_sentence(&error, &text),
    }
}

/// A sentence stands on one line, unless what it quotes does not.
fn check_sentence(error: &ConfigError, text: &str) {
    let sentence = error.to_string();
    assert!(!sentence.is_empty());
    let quotes_lines = text.contains(['\n', '\\']);
    assert!(quotes_lines || !sentence.contains('\n'), "{sentence}");
}

fn pairs(text: &str) -> impl Iterator<Item = (String, String)> {
    text.lines().filter_map(|line| line.split_once('=')).map(|(a, b)| (a.to_owned(), b.to_owned()))
}

pub fn seeds() -> Vec<Vec<u8>> {
    let file: String = KEYS.iter().map(|key| format!("{} = '{}'\n", key.name, key.default)).collect();
    let nested = "[log.retention]\nhours = 72\n[log.segment]\nbytes = \"64MiB\"\n".to_owned();
    let short = |name: &str| variable(name).trim_start_matches("WEIR_").to_owned();
    let environment: String =
        KEYS.iter().map(|key| format!("{}={}\n", short(key.name), key.default)).collect();
    let flags: String = KEYS.iter().map(|key| format!("{}={}\n", key.name, key.default)).collect();
    let endpoints = ["127.0.0.1:9092", "[::1]:0", "broker.example:65535"];
    let sources = [(0, file), (0, nested), (1, environment), (2, flags)];
    let endpoints = endpoints.map(|endpoint| (3, endpoint.to_owned()));
    sources
        .into_iter()
        .chain(endpoints)
        .map(|(source, text)| std::iter::once(source).chain(text.into_bytes()).collect())
        .collect()
}
