//! A lot's attendant: sleeps until the first deadline, and lets go what is due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;
use weir_model::batch::Record;
use weir_model::command::{Command, Outcome};
use weir_model::timer::TimerRow;
use weir_model::{Offset, ShardId, SubscriptionId};
use weir_shard::{AppendObserver, ObserverGuard, Timers};

use super::fetch::fetch;
use super::release::Release;
use crate::broker::Broker;
use crate::errors::PublishError;
use crate::read::PartitionRef;

/// Records let go at a time.
const ROUND_RECORDS: usize = 2_048;

/// Bytes of them, about.
const ROUND_BYTES: usize = 8 << 20;

/// How long an attendant sleeps at most while something is parked: a change of leaders wakes nobody, nor does a clock
/// that is slowed down or hurried until it is right.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How long until it is looked again whether there is a lot, where another node may make one.
const LOOK_FOR_LOT: Duration = Duration::from_secs(5);

/// How long to wait before what could not be let go is tried again.
const RETRY: Duration = Duration::from_millis(100);

/// How long to wait for the answer to somebody who takes the first record back.
const TAKEN_BACK: Duration = Duration::from_millis(5);

/// How long a record is left alone that cannot be read or taken anywhere, while the others go on.
const ASIDE: Duration = Duration::from_secs(60);

/// Records that are left alone. Beyond them nothing is let go until some have been tried again.
const ASIDE_MAX: usize = 65_536;

/// Wakes the attendant when something is parked.
struct Growth(Arc<Notify>);

impl AppendObserver for Growth {
    fn appended(&self, _bytes: usize) {
        self.0.notify_one();
    }
}

pub(super) struct Attendant<'a> {
    pub(super) broker: &'a Arc<Broker>,
    pub(super) lot: PartitionRef,
    grown: Arc<Notify>,
    _growth: ObserverGuard,
    /// Records that are left alone, until when.
    aside: BTreeMap<TimerRow, Instant>,
    /// State of a small generator, for exchanges that choose at random.
    random: u64,
}

impl Broker {
    /// Lets go what is parked in a shard, whenever this node leads it.
    pub(crate) async fn attend_lot(self: Arc<Broker>, shard: ShardId) {
        let Ok(handle) = self.shard(shard).cloned() else { return };
        let mut leadership = handle.on_leadership();
        loop {
            let opened = self.lots.opened.notified();
            tokio::pin!(opened);
            // From here on it is not missed.
            opened.as_mut().enable();
            let ready = leadership.borrow_and_update().ready;
            let lot = if ready { self.lot_of_shard(shard) } else { None };
            if let Some(lot) = lot {
                match self.open_subscription(&lot).await {
                    Ok(()) => Attendant::new(&self, lot).run().await,
                    Err(error) => tracing::warn!(%shard, %error, "what is parked cannot be let go yet"),
                }
            }
            if self.is_stopping() {
                return;
            }
            tokio::select! {
                changed = leadership.changed() => if changed.is_err() { return },
                () = opened => {}
                () = tokio::time::sleep(LOOK_FOR_LOT) => {}
                () = self.stopped() => return,
            }
        }
    }
}

impl<'a> Attendant<'a> {
    fn new(broker: &'a Arc<Broker>, lot: PartitionRef) -> Attendant<'a> {
        let grown = Arc::new(Notify::new());
        let growth = lot.view().observe(Arc::new(Growth(Arc::clone(&grown))));
        let random = broker.random_bytes().first_chunk().copied().unwrap_or_default();
        Attendant {
            broker,
            lot,
            grown,
            _growth: growth,
            aside: BTreeMap::new(),
            random: u64::from_le_bytes(random) | 1,
        }
    }

    /// Works for as long as this node leads the lot.
    async fn run(mut self) {
        let broker = self.broker;
        let mut jumped = None;
        while self.lot.ready().is_ok() && !self.broker.is_stopping() {
            // Before the clock is read, so that no jump is missed.
            let jumping = jumped.get_or_insert_with(|| broker.clock.jumped());
            let Some(timers) = self.lot.handle().view().timers(self.lot.id()) else {
                tokio::select! {
                    () = self.grown.notified() => {}
                    () = tokio::time::sleep(LOOK_FOR_LOT) => {}
                    () = self.broker.stopped() => return,
                }
                continue;
            };
            let mut due = due(&timers, self.broker.now_ms(), &mut self.aside);
            if let Some(first) = due.iter().position(|row| broker.lots.is_cancelling(self.lot.shard(), *row))
            {
                // Those behind it wait as well, so that all come in their order.
                due.truncate(first);
                if due.is_empty() {
                    tokio::time::sleep(TAKEN_BACK).await;
                    continue;
                }
            }
            if !due.is_empty() {
                if let Err(error) = self.let_go(due).await {
                    tracing::warn!(lot = %self.lot.shard(), %error, "what is due could not be let go; it is tried again");
                    tokio::time::sleep(RETRY).await;
                }
                continue;
            }
            let until = self.next_look(&timers);
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = self.grown.notified() => {}
                () = jumping => jumped = None,
                () = self.broker.stopped() => return,
            }
        }
    }

