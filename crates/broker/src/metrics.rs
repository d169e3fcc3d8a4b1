//! Counters and gauges, in one registry that the HTTP front prints. Per front, never per topic or
//! client: what users create without bound must not create series without bound.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use weir_model::ShardId;

/// Label of everything that a front counts.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct FrontLabel {
    front: &'static str,
}

/// Labels of a request counter. Both are names from a front's own fixed list.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabel {
    front: &'static str,
    request: &'static str,
}

/// Label of what is told of each shard; there are few.
#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ShardLabel {
    shard: u32,
}

/// What one shard of this node shows when metrics are asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShardFigures {
    pub shard: ShardId,
    pub leads: bool,
    pub applied_index: u64,
    pub unwritten_bytes: usize,
}

/// All metrics of the broker.
pub struct Metrics {
    registry: Mutex<Registry>,
    connections: Family<FrontLabel, Gauge>,
    requests: Family<RequestLabel, Counter>,
    request_errors: Family<RequestLabel, Counter>,
    request_bytes: Family<RequestLabel, Counter>,
    response_bytes: Family<RequestLabel, Counter>,
    request_seconds: Family<RequestLabel, Histogram, fn() -> Histogram>,
    batches_in: Family<FrontLabel, Counter>,
    records_in: Family<FrontLabel, Counter>,
    bytes_in: Family<FrontLabel, Counter>,
    bytes_out: Family<FrontLabel, Counter>,
    shard_leads: Family<ShardLabel, Gauge>,
    shard_applied_index: Family<ShardLabel, Gauge>,
    shard_unwritten_bytes: Family<ShardLabel, Gauge>,
    /// Topics in the catalog.
    pub(crate) topics: Gauge,
    /// Partitions in the catalog.
    pub(crate) partitions: Gauge,
    /// Groups whose coordinator is here.
    pub(crate) groups: Gauge,
    /// Rebalances completed here.
    pub(crate) rebalances: Counter,
    /// Offsets that retention and DeleteRecords let go.
    pub(crate) offsets_trimmed: Counter,
    /// Time from enqueuing a batch to its answer, in seconds.
    pub(crate) publish_seconds: Histogram,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// What one front counts. Cheap to clone; hold one per front, not one per request.
#[derive(Clone, Debug)]
pub struct FrontMetrics {
    front: &'static str,
    metrics: Arc<Metrics>,
    /// Connections that are open now.
    pub connections: Gauge,
    /// Batches accepted.
    pub batches_in: Counter,
    /// Records accepted.
    pub records_in: Counter,
    /// Bytes of records accepted.
    pub bytes_in: Counter,
    /// Bytes of records handed out.
    pub bytes_out: Counter,
}

impl Metrics {
    pub(crate) fn new() -> Arc<Metrics> {
        let mut registry = Registry::with_prefix("weir");
        let metrics = Metrics {
            connections: Family::default(),
            requests: Family::default(),
            request_errors: Family::default(),
            request_bytes: Family::default(),
            response_bytes: Family::default(),
            request_seconds: Family::new_with_constructor(seconds),
            batches_in: Family::default(),
            records_in: Family::default(),
            bytes_in: Family::default(),
            bytes_out: Family::default(),
            shard_leads: Family::default(),
            shard_applied_index: Family::default(),
            shard_unwritten_bytes: Family::default(),
            topics: Gauge::default(),
            partitions: Gauge::default(),
            groups: Gauge::default(),
            rebalances: Counter::default(),
            offsets_trimmed: Counter::default(),
            publish_seconds: seconds(),
            registry: Mutex::new(Registry::default()),
        };
        let m = &metrics;
        registry.register("connections", "Connections that are open", m.connections.clone());
        registry.register("requests", "Requests handled", m.requests.clone());
        registry.register("request_errors", "Requests answered with an error", m.request_errors.clone());
        registry.register("request_bytes", "Bytes of requests", m.request_bytes.clone());
        registry.register("response_bytes", "Bytes of answers", m.response_bytes.clone());
        registry.register(
            "request_seconds",
            "Time from a request's arrival to its answer, waiting that it asked for included",
            m.request_seconds.clone(),
        );
        registry.register("batches_in", "Record batches accepted", m.batches_in.clone());
        registry.register("records_in", "Records accepted", m.records_in.clone());
        registry.register("bytes_in", "Bytes of records accepted", m.bytes_in.clone());
        registry.register("bytes_out", "Bytes of records handed out", m.bytes_out.clone());
        registry.register("shard_leads", "Whether this node leads the shard", m.shard_leads.clone());
        registry.register(
            "shard_applied_index",
            "Last entry of the shard that is applied here",
            m.shard_applied_index.clone(),
        );
        registry.register(
            "shard_unwritten_bytes",
            "Bytes of records that are durable in the journal and not yet in segment files",
            m.shard_unwritten_bytes.clone(),
        );
        registry.register("topics", "Topics in the catalog", m.topics.clone());
        registry.register("partitions", "Partitions in the catalog", m.partitions.clone());
        registry.register("groups", "Groups whose coordinator is on this node", m.groups.clone());
        registry.register("group_rebalances", "Rebalances completed", m.rebalances.clone());
        registry.register(
            "offsets_trimmed",
            "Offsets that retention and deletion let go",
            m.offsets_trimmed.clone(),
        );
        registry.register(
            "publish_seconds",
            "Time from enqueuing a batch to its answer",
            m.publish_seconds.clone(),
        );
        *metrics.registry.lock() = registry;
        Arc::new(metrics)
    }

