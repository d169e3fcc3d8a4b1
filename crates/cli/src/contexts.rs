//! Saved contexts: servers by name, so that nobody types addresses twice.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::config::error::nearest;
use crate::credentials::{CredentialArgs, Credentials};
use crate::exit::Failure;
use crate::output::{self, OutputArgs, Table};

/// Where the admin API is without anybody saying so.
const SERVER: &str = "http://127.0.0.1:9347";

/// Where the Kafka listener is without anybody saying so.
const BOOTSTRAP: &str = "127.0.0.1:9092";

/// The file's variable; without it the file is in the user's configuration directory.
const FILE_VARIABLE: &str = "WEIR_CONTEXTS";

/// A server by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Context {
    #[serde(skip_serializing_if = "Option::is_none")]
    server: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bootstrap: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user: Option<String>,
    /// A file with the user's password: passwords themselves are not kept here.
    #[serde(skip_serializing_if = "Option::is_none")]
    password_file: Option<PathBuf>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contexts {
    /// The one that is used without saying so.
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<String>,
    #[serde(default)]
    contexts: BTreeMap<String, Context>,
}

/// Which context to take addresses from.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ContextArgs {
    /// Take addresses from this saved context.
    #[arg(long, env = "WEIR_CONTEXT", value_name = "NAME")]
    context: Option<String>,
}

/// Where the admin API is.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct ServerArgs {
    /// The admin API [default: the context's, or http://127.0.0.1:9347].
    #[arg(long, env = "WEIR_SERVER", value_name = "URL")]
    server: Option<String>,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    credentials: CredentialArgs,
}

/// Where the Kafka listener is.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct BootstrapArgs {
    /// Kafka listeners [default: the context's, or 127.0.0.1:9092].
    #[arg(long, env = "WEIR_BOOTSTRAP", value_name = "HOST:PORT,...")]
    bootstrap: Option<String>,
    #[command(flatten)]
    context: ContextArgs,
    #[command(flatten)]
    credentials: CredentialArgs,
}

impl ServerArgs {
    /// The admin API's address: the flag or variable, the context's, or the usual one.
    pub fn server(&self) -> Result<String, Failure> {
        match &self.server {
            Some(server) => Ok(server.clone()),
            None => Ok(self.context.resolve()?.server.unwrap_or_else(|| SERVER.to_owned())),
        }
    }

    /// As whom to ask. A context's user is for that context's server, and for no other that is named instead.
    pub fn credentials(&self) -> Result<Option<Credentials>, Failure> {
        let context = if self.server.is_some() { Context::default() } else { self.context.resolve()? };
        self.credentials.resolve(context.user, context.password_file.as_deref())
    }
}

impl BootstrapArgs {
    /// The Kafka listener's address: the flag or variable, the context's, or the usual one.
    pub fn bootstrap(&self) -> Result<String, Failure> {
        match &self.bootstrap {
            Some(bootstrap) => Ok(bootstrap.clone()),
            None => Ok(self.context.resolve()?.bootstrap.unwrap_or_else(|| BOOTSTRAP.to_owned())),
        }
    }

    /// As whom to connect; see [`ServerArgs::credentials`].
    pub fn credentials(&self) -> Result<Option<Credentials>, Failure> {
        let context = if self.bootstrap.is_some() { Context::default() } else { self.context.resolve()? };
        self.credentials.resolve(context.user, context.password_file.as_deref())
    }
}

impl ContextArgs {
    fn resolve(&self) -> Result<Context, Failure> {
        let contexts = Contexts::load()?;
        match self.context.as_ref().or(contexts.current.as_ref()) {
            Some(name) => contexts.get(name).cloned(),
            None => Ok(Context::default()),
        }
    }
}

#[derive(Debug, clap::Subcommand)]
pub enum ContextCommand {
    /// List the saved contexts.
    List {
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Save a context, or change one.
    Set {
        /// Its name.
        name: String,
        /// The admin API.
        #[arg(long, value_name = "URL")]
        server: Option<String>,
        /// Kafka listeners.
        #[arg(long, value_name = "HOST:PORT,...")]
        bootstrap: Option<String>,
        /// As whom to ask and connect.
        #[arg(long, value_name = "NAME")]
        user: Option<String>,
        /// A file whose first line is the user's password.
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
    },
    /// Use a context from here on.
    Use {
        /// Its name.
        name: String,
    },
    /// Forget a context.
    Delete {
        /// Its name.
        name: String,
    },
}

#[derive(Serialize)]
struct Row<'a> {
    name: &'a str,
    current: bool,
    server: &'a str,
    bootstrap: &'a str,
    user: &'a str,
}

