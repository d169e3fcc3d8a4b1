//! Sessions of consumers at the node that leads their queue, as a front has them: an owner of leases, and a bound on what
//! it has. A session of which nothing is heard ends, and what it had comes back as failed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep, timeout};
use weir_broker::queues::{ConsumerId, OwnerId, Place, QueueDeliveries, QueueDelivery, QueueGone, QueueRef};
use weir_dispatch::NewConsumer;
use weir_model::command::Command;
use weir_model::queue::DEFAULT_NAMESPACE;
use weir_model::subscription::{DeadReason, Disposition};
use weir_model::{Offset, ShardId, SubscriptionId};

use super::{Process, now_ms};
use crate::asks::{Answer, Delivered};
use crate::declared::{QueueNumber, TURNS, rules};
use crate::queues::{Handed, Happening, SessionId, Settling};
use crate::wrong::Wrong;

/// How long a consumer may be silent.
const SILENCE_MAX: Duration = Duration::from_millis(2_500);

/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(250);

/// How long a request waits for records.
const NEXT_WITHIN: Duration = Duration::from_millis(200);

/// The sessions of one process.
#[derive(Default)]
pub struct Sessions(Mutex<BTreeMap<SessionId, Arc<Session>>>);

struct Session {
    id: SessionId,
    number: QueueNumber,
    term: u64,
    queue: QueueRef,
    owner: OwnerId,
    consumer: ConsumerId,
    /// Held while a request is carried out, so that none meets the end of its session.
    deliveries: tokio::sync::Mutex<QueueDeliveries>,
    heard: Mutex<Instant>,
}

impl Process {
    pub(super) async fn consume(&self, number: QueueNumber, id: SessionId, credit: u32) -> Option<Answer> {
        let broker = self.broker()?;
        let info = broker.find_queue(DEFAULT_NAMESPACE, rules(number).name).ok()??;
        let leadership = self.node.shard(ShardId(rules(number).shard))?.leadership();
        // What another node's actor has handed out and no session has taken would be in nobody's history.
        let term = leadership.ready.then_some(leadership.term)?;
        let queue = match self.wrong {
            Some(Wrong::KeepsNoTurns) if number == TURNS => {
                let mut options = info.arguments.options(&info.meta);
                options.returns_in_turn = false;
                broker.queue(&info.topic, options).await.ok()?
            }
            _ => broker.open_queue(&info).await.ok()?,
        };
        let owner = broker.new_owner();
        let consumer = NewConsumer {
            owner,
            credit: Some(credit),
            priority: 0,
            exclusive: false,
            settled: false,
            gate: None,
        };
        let (consumer, deliveries) = queue.subscribe(consumer).await.ok()?.ok()?;
        if self.node.shard(ShardId(rules(number).shard))?.leadership().term != term {
            // Which of the two leaderships the records are of nobody could say. What was handed out comes back.
            let happened = [
                Happening::Opened { session: id, queue: number, term },
                Happening::Closed { session: id, failed: false },
            ];
            happened.into_iter().for_each(|what| self.history.lock().note(now_ms(), what));
            let _ = queue.close_owner(owner, false).await;
            return None;
        }
        tracing::info!(queue = rules(number).name, session = id, term, "opened");
        self.history.lock().note(now_ms(), Happening::Opened { session: id, queue: number, term });
        let session = Session {
            id,
            number,
            term,
            queue,
            owner,
            consumer,
            deliveries: tokio::sync::Mutex::new(deliveries),
            heard: Mutex::new(Instant::now()),
        };
        self.sessions.0.lock().insert(id, Arc::new(session));
        Some(Answer::Done)
    }

    fn session(&self, id: SessionId) -> Option<Arc<Session>> {
        let session = self.sessions.0.lock().get(&id).cloned()?;
        *session.heard.lock() = Instant::now();
        Some(session)
    }

    pub(super) async fn next(&self, id: SessionId) -> Answer {
        let Some(session) = self.session(id) else { return Answer::Gone };
        let mut deliveries = session.deliveries.lock().await;
        match timeout(NEXT_WITHIN, deliveries.next()).await {
            Err(_) => Answer::Deliveries(Vec::new()),
            Ok(None) => self.gone(&session).await,
            Ok(Some(handed)) => {
                let delivered: Option<Vec<Delivered>> =
                    handed.iter().map(|delivery| self.hand(&session, delivery)).collect();
                let Some(delivered) = delivered else {
                    return Answer::Refused("a record that nobody wrote".into());
                };
                Answer::Deliveries(delivered)
            }
        }
    }

