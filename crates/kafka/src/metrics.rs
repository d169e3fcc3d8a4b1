//! What the front counts, per API and in all.

use std::sync::Arc;
use std::time::Duration;

use weir_broker::{FrontMetrics, Metrics, RequestMetrics};

use crate::apis;

/// The front's counters.
#[derive(Debug)]
pub(crate) struct KafkaMetrics {
    /// Connections, batches, records and bytes.
    pub(crate) front: FrontMetrics,
    /// In the order of the table of APIs.
    apis: Vec<RequestMetrics>,
}

impl KafkaMetrics {
    pub(crate) fn new(metrics: &Arc<Metrics>, front: &'static str) -> KafkaMetrics {
        let front = metrics.front(front);
        let apis = apis::TABLE.iter().map(|api| front.request(api.key.name())).collect();
        KafkaMetrics { front, apis }
    }

    /// A request of so many bytes has arrived; `api` is its place in the table.
    pub(crate) fn begun(&self, api: usize, bytes: usize) {
        self.apis[api].requests.inc();
        self.apis[api].bytes_in.inc_by(bytes as u64);
    }

    /// It was answered with so many bytes after so long.
    pub(crate) fn answered(&self, api: usize, bytes: usize, took: Duration) {
        self.apis[api].bytes_out.inc_by(bytes as u64);
        self.apis[api].seconds.observe(took.as_secs_f64());
    }

    /// A client was told of an error.
    pub(crate) fn refused(&self, api: usize) {
        self.apis[api].errors.inc();
    }
}
