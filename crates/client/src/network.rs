//! The cluster as a client sees it: who leads which partition, and a connection to each node.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use weir_kafka_wire::messages::metadata::MetadataRequestTopic;
use weir_kafka_wire::{
    ErrorCode, FindCoordinatorRequest, KafkaStr, MetadataRequest, MetadataResponse, RequestMessage,
};

use crate::connection::Connection;
use crate::error::ClientError;
use crate::options::{Address, ClientOptions};
use crate::retry::Retry;

/// Nodes of which a client keeps an address and a connection.
const NODES_MAX: usize = 10_000;

/// What is known of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TopicInfo {
    /// The node that leads each partition, by index; none during an election.
    pub(crate) leaders: Vec<Option<i32>>,
}

/// Shared by everything that a client makes.
#[derive(Debug)]
pub(crate) struct Network {
    pub(crate) options: ClientOptions,
    known: Mutex<Known>,
    /// Held while connecting, so that many who need the same node open one connection.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Known {
    nodes: BTreeMap<i32, Address>,
    topics: BTreeMap<String, Arc<TopicInfo>>,
    connections: BTreeMap<i32, Arc<Connection>>,
    /// A connection whose node id is not known: to a bootstrap address.
    bootstrap: Option<Arc<Connection>>,
}

impl Network {
    pub(crate) fn new(options: ClientOptions) -> Arc<Network> {
        Arc::new(Network { options, known: Mutex::default(), connecting: tokio::sync::Mutex::default() })
    }

    /// The same cluster over connections of its own. A node answers the requests of a connection in order, so
    /// whatever waits for its answer long (a fetch, a join) keeps everything behind it waiting too.
    pub(crate) fn apart(&self) -> Arc<Network> {
        let known = self.known.lock();
        let known = Known { nodes: known.nodes.clone(), topics: known.topics.clone(), ..Known::default() };
        let connecting = tokio::sync::Mutex::default();
        Arc::new(Network { options: self.options.clone(), known: Mutex::new(known), connecting })
    }

    /// A new series of attempts.
    pub(crate) fn retry(&self) -> Retry {
        Retry::for_at_most(self.options.retry_timeout)
    }

