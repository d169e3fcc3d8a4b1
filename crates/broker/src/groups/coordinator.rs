//! One group of the classic protocol as a state machine: requests and time in, answers and commands
//! out. It does no I/O and reads no clock, so every rule can be read off a transcript in `tests`.
//!
//! ```text
//!          join           all joined, or            its number            the assignments
//!                         time is up                is durable            are durable
//!   Empty ──────▶ Preparing ──────────▶ Forming ──────────────▶ Completing ────────────▶ Stable
//!     ▲             │   ▲                  │                        │                      │
//!     └─ all gone ──┘   └──────────────────┴──── join, leave, expiry ──────────────────────┘
//! ```
//!
//! A generation's number is made durable before any member hears of it, and again with its
//! assignments before any member gets its own: so a number never means two memberships, whatever is
//! lost, and a restart finds the group as its members know it. The rules are those of Kafka's group
//! coordinator (KIP-62, KIP-134, KIP-345, KIP-394, KIP-559, KIP-814); the files beside this one hold
//! them by request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use weir_model::command::{GroupMember, GroupMembership};

use super::member::Member;
use super::request::*;
use crate::errors::{GroupError, Unavailable};
use crate::options::GroupOptions;

/// Milliseconds on a clock that never goes back; its zero means nothing.
pub type Moment = u64;

/// Names a request, so that its answer can come later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// Names a membership that is being made durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct StoreId(pub u64);

/// What happens to a group.
#[derive(Clone, Debug)]
pub enum Input {
    /// A member wants to take part. The string becomes the member's id if it has none yet.
    Join(Ticket, JoinRequest, String),
    /// A member wants its assignment.
    Sync(Ticket, SyncRequest),
    /// A member is alive.
    Heartbeat(Ticket, HeartbeatRequest),
    /// Members go.
    Leave(Ticket, LeaveRequest),
    /// May these positions be committed? Generation, member id and instance id say who asks.
    Commit(Ticket, i32, String, Option<String>),
    /// The membership is durable, or could not be made so.
    Stored(StoreId, Result<(), Unavailable>),
    /// Time has passed.
    Tick,
    /// The coordinator moves or stops: whoever waits is answered with this.
    Stop(GroupError),
}

/// What is to be done, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Answer a request.
    Answer(Ticket, Answer),
    /// Make this membership durable and report it with [`Input::Stored`].
    Store(StoreId, GroupMembership),
}

/// The answer to a request, by its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// To a join.
    Join(Result<Joined, GroupError>),
    /// To a sync.
    Sync(Result<Synced, GroupError>),
    /// To a heartbeat.
    Heartbeat(Result<(), GroupError>),
    /// To a leave.
    Leave(Result<Left, GroupError>),
    /// To the question whether positions may be committed.
    Commit(Result<(), GroupError>),
}

/// A member that joins for the first time is kept waiting for at most this long: its connection may
/// be gone without anybody having noticed.
pub(super) const NEW_MEMBER_WAIT_MS: u64 = 300_000;

/// All data that the members of one group may bring along, in bytes: it must fit one command.
pub(super) const GROUP_BYTES_MAX: usize = 16 << 20;

/// Where the group is, with what only this phase knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Empty,
    Preparing {
        /// Whoever has not joined by then is out.
        deadline: Moment,
        /// The first rebalance waits for company first.
        initial: Option<InitialDelay>,
    },
    /// Everybody is there; the number of the next generation is being made durable. Until then the
    /// joins stay parked, and a change of members only goes back to `Preparing`.
    Forming {
        /// The number.
        generation: i32,
        /// What is being made durable.
        store: StoreId,
    },
    Completing {
        /// Whoever has not synced by then is out.
        deadline: Moment,
        /// The leader has brought the assignments and they are being made durable.
        storing: Option<StoreId>,
    },
    Stable {
        /// Whoever has not fetched its assignment by then is out; none if all have.
        deadline: Option<Moment>,
    },
    Dead,
}

