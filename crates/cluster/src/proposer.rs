//! Proposes a shard's commands, gathered into entries.
//!
//! The next entry is proposed without waiting for the one before. The order in which commands were
//! submitted is the order in which they are applied. A leadership begins with `Lead`, and every entry is
//! proposed for exactly the leadership that it was made in, so that nothing can come before it.

use std::sync::Arc;
use std::time::Duration;

use openraft::errors::ClientWriteError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot, watch};
use weir_model::command::Command;
use weir_model::entry::Entry;
use weir_model::{NodeId, TimestampMs};

use crate::admission::Gate;
use crate::clock::Clock;
use crate::errors::ProposeError;
use crate::gathering::{Submitted, gather, take_apart};
use crate::leadership::Leadership;
use crate::raft::member::Member;
use crate::raft::types::{Config, Proposal, RaftHandle, Reply, WriteResult};

/// How long a leader waits before it tries again to begin its leadership.
const LEAD_RETRY: Duration = Duration::from_millis(100);

/// Proposes one shard's commands.
pub(crate) struct Proposer {
    pub node: NodeId,
    pub raft: RaftHandle,
    pub clock: Arc<dyn Clock>,
    pub gate: Arc<Gate>,
    pub submitted: mpsc::Receiver<Submitted>,
    pub leadership: watch::Receiver<Leadership>,
    pub leading: Arc<watch::Sender<Leadership>>,
    pub in_flight: Arc<Semaphore>,
    /// Bytes that are gathered into one entry.
    pub entry_bytes_max: usize,
    pub last_time: TimestampMs,
    /// Taken from the line, but for the next entry.
    pub held: Option<Submitted>,
}

impl Proposer {
    /// Runs until nobody can submit any more.
    pub(crate) async fn run(mut self) {
        let mut led = None;
        loop {
            let now = *self.leadership.borrow_and_update();
            if now.is_leader && led != Some(now.term) {
                led = Some(now.term);
                self.propose_lead(now.term).await;
                continue;
            }
            tokio::select! {
                biased;
                changed = self.leadership.changed() => {
                    if changed.is_err() {
                        return self.refuse_all(ProposeError::ShuttingDown).await;
                    }
                }
                gathered = gather(&mut self.submitted, &mut self.held, &self.in_flight, self.entry_bytes_max) => {
                    let Some((commands, permit)) = gathered else { return };
                    match led.filter(|term| now.is_leader && *term == now.term) {
                        Some(term) => self.propose(term, commands, permit).await,
                        None => {
                            let leader = now.leader;
                            commands.into_iter().for_each(|c| c.refuse(ProposeError::NotLeader { leader }));
                        }
                    }
                }
            }
        }
    }

    async fn refuse_all(&mut self, error: ProposeError) {
        if let Some(held) = self.held.take() {
            held.refuse(error.clone());
        }
        self.submitted.close();
        while let Some(submitted) = self.submitted.recv().await {
            submitted.refuse(error.clone());
        }
    }

    /// Commits the command that begins a leadership. Nothing else is proposed before it is applied.
    async fn propose_lead(&mut self, term: u64) {
        loop {
            let entry = self.entry(vec![Command::Lead { node: self.node }]);
            let (done, applied) = oneshot::channel();
            let reply = Reply::new(move |result: WriteResult| {
                let _ = done.send(result.is_ok());
            });
            self.write(term, Proposal::new(entry, Vec::new()), reply).await;
            if applied.await.unwrap_or(false) {
                self.leading.send_if_modified(|leadership| {
                    let ready = leadership.is_leader && leadership.term == term;
                    let changed = ready && !leadership.ready;
                    leadership.ready |= ready;
                    changed
                });
                return;
            }
            // Refused: because the leadership has ended, or because it is being given away, which
            // may come to nothing.
            let over = |leadership: &Leadership| !leadership.is_leader || leadership.term != term;
            let ended = self.leadership.wait_for(over);
            if tokio::time::timeout(LEAD_RETRY, ended).await.is_ok() {
                return;
            }
        }
    }

    async fn propose(&mut self, term: u64, submitted: Vec<Submitted>, permit: OwnedSemaphorePermit) {
        let (commands, mut asked) = take_apart(submitted);
        let proposal = Proposal::new(self.entry(commands), asked.take_queued());
        let gate = Arc::clone(&self.gate);
        let own = proposal.clone();
        let reply = Reply::new(move |result: WriteResult| {
            drop(permit);
            let outcomes = result.map(|response| response.data).map_err(|error| propose_error(&error));
            if let Err(error) = &outcomes {
                own.tell_queued(&Err(error.clone()));
            }
            asked.answer(outcomes, &gate);
        });
        self.write(term, proposal, reply).await;
    }

    async fn write(&self, term: u64, proposal: Proposal, reply: Reply<WriteResult>) {
        let leader = openraft::alias::CommittedLeaderIdOf::<Config>::new(term);
        // A failure here drops the reply, and with it everybody who waits, who then look why.
        if let Err(error) = self.raft.write(proposal).with_leader(leader).responder(reply).await {
            tracing::debug!(%error, "a proposal was not taken");
        }
    }

    fn entry(&mut self, commands: Vec<Command>) -> Entry {
        self.last_time = self.last_time.max(self.clock.now_ms());
        Entry { time: self.last_time, commands }
    }
}

fn propose_error(error: &ClientWriteError<Config>) -> ProposeError {
    match error {
        ClientWriteError::ForwardToLeader(to) => {
            ProposeError::NotLeader { leader: to.leader_id.map(|id| Member::of(id).node()) }
        }
        ClientWriteError::LogEntryDiscarded(to) => {
            ProposeError::LeadershipLost { leader: to.leader_id.map(|id| Member::of(id).node()) }
        }
        other => ProposeError::Stopped(other.to_string()),
    }
}
