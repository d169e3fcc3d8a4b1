//! What runs the coordinators: it finds or restores the one of a group, hands it what happens, carries
//! out what it asks for, and keeps time for all of them with one task.
//!
//! A group's inputs are taken one at a time under its lock, and its commands are put in its shard's
//! line under the same lock: so commits and memberships are applied in the order in which they were
//! allowed.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, oneshot};
use weir_cluster::PendingOutcome;
use weir_model::ShardId;
use weir_model::command::{Command, GroupMembership, OffsetCommit, Outcome, Refusal};

use super::coordinator::{Action, Answer, Coordinator, Input, Moment, StoreId, Ticket};
use super::request::{GroupDescription, GroupListing, GroupState};
use super::subscription::subscribed_topics;
use crate::broker::Broker;
use crate::errors::{GroupError, Unavailable};
use crate::options::GroupOptions;

/// All groups whose coordinator is on this node.
pub(crate) struct Groups {
    options: Arc<GroupOptions>,
    shards: BTreeMap<ShardId, Mutex<ShardGroups>>,
    timers: Timers,
    next_ticket: AtomicU64,
}

/// The groups of one shard.
#[derive(Default)]
struct ShardGroups {
    /// Whether this node leads the shard and has restored the groups that have members.
    open: bool,
    cells: BTreeMap<String, Arc<Cell>>,
}

/// One group: its coordinator, and who waits for an answer of it.
pub(crate) struct Cell {
    group: String,
    shard: ShardId,
    state: Mutex<CellState>,
}

struct CellState {
    coordinator: Coordinator,
    waiting: BTreeMap<Ticket, oneshot::Sender<Answer>>,
    /// When the timer task will look at it.
    timer: Option<Moment>,
    /// Commands in the shard's line that are not applied yet.
    in_flight: usize,
}

/// Deadlines of all groups, for one task.
#[derive(Default)]
struct Timers {
    due: Mutex<BTreeSet<(Moment, ShardId, String)>>,
    changed: Notify,
}

impl Groups {
    pub fn new(shards: &[ShardId], options: &GroupOptions) -> Groups {
        Groups {
            options: Arc::new(options.clone()),
            shards: shards.iter().map(|shard| (*shard, Mutex::default())).collect(),
            timers: Timers::default(),
            next_ticket: AtomicU64::new(0),
        }
    }

    /// Groups of a shard that are in memory.
    pub fn names(&self, shard: ShardId) -> Vec<String> {
        self.shards
            .get(&shard)
            .map(|groups| groups.lock().cells.keys().cloned().collect())
            .unwrap_or_default()
    }

    /// A group that is in memory.
    pub fn get(&self, shard: ShardId, group: &str) -> Option<Arc<Cell>> {
        self.shards.get(&shard)?.lock().cells.get(group).cloned()
    }

    /// Answers everybody who waits, and takes no more until a shard is opened.
    pub fn stop(&self, error: &GroupError) {
        for shard in self.shards.keys() {
            self.close(*shard, error);
        }
    }

    fn close(&self, shard: ShardId, error: &GroupError) {
        let Some(groups) = self.shards.get(&shard) else { return };
        let cells = {
            let mut groups = groups.lock();
            groups.open = false;
            std::mem::take(&mut groups.cells)
        };
        for cell in cells.into_values() {
            let mut state = cell.state.lock();
            let actions = state.coordinator.handle(Input::Stop(error.clone()), 0);
            for action in actions {
                if let Action::Answer(ticket, answer) = action {
                    state.answer(ticket, answer);
                }
            }
        }
    }

    fn count(&self) -> usize {
        self.shards.values().map(|groups| groups.lock().cells.len()).sum()
    }
}

impl CellState {
    fn answer(&mut self, ticket: Ticket, answer: Answer) {
        if let Some(waiting) = self.waiting.remove(&ticket) {
            // Whoever asked may have hung up.
            let _ = waiting.send(answer);
        }
    }
}

impl Cell {
    fn new(group: &str, shard: ShardId, coordinator: Coordinator) -> Cell {
        let state = CellState { coordinator, waiting: BTreeMap::new(), timer: None, in_flight: 0 };
        Cell { group: group.to_owned(), shard, state: Mutex::new(state) }
    }

