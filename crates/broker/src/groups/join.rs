//! Joining: who may take part, and how.

use super::coordinator::{Action, Answer, Coordinator, GROUP_BYTES_MAX, Moment, Phase, Ticket};
use super::member::{Member, data_bytes};
use super::request::{JoinRequest, Joined, JoinedMember};
use crate::errors::{GroupError, Unavailable};

impl Coordinator {
    pub(super) fn join(
        &mut self,
        ticket: Ticket,
        request: JoinRequest,
        fresh_id: String,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        if let Err(error) = self.try_join(ticket, request, fresh_id, now, out) {
            out.push(Action::Answer(ticket, Answer::Join(Err(error))));
        }
    }

    /// Joins, or says why not. After `Ok` the ticket has been answered or parked.
    fn try_join(
        &mut self,
        ticket: Ticket,
        request: JoinRequest,
        fresh_id: String,
        now: Moment,
        out: &mut Vec<Action>,
    ) -> Result<(), GroupError> {
        if self.phase == Phase::Dead {
            return Err(Unavailable::NotLeader { leader: None }.into());
        }
        self.check_bounds(&request)?;
        let instance = request.instance_id.as_deref();
        let former_self = instance.and_then(|instance| self.instances.get(instance)).cloned();
        match &former_self {
            Some(id) if request.member_id.is_empty() => self.check_room(id)?,
            _ => self.check_room(&request.member_id)?,
        }
        if !self.supports(&request) {
            return Err(GroupError::InconsistentProtocol);
        }
        if !request.member_id.is_empty() {
            return self.join_known(ticket, request, now, out);
        }
        if let Some(old_id) = former_self {
            self.replace_static(ticket, request, &old_id, fresh_id, now, out);
        } else if request.require_known_member_id && request.instance_id.is_none() {
            self.pending.insert(fresh_id.clone(), now + request.session_timeout_ms.max(0) as u64);
            return Err(GroupError::MemberIdRequired { member_id: fresh_id });
        } else {
            self.add(ticket, request, fresh_id, now, out);
        }
        Ok(())
    }

    fn check_bounds(&self, request: &JoinRequest) -> Result<(), GroupError> {
        let (min_ms, max_ms) = (self.options.session_timeout_ms_min, self.options.session_timeout_ms_max);
        let asked_ms = request.session_timeout_ms;
        if !(min_ms..=max_ms).contains(&asked_ms) {
            return Err(GroupError::InvalidSessionTimeout { asked_ms, min_ms, max_ms });
        }
        if request.rebalance_timeout_ms < 0 {
            return Err(GroupError::InvalidRequest("the rebalance timeout is negative".into()));
        }
        if request.protocols.len() > self.options.protocols_max {
            return Err(GroupError::InvalidRequest(format!(
                "{} protocols; a member may have {}",
                request.protocols.len(),
                self.options.protocols_max
            )));
        }
        let bytes = data_bytes(&request.protocols);
        let names = [&request.client_id, &request.member_id, &request.client_host, &request.protocol_type];
        let names = names.into_iter().chain(&request.instance_id);
        if let Some(long) = names.into_iter().find(|n| n.len() > weir_model::names::GROUP_NAME_BYTES_MAX) {
            return Err(GroupError::InvalidRequest(format!("a name of {} bytes is too long", long.len())));
        }
        if bytes > self.options.member_data_bytes_max {
            return Err(GroupError::InvalidRequest(format!(
                "{bytes} bytes of protocol data; a member may have {}",
                self.options.member_data_bytes_max
            )));
        }
        let others = self.members.values().filter(|member| member.id != request.member_id);
        if others.map(Member::data_bytes).sum::<usize>() + bytes > GROUP_BYTES_MAX {
            return Err(GroupError::InvalidRequest(format!(
                "the group's members have more than {GROUP_BYTES_MAX} bytes of protocol data together"
            )));
        }
        Ok(())
    }

    /// Whether there is room for one more, if it is one more.
    fn check_room(&self, member_id: &str) -> Result<(), GroupError> {
        let max = self.options.size_max;
        let counted = if matches!(self.phase, Phase::Preparing { .. } | Phase::Forming { .. }) {
            // Those who have joined already count; the others may not come back.
            let joined = |id: &str| self.members.get(id).is_some_and(Member::is_joining);
            if joined(member_id) {
                return Ok(());
            }
            self.members.values().filter(|member| member.is_joining()).count()
        } else if self.members.contains_key(member_id) {
            return Ok(());
        } else {
            self.members.len()
        };
        let pending = if self.pending.contains_key(member_id) { 0 } else { self.pending.len() };
        if counted >= max || (counted + pending >= max && !self.members.contains_key(member_id)) {
            return Err(GroupError::GroupFull { max });
        }
        Ok(())
    }

