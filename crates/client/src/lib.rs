//! The Rust SDK: producers, consumers and groups, in pure Rust, over Kafka's protocol.
//!
//! ```no_run
//! use futures_util::StreamExt;
//! use weir_client::{Client, Record};
//!
//! # async fn example() -> Result<(), weir_client::ClientError> {
//! let client = Client::connect("127.0.0.1:9092").await?;
//!
//! let producer = client.producer("orders").open().await?;
//! let delivery = producer.send(Record::new("two apples").key("customer 7")).await?;
//! println!("durable at offset {}", delivery.await?.offset);
//!
//! let mut consumer = client.consumer("orders", "billing").open().await?;
//! while let Some(record) = consumer.next().await {
//!     let record = record?;
//!     println!("{:?}", record.value);
//!     consumer.ack(&record);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Sending waits for room, and a delivery resolves when the record is durable. Batches are numbered, so
//! that one which is sent twice is stored once, in order. Connections that end are opened anew, and what can
//! be tried again is, with growing pauses; an error that reaches the caller says whether it might still
//! succeed later ([`ClientError::is_retryable`]).
//!
//! * [`Client`]: a cluster.
//! * [`ProducerBuilder`], [`Producer`], [`Delivery`]: sending to a topic.
//! * [`ConsumerBuilder`], [`Consumer`]: reading a topic, in a group or alone.
//! * [`ClientOptions`]: the connection string.

mod client;
mod clock;
mod connection;
mod consumer;
mod error;
mod network;
mod options;
mod producer;
mod retry;
mod sasl;

pub use client::Client;
pub use consumer::{ConsumedRecord, Consumer, ConsumerBuilder, ConsumerOptions, StartAt};
pub use error::ClientError;
pub use options::{Address, ClientOptions, Credentials};
pub use producer::{Acks, Delivered, Delivery, Producer, ProducerBuilder, ProducerOptions, Record};
pub use weir_kafka_wire::ErrorCode;
pub use weir_model::batch::{Compression, Header};
