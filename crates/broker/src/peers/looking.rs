//! Looking at queues that another node leads, without using them.

use std::sync::Arc;
use std::time::Duration;

use weir_model::{NodeId, TopicId};

use super::answers::Answer;
use super::messages::Call;
use crate::broker::Broker;
use crate::errors::{AdminError, LookupError, Unavailable};
use crate::queues::{Browsed, QueueFigures};
use crate::topology::{QueueInfo, TopologyError};

/// How long another node may take to say something.
const ANSWER_MAX: Duration = Duration::from_secs(5);

impl Broker {
    async fn ask_leader(&self, leader: NodeId, call: Call) -> Result<Answer, Unavailable> {
        match tokio::time::timeout(ANSWER_MAX, self.call(leader, &call)).await {
            Ok(Ok(Answer::NotLeader(leader))) => Err(Unavailable::NotLeader { leader }),
            Ok(Ok(Answer::Starting)) => Err(Unavailable::Starting),
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(Unavailable::NotLeader { leader: Some(leader) }),
            Err(_) => Err(Unavailable::TimedOut),
        }
    }

    /// What a queue is doing that another node leads.
    pub(crate) async fn figures_elsewhere(
        &self,
        queue: &QueueInfo,
        leader: NodeId,
    ) -> Result<QueueFigures, LookupError> {
        match self.ask_leader(leader, Call::Look(queue.topic.id())).await? {
            Answer::Figures(figures) => Ok(figures),
            // It does not know of it yet, or no longer.
            _ => Err(LookupError::NotOpen { topic: queue.topic.name().to_owned(), index: 0 }),
        }
    }

    /// What waits in a queue that another node leads.
    pub(crate) async fn browse_elsewhere(
        &self,
        queue: &QueueInfo,
        leader: NodeId,
        count: usize,
    ) -> Result<Vec<Browsed>, TopologyError> {
        let count = u32::try_from(count).unwrap_or(u32::MAX);
        match self.ask_leader(leader, Call::Browse(queue.topic.id(), count)).await? {
            Answer::Browsed(browsed) => Ok(browsed),
            Answer::Refused(why) => Err(AdminError::Conflict(why).into()),
            _ => Err(AdminError::UnknownTopic(queue.topic.name().to_owned()).into()),
        }
    }

    /// Tells the node that leads a queue that it may have got a lane. One that does not hear of it sees it when its actor
    /// begins anew.
    pub(crate) async fn tell_of_lanes(&self, leader: NodeId, topic: TopicId) {
        let Ok(meta) = self.meta() else { return };
        let call = Call::Lanes(topic, meta.view().applied_index());
        if let Err(error) = self.ask_leader(leader, call).await {
            tracing::warn!(%leader, %topic, %error, "the leader of a queue was not told of its new lane");
        }
    }

    pub(super) async fn look_for_peer(self: &Arc<Broker>, topic: TopicId) -> Answer {
        let Some(queue) = self.queue_by_id(topic) else { return Answer::Unknown };
        match self.queue_figures_here(&queue).await {
            Ok(figures) => Answer::Figures(figures),
            Err(LookupError::Unavailable(Unavailable::NotLeader { leader })) => Answer::NotLeader(leader),
            Err(LookupError::Unavailable(Unavailable::Starting)) => Answer::Starting,
            Err(error) => Answer::Refused(error.to_string()),
        }
    }

    pub(super) async fn browse_for_peer(self: &Arc<Broker>, topic: TopicId, count: u32) -> Answer {
        let Some(queue) = self.queue_by_id(topic) else { return Answer::Unknown };
        match self.browse_here(&queue, count as usize).await {
            Ok(browsed) => Answer::Browsed(browsed),
            Err(TopologyError::Admin(AdminError::Unavailable(Unavailable::NotLeader { leader }))) => {
                Answer::NotLeader(leader)
            }
            Err(TopologyError::Admin(AdminError::Unavailable(Unavailable::Starting))) => Answer::Starting,
            Err(error) => Answer::Refused(error.to_string()),
        }
    }
}
