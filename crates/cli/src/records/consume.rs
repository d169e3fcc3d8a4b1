//! `weir consume`: records become lines on standard output.

use std::collections::BTreeMap;
use std::io::{self, BufWriter, ErrorKind, StdoutLock, Write};

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt};
use serde_json::{Value, json};
use weir_client::{Client, ConsumedRecord, Consumer, StartAt};

use super::{connect, runtime};
use crate::contexts::BootstrapArgs;
use crate::exit::Failure;
use crate::output::{Format, OutputArgs};
use crate::time;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  weir consume orders --until-end\n  \
    weir consume orders --group billing --output json --count 10")]
pub struct ConsumeArgs {
    /// The topic.
    topic: String,
    /// Read as a member of this group, and commit what was printed.
    #[arg(long)]
    group: Option<String>,
    /// Where to begin (in a group: where it has no position yet): start, end, an offset, or @ and a time.
    #[arg(long, value_name = "start|end|OFFSET|@TIME", default_value = "start", value_parser = place)]
    from: StartAt,
    /// End after this many records.
    #[arg(long, value_name = "COUNT")]
    count: Option<u64>,
    /// End when all records are printed that were there at the beginning.
    #[arg(long)]
    until_end: bool,
    /// Print keys, with this between key and value.
    #[arg(long, value_name = "TEXT")]
    key_delimiter: Option<String>,
    #[command(flatten)]
    bootstrap: BootstrapArgs,
    #[command(flatten)]
    output: OutputArgs,
}

fn place(text: &str) -> Result<StartAt, String> {
    match text.strip_prefix('@') {
        Some(text) => time::parse(text).map(StartAt::Time).ok_or_else(|| {
            "a time is @ and RFC 3339 in UTC, such as @2026-11-03T10:00:00Z, or milliseconds since 1970"
                .to_owned()
        }),
        None => text.parse(),
    }
}

impl ConsumeArgs {
    /// Runs the verb.
    pub fn run(self) -> Result<(), Failure> {
        runtime()?.block_on(self.consume())
    }

    async fn consume(self) -> Result<(), Failure> {
        let client = connect(&self.bootstrap).await?;
        let mut until = match self.until_end {
            true => Some(Remaining::find(&client, &self.topic, self.from).await?),
            false => None,
        };
        let builder = match &self.group {
            Some(group) => client.consumer(&self.topic, group),
            None => client.reader(&self.topic),
        };
        let mut consumer = builder.start(self.from).open().await?;
        let printed = self.print_all(&mut consumer, &mut until).await;
        // What was printed is committed also when printing ended badly.
        let closed = consumer.close().await;
        printed?;
        Ok(closed?)
    }

    /// Prints until there is enough, or somebody asks to stop.
    async fn print_all(&self, consumer: &mut Consumer, until: &mut Option<Remaining>) -> Result<(), Failure> {
        let mut left = self.count.unwrap_or(u64::MAX);
        let mut out = BufWriter::new(io::stdout().lock());
        let interrupted = tokio::signal::ctrl_c();
        let mut interrupted = std::pin::pin!(interrupted);
        // Printed, and not flushed yet: acknowledged once it is out.
        let mut printed = Vec::new();
        while left > 0 && !until.as_ref().is_some_and(Remaining::is_none) {
            let next = match consumer.next().now_or_never() {
                Some(next) => next,
                None => {
                    if !flush(&mut out, consumer, &mut printed)? {
                        return Ok(());
                    }
                    tokio::select! {
                        next = consumer.next() => next,
                        _ = &mut interrupted => break,
                    }
                }
            };
            let Some(record) = next else { break };
            let record = record?;
            if until.as_mut().is_some_and(|until| !until.take(&record)) {
                continue;
            }
            match self.print(&record, &mut out) {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
                Err(error) => return Err(cannot_print(&error)),
            }
            left -= 1;
            printed.push(record);
            if printed.len() >= FLUSH_RECORDS && !flush(&mut out, consumer, &mut printed)? {
                return Ok(());
            }
        }
        flush(&mut out, consumer, &mut printed).map(drop)
    }

    fn print(&self, record: &ConsumedRecord, out: &mut impl Write) -> io::Result<()> {
        if self.output.output == Format::Json {
            let headers: Vec<Value> = record
                .headers
                .iter()
                .map(|header| json!({ "key": header.key, "value": text(header.value.as_ref()) }))
                .collect();
            let line = json!({
                "topic": self.topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp_ms": record.timestamp_ms,
                "key": text(record.key.as_ref()),
                "value": text(record.value.as_ref()),
                "headers": headers,
            });
            return writeln!(out, "{line}");
        }
        if let Some(delimiter) = &self.key_delimiter {
            out.write_all(record.key.as_deref().unwrap_or_default())?;
            out.write_all(delimiter.as_bytes())?;
        }
        out.write_all(record.value.as_deref().unwrap_or_default())?;
        out.write_all(b"\n")
    }
}

/// Records that may be printed and not flushed.
const FLUSH_RECORDS: usize = 1000;

/// Flushes, and acknowledges what is out. False if nobody reads any more.
fn flush(
    out: &mut BufWriter<StdoutLock<'_>>,
    consumer: &Consumer,
    printed: &mut Vec<ConsumedRecord>,
) -> Result<bool, Failure> {
    match out.flush() {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(false),
        Err(error) => return Err(cannot_print(&error)),
    }
    for record in printed.drain(..) {
        consumer.ack(&record);
    }
    Ok(true)
}

fn cannot_print(error: &io::Error) -> Failure {
    Failure::Failed(format!("standard output cannot be written: {error}"))
}

/// Text as it is; what is no text with escapes.
fn text(bytes: Option<&Bytes>) -> Value {
    bytes.map_or(Value::Null, |bytes| match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => bytes.escape_ascii().to_string().into(),
    })
}

/// What was there at the beginning and is not printed yet: by partition, the next offset and the end.
struct Remaining {
    partitions: BTreeMap<i32, (i64, i64)>,
}

impl Remaining {
    async fn find(client: &Client, topic: &str, from: StartAt) -> Result<Remaining, Failure> {
        let starts = client.offsets(topic, StartAt::Start).await?;
        let from = client.offsets(topic, from).await?;
        let ends = client.offsets(topic, StartAt::End).await?;
        let partitions = ends.into_iter().filter_map(|(partition, end)| {
            let start = *starts.get(&partition)?.max(from.get(&partition)?);
            (start < end).then_some((partition, (start, end)))
        });
        Ok(Remaining { partitions: partitions.collect() })
    }

    fn is_none(&self) -> bool {
        self.partitions.is_empty()
    }

    /// Whether the record was there at the beginning.
    fn take(&mut self, record: &ConsumedRecord) -> bool {
        let Some((next, end)) = self.partitions.get_mut(&record.partition) else { return false };
        if record.offset >= *end {
            self.partitions.remove(&record.partition);
            return false;
        }
        *next = record.offset + 1;
        if *next >= *end {
            self.partitions.remove(&record.partition);
        }
        true
    }
}
