//! Gathers a shard's commands into entries and proposes them.
//!
//! Everything that waits goes into one entry, up to 1 MiB or one larger batch; the next entry is
//! proposed without waiting for the one before. The order in which commands were submitted is the
//! order in which they are applied. A leadership begins with `Lead`, and every entry is proposed for
//! exactly the leadership that it was made in, so that nothing can come before it.

use std::sync::Arc;
use std::time::Duration;

use openraft::errors::ClientWriteError;
use tokio::sync::{Semaphore, mpsc, oneshot, watch};
use weir_model::command::{Command, Outcome};
use weir_model::entry::{ENTRY_COMMANDS_MAX, Entry};
use weir_model::{NodeId, TimestampMs};

use crate::admission::{Admission, Gate};
use crate::clock::Clock;
use crate::errors::ProposeError;
use crate::leadership::Leadership;
use crate::raft::types::{Config, Proposal, QueuedReply, RaftHandle, Reply, WriteResult};

/// Commands of a shard that wait to be gathered.
pub(crate) const COMMANDS_WAITING_MAX: usize = 64 * 1024;

/// How long a leader waits before it tries again to begin its leadership.
const LEAD_RETRY: Duration = Duration::from_millis(100);

/// Who waits for what of a command.
pub(crate) enum CommandReply {
    /// For its outcome.
    Applied(oneshot::Sender<Result<Outcome, ProposeError>>),
    /// For its place in the journal's line.
    Queued(QueuedReply),
}

/// A command in a shard's line.
pub(crate) struct Submitted {
    pub command: Command,
    pub admission: Admission,
    pub reply: CommandReply,
}

impl Submitted {
    fn refuse(self, error: ProposeError) {
        match self.reply {
            CommandReply::Applied(reply) => drop(reply.send(Err(error))),
            CommandReply::Queued(reply) => drop(reply.send(Err(error))),
        }
    }
}

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

    async fn propose(
        &mut self,
        term: u64,
        submitted: Vec<Submitted>,
        permit: tokio::sync::OwnedSemaphorePermit,
    ) {
        let mut commands = Vec::with_capacity(submitted.len());
        let mut appends = Vec::new();
        let mut others = Vec::new();
        let mut waiting = Vec::with_capacity(submitted.len());
        let mut queued = Vec::new();
        for Submitted { command, admission, reply } in submitted {
            match Batches::of(&command) {
                Batches::None => others.push(admission),
                batches => appends.push((commands.len(), batches, admission)),
            }
            commands.push(command);
            waiting.push(match reply {
                CommandReply::Applied(reply) => Some(reply),
                CommandReply::Queued(reply) => {
                    queued.push(reply);
                    None
                }
            });
        }
        let proposal = Proposal::new(self.entry(commands), queued);
        let gate = Arc::clone(&self.gate);
        let own = proposal.clone();
        let reply = Reply::new(move |result: WriteResult| {
            // Only appends have anything left that must be written to a segment.
            drop((permit, others));
            deliver(result, &own, &gate, appends, waiting);
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

/// Everything that waits, up to what one entry takes; waits for something, and for its turn.
/// Nothing is lost when this is dropped half-way.
async fn gather(
    submitted: &mut mpsc::Receiver<Submitted>,
    held: &mut Option<Submitted>,
    in_flight: &Arc<Semaphore>,
    entry_bytes_max: usize,
) -> Option<(Vec<Submitted>, tokio::sync::OwnedSemaphorePermit)> {
    if held.is_none() {
        *held = Some(submitted.recv().await?);
    }
    let permit = Arc::clone(in_flight).acquire_owned().await.ok()?;
    let mut bytes = 0;
    let mut commands = Vec::new();
    while let Some(next) = held.take().or_else(|| submitted.try_recv().ok()) {
        let size = next.command.approximate_bytes();
        if !commands.is_empty() && (bytes + size > entry_bytes_max || commands.len() == ENTRY_COMMANDS_MAX) {
            *held = Some(next);
            break;
        }
        bytes += size;
        commands.push(next);
    }
    Some((commands, permit))
}

/// Tells everybody what came of an entry.
fn deliver(
    result: WriteResult,
    proposal: &Proposal,
    gate: &Gate,
    appends: Vec<(usize, Batches, Admission)>,
    waiting: Vec<Option<oneshot::Sender<Result<Outcome, ProposeError>>>>,
) {
    let error = match result {
        Ok(response) => {
            let kept: Vec<_> = appends
                .into_iter()
                .map(|(at, batches, admission)| (batches.stored(response.data.get(at)), admission))
                .filter(|(bytes, _)| *bytes > 0)
                .collect();
            if !kept.is_empty() {
                gate.appended(kept);
            }
            for (outcome, waiter) in response.data.into_iter().zip(waiting) {
                if let Some(waiter) = waiter {
                    let _ = waiter.send(Ok(outcome));
                }
            }
            return;
        }
        Err(error) => propose_error(&error),
    };
    proposal.tell_queued(&Err(error.clone()));
    for waiter in waiting.into_iter().flatten() {
        let _ = waiter.send(Err(error.clone()));
    }
}

/// The batches of a command, by their bytes.
enum Batches {
    None,
    One(usize),
    /// Of commands that stand together, one for each.
    Several(Vec<Batches>),
}

impl Batches {
    fn of(command: &Command) -> Batches {
        match command {
            Command::Append { batch, .. }
            | Command::AppendToAll { batch, .. }
            | Command::AppendTimed { batch, .. }
            | Command::AppendUnique { batch, .. } => Batches::One(batch.len()),
            Command::Together { commands } | Command::MoveRecords { appends: commands, .. }
                if command.is_append() =>
            {
                Batches::Several(commands.iter().map(Batches::of).collect())
            }
            _ => Batches::None,
        }
    }

    /// Bytes that are to be written to segments. A batch that was refused, or was there already, is not written.
    fn stored(&self, outcome: Option<&Outcome>) -> usize {
        match (self, outcome) {
            (Batches::One(bytes), Some(Outcome::Appended(one))) => usize::from(!one.duplicate) * bytes,
            (Batches::One(bytes), Some(Outcome::AppendedToAll(all))) => {
                all.iter().flatten().filter(|one| !one.duplicate).count() * bytes
            }
            (Batches::Several(batches), Some(Outcome::Together(outcomes))) => {
                batches.iter().zip(outcomes).map(|(batch, outcome)| batch.stored(Some(outcome))).sum()
            }
            _ => 0,
        }
    }
}

fn propose_error(error: &ClientWriteError<Config>) -> ProposeError {
    match error {
        ClientWriteError::ForwardToLeader(to) => ProposeError::NotLeader { leader: to.leader_id.map(NodeId) },
        ClientWriteError::LogEntryDiscarded(to) => {
            ProposeError::LeadershipLost { leader: to.leader_id.map(NodeId) }
        }
        other => ProposeError::Stopped(other.to_string()),
    }
}
