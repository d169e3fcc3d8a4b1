//! Looking at queues that another node leads, and having it move their dead.

use std::sync::Arc;
use std::time::Duration;

use weir_model::{NodeId, TopicId};

use super::answers::Answer;
use super::messages::{Call, RedriveAsk};
use crate::broker::Broker;
use crate::errors::{AdminError, LookupError, PublishError, Unavailable};
use crate::queues::{Browsed, QueueFigures, Redrive, RedriveError, Redriven};
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

    /// Has the node that leads a queue take its records back to where they died.
    pub(crate) async fn redrive_elsewhere(
        &self,
        namespace: &str,
        name: &str,
        leader: NodeId,
        what: &Redrive,
    ) -> Result<Redriven, RedriveError> {
        let (namespace, name, to) = (namespace.to_owned(), name.to_owned(), what.to.clone());
        let count = u32::try_from(what.count).unwrap_or(u32::MAX);
        // It takes as long as it takes.
        match self.call(leader, &Call::Redrive(RedriveAsk { namespace, name, count, to })).await {
            Ok(Answer::Redriven(redriven)) => Ok(redriven),
            Ok(Answer::Refused(why)) => Err(PublishError::Refused(why).into()),
            Ok(Answer::Starting) => Err(PublishError::from(Unavailable::Starting).into()),
            _ => Err(PublishError::from(Unavailable::NotLeader { leader: Some(leader) }).into()),
        }
    }

    pub(super) async fn redrive_for_peer(self: &Arc<Broker>, ask: RedriveAsk) -> Answer {
        let RedriveAsk { namespace, name, count, to } = ask;
        let is_here = match self.find_queue(&namespace, &name) {
            Ok(Some(queue)) => self.leader_elsewhere(&queue.topic).is_none(),
            _ => false,
        };
        if !is_here {
            // It is not passed on further: two nodes may not agree for a moment.
            return Answer::Starting;
        }
        match self.redrive(&namespace, &name, Redrive { count: count as usize, to }).await {
            Ok(redriven) => Answer::Redriven(redriven),
            Err(error) => Answer::Refused(error.to_string()),
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
