//! The command line: which verbs there are, and the flags that stand for configuration keys.

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::parser::ValueSource;
use clap::{Arg, ArgAction, ArgMatches, CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::admin::groups::GroupCommand;
use crate::admin::logs::LogCommand;
use crate::admin::nodes::{ClusterCommand, NodeCommand};
use crate::admin::queues::QueueCommand;
use crate::admin::topics::TopicCommand;
use crate::admin::users::UserCommand;
use crate::config::keys::{COARSER_KEYS, KEYS, Key, Kind};
use crate::config::sources;
use crate::config_verbs::ConfigCommand;
use crate::contexts::ContextCommand;
use crate::exit::Failure;
use crate::records::{BenchCommand, ConsumeArgs, ProduceArgs};
use crate::serve;

/// A message broker in one binary: Kafka clients connect unchanged, and an acknowledged record is on
/// stable storage.
#[derive(Debug, Parser)]
#[command(name = "weir", version, disable_help_subcommand = true)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve clients until told to stop.
    #[command(
        after_help = "Every flag is also a variable (WEIR_DATA_DIR) and a key in weir.toml (data-dir); flags win \
        over variables over the file."
    )]
    Serve(ConfigFlags),
    /// Topics.
    #[command(subcommand)]
    Topic(TopicCommand),
    /// Queues: what waits in them, and what died.
    #[command(subcommand)]
    Queue(QueueCommand),
    /// Consumer groups and their positions.
    #[command(subcommand)]
    Group(GroupCommand),
    /// Users and what they may do.
    #[command(subcommand)]
    User(UserCommand),
    /// The cluster: its nodes, and who leads what.
    #[command(subcommand)]
    Cluster(ClusterCommand),
    /// Nodes of the cluster.
    #[command(subcommand)]
    Node(NodeCommand),
    /// Send lines from standard input as records.
    Produce(ProduceArgs),
    /// Print records.
    Consume(ConsumeArgs),
    /// Measure a server.
    #[command(subcommand)]
    Bench(BenchCommand),
    /// Stored files: what they hold, and whether they are whole.
    #[command(subcommand)]
    Log(LogCommand),
    /// Saved servers, by name.
    #[command(subcommand)]
    Context(ContextCommand),
    /// The configuration that `weir serve` would run with.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Print a script that completes this command line in your shell.
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// Runs one command line and says with what status the process ends.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let failure = match Cli::try_parse_from(args) {
        Ok(cli) => match cli.command.run() {
            Ok(()) => return ExitCode::SUCCESS,
            Err(failure) => failure,
        },
        Err(error) if !error.use_stderr() => {
            // Help and version, which were asked for.
            return match error.print() {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            };
        }
        Err(error) => Failure::Usage(sentence(&error)),
    };
    // If standard error is gone there is nobody left to tell; the status still does.
    let _ = writeln!(std::io::stderr(), "weir: {failure}");
    ExitCode::from(failure.status())
}

impl Command {
    fn run(self) -> Result<(), Failure> {
        match self {
            Command::Serve(flags) => serve::run(&flags),
            Command::Topic(command) => command.run(),
            Command::Queue(command) => command.run(),
            Command::Group(command) => command.run(),
            Command::User(command) => command.run(),
            Command::Cluster(command) => command.run(),
            Command::Node(command) => command.run(),
            Command::Produce(args) => args.run(),
            Command::Consume(args) => args.run(),
            Command::Bench(command) => command.run(),
            Command::Log(command) => command.run(),
            Command::Context(command) => command.run(),
            Command::Config(command) => command.run(),
            Command::Completions { shell } => completions(shell),
        }
    }
}

fn completions(shell: clap_complete::Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "weir", &mut script);
    crate::output::print_text(&String::from_utf8_lossy(&script))
}

/// One sentence for what is wrong with a command line. The parser's own words are right but stand on
/// several lines with a usage text.
fn sentence(error: &clap::Error) -> String {
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return format!("a command is missing\n\n{error}");
    }
    let text = error.to_string();
    let first: Vec<&str> = text
        .lines()
        .take_while(|line| !line.is_empty())
        .map(|line| line.trim().trim_start_matches("error: "))
        .collect();
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        Some(ContextValue::Strings(texts)) => texts.first().cloned(),
        _ => None,
    };
    let meant = context(ContextKind::SuggestedArg)
        .or_else(|| context(ContextKind::SuggestedSubcommand))
        .or_else(|| context(ContextKind::SuggestedValue));
    match meant {
        Some(meant) => format!("{}; did you mean {meant}?", first.join(" ")),
        None => format!("{}; --help lists what there is", first.join(" ")),
    }
}

/// The flags that set configuration keys, one for each key, and the file.
#[derive(Clone, Debug, Default)]
pub struct ConfigFlags {
    /// The configuration file, if it was named.
    pub file: Option<PathBuf>,
    /// Name and values of every flag that was given.
    pub given: Vec<(String, Vec<String>)>,
}

impl ConfigFlags {
    /// What the flags say, as a configuration layer.
    pub fn layer(&self) -> sources::Layer {
        sources::flags(self.given.iter().cloned())
    }
}

const FILE_FLAG: &str = "config";

fn key_flag(key: &'static Key) -> Arg {
    let flag = Arg::new(key.name).long(key.name).value_name(key.value_name).help(help(key));
    match key.kind {
        Kind::List => flag.action(ArgAction::Append),
        Kind::Switch => flag.num_args(0..=1).default_missing_value("true"),
        Kind::Number(..) | Kind::Size(..) => flag.allow_negative_numbers(true),
        Kind::Text | Kind::OneOf(_) => flag,
    }
}

fn help(key: &Key) -> String {
    match (key.default, key.kind) {
        ("", _) => key.doc.to_owned(),
        (default, Kind::OneOf(words)) => format!("{} [{}] [default: {default}]", key.doc, words.join(", ")),
        (default, _) => format!("{} [default: {default}]", key.doc),
    }
}

impl clap::Args for ConfigFlags {
    fn augment_args(command: clap::Command) -> clap::Command {
        let file = Arg::new(FILE_FLAG)
            .long(FILE_FLAG)
            .value_name("FILE")
            .env("WEIR_CONFIG")
            .value_parser(clap::value_parser!(PathBuf))
            .help("Configuration file; without it ./weir.toml is read if it is there");
        let coarser = COARSER_KEYS
            .iter()
            .map(|coarser| Arg::new(coarser.name).long(coarser.name).allow_negative_numbers(true).hide(true));
        command.arg(file).args(KEYS.iter().map(key_flag)).args(coarser)
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for ConfigFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<ConfigFlags, clap::Error> {
        let mut flags = ConfigFlags::default();
        flags.update_from_arg_matches(matches)?;
        Ok(flags)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.file = matches.get_one::<PathBuf>(FILE_FLAG).cloned();
        self.given = sources::known_names()
            .filter(|name| matches.value_source(name) == Some(ValueSource::CommandLine))
            .filter_map(|name| {
                let values = matches.get_many::<String>(name)?.cloned().collect();
                Some((name.to_owned(), values))
            })
            .collect();
        Ok(())
    }
}
