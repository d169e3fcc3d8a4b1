//! `weir bench`: how fast a server takes and gives records, measured by the same client that anybody
//! would use.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt;
use rand::rngs::SmallRng;
use rand::{RngCore, SeedableRng};
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior};
use weir_client::{Client, ErrorCode, ProducerOptions, Record, StartAt};

use super::{CompressionFlag, connect, runtime};
use crate::contexts::BootstrapArgs;
use crate::exit::Failure;
use crate::output::{self, OutputArgs, Table};

/// One record in so many has its latency measured while throughput is.
const SAMPLED: u64 = 64;

/// Records that may be sent before their deliveries are looked at.
const UNDER_WAY_MAX: usize = 200_000;

#[derive(Debug, clap::Subcommand)]
pub enum BenchCommand {
    /// Send records as fast as the server takes them.
    Produce {
        #[command(flatten)]
        load: Load,
    },
    /// Read records as fast as the server gives them.
    Consume {
        /// The topic; `weir bench produce` fills it.
        #[arg(default_value = "weir-bench")]
        topic: String,
        /// Read this many records [default: all that are there].
        #[arg(long, value_name = "COUNT")]
        records: Option<u64>,
        #[command(flatten)]
        common: Common,
    },
    /// Send records at an even rate, read them back, and measure the time until each is durable and until
    /// each is read.
    Latency {
        /// Records in each second.
        #[arg(long, value_name = "COUNT", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
        rate: u64,
        #[command(flatten)]
        load: Load,
    },
}

#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    #[command(flatten)]
    bootstrap: BootstrapArgs,
    #[command(flatten)]
    output: OutputArgs,
}

/// What is sent.
#[derive(Clone, Debug, clap::Args)]
pub struct Load {
    /// The topic; it is created if it does not exist.
    #[arg(default_value = "weir-bench")]
    topic: String,
    /// How many records.
    #[arg(long, value_name = "COUNT", default_value_t = 100_000)]
    records: u64,
    /// Bytes of each record's value.
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(16..=16_000_000))]
    size: u32,
    /// Partitions of the topic, if it is created.
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    partitions: u32,
    /// How batches are compressed. The values are random bytes, which do not compress.
    #[arg(long, value_enum, default_value = "none")]
    compression: CompressionFlag,
    #[command(flatten)]
    common: Common,
}

impl BenchCommand {
    /// Runs the verb.
    pub fn run(self) -> Result<(), Failure> {
        runtime()?.block_on(async {
            match self {
                BenchCommand::Produce { load } => produce(&load).await,
                BenchCommand::Consume { topic, records, common } => consume(&topic, records, &common).await,
                BenchCommand::Latency { rate, load } => latency(&load, rate).await,
            }
        })
    }
}

/// What was measured.
#[derive(Debug, Serialize)]
struct Measured {
    what: &'static str,
    records: u64,
    bytes: u64,
    seconds: f64,
    records_per_second: f64,
    mib_per_second: f64,
    /// By what was waited for.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    latency_ms: BTreeMap<&'static str, Percentiles>,
}

#[derive(Debug, Serialize)]
struct Percentiles {
    p50: f64,
    p99: f64,
    p999: f64,
    max: f64,
}

impl Percentiles {
    fn of(mut samples: Vec<Duration>) -> Option<Percentiles> {
        samples.sort_unstable();
        let last = samples.len().checked_sub(1)?;
        let at = |share: f64| samples[(last as f64 * share).round() as usize].as_secs_f64() * 1000.0;
        Some(Percentiles { p50: at(0.5), p99: at(0.99), p999: at(0.999), max: at(1.0) })
    }
}

impl Measured {
    fn new(what: &'static str, records: u64, bytes: u64, time: Duration) -> Measured {
        let seconds = time.as_secs_f64().max(1e-9);
        Measured {
            what,
            records,
            bytes,
            seconds,
            records_per_second: records as f64 / seconds,
            mib_per_second: bytes as f64 / seconds / f64::from(1 << 20),
            latency_ms: BTreeMap::new(),
        }
    }

