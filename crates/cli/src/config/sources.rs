//! What each source says, as text under the keys' names: the file, the environment, the flags. Nothing
//! is interpreted here beyond the syntax of the source.

use std::collections::BTreeMap;
use std::path::Path;

use super::error::did_you_mean;
use super::keys::{self, COARSER_KEYS, KEYS, Kind};
use super::{ConfigError, Source};

/// Largest configuration file that is read, in bytes: far beyond any real one.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// Deepest table within a table; no key has more parts.
const DEPTH_MAX: usize = 8;

/// Variables with our prefix that are read by other parts of the binary than this one.
const OTHER_VARIABLES: &[&str] = &[
    "WEIR_CONFIG",
    "WEIR_SERVER",
    "WEIR_BOOTSTRAP",
    "WEIR_CONTEXT",
    "WEIR_CONTEXTS",
    "WEIR_OUTPUT",
    "WEIR_USER",
    "WEIR_PASSWORD",
];

/// The short name for the log's level.
const LOG_VARIABLE: &str = "WEIR_LOG";

/// One key's value as a source gives it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Given {
    /// The values: exactly one, except for lists.
    pub values: Vec<String>,
    /// Where it stands.
    pub source: Source,
}

/// What one source says, by key name.
pub type Layer = BTreeMap<String, Given>;

/// What a file of this text says. Tables and dotted keys are the same thing: `[log.retention]` `ms = 1`
/// is `log.retention.ms = 1`.
pub fn file(path: &Path, text: &str) -> Result<Layer, ConfigError> {
    let table: toml::Table = toml::from_str(text).map_err(|error| {
        let line = error
            .span()
            .map_or(1, |span| 1 + text.bytes().take(span.start).filter(|byte| *byte == b'\n').count());
        let why = error.message().lines().next().unwrap_or_default();
        ConfigError::refused(format!("{}, line {line}: {why}", path.display()))
    })?;
    let mut layer = Layer::new();
    flatten(path, "", &table, 0, &mut layer)?;
    Ok(layer)
}

fn flatten(
    path: &Path,
    prefix: &str,
    table: &toml::Table,
    depth: usize,
    layer: &mut Layer,
) -> Result<(), ConfigError> {
    for (name, value) in table {
        let name = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        if let toml::Value::Table(inner) = value
            && depth < DEPTH_MAX
        {
            flatten(path, &name, inner, depth + 1, layer)?;
            continue;
        }
        check_known(&name).map_err(|rest| {
            ConfigError::refused(format!("{}: there is no key '{name}'{rest}", path.display()))
        })?;
        let source = Source::File(path.to_owned());
        let values = texts(value).ok_or_else(|| {
            let why = "its value must be text, a whole number, true or false, or a list of texts";
            ConfigError::value(&name, &source, why)
        })?;
        if layer.insert(name.clone(), Given { values, source: source.clone() }).is_some() {
            return Err(ConfigError::value(&name, &source, "it is set twice; keep one"));
        }
    }
    Ok(())
}

fn texts(value: &toml::Value) -> Option<Vec<String>> {
    match value {
        toml::Value::Array(values) => values.iter().map(|value| value.as_str().map(str::to_owned)).collect(),
        toml::Value::String(text) => Some(vec![text.clone()]),
        toml::Value::Integer(number) => Some(vec![number.to_string()]),
        toml::Value::Boolean(switch) => Some(vec![switch.to_string()]),
        toml::Value::Float(_) | toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}

/// What these environment variables say. Those without our prefix are nobody's business; those that
/// container platforms invent for a service of our name are skipped.
pub fn environment(variables: impl IntoIterator<Item = (String, String)>) -> Result<Layer, ConfigError> {
    let mut layer = Layer::new();
    let mut short = None;
    for (variable, value) in variables {
        if !variable.starts_with("WEIR_")
            || OTHER_VARIABLES.contains(&variable.as_str())
            || names_a_service(&variable)
        {
            continue;
        }
        let given = Given { values: vec![value], source: Source::Environment(variable.clone()) };
        if variable == LOG_VARIABLE {
            short = Some(given);
            continue;
        }
        let Some(name) = known_names().find(|name| keys::variable(name) == variable) else {
            let known: Vec<String> = known_names().map(keys::variable).collect();
            let rest = did_you_mean(&variable, known.iter().map(String::as_str));
            return Err(ConfigError::refused(format!(
                "the environment variable {variable} sets no key{rest}"
            )));
        };
        layer.insert(name.to_owned(), given);
    }
    if let Some(given) = short {
        layer.entry("log-level".to_owned()).or_insert(given);
    }
    Ok(layer)
}

/// Kubernetes and Docker give every container `WEIR_PORT`, `WEIR_SERVICE_HOST`, `WEIR_PORT_9092_TCP`
/// and so on when a service is called `weir` or `weir-something`.
fn names_a_service(variable: &str) -> bool {
    variable.contains("_SERVICE_HOST")
        || variable.contains("_SERVICE_PORT")
        || variable.ends_with("_PORT")
        || variable
            .split_once("_PORT_")
            .is_some_and(|(_, rest)| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// What the flags say, as `(name, values)`; the names are known already.
pub fn flags(given: impl IntoIterator<Item = (String, Vec<String>)>) -> Layer {
    given
        .into_iter()
        .map(|(name, values)| {
            let source = Source::Flag(format!("--{name}"));
            (name, Given { values, source })
        })
        .collect()
}

/// Every name that a key can be set by.
pub fn known_names() -> impl Iterator<Item = &'static str> {
    KEYS.iter().map(|key| key.name).chain(COARSER_KEYS.iter().map(|key| key.name))
}

fn check_known(name: &str) -> Result<(), String> {
    match known_names().any(|known| known == name) {
        true => Ok(()),
        false => Err(did_you_mean(name, known_names())),
    }
}

/// Whether a list may be written with commas: everywhere but in the file, whose arrays are meant for it,
/// it is the only way, so it is allowed there too.
pub fn split_list(kind: Kind, values: &[String]) -> Vec<String> {
    match kind {
        Kind::List => values
            .iter()
            .flat_map(|value| value.split(','))
            .map(str::trim)
            .filter(|value| !value.is_empty())
            .map(str::to_owned)
            .collect(),
        _ => values.to_vec(),
    }
}