impl ContextCommand {
    /// Runs the verb.
    pub fn run(self) -> Result<(), Failure> {
        let mut contexts = Contexts::load()?;
        match self {
            ContextCommand::List { output } => return contexts.list(output),
            ContextCommand::Set { name, server, bootstrap, user, password_file } => {
                if server.is_none() && bootstrap.is_none() && user.is_none() && password_file.is_none() {
                    let why = "give at least one of --server, --bootstrap, --user and --password-file";
                    return Err(Failure::Usage(why.into()));
                }
                let context = contexts.contexts.entry(name.clone()).or_default();
                context.server = server.or(context.server.take());
                context.bootstrap = bootstrap.or(context.bootstrap.take());
                context.user = user.or(context.user.take());
                context.password_file = password_file.or(context.password_file.take());
                contexts.current.get_or_insert(name);
            }
            ContextCommand::Use { name } => {
                contexts.get(&name)?;
                contexts.current = Some(name);
            }
            ContextCommand::Delete { name } => {
                contexts.get(&name)?;
                contexts.contexts.remove(&name);
                contexts.current = contexts.current.filter(|current| *current != name);
            }
        }
        contexts.save()
    }
}

impl Contexts {
    fn path() -> Result<PathBuf, Failure> {
        if let Some(path) = std::env::var_os(FILE_VARIABLE) {
            return Ok(path.into());
        }
        let directory = std::env::var_os("XDG_CONFIG_HOME")
            .map(PathBuf::from)
            .or_else(|| std::env::var_os("HOME").map(|home| Path::new(&home).join(".config")));
        directory.map(|directory| directory.join("weir/contexts.toml")).ok_or_else(|| {
            Failure::Usage(format!("neither {FILE_VARIABLE} nor HOME is set, so there are no saved contexts"))
        })
    }

    fn load() -> Result<Contexts, Failure> {
        // Without a place for the file there are no contexts, which is only a failure when one is needed.
        let Ok(path) = Contexts::path() else { return Ok(Contexts::default()) };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Contexts::default()),
            Err(error) => return Err(Failure::Usage(format!("{} cannot be read: {error}", path.display()))),
        };
        toml::from_str(&text).map_err(|error| {
            Failure::Usage(format!("{} cannot be read: {}", path.display(), error.message()))
        })
    }

    fn save(&self) -> Result<(), Failure> {
        let path = Contexts::path()?;
        let cannot = |error: &dyn std::fmt::Display| {
            Failure::Failed(format!("{} cannot be written: {error}", path.display()))
        };
        let text = toml::to_string(self).map_err(|error| cannot(&error))?;
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory).map_err(|error| cannot(&error))?;
        }
        // A new file renamed over the old one: whoever reads meanwhile finds one or the other.
        let new = path.with_extension("new");
        std::fs::File::create(&new)
            .and_then(|mut file| file.write_all(text.as_bytes()))
            .and_then(|()| std::fs::rename(&new, &path))
            .map_err(|error| cannot(&error))
    }

    fn get(&self, name: &str) -> Result<&Context, Failure> {
        self.contexts.get(name).ok_or_else(|| {
            let rest = match nearest(name, self.contexts.keys().map(String::as_str)) {
                Some(nearest) => format!("did you mean {nearest}?"),
                None => "`weir context list` lists them".to_owned(),
            };
            Failure::Usage(format!("there is no context '{name}'; {rest}"))
        })
    }

    fn list(&self, output: OutputArgs) -> Result<(), Failure> {
        let rows: Vec<Row<'_>> = self
            .contexts
            .iter()
            .map(|(name, context)| Row {
                name,
                current: self.current.as_ref() == Some(name),
                server: context.server.as_deref().unwrap_or(SERVER),
                bootstrap: context.bootstrap.as_deref().unwrap_or(BOOTSTRAP),
                user: context.user.as_deref().unwrap_or_default(),
            })
            .collect();
        output::print(output.output, &rows, |rows| {
            let mut table = Table::new(&["", "name", "server", "bootstrap", "user"]);
            for row in rows {
                let mark = if row.current { "*" } else { "" };
                table.row([mark, row.name, row.server, row.bootstrap, row.user].map(str::to_owned));
            }
            table
        })
    }
}
