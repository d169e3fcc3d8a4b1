//! Syncing: the leader brings the assignments, they are made durable, everybody gets theirs.

use bytes::Bytes;

use super::coordinator::{Action, Answer, Coordinator, GROUP_BYTES_MAX, Moment, Phase, StoreId, Ticket};
use super::request::{SyncRequest, Synced};
use crate::errors::{GroupError, Unavailable};

impl Coordinator {
    pub(super) fn sync(&mut self, ticket: Ticket, request: SyncRequest, now: Moment, out: &mut Vec<Action>) {
        if let Err(error) = self.try_sync(ticket, request, now, out) {
            out.push(Action::Answer(ticket, Answer::Sync(Err(error))));
        }
    }

    /// Syncs, or says why not. After `Ok` the ticket has been answered or parked.
    fn try_sync(
        &mut self,
        ticket: Ticket,
        request: SyncRequest,
        now: Moment,
        out: &mut Vec<Action>,
    ) -> Result<(), GroupError> {
        if self.phase == Phase::Dead {
            return Err(Unavailable::NotLeader { leader: None }.into());
        }
        self.find(&request.member_id, request.instance_id.as_deref())?;
        if request.generation != self.generation {
            return Err(GroupError::IllegalGeneration);
        }
        let differs = |asked: &Option<String>, ours: &Option<String>| asked.is_some() && asked != ours;
        if differs(&request.protocol_type, &self.protocol_type) || differs(&request.protocol, &self.protocol)
        {
            return Err(GroupError::InconsistentProtocol);
        }
        match self.phase {
            Phase::Empty | Phase::Dead => Err(GroupError::UnknownMember),
            Phase::Preparing { .. } | Phase::Forming { .. } => Err(GroupError::RebalanceInProgress),
            Phase::Stable { .. } => {
                self.unsynced.remove(&request.member_id);
                if self.unsynced.is_empty() {
                    self.phase = Phase::Stable { deadline: None };
                }
                let synced = self.synced(&request.member_id);
                self.find(&request.member_id, None)?.heard_of(now);
                out.push(Action::Answer(ticket, Answer::Sync(Ok(synced))));
                Ok(())
            }
            Phase::Completing { deadline, storing } => {
                let leads = self.leader.as_deref() == Some(&request.member_id);
                if leads && storing.is_none() {
                    self.check_assignments(&request.assignments)?;
                }
                self.unsynced.remove(&request.member_id);
                self.find(&request.member_id, None)?.park_sync(ticket, out);
                if leads && storing.is_none() {
                    self.assign(request.assignments);
                    let store = self.store(out);
                    self.phase = Phase::Completing { deadline, storing: Some(store) };
                }
                Ok(())
            }
        }
    }

    fn check_assignments(&self, assignments: &[(String, Bytes)]) -> Result<(), GroupError> {
        let max = self.options.member_data_bytes_max;
        if let Some((id, data)) = assignments.iter().find(|(_, data)| data.len() > max) {
            return Err(GroupError::InvalidRequest(format!(
                "the assignment of member {id} has {} bytes; {max} are allowed",
                data.len()
            )));
        }
        let total: usize = assignments.iter().map(|(_, data)| data.len()).sum();
        if total > GROUP_BYTES_MAX {
            return Err(GroupError::InvalidRequest(format!(
                "the assignments have {total} bytes together; {GROUP_BYTES_MAX} are allowed"
            )));
        }
        Ok(())
    }

    /// Gives every member its own; those whom the leader forgot get nothing.
    fn assign(&mut self, assignments: Vec<(String, Bytes)>) {
        for member in self.members.values_mut() {
            member.assignment = Bytes::new();
        }
        for (id, data) in assignments {
            if let Some(member) = self.members.get_mut(&id) {
                member.assignment = data;
            }
        }
    }

    fn synced(&self, member_id: &str) -> Synced {
        let member = self.members.get(member_id);
        Synced {
            protocol_type: self.protocol_type().to_owned(),
            protocol: self.protocol.clone().unwrap_or_default(),
            assignment: member.map(|member| member.assignment.clone()).unwrap_or_default(),
        }
    }

    /// A membership is durable, or could not be made so.
    pub(super) fn stored(
        &mut self,
        store: StoreId,
        result: Result<(), Unavailable>,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        if let Some((ticket, joined)) = self.returning.remove(&store) {
            let answer = result.map(|()| joined).map_err(GroupError::from);
            out.push(Action::Answer(ticket, Answer::Join(answer)));
            return;
        }
        if let Phase::Forming { generation, store: current } = self.phase
            && current == store
        {
            return self.formed(generation, result, now, out);
        }
        let Phase::Completing { deadline, storing: Some(current) } = self.phase else { return };
        if current != store {
            return;
        }
        match result {
            Ok(()) => {
                let deadline = Some(deadline).filter(|_| !self.unsynced.is_empty());
                self.phase = Phase::Stable { deadline };
                for id in self.ids_in_order() {
                    let synced = self.synced(&id);
                    if let Some(member) = self.members.get_mut(&id) {
                        member.answer_sync(Ok(synced), out);
                        member.heard_of(now);
                    }
                }
            }
            Err(error) => {
                // The leader, and everybody with it, has to try again.
                for id in self.ids_in_order() {
                    if let Some(member) = self.members.get_mut(&id) {
                        member.answer_sync(Err(error.clone().into()), out);
                        member.heard_of(now);
                    }
                }
                self.rebalance(now, out);
            }
        }
    }
}
