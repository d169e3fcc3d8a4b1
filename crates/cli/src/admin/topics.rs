//! `weir topic`.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::server::{Server, segment};
use super::{confirm, name_and_value};
use crate::contexts::ServerArgs;
use crate::exit::Failure;
use crate::output::{self, Format, OutputArgs, Table, cell, size};
use crate::time::rfc3339;

#[derive(Debug, clap::Subcommand)]
pub enum TopicCommand {
    /// Create a topic.
    #[command(after_help = "Example: weir topic create orders --partitions 8 --config retention.ms=86400000")]
    Create {
        /// Its name.
        name: String,
        /// How many partitions [default: the server's num.partitions].
        #[arg(long, value_name = "COUNT")]
        partitions: Option<u32>,
        /// How many replicas [default: the cluster's].
        #[arg(long, value_name = "COUNT")]
        replicas: Option<u16>,
        /// A setting of the topic; may be repeated.
        #[arg(long, value_name = "NAME=VALUE", value_parser = name_and_value)]
        config: Vec<(String, String)>,
        /// Only check whether it could be created.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        common: Common,
    },
    /// List the topics.
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Show a topic's partitions and settings.
    Describe {
        /// Its name.
        name: String,
        /// Show the settings that are not overridden, too.
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Change a topic's settings, or add partitions.
    #[command(after_help = "Example: weir topic alter orders --config retention.ms=-1 --unset segment.bytes")]
    Alter {
        /// Its name.
        name: String,
        /// A setting to override; may be repeated.
        #[arg(long, value_name = "NAME=VALUE", value_parser = name_and_value)]
        config: Vec<(String, String)>,
        /// A setting whose override to take away; may be repeated.
        #[arg(long, value_name = "NAME")]
        unset: Vec<String>,
        /// The new number of partitions, larger than now. Keys move to other partitions.
        #[arg(long, value_name = "COUNT")]
        partitions: Option<u32>,
        /// Only check whether it could be changed.
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Delete topics with all their records.
    Delete {
        /// Their names.
        #[arg(required = true)]
        names: Vec<String>,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        common: Common,
    },
}

/// Flags of every verb of a server.
#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    #[command(flatten)]
    pub server: ServerArgs,
    #[command(flatten)]
    pub output: OutputArgs,
}

impl TopicCommand {
    /// Runs the verb.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            TopicCommand::Create { name, partitions, replicas, config, dry_run, common } => {
                let config: BTreeMap<String, String> = config.into_iter().collect();
                let body = json!({
                    "name": name, "partitions": partitions, "replicas": replicas, "config": config,
                    "validate_only": dry_run,
                });
                let topic = Server::new(&common.server)?.post("/topics", &body)?;
                let done = if dry_run { "could create" } else { "created" };
                say(
                    &common,
                    &topic,
                    &format!("{done} topic {name} with {} partition(s)", topic["partitions"]),
                )
            }
            TopicCommand::List { common } => list(&common),
            TopicCommand::Describe { name, all, common } => {
                let topic = Server::new(&common.server)?.get(&format!("/topics/{}", segment(&name)))?;
                match common.output.output {
                    Format::Json => output::print_json(&topic),
                    Format::Table => output::print_text(&described(&topic, all)),
                }
            }
            TopicCommand::Alter { name, config, unset, partitions, dry_run, common } => {
                let mut overrides: BTreeMap<String, Option<String>> =
                    config.into_iter().map(|(name, value)| (name, Some(value))).collect();
                overrides.extend(unset.into_iter().map(|name| (name, None)));
                if overrides.is_empty() && partitions.is_none() {
                    return Err(Failure::Usage(
                        "nothing is to change; give --config, --unset or --partitions".into(),
                    ));
                }
                let body = json!({ "config": overrides, "partitions": partitions, "validate_only": dry_run });
                let path = format!("/topics/{}", segment(&name));
                let topic = Server::new(&common.server)?.patch(&path, &body)?;
                let done = if dry_run { "could alter" } else { "altered" };
                say(&common, &topic, &format!("{done} topic {name}"))
            }
            TopicCommand::Delete { names, yes, common } => delete(&names, yes, &common),
        }
    }
}

/// One line for people, the whole answer for programs.
fn say(common: &Common, answer: &Value, line: &str) -> Result<(), Failure> {
    match common.output.output {
        Format::Json => output::print_json(answer),
        Format::Table => output::print_text(&format!("{line}\n")),
    }
}

fn list(common: &Common) -> Result<(), Failure> {
    let topics = Server::new(&common.server)?.get("/topics")?;
    output::print(common.output.output, &topics, |topics| {
        let mut table = Table::new(&["topic", "partitions", "records", "size"]);
        for topic in topics.as_array().into_iter().flatten() {
            let cells = [cell(&topic["name"]), cell(&topic["partitions"]), cell(&topic["records"])];
            table.row(cells.into_iter().chain([size(&topic["bytes"])]));
        }
        table
    })
}

fn described(topic: &Value, all: bool) -> String {
    let created = topic["created_at_ms"].as_i64().map(rfc3339).unwrap_or_default();
    let mut text = format!(
        "topic    {}\nid       {}\ncreated  {created}\nrecords  {}\nsize     {}\n\n",
        cell(&topic["name"]),
        cell(&topic["id"]),
        cell(&topic["records"]),
        size(&topic["bytes"]),
    );
    let mut partitions =
        Table::new(&["partition", "id", "shard", "leader", "epoch", "start", "next", "size"]);
    for partition in topic["partition_list"].as_array().into_iter().flatten() {
        let columns =
            ["partition", "partition_id", "shard", "leader", "leader_epoch", "log_start", "next_offset"];
        let cells = columns.map(|column| cell(&partition[column]));
        partitions.row(cells.into_iter().chain([size(&partition["bytes"])]));
    }
    text.push_str(&partitions.render());
    let mut settings = Table::new(&["setting", "value", "from"]);
    let entries: Vec<&Value> = topic["config"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|setting| all || setting["source"] == "topic")
        .collect();
    if entries.is_empty() {
        text.push_str("\nno setting is overridden (--all shows what applies)\n");
        return text;
    }
    for setting in entries {
        settings.row([cell(&setting["name"]), cell(&setting["value"]), cell(&setting["source"])]);
    }
    text.push('\n');
    text.push_str(&settings.render());
    text
}

fn delete(names: &[String], yes: bool, common: &Common) -> Result<(), Failure> {
    let server = Server::new(&common.server)?;
    // All are looked at before any is touched, so that a misspelt name stops everything.
    let mut records = 0;
    for name in names {
        let topic = server.get(&format!("/topics/{}", segment(name)))?;
        records += topic["records"].as_i64().unwrap_or_default();
    }
    confirm(&format!("Delete {} with {records} record(s)?", names.join(", ")), yes)?;
    let mut deleted = Vec::new();
    for name in names {
        server.delete(&format!("/topics/{}", segment(name)))?;
        deleted.push(name.as_str());
    }
    say(common, &json!({ "deleted": deleted }), &format!("deleted {}", deleted.join(", ")))
}
