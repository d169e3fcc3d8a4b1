//! `weir queue`.

use std::collections::BTreeMap;
use std::io::Write;

use serde_json::{Value, json};

use super::confirm;
use super::server::{Server, segment};
use super::topics::Common;
use crate::exit::Failure;
use crate::output::{self, Format, Table, cell, size};
use crate::time::rfc3339;

/// Records that are taken back by one request: each is short, and its progress is shown.
const REDRIVEN_AT_ONCE: u64 = 1_000;

#[derive(Debug, clap::Subcommand)]
pub enum QueueCommand {
    /// List the queues.
    List {
        #[command(flatten)]
        within: Within,
    },
    /// Show what a queue was declared with, and what is in it.
    Describe {
        /// Its name.
        name: String,
        #[command(flatten)]
        within: Within,
    },
    /// Remove all records that wait in a queue.
    Purge {
        /// Its name.
        name: String,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        within: Within,
    },
    /// Delete queues with all that is in them and all bindings to them.
    Delete {
        /// Their names.
        #[arg(required = true)]
        names: Vec<String>,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        within: Within,
    },
    /// Look at the first records of a queue. They stay in it, and consumers do not notice.
    Browse {
        /// Its name.
        name: String,
        /// How many records, at most 1000.
        #[arg(long, value_name = "COUNT", default_value_t = 10)]
        count: u32,
        #[command(flatten)]
        within: Within,
    },
    /// Take dead records back to the queues in which they died. It may be interrupted: what was taken back is back, and
    /// the rest is where it was.
    #[command(after_help = "Examples:\n  weir queue redrive orders.dead\n  \
        weir queue redrive orders.dead --count 100 --to orders.retry")]
    Redrive {
        /// The queue with the dead records.
        name: String,
        /// How many records [default: all].
        #[arg(long, value_name = "COUNT")]
        count: Option<u64>,
        /// To this queue [default: each record to where it died].
        #[arg(long, value_name = "QUEUE")]
        to: Option<String>,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        within: Within,
    },
}

/// Flags of every verb of a queue.
#[derive(Clone, Debug, clap::Args)]
pub struct Within {
    /// The namespace (AMQP's virtual host) of the queue.
    #[arg(long, value_name = "NAME", default_value = "/")]
    namespace: String,
    #[command(flatten)]
    common: Common,
}

impl Within {
    fn server(&self) -> Result<Server, Failure> {
        Server::new(&self.common.server)
    }

    /// A path with the namespace behind it.
    fn path(&self, path: &str) -> String {
        let joint = if path.contains('?') { '&' } else { '?' };
        format!("{path}{joint}namespace={}", segment(&self.namespace))
    }

    fn of(&self, name: &str, rest: &str) -> String {
        self.path(&format!("/queues/{}{rest}", segment(name)))
    }

    /// One line for people, the whole answer for programs.
    fn say(&self, answer: &Value, line: &str) -> Result<(), Failure> {
        match self.common.output.output {
            Format::Json => output::print_json(answer),
            Format::Table => output::print_text(&format!("{line}\n")),
        }
    }
}

impl QueueCommand {
    /// Runs the verb.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            QueueCommand::List { within } => {
                let queues = within.server()?.get(&within.path("/queues"))?;
                output::print(within.common.output.output, &queues, listed)
            }
            QueueCommand::Describe { name, within } => {
                let queue = within.server()?.get(&within.of(&name, ""))?;
                match within.common.output.output {
                    Format::Json => output::print_json(&queue),
                    Format::Table => output::print_text(&described(&queue)),
                }
            }
            QueueCommand::Purge { name, yes, within } => {
                let server = within.server()?;
                let queue = server.get(&within.of(&name, ""))?;
                confirm(&format!("Remove {} record(s) from queue {name}?", cell(&queue["records"])), yes)?;
                let answer = server.post(&within.of(&name, "/purge"), &json!({}))?;
                let line = format!("purged {} record(s) from queue {name}", cell(&answer["purged"]));
                within.say(&answer, &line)
            }
            QueueCommand::Delete { names, yes, within } => delete(&names, yes, &within),
            QueueCommand::Browse { name, count, within } => {
                let path = within.of(&name, &format!("/records?count={count}"));
                let records = within.server()?.get(&path)?;
                output::print(within.common.output.output, &records, browsed)
            }
            QueueCommand::Redrive { name, count, to, yes, within } => {
                redrive(&name, count, to.as_deref(), yes, &within)
            }
        }
    }
}

