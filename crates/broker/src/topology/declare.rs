//! Declaring and deleting queues, exchanges and bindings: entries of the meta shard.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use weir_model::TopicId;
use weir_model::command::{Command, Outcome, Refusal};
use weir_model::queue::{QueueKind, QueueMeta, full_name, split_name};
use weir_model::routing::{BindingMeta, ExchangeMeta};

use super::{InvalidArgument, QueueArguments};
use crate::broker::Broker;
use crate::errors::{AdminError, Unavailable, refused};
use crate::queues::{Cemetery, QueueOptions, QueueRef};
use crate::topics::Topic;

/// Largest batch of a queue, in bytes: the largest message that a front lets in, with room for its properties and for
/// those that are gathered with it.
const QUEUE_BATCH_BYTES_MAX: u32 = 17 << 20;

/// How long it is waited for somebody to lead a queue, and how often it is looked: elections take about a second.
const LEADER_WAIT_MAX: Duration = Duration::from_secs(5);
const LEADER_STEP: Duration = Duration::from_millis(50);

/// A queue that is there.
#[derive(Clone, Debug)]
pub struct QueueInfo {
    /// The topic that it is.
    pub topic: Arc<Topic>,
    /// What makes it a queue.
    pub meta: Arc<QueueMeta>,
    /// What its arguments say.
    pub arguments: QueueArguments,
}

impl QueueInfo {
    /// The queue that a topic is, if it is one.
    pub fn of(topic: Arc<Topic>) -> Result<Option<QueueInfo>, InvalidArgument> {
        let Some(queue) = topic.queue.clone() else { return Ok(None) };
        let (meta, arguments) = (queue.meta.clone(), queue.arguments.clone()?);
        Ok(Some(QueueInfo { topic, meta, arguments }))
    }
}

