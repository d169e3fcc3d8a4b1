//! A shard's line of commands: what waits in it goes into one entry, up to 1 MiB or one larger batch, and
//! everybody who waits hears what came of it.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use weir_model::command::{Command, Outcome};
use weir_model::entry::ENTRY_COMMANDS_MAX;

use crate::admission::{Admission, Gate};
use crate::errors::ProposeError;
use crate::raft::types::QueuedReply;

/// Commands of a shard that wait to be gathered.
pub(crate) const COMMANDS_WAITING_MAX: usize = 64 * 1024;

/// Who waits for what of a command.
pub(crate) enum CommandReply {
    /// For its outcome.
    Applied(oneshot::Sender<Result<Outcome, ProposeError>>),
    /// For its place in the journal's line.
    Queued(QueuedReply),
    /// Nobody: whoever brought it sees in the log what comes of it.
    Nobody,
}

/// A command in a shard's line.
pub(crate) struct Submitted {
    pub command: Command,
    pub admission: Admission,
    pub reply: CommandReply,
}

impl Submitted {
    pub(crate) fn refuse(self, error: ProposeError) {
        match self.reply {
            CommandReply::Applied(reply) => drop(reply.send(Err(error))),
            CommandReply::Queued(reply) => drop(reply.send(Err(error))),
            CommandReply::Nobody => {}
        }
    }
}

/// Everything that waits, up to what one entry takes; waits for something, and for its turn.
/// Nothing is lost when this is dropped half-way.
pub(crate) async fn gather(
    submitted: &mut mpsc::Receiver<Submitted>,
    held: &mut Option<Submitted>,
    in_flight: &Arc<Semaphore>,
    entry_bytes_max: usize,
) -> Option<(Vec<Submitted>, OwnedSemaphorePermit)> {
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

/// The commands of one entry in their order, and who waits for them.
pub(crate) fn take_apart(submitted: Vec<Submitted>) -> (Vec<Command>, Asked) {
    let mut commands = Vec::with_capacity(submitted.len());
    let mut asked = Asked::default();
    for Submitted { command, admission, reply } in submitted {
        match Batches::of(&command) {
            Batches::None => asked.others.push(admission),
            batches => asked.appends.push((commands.len(), batches, admission)),
        }
        commands.push(command);
        asked.waiting.push(match reply {
            CommandReply::Applied(reply) => Some(reply),
            CommandReply::Queued(reply) => {
                asked.queued.push(reply);
                None
            }
            CommandReply::Nobody => None,
        });
    }
    (commands, asked)
}

/// Who waits for the commands of one entry, and the room that these take.
#[derive(Default)]
pub(crate) struct Asked {
    /// Of appends, each with its place in the entry.
    appends: Vec<(usize, Batches, Admission)>,
    others: Vec<Admission>,
    /// For each command who waits for its outcome, if anybody.
    waiting: Vec<Option<oneshot::Sender<Result<Outcome, ProposeError>>>>,
    queued: Vec<QueuedReply>,
}

impl Asked {
    /// Those who only want to hear that their command has its place.
    pub(crate) fn take_queued(&mut self) -> Vec<QueuedReply> {
        std::mem::take(&mut self.queued)
    }

    /// Tells everybody what came of the entry. Only batches that are stored go on taking room: until they are in a
    /// segment.
    pub(crate) fn answer(self, outcomes: Result<Vec<Outcome>, ProposeError>, gate: &Gate) {
        drop(self.others);
        let outcomes = match outcomes {
            Ok(outcomes) => outcomes,
            Err(error) => {
                for waiter in self.waiting.into_iter().flatten() {
                    let _ = waiter.send(Err(error.clone()));
                }
                return;
            }
        };
        let kept: Vec<_> = self
            .appends
            .into_iter()
            .map(|(at, batches, admission)| (batches.stored(outcomes.get(at)), admission))
            .filter(|(bytes, _)| *bytes > 0)
            .collect();
        if !kept.is_empty() {
            gate.appended(kept);
        }
        for (outcome, waiter) in outcomes.into_iter().zip(self.waiting) {
            if let Some(waiter) = waiter {
                let _ = waiter.send(Ok(outcome));
            }
        }
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
            Command::Together { commands }
            | Command::Relayed { commands, .. }
            | Command::MoveRecords { appends: commands, .. }
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
