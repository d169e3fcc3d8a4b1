//! Prints batches, and the records in them.

use std::io::{self, BufWriter, ErrorKind, Write};
use std::path::Path;

use bytes::Bytes;
use serde_json::{Value, json};
use weir_model::batch::{BATCH_HEADER_BYTES, Compression, Record, decode_records};

use super::segments::{Batches, PlacedBatch, Stop, find};
use crate::exit::Failure;
use crate::output::Format;
use crate::time::rfc3339;

/// Largest record section that is unpacked.
const SECTION_BYTES_MAX: usize = 256 << 20;

/// What to print.
#[derive(Clone, Copy, Debug)]
pub struct DumpOptions {
    /// The records as well as their batches.
    pub records: bool,
    /// The first offset.
    pub from: i64,
    /// Most batches.
    pub count: Option<u64>,
    /// Lines for people, or one JSON value on each line.
    pub format: Format,
}

/// Prints the batches of all segment files at or below a path.
pub fn dump(path: &Path, options: &DumpOptions) -> Result<(), Failure> {
    let mut out = BufWriter::new(io::stdout().lock());
    let mut left = options.count.unwrap_or(u64::MAX);
    let mut damaged = Vec::new();
    for file in find(path)? {
        if left == 0 {
            break;
        }
        let printed = dump_file(&file, options, &mut left, &mut out, &mut damaged).and_then(|()| out.flush());
        match printed {
            Ok(()) => {}
            // A reader that has had enough, as `head` has.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            Err(error) => return Err(Failure::Failed(format!("standard output cannot be written: {error}"))),
        }
    }
    match damaged.first() {
        None => Ok(()),
        Some(first) => Err(Failure::Corrupt(format!(
            "{} place(s) cannot be read, the first: {first}; `weir log verify` lists them all",
            damaged.len()
        ))),
    }
}

fn dump_file(
    file: &Path,
    options: &DumpOptions,
    left: &mut u64,
    out: &mut impl Write,
    damaged: &mut Vec<String>,
) -> io::Result<()> {
    let name = file.display();
    let batches = match Batches::open(file) {
        Ok(batches) => batches,
        Err(failure) => {
            damaged.push(failure.to_string());
            return Ok(());
        }
    };
    if options.format == Format::Table {
        writeln!(out, "{name}")?;
    }
    for batch in batches {
        let batch = match batch {
            Ok(batch) => batch,
            Err(Stop::CutShort { position }) => {
                // Not damage by itself: the journal brings again what was not finished.
                return match options.format {
                    Format::Table => writeln!(out, "  {position}: the file ends within a batch"),
                    Format::Json => {
                        let line =
                            json!({ "file": name.to_string(), "position": position, "cut_short": true });
                        writeln!(out, "{line}")
                    }
                };
            }
            Err(Stop::NoBatch { position, why }) => {
                damaged.push(format!("{name} at byte {position}: {why}"));
                return Ok(());
            }
            Err(Stop::Io(error)) => {
                damaged.push(format!("{name}: {error}"));
                return Ok(());
            }
        };
        if batch.header.last_offset() < options.from {
            continue;
        }
        if *left == 0 {
            break;
        }
        *left -= 1;
        if let Err(error) = &batch.verified {
            damaged.push(format!("{name} at byte {}: {error}", batch.position));
        }
        print_batch(file, &batch, options, out, damaged)?;
    }
    Ok(())
}

fn print_batch(
    file: &Path,
    batch: &PlacedBatch,
    options: &DumpOptions,
    out: &mut impl Write,
    damaged: &mut Vec<String>,
) -> io::Result<()> {
    let header = &batch.header;
    let state = batch.verified.as_ref().err().map_or("ok".to_owned(), ToString::to_string);
    let compression = header.compression().map_or("unknown", Compression::name);
    match options.format {
        Format::Table => {
            write!(
                out,
                "  {}: offsets {} to {}, {} record(s), {} bytes, epoch {}, {}, {compression}",
                batch.position,
                header.base_offset,
                header.last_offset(),
                header.record_count,
                batch.bytes.len(),
                header.leader_epoch,
                rfc3339(header.max_timestamp),
            )?;
            if header.is_idempotent() {
                let (id, epoch, sequence) = (header.producer_id, header.producer_epoch, header.base_sequence);
                write!(out, ", producer {id} epoch {epoch} sequence {sequence}")?;
            }
            writeln!(out, ", {state}")?;
        }
        Format::Json => {
            let line = json!({
                "file": file.display().to_string(),
                "position": batch.position,
                "base_offset": header.base_offset,
                "last_offset": header.last_offset(),
                "records": header.record_count,
                "bytes": batch.bytes.len(),
                "leader_epoch": header.leader_epoch,
                "base_timestamp_ms": header.base_timestamp,
                "max_timestamp_ms": header.max_timestamp,
                "compression": compression,
                "producer_id": header.producer_id,
                "producer_epoch": header.producer_epoch,
                "base_sequence": header.base_sequence,
                "crc": header.crc,
                "state": state,
            });
            writeln!(out, "{line}")?;
        }
    }
    if options.records && batch.verified.is_ok() {
        for record in records(batch) {
            match record {
                Ok(record) => print_record(&record, options.format, out)?,
                Err(why) => {
                    damaged.push(format!("{} at byte {}: {why}", file.display(), batch.position));
                    break;
                }
            }
        }
    }
    Ok(())
}

fn records(batch: &PlacedBatch) -> Vec<Result<Record, String>> {
    let section = batch.bytes.slice(BATCH_HEADER_BYTES..);
    let section: Result<Bytes, String> = match batch.header.compression() {
        Some(Compression::None) => Ok(section),
        Some(compression) => weir_compression::decompress(compression, &section, SECTION_BYTES_MAX)
            .map_err(|error| error.to_string()),
        None => Err("its compression is unknown".to_owned()),
    };
    match section {
        Ok(section) => decode_records(&batch.header, section)
            .map(|record| record.map_err(|error| error.to_string()))
            .collect(),
        Err(why) => vec![Err(why)],
    }
}

fn print_record(record: &Record, format: Format, out: &mut impl Write) -> io::Result<()> {
    match format {
        Format::Table => {
            write!(out, "    {} {}", record.offset, rfc3339(record.timestamp))?;
            write!(out, " key {} value {}", shown(record.key.as_ref()), shown(record.value.as_ref()))?;
            for header in &record.headers {
                write!(out, " {}={}", header.key, shown(header.value.as_ref()))?;
            }
            writeln!(out)
        }
        Format::Json => {
            let headers: Vec<Value> = record
                .headers
                .iter()
                .map(|header| json!({ "key": header.key, "value": text(header.value.as_ref()) }))
                .collect();
            let line = json!({
                "offset": record.offset,
                "timestamp_ms": record.timestamp,
                "key": text(record.key.as_ref()),
                "value": text(record.value.as_ref()),
                "headers": headers,
            });
            writeln!(out, "{line}")
        }
    }
}

/// Text as it is, anything else with escapes; nothing as a dash.
fn shown(bytes: Option<&Bytes>) -> String {
    bytes.map_or("-".to_owned(), |bytes| format!("\"{}\"", bytes.escape_ascii()))
}

fn text(bytes: Option<&Bytes>) -> Value {
    bytes.map_or(Value::Null, |bytes| match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => bytes.escape_ascii().to_string().into(),
    })
}
