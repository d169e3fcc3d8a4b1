//! `weir config show`: the configuration that `weir serve` would run with here, and where each value
//! comes from.

use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::args::ConfigFlags;
use crate::config::sources::{self, FILE_BYTES_MAX, Layer};
use crate::config::{Config, ConfigError, Settings, Source, Value};
use crate::exit::Failure;
use crate::output::{self, OutputArgs, Table};

/// The file that is read without being named, if it is there.
const USUAL_FILE: &str = "weir.toml";

#[derive(Debug, clap::Subcommand)]
pub enum ConfigCommand {
    /// Print every key's effective value and where it comes from; takes the same flags as serve.
    Show {
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        flags: ConfigFlags,
    },
}

impl ConfigCommand {
    /// Runs the verb.
    pub fn run(self) -> Result<(), Failure> {
        let ConfigCommand::Show { output, flags } = self;
        let settings = load(&flags)?;
        // Values that cannot work together are refused here as they are by serve.
        Config::new(&settings)?;
        let rows = rows(&settings);
        output::print(output.output, &rows, |rows| {
            let mut table = Table::new(&["key", "value", "from"]);
            for row in rows {
                table.row([row.key.to_owned(), row.text.clone(), row.from.clone()]);
            }
            table
        })
    }
}

/// The effective settings as `weir config show --output json` prints them.
pub fn to_json(settings: &Settings) -> Result<serde_json::Value, Failure> {
    serde_json::to_value(rows(settings))
        .map_err(|error| Failure::Failed(format!("the configuration cannot be written as JSON: {error}")))
}

fn rows(settings: &Settings) -> Vec<Row> {
    settings
        .iter()
        .map(|setting| Row {
            key: setting.key.name,
            value: json(&setting.value),
            source: setting.source.clone().into(),
            text: setting.value.to_string(),
            from: setting.source.to_string(),
        })
        .collect()
}

#[derive(Serialize)]
struct Row {
    key: &'static str,
    value: serde_json::Value,
    source: Origin,
    #[serde(skip)]
    text: String,
    #[serde(skip)]
    from: String,
}

/// A source for programs: its kind, and the name of the file, variable or flag.
#[derive(Serialize)]
struct Origin {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
}

impl From<Source> for Origin {
    fn from(source: Source) -> Origin {
        match source {
            Source::Default => Origin { kind: "default", name: None },
            Source::File(path) => Origin { kind: "file", name: Some(path.display().to_string()) },
            Source::Environment(variable) => Origin { kind: "environment", name: Some(variable) },
            Source::Flag(flag) => Origin { kind: "flag", name: Some(flag) },
        }
    }
}

fn json(value: &Value) -> serde_json::Value {
    match value {
        Value::Text(text) => text.clone().into(),
        Value::Switch(switch) => (*switch).into(),
        Value::Number(number) => (*number).into(),
        Value::List(list) => list.clone().into(),
    }
}

/// The effective settings of this process: its flags, its environment, its file.
pub fn load(flags: &ConfigFlags) -> Result<Settings, ConfigError> {
    let mut layers = Vec::new();
    if let Some((path, text)) = read_file(flags.file.as_deref())? {
        layers.push(sources::file(&path, &text)?);
    }
    layers.push(environment()?);
    layers.push(flags.layer());
    Settings::resolve(&layers)
}

fn environment() -> Result<Layer, ConfigError> {
    let ours = std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("WEIR_"));
    let texts = ours
        .map(|(name, value)| match (name.into_string(), value.into_string()) {
            (Ok(name), Ok(value)) => Ok((name, value)),
            (Ok(name), Err(_)) => {
                Err(ConfigError::refused(format!("the environment variable {name} is not UTF-8")))
            }
            (Err(_), _) => Err(ConfigError::refused("an environment variable's name is not UTF-8")),
        })
        .collect::<Result<Vec<_>, _>>()?;
    sources::environment(texts)
}

fn read_file(named: Option<&Path>) -> Result<Option<(PathBuf, String)>, ConfigError> {
    let path = named.unwrap_or(Path::new(USUAL_FILE));
    let refused = |why: String| ConfigError::refused(format!("the file {}: {why}", path.display()));
    let file = match std::fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound && named.is_none() => return Ok(None),
        Err(error) => return Err(refused(format!("it cannot be read: {error}"))),
    };
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| refused(format!("it cannot be read: {error}")))?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(refused(format!(
            "it is larger than {FILE_BYTES_MAX} bytes; is it a configuration file?"
        )));
    }
    Ok(Some((path.to_owned(), text)))
}