    /// When to look again: at the first deadline of a record that is not left alone, or when one is tried again.
    fn next_look(&self, timers: &Timers) -> Instant {
        let now = Instant::now();
        let is_full = self.aside.len() >= ASIDE_MAX;
        let first = timers.iter().find(|row| !self.aside.contains_key(row)).filter(|_| !is_full);
        let in_ms = first.map(|row| row.at.saturating_sub(self.broker.now_ms()).max(0).cast_unsigned());
        let at_first =
            in_ms.map(Duration::from_millis).filter(|wait| *wait < LOOK_AGAIN).map(|wait| now + wait);
        let again = self.aside.values().min().copied();
        [at_first, again].into_iter().flatten().fold(now + LOOK_AGAIN, Instant::min)
    }

    /// Releases records that are due, the first of them at least.
    async fn let_go(&mut self, due: Vec<TimerRow>) -> Result<(), PublishError> {
        let mut offsets: Vec<Offset> = due.iter().map(|row| row.offset).collect();
        offsets.sort_unstable();
        let fetched = self.fetch(offsets, ROUND_BYTES).await?;
        let first = due.first().map(|row| row.offset);
        let mut fetched = match first.filter(|first| !fetched.knows(*first)) {
            // Those with lower offsets took all the room: it goes alone.
            Some(first) => self.fetch(vec![first], ROUND_BYTES).await?,
            None => fetched,
        };
        let mut records: Vec<(TimerRow, Record)> = Vec::new();
        let (mut gone, mut stuck) = (Vec::new(), Vec::new());
        // In their order, and none before one that has not been read.
        for row in due {
            if !fetched.knows(row.offset) {
                break;
            }
            match fetched.records.remove(&row.offset) {
                Some(record) => records.push((row, record)),
                None if fetched.gone.contains(&row.offset) => gone.push(row),
                None => stuck.push(row),
            }
        }
        for (offset, why) in &fetched.unreadable {
            tracing::error!(lot = %self.lot.shard(), offset, why, "a parked record cannot be read; it stays where it is");
        }
        let settled = self.settled(&mut records);
        gone.extend(settled);
        if !gone.is_empty() {
            self.remove_rows(gone).await?;
        }
        let released = Release::new(self.broker, &self.lot, &mut self.random).run(records).await?;
        stuck.extend(released.stuck);
        let until = Instant::now() + ASIDE;
        self.aside.extend(stuck.into_iter().map(|row| (row, until)));
        if !released.without_target.is_empty() {
            // Nobody can say where they go: they stay in the log, and are not tried again.
            self.remove_rows(released.without_target).await?;
        }
        Ok(())
    }

    pub(super) async fn fetch(
        &self,
        offsets: Vec<Offset>,
        bytes_max: usize,
    ) -> Result<super::fetch::Fetched, PublishError> {
        let read = fetch(self.lot.view(), offsets, bytes_max, self.broker.blocking()).await;
        read.map_err(|error| PublishError::Refused(error.to_string()))
    }

    /// Takes those out that were settled although their deadlines are still there.
    fn settled(&self, records: &mut Vec<(TimerRow, Record)>) -> Vec<TimerRow> {
        let view = self.lot.handle().view();
        let Some(state) = view.subscription(self.lot.id(), SubscriptionId::QUEUE) else { return Vec::new() };
        records.extract_if(.., |(row, _)| state.is_settled(row.offset)).map(|(row, _)| row).collect()
    }

    async fn remove_rows(&self, rows: Vec<TimerRow>) -> Result<(), PublishError> {
        let command = Command::RemoveTimers { partition: self.lot.id(), rows };
        match self.lot.handle().propose(command).await.map_err(crate::publish::not_taken)? {
            Outcome::Done => Ok(()),
            Outcome::Refused(refusal) => Err(refusal.into()),
            other => Err(PublishError::Refused(format!("removing deadlines came to {other:?}"))),
        }
    }
}

/// What is due now and not left alone, the earliest first.
fn due(timers: &Timers, now: i64, aside: &mut BTreeMap<TimerRow, Instant>) -> Vec<TimerRow> {
    if !aside.is_empty() {
        let tried_again = Instant::now();
        aside.retain(|row, until| *until > tried_again && timers.contains(*row));
        if aside.len() >= ASIDE_MAX {
            return Vec::new();
        }
    }
    let due = timers.iter().take_while(|row| row.at <= now).filter(|row| !aside.contains_key(row));
    due.take(ROUND_RECORDS).collect()
}

impl super::fetch::Fetched {
    /// Whether it was looked for the record at an offset.
    fn knows(&self, offset: Offset) -> bool {
        self.records.contains_key(&offset)
            || self.gone.contains(&offset)
            || self.unreadable.iter().any(|(known, _)| *known == offset)
    }
}