/// The wait for company before a group's first rebalance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct InitialDelay {
    /// By how much it may still be prolonged in all.
    pub remaining_ms: u64,
    /// Somebody came since it was last prolonged.
    pub company: bool,
}

/// The state of one group.
#[derive(Clone, Debug)]
pub struct Coordinator {
    pub(super) options: Arc<GroupOptions>,
    pub(super) phase: Phase,
    pub(super) generation: i32,
    pub(super) protocol_type: Option<String>,
    pub(super) protocol: Option<String>,
    pub(super) leader: Option<String>,
    pub(super) members: BTreeMap<String, Member>,
    /// Static members: instance id to member id.
    pub(super) instances: BTreeMap<String, String>,
    /// Ids that were given out to be joined with, and until when.
    pub(super) pending: BTreeMap<String, Moment>,
    /// Members of this generation that have not asked for their assignment.
    pub(super) unsynced: BTreeSet<String>,
    /// Joins that are answered when a returned static member is durable.
    pub(super) returning: BTreeMap<StoreId, (Ticket, Joined)>,
    next_store: u64,
    next_order: u64,
}

impl Coordinator {
    /// A group that nobody knew.
    pub fn new(options: Arc<GroupOptions>) -> Coordinator {
        Coordinator {
            options,
            phase: Phase::Empty,
            generation: 0,
            protocol_type: None,
            protocol: None,
            leader: None,
            members: BTreeMap::new(),
            instances: BTreeMap::new(),
            pending: BTreeMap::new(),
            unsynced: BTreeSet::new(),
            returning: BTreeMap::new(),
            next_store: 0,
            next_order: 0,
        }
    }

    /// A group as it was last made durable. Every member gets a full session timeout from now on.
    /// One whose assignments were not durable (it has no leader) has to rebalance.
    pub fn restore(options: Arc<GroupOptions>, membership: &GroupMembership, now: Moment) -> Coordinator {
        let mut group = Coordinator::new(options);
        group.generation = membership.generation;
        group.protocol_type = Some(membership.protocol_type.clone()).filter(|kind| !kind.is_empty());
        for stored in &membership.members {
            let order = group.take_order();
            if let Some(instance) = &stored.instance_id {
                group.instances.insert(instance.clone(), stored.member_id.clone());
            }
            let member = Member::restored(stored, order, now);
            group.members.insert(stored.member_id.clone(), member);
        }
        if !group.members.is_empty() {
            group.leader = membership.leader.clone().filter(|leader| group.members.contains_key(leader));
            if group.leader.is_some() {
                group.protocol = membership.protocol.clone();
                group.phase = Phase::Stable { deadline: None };
            } else {
                group.leader = group.first_member(|_| true);
                let deadline = now + group.rebalance_timeout_ms();
                group.phase = Phase::Preparing { deadline, initial: None };
            }
        }
        group
    }

    /// Takes in what happened and returns what is to be done. Time never goes back.
    pub fn handle(&mut self, input: Input, now: Moment) -> Vec<Action> {
        let mut actions = Vec::new();
        let out = &mut actions;
        // These only put deadlines off, and come often: what is due is left to the next tick.
        let only_alive = matches!(input, Input::Heartbeat(..) | Input::Commit(..));
        match input {
            Input::Join(ticket, request, fresh_id) => self.join(ticket, request, fresh_id, now, out),
            Input::Sync(ticket, request) => self.sync(ticket, request, now, out),
            Input::Heartbeat(ticket, request) => {
                out.push(Action::Answer(ticket, Answer::Heartbeat(self.heartbeat(&request, now))));
            }
            Input::Leave(ticket, request) => {
                let left = self.leave(&request, now, out);
                out.push(Action::Answer(ticket, Answer::Leave(left)));
            }
            Input::Commit(ticket, generation, member_id, instance_id) => {
                let verdict = self.may_commit(generation, &member_id, instance_id.as_deref(), now);
                out.push(Action::Answer(ticket, Answer::Commit(verdict)));
            }
            Input::Stored(store, result) => self.stored(store, result, now, out),
            Input::Tick => {}
            Input::Stop(error) => return self.stop(&error),
        }
        if !only_alive {
            self.expire(now, out);
        }
        actions
    }