    fn latency(mut self, until: &'static str, samples: Vec<Duration>) -> Measured {
        self.latency_ms.extend(Percentiles::of(samples).map(|percentiles| (until, percentiles)));
        self
    }

    fn print(&self, output: OutputArgs) -> Result<(), Failure> {
        output::print(output.output, self, |measured| {
            let mut table = Table::new(&["measured", "value"]);
            let mut row = |name: &str, value: String| table.row([name.to_owned(), value]);
            row("records", measured.records.to_string());
            row("seconds", format!("{:.3}", measured.seconds));
            row("records/s", format!("{:.0}", measured.records_per_second));
            row("MiB/s", format!("{:.1}", measured.mib_per_second));
            for (until, p) in &measured.latency_ms {
                row(&format!("ms until {until}, p50"), format!("{:.3}", p.p50));
                row(&format!("ms until {until}, p99"), format!("{:.3}", p.p99));
                row(&format!("ms until {until}, p99.9"), format!("{:.3}", p.p999));
                row(&format!("ms until {until}, max"), format!("{:.3}", p.max));
            }
            table
        })
    }
}

/// Says on standard error how far it is, once a second.
struct Progress {
    next: Instant,
    began: Instant,
}

impl Progress {
    fn new() -> Progress {
        Progress { next: Instant::now() + Duration::from_secs(1), began: Instant::now() }
    }

    fn say(&mut self, done: u64, of: Option<u64>) {
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + Duration::from_secs(1);
        let rate = done as f64 / self.began.elapsed().as_secs_f64();
        match of {
            Some(of) => eprintln!("{done} of {of} records, {rate:.0}/s"),
            None => eprintln!("{done} records, {rate:.0}/s"),
        }
    }
}

