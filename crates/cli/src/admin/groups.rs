//! `weir group`.

use serde_json::{Value, json};

use super::confirm;
use super::server::{Server, segment};
use super::topics::Common;
use crate::exit::Failure;
use crate::output::{self, Format, Table, cell};
use crate::time;

#[derive(Debug, clap::Subcommand)]
pub enum GroupCommand {
    /// List the groups.
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Show a group's members, its positions, and how far they are behind.
    Describe {
        /// Its name.
        name: String,
        #[command(flatten)]
        common: Common,
    },
    /// Move a group's positions. The group must have no members.
    #[command(after_help = "Examples:\n  weir group reset billing --to start --topic orders\n  \
        weir group reset billing --to @2026-11-03T10:00:00Z --dry-run")]
    Reset {
        /// Its name.
        name: String,
        /// Where to: start, end, an offset, or @ and a time (RFC 3339, or milliseconds since 1970).
        #[arg(long, value_name = "start|end|OFFSET|@TIME", value_parser = place)]
        to: String,
        /// Only this topic [default: all in which the group has positions].
        #[arg(long)]
        topic: Option<String>,
        /// Only this partition of the topic; may be repeated.
        #[arg(long, requires = "topic", value_name = "PARTITION")]
        partition: Vec<i32>,
        /// Only say what would happen.
        #[arg(long)]
        dry_run: bool,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        common: Common,
    },
    /// Delete a group with its positions. The group must have no members.
    Delete {
        /// Its name.
        name: String,
        /// Do not ask.
        #[arg(long)]
        yes: bool,
        #[command(flatten)]
        common: Common,
    },
}

/// A place in a log as the API reads it: times become milliseconds.
fn place(text: &str) -> Result<String, String> {
    let ok =
        match text.strip_prefix('@') {
            Some(time) => return time::parse(time).map(|ms| format!("@{ms}")).ok_or_else(|| {
                "a time is @ and RFC 3339 in UTC, such as @2026-11-03T10:00:00Z, or milliseconds since 1970"
                    .to_owned()
            }),
            None => matches!(text, "start" | "end") || text.parse::<i64>().is_ok_and(|offset| offset >= 0),
        };
    if ok { Ok(text.to_owned()) } else { Err("use start, end, an offset, or @ and a time".to_owned()) }
}

impl GroupCommand {
    /// Runs the verb.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            GroupCommand::List { common } => {
                let groups = Server::new(&common.server)?.get("/groups")?;
                output::print(common.output.output, &groups, |groups| {
                    let mut table = Table::new(&["group", "state", "kind"]);
                    for group in groups.as_array().into_iter().flatten() {
                        table.row(["name", "state", "kind"].map(|column| cell(&group[column])));
                    }
                    table
                })
            }
            GroupCommand::Describe { name, common } => {
                let group = Server::new(&common.server)?.get(&format!("/groups/{}", segment(&name)))?;
                match common.output.output {
                    Format::Json => output::print_json(&group),
                    Format::Table => output::print_text(&described(&group)),
                }
            }
            GroupCommand::Reset { name, to, topic, partition, dry_run, yes, common } => {
                let partitions = if partition.is_empty() { None } else { Some(partition) };
                let body = json!({ "to": to, "topic": topic, "partitions": partitions });
                reset(&name, body, dry_run, yes, &common)
            }
            GroupCommand::Delete { name, yes, common } => {
                let server = Server::new(&common.server)?;
                let path = format!("/groups/{}", segment(&name));
                let group = server.get(&path)?;
                let positions = group["positions"].as_array().map_or(0, Vec::len);
                confirm(&format!("Delete group {name} with {positions} position(s)?"), yes)?;
                let answer = server.delete(&path)?;
                match common.output.output {
                    Format::Json => output::print_json(&answer),
                    Format::Table => output::print_text(&format!("deleted group {name}\n")),
                }
            }
        }
    }
}

fn described(group: &Value) -> String {
    let mut text = format!(
        "group       {}\nstate       {}\nkind        {}\nassignor    {}\ngeneration  {}\nlag         {}\n",
        cell(&group["name"]),
        cell(&group["state"]),
        cell(&group["kind"]),
        cell(&group["assignor"]),
        cell(&group["generation"]),
        cell(&group["total_lag"]),
    );
    let mut members = Table::new(&["member", "client", "host", "reads"]);
    for member in group["members"].as_array().into_iter().flatten() {
        let reads = member["assignment"].as_object().into_iter().flatten().map(|(topic, partitions)| {
            let partitions = partitions.as_array().into_iter().flatten().map(cell);
            format!("{topic}/{}", partitions.collect::<Vec<_>>().join(","))
        });
        let reads = reads.collect::<Vec<_>>().join(" ");
        members.row([cell(&member["member_id"]), cell(&member["client_id"]), cell(&member["host"]), reads]);
    }
    if members.is_empty() {
        text.push_str("\nno members\n");
    } else {
        text.push('\n');
        text.push_str(&members.render());
    }
    let mut positions = Table::new(&["topic", "partition", "offset", "next", "lag", "committed", "member"]);
    for position in group["positions"].as_array().into_iter().flatten() {
        let committed = position["committed_at_ms"].as_i64().map(time::rfc3339).unwrap_or_default();
        let columns = ["topic", "partition", "offset", "next_offset", "lag"];
        let cells = columns.map(|column| cell(&position[column]));
        positions.row(cells.into_iter().chain([committed, cell(&position["member_id"])]));
    }
    if positions.is_empty() {
        text.push_str("\nno positions\n");
    } else {
        text.push('\n');
        text.push_str(&positions.render());
    }
    text
}

fn reset(name: &str, mut body: Value, dry_run: bool, yes: bool, common: &Common) -> Result<(), Failure> {
    let server = Server::new(&common.server)?;
    let path = format!("/groups/{}/reset", segment(name));
    body["dry_run"] = true.into();
    let preview = server.post(&path, &body)?;
    if !dry_run {
        let count = preview.as_array().map_or(0, Vec::len);
        if count == 0 {
            return Err(Failure::Failed(format!(
                "group {name} has no positions to move; name a topic with --topic"
            )));
        }
        if !yes && common.output.output == Format::Table {
            output::print_text(&moves(&preview).render())?;
        }
        confirm(&format!("Move {count} position(s) of group {name}?"), yes)?;
        body["dry_run"] = false.into();
        let moved = server.post(&path, &body)?;
        return output::print(common.output.output, &moved, moves);
    }
    output::print(common.output.output, &preview, moves)
}

fn moves(moved: &Value) -> Table {
    let mut table = Table::new(&["topic", "partition", "from", "to"]);
    for position in moved.as_array().into_iter().flatten() {
        table.row(["topic", "partition", "from", "to"].map(|column| cell(&position[column])));
    }
    table
}