    /// When [`Input::Tick`] is due; earlier does no harm. A heartbeat or commit never brings it forward.
    pub fn next_deadline(&self) -> Option<Moment> {
        let phase = match &self.phase {
            Phase::Preparing { deadline, .. } | Phase::Completing { deadline, storing: None } => {
                Some(*deadline)
            }
            Phase::Stable { deadline } => *deadline,
            // What is being stored is waited for; nobody is late meanwhile.
            Phase::Forming { .. } | Phase::Completing { .. } | Phase::Empty | Phase::Dead => None,
        };
        let members = self.members.values().filter_map(Member::deadline);
        phase.into_iter().chain(members).chain(self.pending.values().copied()).min()
    }

    /// Where the group is in its life.
    pub fn state(&self) -> GroupState {
        match self.phase {
            Phase::Empty => GroupState::Empty,
            Phase::Preparing { .. } | Phase::Forming { .. } => GroupState::PreparingRebalance,
            Phase::Completing { .. } => GroupState::CompletingRebalance,
            Phase::Stable { .. } => GroupState::Stable,
            Phase::Dead => GroupState::Dead,
        }
    }

    /// The current generation.
    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// Whether the group has neither members nor anybody who was promised to become one.
    pub fn is_vacant(&self) -> bool {
        self.members.is_empty() && self.pending.is_empty() && matches!(self.phase, Phase::Empty | Phase::Dead)
    }

    /// The kind of group, empty for one that never had members.
    pub fn protocol_type(&self) -> &str {
        self.protocol_type.as_deref().unwrap_or_default()
    }

    /// The group in full.
    pub fn describe(&self, group: &str) -> GroupDescription {
        let stable = matches!(self.phase, Phase::Stable { .. });
        let protocol = self.protocol.as_deref().filter(|_| stable);
        GroupDescription {
            group: group.to_owned(),
            state: self.state(),
            generation: self.generation,
            protocol_type: self.protocol_type().to_owned(),
            protocol: protocol.unwrap_or_default().to_owned(),
            members: self
                .in_order()
                .into_iter()
                .map(|member| MemberDescription {
                    member_id: member.id.clone(),
                    instance_id: member.instance_id.clone(),
                    client_id: member.client_id.clone(),
                    client_host: member.client_host.clone(),
                    metadata: protocol.map(|protocol| member.metadata(protocol)).unwrap_or_default(),
                    assignment: if stable { member.assignment.clone() } else { Bytes::new() },
                })
                .collect(),
        }
    }

    /// Every member's data for each protocol that it supports; for telling who reads which topic.
    pub fn protocol_data(&self) -> impl Iterator<Item = &Bytes> {
        self.members.values().flat_map(|member| member.protocols.iter().map(|(_, data)| data))
    }

    /// From here on the group does not exist. Only for a vacant one.
    pub fn delete(&mut self) -> Result<(), GroupError> {
        match self.phase {
            Phase::Dead => Err(GroupError::UnknownGroup),
            Phase::Empty if self.members.is_empty() => {
                self.phase = Phase::Dead;
                Ok(())
            }
            _ => Err(GroupError::NotEmpty),
        }
    }

    /// What of the group must survive a restart.
    pub(super) fn membership(&self) -> GroupMembership {
        GroupMembership {
            generation: self.generation,
            protocol_type: self.protocol_type().to_owned(),
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            members: self.in_order().into_iter().map(GroupMember::from).collect(),
            changed_at: 0,
        }
    }