    pub fn describe(&self) -> GroupDescription {
        self.state.lock().coordinator.describe(&self.group)
    }

    /// Whether it never came to anything: somebody asked, and was refused or is not here yet. Such a
    /// group exists only if it has positions.
    pub fn is_blank(&self) -> bool {
        let state = self.state.lock();
        state.coordinator.state() == GroupState::Empty && state.coordinator.generation() == 0
    }

    /// The group in a listing; none if it does not exist.
    pub fn listing(&self) -> Option<GroupListing> {
        let state = self.state.lock();
        let listing = GroupListing {
            group: self.group.clone(),
            protocol_type: state.coordinator.protocol_type().to_owned(),
            state: state.coordinator.state(),
        };
        Some(listing).filter(|listing| listing.state != GroupState::Dead)
    }

    /// The topics that members read, as far as their own data tells. A group with members that does
    /// not tell must not be touched.
    pub fn subscribed_topics(&self) -> Result<BTreeSet<String>, GroupError> {
        let state = self.state.lock();
        if state.coordinator.is_vacant() {
            return Ok(BTreeSet::new());
        }
        if state.coordinator.protocol_type() != "consumer" {
            return Err(GroupError::NotEmpty);
        }
        let mut topics = BTreeSet::new();
        for data in state.coordinator.protocol_data() {
            let named = subscribed_topics(data).ok_or(GroupError::NotEmpty)?;
            topics.extend(named.into_iter().map(str::to_owned));
        }
        Ok(topics)
    }

    /// Whether it could be let go and restored without anybody noticing.
    fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.coordinator.is_vacant() && state.waiting.is_empty() && state.in_flight == 0
    }

    /// Calls `look` if the group has no members and nothing on its way, which then stays so.
    pub fn while_vacant<T>(&self, look: impl FnOnce() -> Option<T>) -> Option<T> {
        let state = self.state.lock();
        let vacant = state.coordinator.is_vacant() && state.in_flight == 0;
        if vacant { look() } else { None }
    }
}

impl Broker {
    /// The time on the groups' clock.
    fn moment(&self) -> Moment {
        self.began.elapsed().as_millis() as Moment
    }

    /// The coordinator of a group, restored if need be.
    pub(super) fn cell(&self, group: &str, create: bool) -> Result<Option<Arc<Cell>>, GroupError> {
        if self.is_stopping() {
            return Err(Unavailable::ShuttingDown.into());
        }
        let shard = self.shard_of_group(group);
        let handle = self.shard(shard)?;
        crate::admin::ready(handle)?;
        let Some(groups) = self.groups.shards.get(&shard) else {
            return Err(Unavailable::NotLeader { leader: None }.into());
        };
        let mut groups = groups.lock();
        if !groups.open {
            return Err(Unavailable::Starting.into());
        }
        if let Some(cell) = groups.cells.get(group) {
            return Ok(Some(cell.clone()));
        }
        let options = self.groups.options.clone();
        let coordinator = match handle.view().group(group) {
            Some(state) => match state.membership() {
                Some(membership) => Coordinator::restore(options, membership, self.moment()),
                None => Coordinator::new(options),
            },
            None if create => Coordinator::new(options),
            None => return Ok(None),
        };
        let max = self.groups.options.groups_max / self.groups.shards.len().max(1) + 1;
        if groups.cells.len() >= max {
            groups.cells.retain(|_, cell| Arc::strong_count(cell) > 1 || !cell.is_idle());
        }
        if groups.cells.len() >= max {
            return Err(Unavailable::Overloaded.into());
        }
        let cell = Arc::new(Cell::new(group, shard, coordinator));
        groups.cells.insert(group.to_owned(), cell.clone());
        self.metrics.groups.inc();
        Ok(Some(cell))
    }

    /// Lets go of a group's coordinator.
    pub(super) fn forget_cell(&self, cell: &Arc<Cell>) {
        let Some(groups) = self.groups.shards.get(&cell.shard) else { return };
        let mut groups = groups.lock();
        if groups.cells.get(&cell.group).is_some_and(|current| Arc::ptr_eq(current, cell)) {
            groups.cells.remove(&cell.group);
        }
    }