/// Why something was not declared, deleted or bound.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopologyError {
    /// There is no such queue.
    #[error("no queue '{0}'")]
    NoSuchQueue(String),
    /// There is no such exchange.
    #[error("no exchange '{0}'")]
    NoSuchExchange(String),
    /// The name is that of a topic that is no queue.
    #[error("'{0}' is a topic and not a queue")]
    NotAQueue(String),
    /// The name is that of a stream, whose records nobody settles.
    #[error("'{0}' is a stream: its records are read by offset, and are neither handed out nor purged")]
    Stream(String),
    /// It may not be deleted while it is used.
    #[error("{0}")]
    InUse(String),
    /// An argument cannot be what it is.
    #[error(transparent)]
    Argument(#[from] InvalidArgument),
    /// The binding cannot be made.
    #[error("{0}")]
    Binding(String),
    /// It was not done for another reason.
    #[error(transparent)]
    Admin(#[from] AdminError),
}

impl From<Unavailable> for TopologyError {
    fn from(unavailable: Unavailable) -> TopologyError {
        TopologyError::Admin(unavailable.into())
    }
}

/// The records of a stream are not handed out.
fn check_no_stream(queue: &QueueInfo) -> Result<(), TopologyError> {
    match queue.meta.kind {
        QueueKind::Stream => Err(TopologyError::Stream(split_name(queue.topic.name()).1.to_owned())),
        _ => Ok(()),
    }
}

impl Broker {
    /// A queue of a namespace; none if there is no topic of this name.
    pub fn find_queue(&self, namespace: &str, name: &str) -> Result<Option<QueueInfo>, TopologyError> {
        let catalog = self.meta()?.view().catalog();
        let Some(meta) = catalog.topic(&full_name(namespace, name)) else { return Ok(None) };
        let topic = self.topics.get(&catalog, meta);
        match QueueInfo::of(topic)? {
            Some(info) => Ok(Some(info)),
            None => Err(TopologyError::NotAQueue(name.to_owned())),
        }
    }

    /// Creates a queue, unless there is one of this name by now. Which of the two it was.
    pub async fn create_queue(
        &self,
        namespace: &str,
        name: &str,
        mut queue: QueueMeta,
    ) -> Result<(QueueInfo, bool), TopologyError> {
        QueueArguments::read(namespace, name, queue.kind, &queue.arguments)?;
        let arguments = self.arguments_of(namespace, name, &queue)?;
        // A lane for records of another priority is made when the first of them comes.
        queue.lanes = vec![arguments.lane(None)];
        queue.owner = queue.is_temporary().then(|| self.node.node_id());
        let mut config = arguments.retention.settings();
        config.insert("max.message.bytes".to_owned(), QUEUE_BATCH_BYTES_MAX.to_string());
        let settings =
            self.options.defaults.with_overrides(&config, u32::MAX).map_err(AdminError::InvalidConfig)?;
        let command = Command::CreateQueue {
            name: full_name(namespace, name),
            topic_id: self.ids.topic_id(),
            placement: if queue.is_temporary() { vec![self.node.temporary()] } else { self.place(1)? },
            config,
            queue,
        };
        let created = match self.propose_meta(command).await? {
            Outcome::Topic(meta) => {
                let opened = self.open_partitions(&meta.partitions, &settings).await;
                self.look_after(opened)?;
                self.subscribe_queue(meta.id).await?;
                true
            }
            Outcome::Refused(Refusal::TopicExists(_)) => false,
            other => return Err(refused(other).into()),
        };
        match self.find_queue(namespace, name)? {
            Some(found) => {
                self.until_everywhere(&found.topic.meta.partitions).await;
                Ok((found, created))
            }
            // Somebody deleted it at once.
            None => Err(TopologyError::NoSuchQueue(name.to_owned())),
        }
    }

    /// Makes the subscriptions of a queue's partitions, by which what is not settled stays.
    async fn subscribe_queue(&self, id: TopicId) -> Result<(), TopologyError> {
        let Some(topic) = self.topic_by_id(id) else { return Ok(()) };
        if topic.queue.as_ref().is_none_or(|queue| queue.meta.kind == QueueKind::Stream) {
            return Ok(());
        }
        for index in 0..topic.partition_count() {
            if let Ok(partition) = self.partition(&topic, index as i32) {
                self.open_subscription(&partition).await?;
            }
        }
        Ok(())
    }

    /// Deletes a queue with all that is in it and all that leads to it.
    pub async fn delete_queue(&self, queue: &QueueInfo) -> Result<(), TopologyError> {
        self.delete_topic(queue.topic.id()).await?;
        self.until_everywhere(&[]).await;
        Ok(())
    }

    /// The running queue behind a declaration, wherever it is led. Waits a while for somebody to lead it.
    pub async fn open_queue(self: &Arc<Broker>, queue: &QueueInfo) -> Result<QueueRef, TopologyError> {
        check_no_stream(queue)?;
        let until = Instant::now() + LEADER_WAIT_MAX;
        loop {
            match self.queue(&queue.topic, self.options_of(queue)).await {
                Err(AdminError::Unavailable(Unavailable::NotLeader { .. } | Unavailable::Starting))
                    if Instant::now() < until && !self.is_stopping() =>
                {
                    tokio::time::sleep(LEADER_STEP).await;
                }
                opened => return Ok(opened?),
            }
        }
    }

    /// The running queue behind a declaration, if this node leads it.
    pub(crate) async fn open_queue_here(
        self: &Arc<Broker>,
        queue: &QueueInfo,
    ) -> Result<QueueRef, TopologyError> {
        check_no_stream(queue)?;
        Ok(self.queue_here(&queue.topic, self.options_of(queue)).await?)
    }

    /// How a queue behaves, by its arguments and by policies.
    pub(crate) fn options_of(self: &Arc<Broker>, queue: &QueueInfo) -> QueueOptions {
        let mut options = queue.arguments.options(&queue.meta);
        options.cemetery = self.cemetery(queue);
        options
    }

    /// Where a queue's dead records go; none if they go nowhere.
    pub(crate) fn cemetery(self: &Arc<Broker>, queue: &QueueInfo) -> Option<Cemetery> {
        let (namespace, name) = split_name(queue.topic.name());
        let dead_letters = queue.arguments.dead_letters.clone()?;
        let broker = Arc::downgrade(self);
        Some(Cemetery { broker, namespace: namespace.to_owned(), queue: name.to_owned(), dead_letters })
    }

    /// Declares an exchange. What is there afterwards, which may be one that was declared otherwise before.
    pub async fn declare_exchange(&self, exchange: ExchangeMeta) -> Result<ExchangeMeta, TopologyError> {
        if exchange.kind.is_delayed() {
            self.open_parking().await?;
        }
        match self.propose_meta(Command::DeclareExchange { exchange }).await? {
            Outcome::Exchange(exchange) => {
                self.until_everywhere(&[]).await;
                Ok(exchange)
            }
            other => Err(refused(other).into()),
        }
    }

    /// Deletes an exchange; it is no error if there is none.
    pub async fn delete_exchange(
        &self,
        namespace: &str,
        name: &str,
        if_unused: bool,
    ) -> Result<(), TopologyError> {
        let command =
            Command::DeleteExchange { namespace: namespace.to_owned(), name: name.to_owned(), if_unused };
        match self.propose_meta(command).await? {
            Outcome::Done | Outcome::Refused(Refusal::UnknownExchange(_)) => {
                self.until_everywhere(&[]).await;
                Ok(())
            }
            Outcome::Refused(refusal @ Refusal::ExchangeInUse(_)) => {
                Err(TopologyError::InUse(refusal.to_string()))
            }
            other => Err(refused(other).into()),
        }
    }

    /// Binds; nothing changes if the binding is there.
    pub async fn bind(&self, binding: BindingMeta) -> Result<(), TopologyError> {
        match self.propose_meta(Command::Bind { binding }).await? {
            Outcome::Done => {
                self.until_everywhere(&[]).await;
                Ok(())
            }
            Outcome::Refused(Refusal::UnknownExchange(name)) => Err(TopologyError::NoSuchExchange(name)),
            Outcome::Refused(Refusal::InvalidBinding(why)) => Err(TopologyError::Binding(why)),
            other => Err(refused(other).into()),
        }
    }

    /// Takes a binding back; it is no error if there is none.
    pub async fn unbind(&self, binding: BindingMeta) -> Result<(), TopologyError> {
        match self.propose_meta(Command::Unbind { binding }).await? {
            Outcome::Done => {
                self.until_everywhere(&[]).await;
                Ok(())
            }
            other => Err(refused(other).into()),
        }
    }
}