    /// What the front of this name counts.
    pub fn front(self: &Arc<Metrics>, front: &'static str) -> FrontMetrics {
        let label = FrontLabel { front };
        FrontMetrics {
            front,
            metrics: self.clone(),
            connections: self.connections.get_or_create(&label).clone(),
            batches_in: self.batches_in.get_or_create(&label).clone(),
            records_in: self.records_in.get_or_create(&label).clone(),
            bytes_in: self.bytes_in.get_or_create(&label).clone(),
            bytes_out: self.bytes_out.get_or_create(&label).clone(),
        }
    }

    /// Adds further metrics to the registry, such as a crate's own.
    pub fn register(&self, add: impl FnOnce(&mut Registry)) {
        add(&mut self.registry.lock());
    }

    pub(crate) fn show_shard(&self, figures: ShardFigures) {
        let label = ShardLabel { shard: figures.shard.0 };
        self.shard_leads.get_or_create(&label).set(i64::from(figures.leads));
        self.shard_applied_index.get_or_create(&label).set(figures.applied_index as i64);
        self.shard_unwritten_bytes.get_or_create(&label).set(figures.unwritten_bytes as i64);
    }

    /// Everything in the text format of OpenMetrics, as of the last [`Broker::metrics`].
    ///
    /// [`Broker::metrics`]: crate::Broker::metrics
    pub fn render(&self) -> String {
        let mut text = String::new();
        // Writing to a string fails only if a metric's own encoder does; what was written is kept.
        let _ = prometheus_client::encoding::text::encode(&mut text, &self.registry.lock());
        text
    }
}

impl FrontMetrics {
    /// What is counted of one kind of request. Ask once per kind and keep it. `request` is a name from
    /// the front's own fixed list.
    pub fn request(&self, request: &'static str) -> RequestMetrics {
        let label = RequestLabel { front: self.front, request };
        RequestMetrics {
            requests: self.metrics.requests.get_or_create(&label).clone(),
            errors: self.metrics.request_errors.get_or_create(&label).clone(),
            bytes_in: self.metrics.request_bytes.get_or_create(&label).clone(),
            bytes_out: self.metrics.response_bytes.get_or_create(&label).clone(),
            seconds: self.metrics.request_seconds.get_or_create(&label).clone(),
        }
    }
}

/// What is counted of one kind of request.
#[derive(Clone, Debug)]
pub struct RequestMetrics {
    /// Requests handled.
    pub requests: Counter,
    /// Errors that clients were told.
    pub errors: Counter,
    /// Bytes of requests.
    pub bytes_in: Counter,
    /// Bytes of answers.
    pub bytes_out: Counter,
    /// Time from arrival to answer, in seconds.
    pub seconds: Histogram,
}

/// A histogram of times from 50 µs to 26 s.
fn seconds() -> Histogram {
    Histogram::new(exponential_buckets(0.000_05, 2.0, 20))
}
