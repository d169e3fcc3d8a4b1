//! From one leader of a queue to the next: a leader who begins asks every node what its sessions have, and hands nothing out
//! before they have said so; and what sessions have is brought to whoever leads, as soon as somebody does.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use weir_model::{NodeId, TopicId};

use super::QueueOptions;
use super::handle::{Ask, QueueRef};
use crate::broker::Broker;
use crate::topics::Topic;
use crate::topology::{QueueInfo, TopologyError};

/// How long a leader who begins waits for others to say what they have. One that takes longer is taken for gone.
const GATHER_MAX: Duration = Duration::from_secs(2);

/// Queues that are seen to at a time.
const CARRIERS_MAX: usize = 256;

/// How long to wait before a queue is tried again that nobody leads: at first, and at most.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

type Carrier = Pin<Box<dyn Future<Output = TopicId> + Send>>;

impl Broker {
    /// Sees to it that whoever leads hears of what was left here.
    pub(crate) async fn carry_holdings_always(self: Arc<Broker>) {
        let mut carriers: FuturesUnordered<Carrier> = FuturesUnordered::new();
        let mut carried = BTreeSet::new();
        loop {
            for topic in self.queues.holdings.topics() {
                if carriers.len() < CARRIERS_MAX && carried.insert(topic) {
                    let broker = Arc::clone(&self);
                    carriers.push(Box::pin(async move {
                        broker.carry_holding(topic).await;
                        topic
                    }));
                }
            }
            tokio::select! {
                Some(topic) = carriers.next() => drop(carried.remove(&topic)),
                () = self.queues.holdings.grown() => {}
                () = self.stopped() => return,
            }
        }
    }

    /// Brings what sessions have of a queue to its leader, however long there is none.
    async fn carry_holding(self: &Arc<Broker>, id: TopicId) {
        let mut pause = PAUSE;
        while !self.is_stopping() {
            let Some(topic) = self.topic_by_id(id) else {
                // Nothing is left that could be settled.
                drop(self.queues.holdings.take(id));
                return;
            };
            match self.open_whichever(&topic).await {
                Ok(queue) => {
                    // Where this node leads now, whoever served it before may still have something to leave: an owner that
                    // is closed must not be heard of before what he had.
                    if self.leader_elsewhere(&topic).is_none() {
                        self.end_remote(id).await;
                    }
                    return self.hand_over(&queue, id).await;
                }
                Err(error) => {
                    tracing::debug!(%id, %error, "what sessions have of a queue waits for its leader")
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    async fn open_whichever(self: &Arc<Broker>, topic: &Arc<Topic>) -> Result<QueueRef, TopologyError> {
        match QueueInfo::of(Arc::clone(topic))? {
            Some(queue) => self.open_queue(&queue).await,
            None => Ok(self.queue(topic, QueueOptions::default()).await?),
        }
    }

    /// Tells a queue what was left here. If it ends before it has heard all of it, the rest is left here again.
    async fn hand_over(&self, queue: &QueueRef, topic: TopicId) {
        for ask in self.queues.holdings.take(topic).into_asks() {
            let _ = queue.tell(ask).await;
        }
    }

    /// Asks other nodes what their sessions have of a queue, and lets it begin when they have said so.
    pub(super) async fn gather_holdings(
        self: Arc<Broker>,
        topic: TopicId,
        queue: QueueRef,
        others: Vec<NodeId>,
    ) {
        self.end_remote(topic).await;
        self.hand_over(&queue, topic).await;
        let asked = others.into_iter().map(|node| {
            let (broker, gone) = (&self, &queue);
            async move {
                let asked = tokio::time::timeout(GATHER_MAX, broker.ask_to_come(node, topic));
                let has_come = tokio::select! {
                    has_come = asked => has_come.unwrap_or_default(),
                    () = gone.until_gone() => return,
                };
                if !has_come {
                    tracing::info!(%node, %topic, "a queue begins without knowing what a node has of it");
                }
            }
        });
        join_all(asked).await;
        // What was left here meanwhile.
        self.hand_over(&queue, topic).await;
        let _ = queue.tell(Ask::Begin).await;
    }

    /// Another node begins to lead a queue: says to it what sessions here have, if they may have anything.
    pub(crate) async fn come_to(self: &Arc<Broker>, leader: NodeId, topic: TopicId) {
        let may_have = self.queues.holdings.has(topic)
            || self.has_remote(topic)
            || self.running_here(topic).await.is_some();
        if may_have && let Ok(queue) = self.remote_queue(topic, leader).await {
            // What has been left since.
            self.hand_over(&queue, topic).await;
        }
    }
}
