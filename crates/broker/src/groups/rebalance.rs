//! Rebalances: beginning one, completing one, and what time does.

use super::coordinator::{Action, Coordinator, InitialDelay, Moment, Phase};
use super::request::{LeaveRequest, LeavingMember, Left};
use crate::errors::{GroupError, Unavailable};

impl Coordinator {
    /// Begins a rebalance unless one is already gathering members.
    pub(super) fn rebalance(&mut self, now: Moment, out: &mut Vec<Action>) {
        let timeout_ms = self.rebalance_timeout_ms();
        match self.phase {
            Phase::Preparing { .. } | Phase::Dead => return,
            Phase::Empty => {
                let delay_ms = (self.options.initial_rebalance_delay_ms.max(0) as u64).min(timeout_ms);
                self.phase = Phase::Preparing {
                    deadline: now + delay_ms,
                    initial: Some(InitialDelay { remaining_ms: timeout_ms - delay_ms, company: false }),
                };
            }
            Phase::Forming { .. } | Phase::Completing { .. } | Phase::Stable { .. } => {
                self.phase = Phase::Preparing { deadline: now + timeout_ms, initial: None };
                for id in self.ids_in_order() {
                    if let Some(member) = self.members.get_mut(&id)
                        && member.is_syncing()
                    {
                        member.answer_sync(Err(GroupError::RebalanceInProgress), out);
                        member.heard_of(now);
                    }
                }
            }
        }
        self.unsynced.clear();
    }

    /// Completes the rebalance as soon as nobody is missing, those included who were given an id to
    /// join with. The first one waits for its delay.
    pub(super) fn complete_if_all_joined(&mut self, now: Moment, out: &mut Vec<Action>) {
        let Phase::Preparing { initial: None, .. } = self.phase else { return };
        let promised = !self.pending.is_empty() && !self.members.is_empty();
        if promised || self.members.values().any(|member| !member.is_joining()) {
            return;
        }
        self.complete_join(now, out);
    }

    /// The next generation is who has joined, and static members, who may come back.
    fn complete_join(&mut self, now: Moment, out: &mut Vec<Action>) {
        let gone: Vec<String> = self
            .in_order()
            .into_iter()
            .filter(|member| !member.is_joining() && member.instance_id.is_none())
            .map(|member| member.id.clone())
            .collect();
        for id in &gone {
            self.forget(id, out);
        }
        if !self.members.is_empty() && !self.elect() {
            // Static members only, and none of them here: they get the same time again, and their
            // sessions end it.
            self.phase = Phase::Preparing { deadline: now + self.rebalance_timeout_ms(), initial: None };
            return;
        }
        let generation = self.generation.saturating_add(1);
        if self.members.is_empty() {
            self.generation = generation;
            self.phase = Phase::Empty;
            self.protocol = None;
            self.leader = None;
            self.store(out);
            return;
        }
        // Without a leader: a restart that finds this must not take it for assigned.
        let mut announced = self.membership();
        announced.generation = generation;
        announced.protocol = None;
        announced.leader = None;
        announced.members.iter_mut().for_each(|member| member.assignment.clear());
        let store = self.store_this(announced, out);
        self.phase = Phase::Forming { generation, store };
    }

    /// The number of the next generation is durable, and its members hear of it; or it could not be
    /// made so, and they have to try again.
    pub(super) fn formed(
        &mut self,
        generation: i32,
        result: Result<(), Unavailable>,
        now: Moment,
        out: &mut Vec<Action>,
    ) {
        let timeout_ms = self.rebalance_timeout_ms();
        if let Err(error) = result {
            self.phase = Phase::Preparing { deadline: now + timeout_ms, initial: None };
            for id in self.ids_in_order() {
                if let Some(member) = self.members.get_mut(&id) {
                    member.answer_join(Err(error.clone().into()), out);
                    member.settle(now);
                }
            }
            return;
        }
        self.generation = generation;
        self.protocol = self.choose_protocol();
        self.phase = Phase::Completing { deadline: now + timeout_ms, storing: None };
        for id in self.ids_in_order() {
            let joined = self.joined(&id);
            if let Some(member) = self.members.get_mut(&id) {
                member.answer_join(Ok(joined), out);
                member.settle(now);
            }
            self.unsynced.insert(id);
        }
    }

    /// Makes sure that the leader is one that is here. Whether there is one.
    fn elect(&mut self) -> bool {
        let leader = self.leader.as_ref().and_then(|id| self.members.get(id));
        if leader.is_some_and(|member| member.is_joining()) {
            return true;
        }
        match self.first_member(|member| member.is_joining()) {
            Some(id) => {
                self.leader = Some(id);
                true
            }
            None => false,
        }
    }

