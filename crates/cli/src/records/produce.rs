//! `weir produce`: lines from standard input become records.

use std::collections::VecDeque;
use std::io::{BufRead, Read};

use bytes::Bytes;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::Instant;
use weir_client::{Acks, Delivery, Producer, Record};

use super::{CompressionFlag, connect, runtime};
use crate::contexts::BootstrapArgs;
use crate::exit::Failure;
use crate::output::{self, Format, OutputArgs};

/// Longest line that is read, in bytes.
const LINE_BYTES_MAX: u64 = 64 << 20;

/// Lines that are read ahead.
const LINES_AHEAD: usize = 1024;

/// Records that may be under way before the first of them is waited for.
const UNDER_WAY_MAX: usize = 100_000;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example: printf 'customer 7:two apples\\n' | weir produce orders --key-delimiter :")]
pub struct ProduceArgs {
    /// The topic.
    topic: String,
    /// What stands before this in a line is the record's key.
    #[arg(long, value_name = "TEXT")]
    key_delimiter: Option<String>,
    /// A header of every record; may be repeated.
    #[arg(long, value_name = "NAME=VALUE", value_parser = crate::admin::name_and_value)]
    header: Vec<(String, String)>,
    /// The partition [default: by key, or spread].
    #[arg(long)]
    partition: Option<i32>,
    /// How batches are compressed.
    #[arg(long, value_enum, default_value = "none")]
    compression: CompressionFlag,
    /// Do not wait until records are durable.
    #[arg(long)]
    no_acks: bool,
    #[command(flatten)]
    bootstrap: BootstrapArgs,
    #[command(flatten)]
    output: OutputArgs,
}

impl ProduceArgs {
    /// Runs the verb.
    pub fn run(self) -> Result<(), Failure> {
        runtime()?.block_on(self.produce())
    }

    async fn produce(self) -> Result<(), Failure> {
        let client = connect(&self.bootstrap).await?;
        let acks = if self.no_acks { Acks::None } else { Acks::All };
        let producer =
            client.producer(&self.topic).compression(self.compression.into()).acks(acks).open().await?;
        let began = Instant::now();
        let mut lines = read_lines();
        let mut under_way: VecDeque<Delivery> = VecDeque::new();
        let (mut records, mut bytes) = (0u64, 0u64);
        let mut broken = None;
        while let Some(line) = lines.recv().await {
            let record = match line.and_then(|line| self.record(line, records + 1)) {
                Ok(record) => record,
                Err(failure) => {
                    broken = Some(failure);
                    break;
                }
            };
            bytes += record.value.as_ref().map_or(0, Bytes::len) as u64;
            under_way.push_back(producer.send(record).await?);
            records += 1;
            if under_way.len() > UNDER_WAY_MAX
                && let Some(first) = under_way.pop_front()
            {
                first.await?;
            }
        }
        settle(&producer, under_way).await?;
        if let Some(failure) = broken {
            return Err(failure);
        }
        let seconds = began.elapsed().as_secs_f64();
        match self.output.output {
            Format::Table => output::print_text(&format!("{records} record(s) to {}\n", self.topic)),
            Format::Json => output::print_json(
                &json!({ "topic": self.topic, "records": records, "bytes": bytes, "seconds": seconds }),
            ),
        }
    }

    fn record(&self, line: Bytes, number: u64) -> Result<Record, Failure> {
        let mut record = match &self.key_delimiter {
            None => Record::new(line),
            Some(delimiter) => {
                let at = find(&line, delimiter.as_bytes()).ok_or_else(|| {
                    Failure::Failed(format!("line {number} has no '{delimiter}', so it has no key"))
                })?;
                Record::new(line.slice(at + delimiter.len()..)).key(line.slice(..at))
            }
        };
        record.partition = self.partition;
        for (name, value) in &self.header {
            record = record.header(name, value.clone());
        }
        Ok(record)
    }
}

/// Waits until everything is durable; the first failure is reported.
async fn settle(producer: &Producer, under_way: VecDeque<Delivery>) -> Result<(), Failure> {
    producer.flush().await;
    let mut failed = 0;
    let mut first = None;
    for delivery in under_way {
        if let Err(error) = delivery.await {
            failed += 1;
            first.get_or_insert(error);
        }
    }
    match first {
        None => Ok(()),
        Some(error) => Err(Failure::Failed(format!("{failed} record(s) were not stored: {error}"))),
    }
}

fn find(line: &[u8], delimiter: &[u8]) -> Option<usize> {
    if delimiter.is_empty() {
        return Some(0);
    }
    line.windows(delimiter.len()).position(|window| window == delimiter)
}

/// Standard input line by line. A thread reads it: there is no other way to wait for a terminal.
fn read_lines() -> mpsc::Receiver<Result<Bytes, Failure>> {
    let (sender, lines) = mpsc::channel(LINES_AHEAD);
    std::thread::spawn(move || {
        let mut stdin = std::io::stdin().lock();
        loop {
            let mut line = Vec::new();
            let read = (&mut stdin).take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
            let next = match read {
                Ok(0) => return,
                Ok(read) if read as u64 == LINE_BYTES_MAX => {
                    Err(Failure::Failed(format!("a line is longer than {LINE_BYTES_MAX} bytes")))
                }
                Ok(_) => {
                    if line.last() == Some(&b'\n') {
                        line.pop();
                    }
                    Ok(Bytes::from(line))
                }
                Err(error) => Err(Failure::Failed(format!("standard input cannot be read: {error}"))),
            };
            let last = next.is_err();
            if sender.blocking_send(next).is_err() || last {
                return;
            }
        }
    });
    lines
}