    /// Writes down what is handed out.
    fn hand(&self, session: &Session, delivery: &QueueDelivery) -> Option<Delivered> {
        let value = delivery.record.record.value.as_deref()?;
        let message = std::str::from_utf8(value).ok()?.parse().ok()?;
        let (queue, term, offset) = (session.number, session.term, delivery.place.offset);
        let handed = Handed {
            session: session.id,
            queue,
            term,
            offset,
            message,
            redelivered: delivery.redelivered,
            failures: delivery.marks.failures,
            returns: delivery.marks.returns,
        };
        tracing::info!(queue = rules(queue).name, session = session.id, term, offset, %message,
            again = handed.redelivered, failures = handed.failures, returns = handed.returns, "handed out");
        self.history.lock().note(now_ms(), Happening::Handed(handed));
        Some(Delivered { offset, message })
    }

    /// The queue has another leader, to whom what the session has is given back.
    async fn gone(&self, session: &Session) -> Answer {
        tracing::info!(queue = rules(session.number).name, session = session.id, "gone");
        self.end(session, false).await;
        Answer::Gone
    }

    pub(super) async fn settle(&self, said: &Settling) -> Answer {
        let Some(session) = self.session(said.session) else { return Answer::Gone };
        let _alone = session.deliveries.lock().await;
        if !self.sessions.0.lock().contains_key(&said.session) {
            return Answer::Gone;
        }
        tracing::info!(id = said.id, session = said.session, "settles");
        let settled = session.settle(said, self.wrong).await;
        *session.heard.lock() = Instant::now();
        if self.wrong == Some(Wrong::TrimsUnsettled) {
            self.trim(session.number).await;
        }
        match settled {
            Ok(()) => Answer::Done,
            Err(QueueGone) => self.gone(&session).await,
        }
    }

    pub(super) async fn close(&self, id: SessionId) -> Answer {
        let Some(session) = self.session(id) else { return Answer::Gone };
        let _alone = session.deliveries.lock().await;
        self.end(&session, false).await;
        Answer::Done
    }

    /// What it has comes back.
    async fn end(&self, session: &Session, failed: bool) {
        if self.sessions.0.lock().remove(&session.id).is_some() {
            tracing::info!(queue = rules(session.number).name, session = session.id, failed, "closed");
            self.history.lock().note(now_ms(), Happening::Closed { session: session.id, failed });
            // Whoever leads the queue next hears of it, too.
            let _ = session.queue.close_owner(session.owner, failed).await;
        }
    }

    pub(super) async fn close_silent_sessions(self) {
        loop {
            sleep(LOOK).await;
            let silent: Vec<Arc<Session>> = {
                let sessions = self.sessions.0.lock();
                let is_silent = |session: &&Arc<Session>| session.heard.lock().elapsed() > SILENCE_MAX;
                sessions.values().filter(is_silent).cloned().collect()
            };
            for session in silent {
                // A request of it that is still being carried out is waited for.
                if let Ok(_alone) = session.deliveries.try_lock() {
                    self.end(&session, true).await;
                }
            }
        }
    }

    /// Trims what is not settled.
    async fn trim(&self, number: QueueNumber) -> Option<()> {
        let info = self.broker()?.find_queue(DEFAULT_NAMESPACE, rules(number).name).ok()??;
        let partition = info.topic.meta.partitions.first()?;
        let shard = self.node.shard(partition.shard)?;
        let head = shard.view().subscription(partition.id, SubscriptionId::QUEUE)?.head();
        let log_start = shard.view().partition(partition.id)?.next_offset();
        if log_start > head + 8 {
            let _ = shard.propose(Command::Trim { partition: partition.id, log_start }).await;
        }
        Some(())
    }
}

impl Session {
    async fn settle(&self, said: &Settling, wrong: Option<Wrong>) -> Result<(), QueueGone> {
        let lane = rules(self.number).read_arguments().map_or(0, |arguments| arguments.lane(None));
        let places = |offsets: &[Offset]| -> Vec<Place> {
            offsets.iter().map(|offset| Place { lane, offset: *offset }).collect()
        };
        let failed = said.failed && wrong != Some(Wrong::CountsNoFailures);
        let reject = Disposition::Reject { reason: DeadReason::Rejected };
        self.queue.settle(self.owner, places(&said.releases), Disposition::Release { failed }).await?;
        self.queue.settle(self.owner, places(&said.rejects), reject).await?;
        let mut accepts = places(&said.accepts);
        if wrong == Some(Wrong::ForgetsAccepts) {
            accepts.retain(|place| place.offset % 16 != 7);
        }
        self.queue.settle_durably(self.owner, accepts, Disposition::Accept).await?;
        let more = said.releases.len() + said.rejects.len() + said.accepts.len();
        self.queue.add_credit(self.consumer, more as u32).await
    }
}
