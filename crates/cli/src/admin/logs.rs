//! `weir log`: which files hold what, and whether they are whole.

use std::path::PathBuf;

use super::server::Server;
use super::topics::Common;
use crate::exit::Failure;
use crate::log_files::{self, DumpOptions};
use crate::output::{self, OutputArgs, Table, cell, size};

#[derive(Debug, clap::Subcommand)]
pub enum LogCommand {
    /// List the partitions' logs: which directory belongs to which topic. Asks the server.
    List {
        #[command(flatten)]
        common: Common,
    },
    /// Print the batches of a segment file, a partition's directory, or a whole data directory. Reads only.
    Dump {
        /// The file or directory.
        path: PathBuf,
        /// Print the records as well.
        #[arg(long)]
        records: bool,
        /// Begin at this offset.
        #[arg(long, value_name = "OFFSET", default_value_t = 0)]
        from: i64,
        /// Print at most this many batches.
        #[arg(long, value_name = "COUNT")]
        count: Option<u64>,
        #[command(flatten)]
        output: OutputArgs,
    },
    /// Check every batch of a partition's directory, or of a whole data directory with its journal. Reads
    /// only.
    Verify {
        /// The directory.
        path: PathBuf,
        #[command(flatten)]
        output: OutputArgs,
    },
}

impl LogCommand {
    /// Runs the verb.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            LogCommand::List { common } => list(&common),
            LogCommand::Dump { path, records, from, count, output } => {
                log_files::dump(&path, &DumpOptions { records, from, count, format: output.output })
            }
            LogCommand::Verify { path, output } => log_files::verify(&path, output.output),
        }
    }
}

fn list(common: &Common) -> Result<(), Failure> {
    let logs = Server::new(&common.server)?.get("/log")?;
    output::print(common.output.output, &logs, |logs| {
        let mut table = Table::new(&["directory", "topic", "partition", "start", "next", "size"]);
        for log in logs.as_array().into_iter().flatten() {
            let columns = ["directory", "topic", "partition", "log_start", "next_offset"];
            let cells = columns.map(|column| cell(&log[column]));
            table.row(cells.into_iter().chain([size(&log["bytes"])]));
        }
        table
    })
}