    /// A connection to any node.
    pub(crate) async fn any(&self) -> Result<Arc<Connection>, ClientError> {
        if let Some(connection) = self.known.lock().alive() {
            return Ok(connection);
        }
        let _one_at_a_time = self.connecting.lock().await;
        let addresses = {
            let known = self.known.lock();
            if let Some(connection) = known.alive() {
                return Ok(connection);
            }
            let bootstrap = self.options.bootstrap.iter().cloned();
            bootstrap.chain(known.nodes.values().cloned()).collect::<Vec<_>>()
        };
        let mut last = ClientError::Options("there is no bootstrap address".into());
        for address in addresses {
            match Connection::open(&address, &self.options).await {
                Ok(connection) => {
                    self.known.lock().bootstrap = Some(connection.clone());
                    return Ok(connection);
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// A connection to this node.
    pub(crate) async fn node(&self, id: i32) -> Result<Arc<Connection>, ClientError> {
        if let Some(connection) = self.known.lock().alive_to(id) {
            return Ok(connection);
        }
        let _one_at_a_time = self.connecting.lock().await;
        let address = {
            let known = self.known.lock();
            if let Some(connection) = known.alive_to(id) {
                return Ok(connection);
            }
            known.nodes.get(&id).cloned()
        };
        let address = address.ok_or_else(|| ClientError::Unreachable {
            address: format!("node {id}"),
            why: "its address is not known".into(),
        })?;
        let connection = Connection::open(&address, &self.options).await?;
        self.known.lock().connections.insert(id, connection.clone());
        Ok(connection)
    }

    /// Asks any node, again and again while that can help.
    pub(crate) async fn ask_any<R: RequestMessage>(&self, request: &R) -> Result<R::Response, ClientError> {
        let mut retry = self.retry();
        loop {
            let asked = async { self.any().await?.call(request).await };
            match asked.await {
                Ok(response) => return Ok(response),
                Err(error) => retry.after(error).await?,
            }
        }
    }

    /// What is known of a topic, without asking.
    pub(crate) fn known_topic(&self, name: &str) -> Option<Arc<TopicInfo>> {
        self.known.lock().topics.get(name).cloned()
    }

    /// What is known of a topic; asked for if nothing is. With `create`, asking may create it.
    pub(crate) async fn topic(&self, name: &str, create: bool) -> Result<Arc<TopicInfo>, ClientError> {
        if let Some(topic) = self.known_topic(name) {
            return Ok(topic);
        }
        let mut retry = self.retry();
        loop {
            match self.refresh(name, create).await {
                Ok(topic) => return Ok(topic),
                Err(error) => {
                    // A topic that does not exist is retriable to Kafka, because another node may know it
                    // already. Without leave to create it there is nothing to wait for.
                    let missing = error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION);
                    if missing && !create {
                        return Err(error);
                    }
                    retry.after(error).await?;
                }
            }
        }
    }

    /// Asks once for what there is to know of a topic, and remembers it.
    pub(crate) async fn refresh(&self, name: &str, create: bool) -> Result<Arc<TopicInfo>, ClientError> {
        let topic = MetadataRequestTopic { name: Some(KafkaStr::from(name)), ..Default::default() };
        let request = MetadataRequest {
            topics: Some(vec![topic]),
            allow_auto_topic_creation: create,
            ..Default::default()
        };
        let response = self.any().await?.call(&request).await?;
        let mut known = self.known.lock();
        known.learn_nodes(&response);
        for topic in &response.topics {
            let Some(found) = topic.name.as_ref().filter(|found| found.as_str() == name) else { continue };
            let code = topic.error_code;
            if !code.is_none() {
                known.topics.remove(name);
                return Err(ClientError::Refused { what: format!("topic '{found}'"), code, message: None });
            }
            let mut leaders = vec![None; topic.partitions.len()];
            for partition in &topic.partitions {
                if let Some(leader) =
                    usize::try_from(partition.partition_index).ok().and_then(|index| leaders.get_mut(index))
                {
                    *leader = Some(partition.leader_id).filter(|id| *id >= 0);
                }
            }
            if leaders.is_empty() {
                return Err(not_there(name));
            }
            let info = Arc::new(TopicInfo { leaders });
            known.topics.insert(name.to_owned(), info.clone());
            return Ok(info);
        }
        Err(not_there(name))
    }

    /// Forgets who leads a topic's partitions: what was known has proved wrong.
    pub(crate) fn forget(&self, topic: &str) {
        self.known.lock().topics.remove(topic);
    }

    /// The node that keeps a group.
    pub(crate) async fn coordinator(&self, group: &str) -> Result<i32, ClientError> {
        let request = FindCoordinatorRequest { key: group.into(), ..Default::default() };
        let mut retry = self.retry();
        loop {
            let asked = async {
                let answer = self.any().await?.call(&request).await?;
                match answer.error_code.ok() {
                    Ok(()) => Ok(answer),
                    Err(code) => Err(ClientError::Refused {
                        what: format!("the coordinator of group '{group}'"),
                        code,
                        message: answer.error_message.map(String::from),
                    }),
                }
            };
            match asked.await {
                Ok(answer) => {
                    let port = u16::try_from(answer.port).unwrap_or_default();
                    let address = Address { host: answer.host.as_str().to_owned(), port };
                    self.known.lock().learn_node(answer.node_id, address);
                    return Ok(answer.node_id);
                }
                Err(error) => retry.after(error).await?,
            }
        }
    }
}

fn not_there(name: &str) -> ClientError {
    let code = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION;
    ClientError::Refused { what: format!("topic '{name}'"), code, message: None }
}

impl Known {
    fn alive(&self) -> Option<Arc<Connection>> {
        let to_nodes = self.connections.values();
        to_nodes.chain(&self.bootstrap).find(|connection| !connection.has_ended()).cloned()
    }

    fn alive_to(&self, id: i32) -> Option<Arc<Connection>> {
        self.connections.get(&id).filter(|connection| !connection.has_ended()).cloned()
    }

    fn learn_nodes(&mut self, response: &MetadataResponse) {
        for broker in response.brokers.iter().take(NODES_MAX) {
            let Ok(port) = u16::try_from(broker.port) else { continue };
            self.learn_node(broker.node_id, Address { host: broker.host.as_str().to_owned(), port });
        }
    }

    fn learn_node(&mut self, id: i32, address: Address) {
        if self.nodes.len() >= NODES_MAX && !self.nodes.contains_key(&id) {
            return;
        }
        if self.nodes.get(&id) != Some(&address) {
            // The node has moved: what leads to its old place is of no use.
            self.connections.remove(&id);
        }
        // The bootstrap connection often leads to the very node that was just named.
        if !self.connections.contains_key(&id)
            && self.bootstrap.as_ref().is_some_and(|bootstrap| *bootstrap.address() == address)
            && let Some(bootstrap) = self.bootstrap.take()
        {
            self.connections.insert(id, bootstrap);
        }
        self.nodes.insert(id, address);
    }
}