fn listed(queues: &Value) -> Table {
    let mut table = Table::new(&["queue", "kind", "records", "unsettled", "consumers", "size"]);
    for queue in queues.as_array().into_iter().flatten() {
        let cells = ["name", "kind", "records", "unsettled", "consumers"].map(|column| cell(&queue[column]));
        table.row(cells.into_iter().chain([size(&queue["bytes"])]));
    }
    table
}

fn described(queue: &Value) -> String {
    let mut text = String::new();
    let fields = [
        ("queue", "name"),
        ("namespace", "namespace"),
        ("kind", "kind"),
        ("durable", "durable"),
        ("auto-delete", "auto_delete"),
        ("exclusive", "exclusive"),
        ("records", "records"),
        ("unsettled", "unsettled"),
        ("consumers", "consumers"),
    ];
    for (title, field) in fields {
        text.push_str(&format!("{title:<13}{}\n", cell(&queue[field])));
    }
    text.push_str(&format!("{:<13}{}\n", "size", size(&queue["bytes"])));
    let mut arguments = Table::new(&["argument", "value"]);
    for (name, value) in queue["arguments"].as_object().into_iter().flatten() {
        arguments.row([name.clone(), cell(value)]);
    }
    if !arguments.is_empty() {
        text.push('\n');
        text.push_str(&arguments.render());
    }
    text
}

fn browsed(records: &Value) -> Table {
    let mut table = Table::new(&["offset", "time", "returns", "died in", "reason", "bytes", "value"]);
    for record in records.as_array().into_iter().flatten() {
        let time = record["timestamp_ms"].as_i64().map(rfc3339).unwrap_or_default();
        let death = &record["deaths"][0];
        let value = record["value"].as_str().unwrap_or_default().escape_debug().to_string();
        table.row([
            cell(&record["offset"]),
            time,
            cell(&record["returns"]),
            cell(&death["queue"]),
            cell(&death["reason"]),
            cell(&record["value_bytes"]),
            value,
        ]);
    }
    table
}

fn delete(names: &[String], yes: bool, within: &Within) -> Result<(), Failure> {
    let server = within.server()?;
    // All are looked at before any is touched, so that a misspelt name stops everything.
    let mut records = 0;
    for name in names {
        let queue = server.get(&within.of(name, ""))?;
        records += queue["records"].as_u64().unwrap_or_default();
    }
    confirm(&format!("Delete {} with {records} record(s)?", names.join(", ")), yes)?;
    for name in names {
        server.delete(&within.of(name, ""))?;
    }
    within.say(&json!({ "deleted": names }), &format!("deleted {}", names.join(", ")))
}

fn redrive(
    name: &str,
    count: Option<u64>,
    to: Option<&str>,
    yes: bool,
    within: &Within,
) -> Result<(), Failure> {
    let server = within.server()?;
    let queue = server.get(&within.of(name, ""))?;
    let there = queue["records"].as_u64().unwrap_or_default();
    // Not more than there are now: what dies again meanwhile is not taken back in a circle.
    let wanted = count.unwrap_or(there).min(there);
    let whereto = to.map_or("where they died".to_owned(), |to| format!("queue {to}"));
    confirm(&format!("Take {wanted} record(s) of queue {name} back to {whereto}?"), yes)?;
    let mut moved = 0;
    let mut by_queue: BTreeMap<String, u64> = BTreeMap::new();
    let mut kept = 0;
    while moved < wanted {
        let body = json!({ "count": (wanted - moved).min(REDRIVEN_AT_ONCE), "to": to });
        let answer = server.post(&within.of(name, "/redrive"), &body)?;
        moved += answer["moved"].as_u64().unwrap_or_default();
        kept = answer["kept"].as_u64().unwrap_or_default();
        for (queue, count) in answer["by_queue"].as_object().into_iter().flatten() {
            *by_queue.entry(queue.clone()).or_default() += count.as_u64().unwrap_or_default();
        }
        // Where nobody looks at progress, nothing is lost.
        let _ = writeln!(std::io::stderr(), "{moved} of {wanted} taken back");
        if answer["finished"] == true || answer["moved"] == 0 {
            break;
        }
    }
    let answer = json!({ "moved": moved, "by_queue": by_queue, "kept": kept });
    let mut line = format!("took {moved} record(s) of queue {name} back");
    for (queue, count) in &by_queue {
        line.push_str(&format!("\n  {count} to {queue}"));
    }
    if kept > 0 {
        line.push_str(&format!(
            "\n{kept} stay: nothing is noted of where they died, or that queue is gone; --to takes them to another"
        ));
    }
    within.say(&answer, &line)
}
