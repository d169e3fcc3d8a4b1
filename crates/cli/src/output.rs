//! Tables for people, JSON for programs. Every verb that lists something goes through here.

use std::io::{self, Write};

use serde::Serialize;

use crate::exit::Failure;

/// How a verb prints what it found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns under a heading.
    Table,
    /// One JSON value.
    Json,
}

/// The flag that every verb has.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct OutputArgs {
    /// How to print the answer.
    #[arg(long, value_enum, default_value = "table", env = "WEIR_OUTPUT", value_name = "FORMAT")]
    pub output: Format,
}

/// Columns under headings.
#[derive(Debug)]
pub struct Table {
    headings: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table with these headings.
    pub fn new(headings: &[&'static str]) -> Table {
        Table { headings: headings.to_vec(), rows: Vec::new() }
    }

    /// Adds a row, one cell for each heading.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether it has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The table as text: every column as wide as its widest cell, two spaces between, nothing trailing.
    pub fn render(&self) -> String {
        let headings: Vec<String> = self.headings.iter().map(|heading| heading.to_uppercase()).collect();
        let lines: Vec<&[String]> =
            std::iter::once(&headings[..]).chain(self.rows.iter().map(Vec::as_slice)).collect();
        let width = |column: usize| {
            lines
                .iter()
                .filter_map(|line| line.get(column))
                .map(|cell| cell.chars().count())
                .max()
                .unwrap_or(0)
        };
        let widths: Vec<usize> = (0..headings.len()).map(width).collect();
        let mut text = String::new();
        for line in lines {
            let mut row = String::new();
            for (cell, width) in line.iter().zip(&widths) {
                row.push_str(&format!("{cell:<width$}  "));
            }
            text.push_str(row.trim_end());
            text.push('\n');
        }
        text
    }
}

/// Prints either the table or the JSON value.
pub fn print<T: Serialize>(
    format: Format,
    value: &T,
    table: impl FnOnce(&T) -> Table,
) -> Result<(), Failure> {
    match format {
        Format::Table => print_text(&table(value).render()),
        Format::Json => print_json(value),
    }
}

/// Prints one JSON value, indented.
pub fn print_json<T: Serialize>(value: &T) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::Failed(format!("the answer cannot be written as JSON: {error}")))?;
    print_text(&format!("{text}\n"))
}

/// Prints text. A reader that has gone away, as `head` does, is no failure.
pub fn print_text(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::Failed(format!("standard output cannot be written: {error}"))),
    }
}

/// A JSON value as a cell: text without quotes, nothing as a dash.
pub fn cell(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Null => "-".to_owned(),
        serde_json::Value::String(text) if text.is_empty() => "-".to_owned(),
        serde_json::Value::String(text) => text.clone(),
        value => value.to_string(),
    }
}

/// A JSON number of bytes as people read it.
pub fn size(value: &serde_json::Value) -> String {
    value.as_u64().map_or_else(|| cell(value), human_bytes)
}

/// A number of bytes as people read it.
pub fn human_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}
