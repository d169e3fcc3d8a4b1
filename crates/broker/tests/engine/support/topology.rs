//! Queues, exchanges and messages for tests.

use bytes::Bytes;
use weir_broker::queues::{QueueDelivery, QueueRef};
use weir_broker::topology::QueueInfo;
use weir_model::batch::{BatchBuilder, Header, Record};
use weir_model::queue::{DEFAULT_NAMESPACE, QueueMeta};
use weir_model::routing::{ArgumentValue, Arguments, BindingMeta, Destination, ExchangeMeta};
use weir_model::subscription::Disposition;

use super::{EPOCH, World};

pub const NAMESPACE: &str = DEFAULT_NAMESPACE;

pub fn text(value: &str) -> ArgumentValue {
    ArgumentValue::Bytes(Bytes::copy_from_slice(value.as_bytes()))
}

pub fn arguments(list: &[(&str, ArgumentValue)]) -> Arguments {
    list.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect()
}

pub fn header(name: &str, value: &str) -> Header {
    Header { key: name.to_owned(), value: Some(Bytes::copy_from_slice(value.as_bytes())) }
}

pub fn record(value: &str, headers: &[Header]) -> Record {
    let value = Some(Bytes::copy_from_slice(value.as_bytes()));
    Record { timestamp: EPOCH, value, headers: headers.to_vec(), ..Record::default() }
}

impl World {
    pub async fn queue(&self, name: &str, list: &[(&str, ArgumentValue)]) -> QueueInfo {
        let meta = QueueMeta { durable: true, arguments: arguments(list), ..QueueMeta::default() };
        self.broker().create_queue(NAMESPACE, name, meta).await.expect("the queue is there").0
    }

    pub async fn exchange(&self, name: &str, kind: &str, list: &[(&str, ArgumentValue)]) {
        let declared = ExchangeMeta::declared(NAMESPACE.into(), name.into(), kind, arguments(list)).unwrap();
        self.broker().declare_exchange(declared).await.expect("the exchange is there");
    }

    pub async fn bind(&self, exchange: &str, queue: &str, key: &'static str) {
        let destination = Destination::Queue(queue.into());
        let (namespace, exchange) = (NAMESPACE.to_owned(), exchange.to_owned());
        let binding =
            BindingMeta::new(namespace, exchange, destination, Bytes::from_static(key.as_bytes()), vec![]);
        self.broker().bind(binding).await.expect("bound");
    }

    pub async fn open(&self, name: &str) -> QueueRef {
        let info = self.broker().find_queue(NAMESPACE, name).unwrap().expect("the queue is there");
        self.broker().open_queue(&info).await.expect("the queue is led here")
    }

    /// Publishes records as one batch.
    pub async fn send(&self, queue: &str, records: &[Record]) {
        let destinations = self.broker().destinations(NAMESPACE, [queue], None, 0).unwrap();
        let mut builder = BatchBuilder::new();
        for record in records {
            builder.push(record.timestamp, record.key.as_deref(), record.value.as_deref(), &record.headers);
        }
        self.broker().publish_to(&destinations, builder.build()).await.unwrap().await.unwrap();
    }

    /// Takes all records out of a queue that wait in it.
    pub async fn drain(&self, name: &str) -> Vec<Record> {
        let queue = self.open(name).await;
        let owner = self.broker().new_owner();
        let mut records = Vec::new();
        while let Some(QueueDelivery { record, place, .. }) = queue.get(owner, false).await.unwrap() {
            queue.settle_durably(owner, vec![place], Disposition::Accept).await.unwrap();
            records.push(record.record);
        }
        records
    }

    pub async fn drained(&self, name: &str) -> Vec<String> {
        self.drain(name).await.iter().map(value).collect()
    }
}

pub fn value(record: &Record) -> String {
    String::from_utf8(record.value.clone().unwrap_or_default().to_vec()).unwrap()
}