    /// Whether the member speaks what the others speak.
    fn supports(&self, request: &JoinRequest) -> bool {
        if request.protocol_type.is_empty() || request.protocols.is_empty() {
            return false;
        }
        if self.members.is_empty() {
            return true;
        }
        self.protocol_type.as_ref() == Some(&request.protocol_type)
            && request
                .protocols
                .iter()
                .any(|(name, _)| self.members.values().all(|member| member.supports(name)))
    }

    /// A member that says it has an id.
    fn join_known(
        &mut self,
        ticket: Ticket,
        request: JoinRequest,
        now: Moment,
        out: &mut Vec<Action>,
    ) -> Result<(), GroupError> {
        if self.pending.contains_key(&request.member_id) {
            if request.instance_id.is_some() {
                // Such an id is only given to members without an instance id.
                return Err(GroupError::UnknownMember);
            }
            let id = request.member_id.clone();
            self.add(ticket, request, id, now, out);
            return Ok(());
        }
        let is_leader = self.leader.as_ref() == Some(&request.member_id);
        let generation_known = matches!(self.phase, Phase::Completing { .. } | Phase::Stable { .. });
        let stable = matches!(self.phase, Phase::Stable { .. });
        let member = self.find(&request.member_id, request.instance_id.as_deref())?;
        // A member that says nothing new lost the answer to its join; the leader, once all is settled,
        // joins again because the topics have changed.
        let repeats = generation_known && member.protocols == request.protocols && !(stable && is_leader);
        let id = request.member_id.clone();
        if repeats {
            member.heard_of(now);
            let joined = self.joined(&id);
            out.push(Action::Answer(ticket, Answer::Join(Ok(joined))));
            return Ok(());
        }
        member.update(request);
        member.park_join(ticket, out);
        self.rebalance(now, out);
        self.complete_if_all_joined(now, out);
        Ok(())
    }

    /// A member that takes part for the first time.
    fn add(&mut self, ticket: Ticket, request: JoinRequest, id: String, now: Moment, out: &mut Vec<Action>) {
        self.pending.remove(&id);
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
            self.leader = Some(id.clone());
        }
        if let Some(instance) = &request.instance_id {
            self.instances.insert(instance.clone(), id.clone());
        }
        let order = self.take_order();
        self.members.insert(id.clone(), Member::joining(id, request, order, ticket, now));
        if let Phase::Preparing { initial: Some(initial), .. } = &mut self.phase {
            initial.company = true;
        }
        self.rebalance(now, out);
        self.complete_if_all_joined(now, out);
    }

    /// A static member has come back without its id: the id changes, everything else stays. A group
    /// whose choice of protocol does not change by it goes on without a rebalance.
    fn replace_static(
        &mut self,
        ticket: Ticket,
        request: JoinRequest,
        old_id: &str,
        new_id: String,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let Some(mut member) = self.members.remove(old_id) else { return };
        member.answer_join(Err(GroupError::FencedInstance), out);
        member.answer_sync(Err(GroupError::FencedInstance), out);
        member.id = new_id.clone();
        if let Some(instance) = &request.instance_id {
            self.instances.insert(instance.clone(), new_id.clone());
        }
        let can_skip = request.can_skip_assignment;
        member.update(request);
        member.heard_of(now);
        self.members.insert(new_id.clone(), member);
        if self.unsynced.remove(old_id) {
            self.unsynced.insert(new_id.clone());
        }
        let was_leader = self.leader.as_deref() == Some(old_id);
        if was_leader {
            self.leader = Some(new_id.clone());
        }
        if matches!(self.phase, Phase::Stable { .. }) && self.protocol == self.choose_protocol() {
            let mut joined = self.joined(&new_id);
            if was_leader && can_skip {
                joined.skip_assignment = true;
            } else if was_leader {
                // An older client would compute assignments if told that it leads; it is told that
                // its former self does.
                joined.leader = old_id.to_owned();
                joined.members.clear();
            }
            let store = self.store(out);
            self.returning.insert(store, (ticket, joined));
            return;
        }
        if let Some(member) = self.members.get_mut(&new_id) {
            member.park_join(ticket, out);
        }
        self.rebalance(now, out);
        self.complete_if_all_joined(now, out);
    }

    /// What a member of the current generation is told.
    pub(super) fn joined(&self, member_id: &str) -> Joined {
        let protocol = self.protocol.clone().unwrap_or_default();
        let leads = self.leader.as_deref() == Some(member_id);
        let members = if leads { self.in_order() } else { Vec::new() };
        Joined {
            member_id: member_id.to_owned(),
            generation: self.generation,
            protocol_type: self.protocol_type().to_owned(),
            leader: self.leader.clone().unwrap_or_default(),
            skip_assignment: false,
            members: members
                .into_iter()
                .map(|member| JoinedMember {
                    member_id: member.id.clone(),
                    instance_id: member.instance_id.clone(),
                    metadata: member.metadata(&protocol),
                })
                .collect(),
            protocol,
        }
    }
}
