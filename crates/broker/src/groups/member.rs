//! One member of a group, as its coordinator knows it.

use bytes::Bytes;
use weir_model::command::GroupMember;

use super::coordinator::{Action, Answer, Moment, NEW_MEMBER_WAIT_MS, Ticket};
use super::request::{JoinRequest, Joined, Synced};
use crate::errors::GroupError;

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub id: String,
    pub instance_id: Option<String>,
    pub client_id: String,
    pub client_host: String,
    session_timeout_ms: i32,
    pub rebalance_timeout_ms: i32,
    pub protocols: Vec<(String, Bytes)>,
    pub assignment: Bytes,
    /// Position among the members: the order in which they joined.
    pub order: u64,
    /// Its join is parked until the generation is complete.
    joining: Option<Ticket>,
    /// Its sync is parked until the assignments are durable.
    syncing: Option<Ticket>,
    /// It has not yet been part of a generation.
    new: bool,
    /// Unless heard of before, it is out then.
    expires: Moment,
}

impl Member {
    /// A member that takes part for the first time.
    pub fn joining(id: String, request: JoinRequest, order: u64, ticket: Ticket, now: Moment) -> Member {
        Member {
            id,
            instance_id: request.instance_id,
            client_id: request.client_id,
            client_host: request.client_host,
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms: request.rebalance_timeout_ms,
            protocols: request.protocols,
            assignment: Bytes::new(),
            order,
            joining: Some(ticket),
            syncing: None,
            new: true,
            expires: now + NEW_MEMBER_WAIT_MS,
        }
    }

    pub fn restored(stored: &GroupMember, order: u64, now: Moment) -> Member {
        let mut member = Member {
            id: stored.member_id.clone(),
            instance_id: stored.instance_id.clone(),
            client_id: stored.client_id.clone(),
            client_host: stored.client_host.clone(),
            session_timeout_ms: stored.session_timeout_ms,
            rebalance_timeout_ms: stored.rebalance_timeout_ms,
            protocols: stored.protocols.clone(),
            assignment: stored.assignment.clone(),
            order,
            joining: None,
            syncing: None,
            new: false,
            expires: now,
        };
        member.heard_of(now);
        member
    }

    /// Takes over what the member says of itself now.
    pub fn update(&mut self, request: JoinRequest) {
        self.client_id = request.client_id;
        self.client_host = request.client_host;
        self.session_timeout_ms = request.session_timeout_ms;
        self.rebalance_timeout_ms = request.rebalance_timeout_ms;
        self.protocols = request.protocols;
    }

    /// Parks its join. An earlier one that is still parked can only be a lost connection's.
    pub fn park_join(&mut self, ticket: Ticket, out: &mut Vec<Action>) {
        self.answer_join(Err(GroupError::RebalanceInProgress), out);
        self.joining = Some(ticket);
    }

    /// Parks its sync, likewise.
    pub fn park_sync(&mut self, ticket: Ticket, out: &mut Vec<Action>) {
        self.answer_sync(Err(GroupError::RebalanceInProgress), out);
        self.syncing = Some(ticket);
    }

    /// Answers its join if one is parked.
    pub fn answer_join(&mut self, result: Result<Joined, GroupError>, out: &mut Vec<Action>) {
        if let Some(ticket) = self.joining.take() {
            out.push(Action::Answer(ticket, Answer::Join(result)));
        }
    }

    /// Answers its sync if one is parked.
    pub fn answer_sync(&mut self, result: Result<Synced, GroupError>, out: &mut Vec<Action>) {
        if let Some(ticket) = self.syncing.take() {
            out.push(Action::Answer(ticket, Answer::Sync(result)));
        }
    }

    /// It is part of a generation from here on.
    pub fn settle(&mut self, now: Moment) {
        self.new = false;
        self.heard_of(now);
    }

    /// It is alive: its session begins anew.
    pub fn heard_of(&mut self, now: Moment) {
        if !self.new {
            self.expires = now + self.session_timeout_ms.max(0) as u64;
        }
    }

    /// When it is out. A member that waits for an answer of ours cannot be expected to say anything;
    /// the rebalance has a deadline of its own.
    pub fn deadline(&self) -> Option<Moment> {
        let waits_for_us = self.joining.is_some() || self.syncing.is_some();
        if waits_for_us && !self.new { None } else { Some(self.expires) }
    }

    pub fn is_joining(&self) -> bool {
        self.joining.is_some()
    }

    pub fn is_syncing(&self) -> bool {
        self.syncing.is_some()
    }

    /// Its data for a protocol; empty if it does not support it.
    pub fn metadata(&self, protocol: &str) -> Bytes {
        let found = self.protocols.iter().find(|(name, _)| name == protocol);
        found.map(|(_, data)| data.clone()).unwrap_or_default()
    }

    pub fn supports(&self, protocol: &str) -> bool {
        self.protocols.iter().any(|(name, _)| name == protocol)
    }

    /// Bytes that it brings along.
    pub fn data_bytes(&self) -> usize {
        data_bytes(&self.protocols)
    }
}

/// Bytes of protocols and their data.
pub(super) fn data_bytes(protocols: &[(String, Bytes)]) -> usize {
    protocols.iter().map(|(name, data)| name.len() + data.len()).sum()
}

impl From<&Member> for GroupMember {
    fn from(member: &Member) -> GroupMember {
        GroupMember {
            member_id: member.id.clone(),
            instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            session_timeout_ms: member.session_timeout_ms,
            rebalance_timeout_ms: member.rebalance_timeout_ms,
            protocols: member.protocols.clone(),
            assignment: member.assignment.clone(),
        }
    }
}
