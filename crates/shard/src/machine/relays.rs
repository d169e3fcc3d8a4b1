//! Commands that nodes bring to whoever leads.
//!
//! A node numbers what it brings. Nobody can tell it what became of a command whose answer was lost with a leader, so
//! it brings the command again until it sees in its own replica that it was carried out; the numbers make sure that
//! this happens once, and in order.

use weir_model::NodeId;
use weir_model::command::{Command, Outcome, Refusal};

use super::{ApplyError, Context, Effect, Machine, RelayLine};
use crate::limits::RELAYS_MAX;

impl Machine {
    pub(super) fn open_relay(&mut self, context: Context, node: NodeId, token: u64) -> Outcome {
        let relays = &self.root.get().relays;
        match relays.get(&node) {
            // A repeat, after which the line goes on where it stands.
            Some(line) if line.token == token => return Outcome::Done,
            None if relays.len() >= RELAYS_MAX => {
                return Outcome::Refused(Refusal::Limit { what: "nodes", limit: RELAYS_MAX as u64 });
            }
            _ => {}
        }
        self.root.change(context.index).relays.insert(node, RelayLine { token, last: 0 });
        Outcome::Done
    }

    pub(super) fn relayed(
        &mut self,
        context: Context,
        (node, token, sequence): (NodeId, u64, u64),
        commands: &[Command],
        effects: &mut Vec<Effect>,
    ) -> Result<Outcome, ApplyError> {
        let line = self.root.get().relays.get(&node).filter(|line| line.token == token);
        let Some(line) = line.copied() else { return Ok(Outcome::Refused(Refusal::UnknownRelay)) };
        let expected = line.last.saturating_add(1);
        if sequence != expected {
            return Ok(Outcome::Refused(Refusal::OutOfTurn { expected }));
        }
        self.root.change(context.index).relays.insert(node, RelayLine { token, last: sequence });
        let mut outcomes = Vec::with_capacity(commands.len());
        for command in commands {
            outcomes.push(match command {
                // What a leadership is about is the leader's own.
                Command::OpenRelay { .. }
                | Command::Relayed { .. }
                | Command::Lead { .. }
                | Command::SetMachineVersion { .. }
                | Command::TakeDigest
                | Command::CompareDigest { .. } => Outcome::Refused(Refusal::NotTogether),
                command => self.run(context, command, effects)?,
            });
        }
        Ok(Outcome::Together(outcomes))
    }
}