    /// Begins to make the group durable.
    pub(super) fn store(&mut self, out: &mut Vec<Action>) -> StoreId {
        let membership = self.membership();
        self.store_this(membership, out)
    }

    /// Begins to make this membership durable.
    pub(super) fn store_this(&mut self, membership: GroupMembership, out: &mut Vec<Action>) -> StoreId {
        let store = StoreId(self.next_store);
        self.next_store += 1;
        out.push(Action::Store(store, membership));
        store
    }

    /// The members in the order in which they joined.
    pub(super) fn in_order(&self) -> Vec<&Member> {
        let mut members: Vec<&Member> = self.members.values().collect();
        members.sort_by_key(|member| member.order);
        members
    }

    /// The id of the member that joined first among those that fit.
    pub(super) fn first_member(&self, fits: impl Fn(&Member) -> bool) -> Option<String> {
        let members = self.members.values().filter(|member| fits(member));
        members.min_by_key(|member| member.order).map(|member| member.id.clone())
    }

    pub(super) fn take_order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }

    /// The member that a request names, if it is who it says it is.
    pub(super) fn find(
        &mut self,
        member_id: &str,
        instance_id: Option<&str>,
    ) -> Result<&mut Member, GroupError> {
        if let Some(instance) = instance_id {
            match self.instances.get(instance) {
                None => return Err(GroupError::UnknownMember),
                Some(current) if current != member_id => return Err(GroupError::FencedInstance),
                Some(_) => {}
            }
        }
        self.members.get_mut(member_id).ok_or(GroupError::UnknownMember)
    }

    fn heartbeat(&mut self, request: &HeartbeatRequest, now: Moment) -> Result<(), GroupError> {
        if self.phase == Phase::Dead {
            return Err(Unavailable::NotLeader { leader: None }.into());
        }
        let generation = self.generation;
        let preparing = matches!(self.phase, Phase::Preparing { .. } | Phase::Forming { .. });
        let member = self.find(&request.member_id, request.instance_id.as_deref())?;
        if request.generation != generation {
            return Err(GroupError::IllegalGeneration);
        }
        member.heard_of(now);
        if preparing { Err(GroupError::RebalanceInProgress) } else { Ok(()) }
    }

    fn may_commit(
        &mut self,
        generation: i32,
        member_id: &str,
        instance_id: Option<&str>,
        now: Moment,
    ) -> Result<(), GroupError> {
        match self.phase {
            Phase::Dead => return Err(Unavailable::NotLeader { leader: None }.into()),
            // A consumer that manages its own assignment uses the group only to keep its positions.
            Phase::Empty if generation < 0 => return Ok(()),
            Phase::Empty if self.protocol_type.is_none() => return Err(GroupError::IllegalGeneration),
            _ => {}
        }
        let current = self.generation;
        let completing = matches!(self.phase, Phase::Completing { .. });
        let member = self.find(member_id, instance_id)?;
        if generation != current {
            return Err(GroupError::IllegalGeneration);
        }
        member.heard_of(now);
        // Members may commit what they have read until they join the next generation, but those who
        // have joined it have no partitions yet.
        if completing { Err(GroupError::RebalanceInProgress) } else { Ok(()) }
    }

    fn stop(&mut self, error: &GroupError) -> Vec<Action> {
        let mut actions = Vec::new();
        for (_, (ticket, _)) in std::mem::take(&mut self.returning) {
            actions.push(Action::Answer(ticket, Answer::Join(Err(error.clone()))));
        }
        let mut members: Vec<&mut Member> = self.members.values_mut().collect();
        members.sort_by_key(|member| member.order);
        for member in members {
            member.answer_join(Err(error.clone()), &mut actions);
            member.answer_sync(Err(error.clone()), &mut actions);
        }
        self.members.clear();
        self.instances.clear();
        self.pending.clear();
        self.phase = Phase::Dead;
        actions
    }
}
