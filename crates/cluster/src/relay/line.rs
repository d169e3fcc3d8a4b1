//! What a node has brought and has not heard of yet: runs of commands with their numbers.

use std::collections::VecDeque;

use tokio::time::Instant;
use weir_model::NodeId;
use weir_model::command::{Command, Outcome, Refusal};

use crate::errors::ProposeError;
use crate::gathering::Asked;

/// Runs that are on their way. One waits for room behind them.
pub(crate) const RUNS_MAX: usize = 64;

/// A node's line to one shard.
pub(crate) struct Line {
    node: NodeId,
    token: u64,
    is_open: bool,
    /// Whether the command that opens it is with the leader.
    opening_taken: bool,
    /// By sequence, without a gap.
    runs: VecDeque<Run>,
    /// The sequence of the first of them, or of the next one.
    first: u64,
    /// How many of them the leader has taken.
    taken: usize,
}

struct Run {
    commands: Vec<Command>,
    /// Who waits; nobody any more if it was given up.
    asked: Option<Asked>,
    began: Instant,
}

/// What was heard of a line.
#[derive(Default)]
pub(crate) struct Known {
    /// Who is to be told what.
    pub told: Vec<(Asked, Result<Vec<Outcome>, ProposeError>)>,
    /// Whether somebody else has opened a line in place of this one.
    pub is_replaced: bool,
}

impl Line {
    /// A line that is opened by the first thing that is brought.
    pub(crate) fn new(node: NodeId, token: u64) -> Line {
        let (runs, first) = (VecDeque::new(), 1);
        Line { node, token, is_open: false, opening_taken: false, runs, first, taken: 0 }
    }

    /// Runs that were not heard of yet.
    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(crate) fn has_room(&self) -> bool {
        self.runs.len() < RUNS_MAX
    }

    /// When the first one began that somebody waits for.
    pub(crate) fn began_at(&self) -> Option<Instant> {
        self.runs.iter().find(|run| run.asked.is_some()).map(|run| run.began)
    }

    /// Whether something is with the leader that was not heard of yet.
    pub(crate) fn has_brought(&self) -> bool {
        !self.runs.is_empty() && (self.taken > 0 || self.opening_taken && !self.is_open)
    }

    pub(crate) fn push(&mut self, commands: Vec<Command>, asked: Asked, now: Instant) {
        self.runs.push_back(Run { commands, asked: Some(asked), began: now });
    }

    /// What the leader is to be given next.
    pub(crate) fn next_to_bring(&self) -> Option<Command> {
        let (node, token) = (self.node, self.token);
        if !self.is_open {
            let wanted = !self.runs.is_empty() && !self.opening_taken;
            return wanted.then_some(Command::OpenRelay { node, token });
        }
        let run = self.runs.get(self.taken)?;
        let sequence = self.first + self.taken as u64;
        Some(Command::Relayed { node, token, sequence, commands: run.commands.clone() })
    }

    /// The leader has what was to be given to him next.
    pub(crate) fn taken(&mut self) {
        match self.is_open {
            true => self.taken = (self.taken + 1).min(self.runs.len()),
            false => self.opening_taken = true,
        }
    }

    /// What the leader had taken may be lost.
    pub(crate) fn bring_again(&mut self) {
        self.taken = 0;
        self.opening_taken = false;
    }

    /// The log has the opening of this line. Whatever it has of the one before is known by now, and nothing more of that
    /// will ever be carried out.
    pub(crate) fn opened(&mut self, token: u64) {
        if token != self.token || self.is_open {
            return;
        }
        self.is_open = true;
        self.runs.retain(|run| run.asked.is_some());
        self.first = 1;
        self.taken = 0;
    }

    /// Goes on with another line, when it is open.
    pub(crate) fn reopen(&mut self, token: u64) {
        self.token = token;
        self.is_open = false;
        self.bring_again();
    }

    /// A run came to this.
    pub(crate) fn carried(&mut self, sequence: u64, outcome: Outcome) -> Known {
        let mut known = Known::default();
        // Of a line that was given up since: those who waited have been told.
        if !self.is_open {
            return known;
        }
        let outcomes = match outcome {
            Outcome::Together(outcomes) => Ok(outcomes),
            Outcome::Refused(Refusal::UnknownRelay) => {
                known.is_replaced = true;
                return known;
            }
            Outcome::Refused(Refusal::OutOfTurn { expected }) if sequence >= expected => {
                // What comes before it is lacking, because a leader has lost it.
                self.bring_again();
                return known;
            }
            // It was carried out before, and heard of; or in a part of the log that this replica has only the result of.
            _ => Err(ProposeError::LeadershipLost { leader: None }),
        };
        let upto = (sequence + 1).saturating_sub(self.first).min(self.runs.len() as u64);
        for at in 1..=upto {
            let Some(run) = self.runs.pop_front() else { break };
            self.first += 1;
            self.taken = self.taken.saturating_sub(1);
            let told = match at == upto {
                true => outcomes.clone(),
                false => Err(ProposeError::LeadershipLost { leader: None }),
            };
            known.told.extend(run.asked.map(|asked| (asked, told)));
        }
        known
    }

    /// Nobody waits any longer for what began by then. What of it is with a leader may still be carried out until
    /// another line is open, over which the rest is brought.
    pub(crate) fn give_up(&mut self, token: u64, began_by: Instant) -> Vec<Asked> {
        let given_up = self.runs.iter_mut().filter(|run| run.began <= began_by);
        let asked = given_up.filter_map(|run| run.asked.take()).collect();
        self.reopen(token);
        asked
    }
}