    /// Lets go of the coordinators that nobody needs.
    pub(crate) fn forget_idle_cells(&self, shard: ShardId) {
        let Some(groups) = self.groups.shards.get(&shard) else { return };
        groups.lock().cells.retain(|_, cell| Arc::strong_count(cell) > 1 || !cell.is_idle());
        self.count_groups();
    }

    fn count_groups(&self) {
        self.metrics.groups.set(self.groups.count() as i64);
    }

    /// Hands a request to a coordinator and waits for the answer.
    pub(super) async fn ask(
        &self,
        cell: &Arc<Cell>,
        input: impl FnOnce(Ticket) -> Input,
    ) -> Result<Answer, GroupError> {
        let ticket = Ticket(self.groups.next_ticket.fetch_add(1, Ordering::Relaxed));
        let (answer, answered) = oneshot::channel();
        {
            let mut state = cell.state.lock();
            state.waiting.insert(ticket, answer);
            self.drive(cell, &mut state, input(ticket));
        }
        answered.await.map_err(|_| Unavailable::ShuttingDown.into())
    }

    /// Lets a coordinator take in what happened, and does what it asks for.
    fn drive(&self, cell: &Arc<Cell>, state: &mut CellState, input: Input) {
        let now = self.moment();
        // A store that cannot even be put in line comes back at once.
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let only_alive = matches!(input, Input::Heartbeat(..) | Input::Commit(..));
            for action in state.coordinator.handle(input, now) {
                match action {
                    Action::Answer(ticket, answer) => state.answer(ticket, answer),
                    Action::Store(store, membership) => {
                        if let Err(error) = self.begin_store(cell, state, store, membership) {
                            inputs.push_back(Input::Stored(store, Err(error)));
                        }
                    }
                }
            }
            if !only_alive {
                self.set_timer(cell, state);
            }
        }
    }

    /// Puts a membership in the shard's line; its end comes back as an input.
    fn begin_store(
        &self,
        cell: &Arc<Cell>,
        state: &mut CellState,
        store: StoreId,
        membership: GroupMembership,
    ) -> Result<(), Unavailable> {
        let Some(broker) = self.myself.upgrade() else { return Err(Unavailable::ShuttingDown) };
        if membership.leader.is_some() {
            self.metrics.rebalances.inc();
        }
        let command = Command::StoreGroup { group: cell.group.clone(), membership };
        let pending = self.shard(cell.shard)?.submit(command)?;
        state.in_flight += 1;
        let cell = cell.clone();
        tokio::spawn(async move {
            let result = stored(pending.await);
            let mut state = cell.state.lock();
            state.in_flight -= 1;
            broker.drive(&cell, &mut state, Input::Stored(store, result));
        });
        Ok(())
    }

    /// Commits positions if their sender may, and waits until they are durable.
    pub(super) async fn commit(
        &self,
        cell: &Arc<Cell>,
        generation: i32,
        member_id: String,
        instance_id: Option<String>,
        offsets: Vec<OffsetCommit>,
    ) -> Result<(), GroupError> {
        let pending = {
            let mut state = cell.state.lock();
            let ticket = Ticket(self.groups.next_ticket.fetch_add(1, Ordering::Relaxed));
            let input = Input::Commit(ticket, generation, member_id, instance_id);
            for action in state.coordinator.handle(input, self.moment()) {
                if let Action::Answer(_, Answer::Commit(verdict)) = action {
                    verdict?;
                }
            }
            if offsets.is_empty() {
                return Ok(());
            }
            let command = Command::CommitOffsets { group: cell.group.clone(), offsets };
            let pending = self.shard(cell.shard)?.submit(command).map_err(Unavailable::from)?;
            state.in_flight += 1;
            pending
        };
        // Counted off even if whoever asked hangs up before it is done.
        let _counted = InFlight { cell };
        match pending.await.map_err(Unavailable::from)? {
            Outcome::Refused(refusal) => Err(GroupError::InvalidRequest(refusal.to_string())),
            _ => Ok(()),
        }
    }

    /// Marks an empty group as gone and puts its removal in line.
    pub(super) fn delete(&self, cell: &Arc<Cell>) -> Result<PendingOutcome, GroupError> {
        let mut state = cell.state.lock();
        let handle = self.shard(cell.shard)?;
        if state.coordinator.state() != GroupState::Empty {
            return Err(GroupError::NotEmpty);
        }
        let pending =
            handle.submit(Command::DeleteGroup { group: cell.group.clone() }).map_err(Unavailable::from)?;
        state.coordinator.delete()?;
        Ok(pending)
    }

    fn set_timer(&self, cell: &Arc<Cell>, state: &mut CellState) {
        let Some(next) = state.coordinator.next_deadline() else { return };
        if state.timer.is_some_and(|set| set <= next) {
            // It is looked at early enough, and then again.
            return;
        }
        let mut due = self.groups.timers.due.lock();
        if let Some(set) = state.timer.replace(next) {
            due.remove(&(set, cell.shard, cell.group.clone()));
        }
        let first = due.first().is_none_or(|(first, _, _)| next < *first);
        due.insert((next, cell.shard, cell.group.clone()));
        if first {
            self.groups.timers.changed.notify_one();
        }
    }

    /// Tells coordinators when their time has come.
    pub(crate) async fn keep_time(self: Arc<Broker>) {
        loop {
            let next = self.groups.timers.due.lock().first().map(|(moment, _, _)| *moment);
            let sleep = async {
                match next {
                    Some(moment) => {
                        tokio::time::sleep_until(self.began + Duration::from_millis(moment)).await;
                    }
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = sleep => self.tick(),
                () = self.groups.timers.changed.notified() => {}
                () = self.stopped() => return,
            }
        }
    }

    fn tick(&self) {
        let now = self.moment();
        loop {
            let (moment, shard, group) = {
                let mut due = self.groups.timers.due.lock();
                match due.pop_first() {
                    Some(first) if first.0 <= now => first,
                    Some(later) => {
                        due.insert(later);
                        return;
                    }
                    None => return,
                }
            };
            let Some(cell) = self.groups.get(shard, &group) else { continue };
            let mut state = cell.state.lock();
            if state.timer == Some(moment) {
                state.timer = None;
            }
            self.drive(&cell, &mut state, Input::Tick);
        }
    }

    /// Restores the groups of a shard when this node begins to lead it, and lets them go when it
    /// does not any more.
    pub(crate) async fn follow_leadership(self: Arc<Broker>, shard: ShardId) {
        let Ok(handle) = self.shard(shard) else { return };
        let mut leadership = handle.on_leadership();
        let mut led_term = None;
        loop {
            let current = *leadership.borrow_and_update();
            if current.is_leader && current.ready && !self.is_stopping() {
                if led_term != Some(current.term) {
                    self.groups.close(shard, &Unavailable::Starting.into());
                    self.restore_groups(shard);
                    led_term = Some(current.term);
                }
            } else if led_term.take().is_some() {
                self.groups.close(shard, &Unavailable::NotLeader { leader: current.leader }.into());
                self.count_groups();
            }
            tokio::select! {
                changed = leadership.changed() => if changed.is_err() { return },
                () = self.stopped() => return,
            }
        }
    }

    /// Groups with members are restored at once, because their sessions run; others when asked for.
    fn restore_groups(&self, shard: ShardId) {
        let (Ok(handle), Some(groups)) = (self.shard(shard), self.groups.shards.get(&shard)) else { return };
        let now = self.moment();
        let mut groups = groups.lock();
        for group in handle.view().groups() {
            let Some(state) = handle.view().group(&group) else { continue };
            let Some(membership) = state.membership().filter(|membership| !membership.members.is_empty())
            else {
                continue;
            };
            let coordinator = Coordinator::restore(self.groups.options.clone(), membership, now);
            let cell = Arc::new(Cell::new(&group, shard, coordinator));
            self.set_timer(&cell, &mut cell.state.lock());
            groups.cells.insert(group, cell);
        }
        groups.open = true;
        drop(groups);
        self.count_groups();
    }
}

/// A command that is on its way, until this is dropped.
struct InFlight<'a> {
    cell: &'a Cell,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.cell.state.lock().in_flight -= 1;
    }
}

/// What became of a store.
fn stored(outcome: Result<Outcome, weir_cluster::ProposeError>) -> Result<(), Unavailable> {
    match outcome {
        Ok(Outcome::Refused(Refusal::Limit { .. })) => Err(Unavailable::Overloaded),
        Ok(Outcome::Refused(refusal)) => Err(Unavailable::Stopped(refusal.to_string())),
        Ok(_) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
