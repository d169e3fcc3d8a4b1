//! The client: what producers and consumers are made from.

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_kafka_wire::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use weir_kafka_wire::messages::delete_topics::DeleteTopicState;
use weir_kafka_wire::{CreateTopicsRequest, DeleteTopicsRequest};

use crate::consumer::{ConsumerBuilder, StartAt, offsets};
use crate::error::ClientError;
use crate::network::Network;
use crate::options::ClientOptions;
use crate::producer::ProducerBuilder;

/// A connection to a cluster. Cheap to clone; everything made from it shares its connections.
#[derive(Clone, Debug)]
pub struct Client {
    network: Arc<Network>,
}

impl Client {
    /// Connects to the cluster that a connection string names; see [`ClientOptions::parse`].
    pub async fn connect(connection: &str) -> Result<Client, ClientError> {
        Client::with_options(ClientOptions::parse(connection)?).await
    }

    /// Connects with these options.
    pub async fn with_options(options: ClientOptions) -> Result<Client, ClientError> {
        let network = Network::new(options);
        network.any().await?;
        Ok(Client { network })
    }

    /// A producer for a topic.
    pub fn producer(&self, topic: impl Into<String>) -> ProducerBuilder {
        ProducerBuilder::new(self.network.clone(), topic.into())
    }

    /// A consumer of a topic, as a member of a group.
    pub fn consumer(&self, topic: impl Into<String>, group: impl Into<String>) -> ConsumerBuilder {
        ConsumerBuilder::new(self.network.clone(), topic.into(), Some(group.into()))
    }

    /// A reader of all partitions of a topic, without a group: nothing is committed.
    pub fn reader(&self, topic: impl Into<String>) -> ConsumerBuilder {
        ConsumerBuilder::new(self.network.clone(), topic.into(), None)
    }

    /// Number of a topic's partitions. An error if it does not exist.
    pub async fn partitions(&self, topic: &str) -> Result<usize, ClientError> {
        Ok(self.network.topic(topic, false).await?.leaders.len())
    }

    /// The offset of a place in every partition of a topic, by partition.
    pub async fn offsets(&self, topic: &str, place: StartAt) -> Result<BTreeMap<i32, i64>, ClientError> {
        let partitions: Vec<i32> = (0..self.partitions(topic).await? as i32).collect();
        offsets::find(&self.network, topic, &partitions, place).await
    }

    /// Creates a topic; the broker's default number of partitions if none is given.
    pub async fn create_topic(
        &self,
        name: &str,
        partitions: Option<u32>,
        config: &BTreeMap<String, String>,
    ) -> Result<(), ClientError> {
        let configs = config
            .iter()
            .map(|(name, value)| CreatableTopicConfig { name: name.into(), value: Some(value.into()) });
        let topic = CreatableTopic {
            name: name.into(),
            num_partitions: partitions.and_then(|count| i32::try_from(count).ok()).unwrap_or(-1),
            replication_factor: -1,
            configs: configs.collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        let response = self.network.ask_any(&request).await?;
        for result in response.topics {
            if !result.error_code.is_none() {
                return Err(ClientError::Refused {
                    what: format!("creating topic '{name}'"),
                    code: result.error_code,
                    message: result.error_message.map(String::from),
                });
            }
        }
        Ok(())
    }

    /// Deletes a topic with its records.
    pub async fn delete_topic(&self, name: &str) -> Result<(), ClientError> {
        let topics = vec![DeleteTopicState { name: Some(name.into()), ..Default::default() }];
        let topic_names = vec![name.into()];
        let request = DeleteTopicsRequest { topics, topic_names, timeout_ms: 30_000 };
        let response = self.network.ask_any(&request).await?;
        self.network.forget(name);
        for result in response.responses {
            ClientError::check(result.error_code, || format!("deleting topic '{name}'"))?;
        }
        Ok(())
    }
}