    /// The protocol that most members like best among those that all support. A tie goes to the one
    /// that the first member likes better.
    pub(super) fn choose_protocol(&self) -> Option<String> {
        let members = self.in_order();
        let first = members.first()?;
        let candidates: Vec<&str> = first
            .protocols
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| members.iter().all(|member| member.supports(name)))
            .collect();
        let votes_for = |candidate: &str| {
            let favourite = members.iter().filter_map(|member| {
                member.protocols.iter().map(|(name, _)| name.as_str()).find(|name| candidates.contains(name))
            });
            favourite.filter(|name| *name == candidate).count()
        };
        // `max_by_key` takes the last of equals, hence the reversal.
        let chosen = candidates.iter().rev().max_by_key(|candidate| votes_for(candidate));
        chosen.map(|name| (*name).to_owned())
    }

    /// Takes members out of the group.
    pub(super) fn leave(
        &mut self,
        request: &LeaveRequest,
        now: Moment,
        out: &mut Vec<Action>,
    ) -> Result<Left, GroupError> {
        if self.phase == Phase::Dead {
            return Err(Unavailable::NotLeader { leader: None }.into());
        }
        Ok(request.members.iter().map(|leaving| self.leave_one(leaving, now, out)).collect())
    }

    fn leave_one(
        &mut self,
        leaving: &LeavingMember,
        now: Moment,
        out: &mut Vec<Action>,
    ) -> Result<(), GroupError> {
        let by_instance = leaving.instance_id.as_deref().filter(|_| leaving.member_id.is_empty());
        let id = match by_instance {
            Some(instance) => self.instances.get(instance).cloned().ok_or(GroupError::UnknownMember)?,
            None if self.pending.contains_key(&leaving.member_id) => {
                self.pending.remove(&leaving.member_id);
                self.complete_if_all_joined(now, out);
                return Ok(());
            }
            None => self.find(&leaving.member_id, leaving.instance_id.as_deref())?.id.clone(),
        };
        self.remove(&id, now, out);
        Ok(())
    }

    /// Takes a member out and lets the others share what it had.
    fn remove(&mut self, id: &str, now: Moment, out: &mut Vec<Action>) {
        self.forget(id, out);
        self.rebalance(now, out);
        self.complete_if_all_joined(now, out);
    }

    /// Takes a member out; whatever it waits for is answered.
    fn forget(&mut self, id: &str, out: &mut Vec<Action>) {
        let Some(mut member) = self.members.remove(id) else { return };
        member.answer_join(Err(GroupError::UnknownMember), out);
        member.answer_sync(Err(GroupError::UnknownMember), out);
        if let Some(instance) = &member.instance_id {
            self.instances.remove(instance);
        }
        self.unsynced.remove(id);
        if self.leader.as_deref() == Some(id) {
            self.leader = self.first_member(|_| true);
        }
    }

    /// Does what is due by now.
    pub(super) fn expire(&mut self, now: Moment, out: &mut Vec<Action>) {
        let promised = self.pending.len();
        self.pending.retain(|_, until| *until > now);
        if self.pending.len() < promised {
            self.complete_if_all_joined(now, out);
        }
        let due = |deadline: Option<Moment>| deadline.is_some_and(|deadline| deadline <= now);
        let silent: Vec<String> = self
            .in_order()
            .into_iter()
            .filter(|member| due(member.deadline()))
            .map(|member| member.id.clone())
            .collect();
        for id in &silent {
            // The first removal may have completed a rebalance and given the others a new session.
            if self.members.get(id).is_some_and(|member| due(member.deadline())) {
                self.remove(id, now, out);
            }
        }
        match self.phase {
            Phase::Preparing { deadline, initial } if deadline <= now => match initial {
                Some(InitialDelay { remaining_ms, company: true }) if remaining_ms > 0 => {
                    let delay_ms = (self.options.initial_rebalance_delay_ms.max(1) as u64).min(remaining_ms);
                    self.phase = Phase::Preparing {
                        deadline: now + delay_ms,
                        initial: Some(InitialDelay { remaining_ms: remaining_ms - delay_ms, company: false }),
                    };
                }
                _ => self.complete_join(now, out),
            },
            Phase::Completing { deadline, storing: None } | Phase::Stable { deadline: Some(deadline) }
                if deadline <= now =>
            {
                let unsynced: Vec<String> = self.unsynced.iter().cloned().collect();
                for id in &unsynced {
                    self.forget(id, out);
                }
                self.rebalance(now, out);
                self.complete_if_all_joined(now, out);
            }
            _ => {}
        }
    }

    /// The time that all members have to join: the longest that one of them asked for.
    pub(super) fn rebalance_timeout_ms(&self) -> u64 {
        self.members.values().map(|member| member.rebalance_timeout_ms.max(1) as u64).max().unwrap_or(0)
    }

    pub(super) fn ids_in_order(&self) -> Vec<String> {
        self.in_order().into_iter().map(|member| member.id.clone()).collect()
    }
}