async fn ensure_topic(client: &Client, load: &Load) -> Result<(), Failure> {
    match client.create_topic(&load.topic, Some(load.partitions), &BTreeMap::new()).await {
        Ok(()) => Ok(()),
        Err(error) if error.code() == Some(ErrorCode::TOPIC_ALREADY_EXISTS) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A few values of random bytes, handed out in turn: making one for each record would measure that.
struct Values(Vec<Bytes>);

impl Values {
    fn new(size: u32) -> Values {
        let mut random = SmallRng::seed_from_u64(1);
        let value = |_| {
            let mut bytes = vec![0; size as usize];
            random.fill_bytes(&mut bytes);
            Bytes::from(bytes)
        };
        Values((0..16).map(value).collect())
    }

    fn get(&self, index: u64) -> Bytes {
        self.0[(index % self.0.len() as u64) as usize].clone()
    }
}

async fn produce(load: &Load) -> Result<(), Failure> {
    let client = connect(&load.common.bootstrap).await?;
    ensure_topic(&client, load).await?;
    let options = ProducerOptions { compression: load.compression.into(), ..ProducerOptions::default() };
    let producer = client.producer(&load.topic).options(options).open().await?;
    let values = Values::new(load.size);
    let mut progress = Progress::new();
    let mut samples = tokio::task::JoinSet::new();
    let mut under_way = std::collections::VecDeque::new();
    let began = Instant::now();
    for index in 0..load.records {
        let sent = Instant::now();
        let delivery = producer.send(Record::new(values.get(index))).await?;
        if index % SAMPLED == 0 {
            samples.spawn(async move { delivery.await.map(|_| sent.elapsed()) });
        } else {
            under_way.push_back(delivery);
        }
        if under_way.len() > UNDER_WAY_MAX
            && let Some(first) = under_way.pop_front()
        {
            first.await?;
        }
        if index % 1024 == 0 {
            progress.say(index, Some(load.records));
        }
    }
    producer.flush().await;
    for delivery in under_way {
        delivery.await?;
    }
    let time = began.elapsed();
    let mut latencies = Vec::new();
    while let Some(sample) = samples.join_next().await {
        let sample = sample.map_err(|error| Failure::Failed(error.to_string()))?;
        latencies.push(sample?);
    }
    let bytes = load.records * u64::from(load.size);
    let measured = Measured::new("produce", load.records, bytes, time).latency("durable", latencies);
    measured.print(load.common.output)
}

async fn consume(topic: &str, records: Option<u64>, common: &Common) -> Result<(), Failure> {
    let client = connect(&common.bootstrap).await?;
    let starts = client.offsets(topic, StartAt::Start).await?;
    let ends = client.offsets(topic, StartAt::End).await?;
    let there: i64 = ends.iter().map(|(p, end)| end - starts.get(p).copied().unwrap_or_default()).sum();
    let wanted = records.unwrap_or(there.max(0).unsigned_abs());
    if wanted == 0 {
        return Err(Failure::Failed(format!(
            "the topic {topic} is empty; `weir bench produce {topic}` fills it"
        )));
    }
    let mut progress = Progress::new();
    let mut consumer = client.reader(topic).start(StartAt::Start).open().await?;
    let (mut read, mut bytes) = (0u64, 0u64);
    let began = Instant::now();
    while read < wanted {
        let Some(record) = consumer.next().await else { break };
        bytes += record?.value.map_or(0, |value| value.len() as u64);
        read += 1;
        if read % 1024 == 0 {
            progress.say(read, Some(wanted));
        }
    }
    Measured::new("consume", read, bytes, began.elapsed()).print(common.output)
}

async fn latency(load: &Load, rate: u64) -> Result<(), Failure> {
    let client = connect(&load.common.bootstrap).await?;
    ensure_topic(&client, load).await?;
    let options = ProducerOptions {
        compression: load.compression.into(),
        linger: Duration::ZERO,
        ..ProducerOptions::default()
    };
    let producer = client.producer(&load.topic).options(options).open().await?;
    let origin = Instant::now();
    // The reader must be there before the first record: it begins at the present end.
    let mut consumer = client.reader(&load.topic).start(StartAt::End).open().await?;
    let total = load.records;
    let reading = tokio::spawn(async move {
        let mut samples = Vec::new();
        while (samples.len() as u64) < total {
            let Some(record) = consumer.next().await else { break };
            let value = record?.value.unwrap_or_default();
            // The record says when it was sent, on this process' clock.
            if let Some(sent) = value.first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes)) {
                samples.push(origin.elapsed().saturating_sub(Duration::from_nanos(sent)));
            }
        }
        Ok::<_, weir_client::ClientError>(samples)
    });
    let values = Values::new(load.size);
    let mut ticks = tokio::time::interval(Duration::from_nanos(1_000_000_000 / rate));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut progress = Progress::new();
    let mut durable = tokio::task::JoinSet::new();
    let mut latencies = Vec::new();
    let began = Instant::now();
    for index in 0..total {
        ticks.tick().await;
        let sent = Instant::now();
        let mut value = values.get(index).to_vec();
        let since_origin = u64::try_from((sent - origin).as_nanos()).unwrap_or(u64::MAX);
        value[..8].copy_from_slice(&since_origin.to_be_bytes());
        let delivery = producer.send(Record::new(value)).await?;
        durable.spawn(async move { delivery.await.map(|_| sent.elapsed()) });
        while let Some(sample) = durable.try_join_next() {
            latencies.push(sample.map_err(|error| Failure::Failed(error.to_string()))??);
        }
        progress.say(index, Some(total));
    }
    while let Some(sample) = durable.join_next().await {
        latencies.push(sample.map_err(|error| Failure::Failed(error.to_string()))??);
    }
    let time = began.elapsed();
    let read = reading.await.map_err(|error| Failure::Failed(error.to_string()))??;
    let bytes = total * u64::from(load.size);
    Measured::new("latency", total, bytes, time)
        .latency("durable", latencies)
        .latency("read", read)
        .print(load.common.output)
}
