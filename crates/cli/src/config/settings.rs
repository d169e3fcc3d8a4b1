//! The effective value of every key, and where it came from.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use super::ConfigError;
use super::keys::{COARSER_KEYS, KEYS, Key, Kind};
use super::sources::{Given, Layer, split_list};

/// Where a value came from, from the weakest to the strongest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Nobody set it.
    Default,
    /// The configuration file.
    File(PathBuf),
    /// An environment variable.
    Environment(String),
    /// A flag.
    Flag(String),
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File(path) => write!(f, "file {}", path.display()),
            Source::Environment(variable) => write!(f, "environment {variable}"),
            Source::Flag(flag) => write!(f, "flag {flag}"),
        }
    }
}

/// A value of the kind that its key asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Text, or one of a key's words.
    Text(String),
    /// A switch.
    Switch(bool),
    /// A number or a size in bytes.
    Number(i64),
    /// A list.
    List(Vec<String>),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Switch(switch) => write!(f, "{switch}"),
            Value::Number(number) => write!(f, "{number}"),
            Value::List(list) => f.write_str(&list.join(",")),
        }
    }
}

/// A key with its effective value.
#[derive(Clone, Debug)]
pub struct Setting {
    /// Which key.
    pub key: &'static Key,
    /// Its value.
    pub value: Value,
    /// Where the value came from.
    pub source: Source,
}

/// The effective value of every key.
#[derive(Clone, Debug)]
pub struct Settings {
    /// In the table's order, one for every key.
    settings: Vec<Setting>,
}

impl Settings {
    /// The defaults under these layers, the later over the earlier.
    pub fn resolve(layers: &[Layer]) -> Result<Settings, ConfigError> {
        let merged: Vec<Layer> = layers.iter().map(finest).collect::<Result<_, _>>()?;
        let settings = KEYS
            .iter()
            .map(|key| {
                let given = merged.iter().rev().find_map(|layer| layer.get(key.name));
                let (values, source) = match given {
                    Some(given) => (given.values.clone(), given.source.clone()),
                    None => (vec![key.default.to_owned()], Source::Default),
                };
                let value = parse(key, &values).map_err(|why| ConfigError::value(key.name, &source, &why))?;
                Ok(Setting { key, value, source })
            })
            .collect::<Result<_, ConfigError>>()?;
        Ok(Settings { settings })
    }

    /// All of them, in the table's order.
    pub fn iter(&self) -> impl Iterator<Item = &Setting> {
        self.settings.iter()
    }

    /// Where the key was set, unless nobody did.
    pub fn given(&self, name: &str) -> Option<&Source> {
        Some(&self.get(name).source).filter(|source| **source != Source::Default)
    }

    /// The value of a key of text or words.
    pub fn text(&self, name: &str) -> &str {
        match &self.get(name).value {
            Value::Text(text) => text,
            other => unreachable!("{name} is not text but {other:?}"),
        }
    }

    /// The value of a switch.
    pub fn switch(&self, name: &str) -> bool {
        match &self.get(name).value {
            Value::Switch(switch) => *switch,
            other => unreachable!("{name} is not a switch but {other:?}"),
        }
    }

    /// The value of a number or size.
    pub fn number(&self, name: &str) -> i64 {
        match &self.get(name).value {
            Value::Number(number) => *number,
            other => unreachable!("{name} is not a number but {other:?}"),
        }
    }

    /// The values of a list.
    pub fn list(&self, name: &str) -> impl Iterator<Item = &str> {
        match &self.get(name).value {
            Value::List(list) => list.iter().map(String::as_str),
            other => unreachable!("{name} is not a list but {other:?}"),
        }
    }

    /// Any value, as text.
    pub fn display(&self, name: &str) -> String {
        self.get(name).value.to_string()
    }

    /// The names asked for are written in this crate, not read from anywhere; one that is not in the
    /// table is found by the first test.
    fn get(&self, name: &str) -> &Setting {
        match self.settings.iter().find(|setting| setting.key.name == name) {
            Some(setting) => setting,
            None => unreachable!("there is no key {name} in the table"),
        }
    }
}

/// One source's layer with coarser units turned into the keys that they set.
fn finest(layer: &Layer) -> Result<Layer, ConfigError> {
    let mut finest: Layer = BTreeMap::new();
    for (name, given) in layer {
        if !COARSER_KEYS.iter().any(|coarser| coarser.name == name) {
            finest.insert(name.clone(), given.clone());
        }
    }
    for coarser in COARSER_KEYS {
        let Some(given) = layer.get(coarser.name) else { continue };
        let number = given
            .values
            .first()
            .and_then(|value| value.trim().parse::<i64>().ok())
            .filter(|number| *number >= -1)
            .and_then(|number| if number == -1 { Some(-1) } else { number.checked_mul(coarser.factor) })
            .ok_or_else(|| {
                let why = format!("'{}' is not a whole number in range", given.values.join(","));
                ConfigError::value(coarser.name, &given.source, &why)
            })?;
        let source = given.source.clone();
        finest.entry(coarser.of.to_owned()).or_insert(Given { values: vec![number.to_string()], source });
    }
    Ok(finest)
}

fn parse(key: &Key, values: &[String]) -> Result<Value, String> {
    let values = split_list(key.kind, values);
    if key.kind == Kind::List {
        return Ok(Value::List(values));
    }
    let [value] = &values[..] else {
        return Err(format!("it takes one value, not {}", values.len()));
    };
    match key.kind {
        Kind::Text | Kind::List => Ok(Value::Text(value.clone())),
        Kind::Switch => match value.to_ascii_lowercase().as_str() {
            "true" => Ok(Value::Switch(true)),
            "false" => Ok(Value::Switch(false)),
            _ => Err(format!("'{value}' is neither true nor false")),
        },
        Kind::Number(min, max) => match value.trim().parse::<i64>() {
            Ok(number) if (min..=max).contains(&number) => Ok(Value::Number(number)),
            _ => Err(format!("'{value}' is not a whole number {}", range(min, max))),
        },
        Kind::Size(min, max) => match size(value) {
            Some(number) if (min..=max).contains(&number) => Ok(Value::Number(number)),
            _ => Err(format!("'{value}' is not a size in bytes {}", range(min, max))),
        },
        Kind::OneOf(words) => match words.contains(&value.as_str()) {
            true => Ok(Value::Text(value.clone())),
            false if words.len() == 1 => Err(format!("'{value}' is not supported; only {} is", words[0])),
            false => Err(format!("'{value}' is not one of {}", words.join(", "))),
        },
    }
}

fn range(min: i64, max: i64) -> String {
    if max == i64::MAX { format!("of at least {min}") } else { format!("from {min} to {max}") }
}

/// A number of bytes, with a binary unit if it has one.
fn size(value: &str) -> Option<i64> {
    let value = value.trim();
    let (number, unit) = [("KiB", 1i64 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30), ("TiB", 1 << 40)]
        .into_iter()
        .find_map(|(suffix, unit)| value.strip_suffix(suffix).map(|number| (number, unit)))
        .unwrap_or((value, 1));
    number.trim().parse::<i64>().ok()?.checked_mul(unit)
}
