//! Taking dead records back to the queues in which they died.
//!
//! What is to be taken back is leased from the queue's actor like any other record, so that no consumer gets it
//! meanwhile, and then moved: see [`crate::moving`]. Each record arrives once, whenever the work is interrupted; those
//! that were not moved yet are in the queue as before.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use weir_dispatch::{OwnerId, Place};
use weir_model::TimestampMs;
use weir_model::batch::{Header, Record};
use weir_model::subscription::Disposition;

use super::deaths::{DEATHS_HEADER, Death, Deaths, EXCHANGE_HEADER, ROUTING_KEY_HEADER};
use super::{GetError, QueueDelivery, QueueGone, QueueRef};
use crate::broker::Broker;
use crate::errors::{LookupError, PublishError, Unavailable};
use crate::moving::{Full, Move, record_bytes};
use crate::read::PartitionRef;
use crate::topology::{Destinations, QueueInfo, TopologyError, Unrouted};

/// Records taken back by one call at most.
pub const REDRIVEN_MAX: usize = 10_000;

/// Records that are passed over by one call, because nobody knows where they died. They are leased meanwhile.
const KEPT_MAX: usize = 10_000;

/// Records, and bytes of them, that are moved together.
const GROUP_RECORDS: usize = 256;
const GROUP_BYTES: usize = 256 << 10;

/// How often it is tried to move records while nobody answers, and after how long.
const TRIES: usize = 60;
const TRY_AGAIN: Duration = Duration::from_secs(1);

/// What is to be taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redrive {
    /// How many records, at most [`REDRIVEN_MAX`].
    pub count: usize,
    /// To this queue, whatever is noted on them; otherwise each to the queue in which it died last.
    pub to: Option<String>,
}

/// What was taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Redriven {
    /// How many records, by queue.
    pub moved: BTreeMap<String, u64>,
    /// Records that stay, because nothing is noted on them or the queue is not there any more.
    pub kept: u64,
    /// Whether there is nothing left that could be taken back now.
    pub finished: bool,
}

/// Why records were not taken back, or not all of them.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RedriveError {
    /// One of the queues is not there, or cannot be asked.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A queue cannot be where its own records go.
    #[error("'{0}' cannot be taken back to itself")]
    ToItself(String),
    /// The queue's actor has ended.
    #[error(transparent)]
    Gone(#[from] QueueGone),
    /// The next record cannot be read.
    #[error(transparent)]
    Unreadable(#[from] GetError),
    /// A record was not taken where it belongs.
    #[error(transparent)]
    Publish(#[from] PublishError),
}

/// Gives back what was leased, when the work ends in whatever way.
struct Lessee {
    queue: QueueRef,
    owner: OwnerId,
}

impl Drop for Lessee {
    fn drop(&mut self) {
        let (queue, owner) = (self.queue.clone(), self.owner);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // If it is gone, so are its leases.
            runtime.spawn(async move {
                let _ = queue.close_owner(owner, false).await;
            });
        }
    }
}

/// Records for one queue that were leased.
struct Group {
    name: String,
    target: QueueInfo,
    moved: Move,
    places: Vec<Place>,
    bytes: usize,
    priority: Option<u8>,
}

impl Broker {
    /// Takes records of a queue back to where they died, in their order. Goes on to its end if what it returns is
    /// dropped.
    pub async fn redrive(
        self: &Arc<Broker>,
        namespace: &str,
        name: &str,
        what: Redrive,
    ) -> Result<Redriven, RedriveError> {
        let (broker, namespace, name) = (Arc::clone(self), namespace.to_owned(), name.to_owned());
        let work = tokio::spawn(async move { broker.redrive_to_the_end(&namespace, &name, &what).await });
        // It fails only when the runtime is going down.
        work.await.unwrap_or_else(|error| Err(PublishError::Refused(error.to_string()).into()))
    }

    async fn redrive_to_the_end(
        self: &Arc<Broker>,
        namespace: &str,
        name: &str,
        what: &Redrive,
    ) -> Result<Redriven, RedriveError> {
        let queue = self.need_queue(namespace, name)?;
        if what.to.as_deref() == Some(name) {
            return Err(RedriveError::ToItself(name.to_owned()));
        }
        if let Some(to) = &what.to {
            self.need_queue(namespace, to)?;
        }
        if let Some(leader) = self.leader_elsewhere(&queue.topic) {
            return self.redrive_elsewhere(namespace, name, leader, what).await;
        }
        let lessee = Lessee { queue: self.open_queue(&queue).await?, owner: self.new_owner() };
        let mut redriven = Redriven::default();
        let mut targets: BTreeMap<String, Option<QueueInfo>> = BTreeMap::new();
        let mut group: Option<Group> = None;
        for _ in 0..what.count.min(REDRIVEN_MAX) {
            let next = loop {
                let Some(delivery) = lessee.queue.get(lessee.owner, false).await? else { break None };
                let deaths = Deaths::of(&delivery.record.record);
                let died_in = deaths.as_ref().and_then(|deaths| origin(deaths, name));
                let Some(to) = what.to.clone().or_else(|| died_in.map(|death| death.queue.clone())) else {
                    redriven.kept += 1;
                    if redriven.kept >= KEPT_MAX as u64 { break None } else { continue }
                };
                let known = match targets.get(&to) {
                    Some(known) => known.clone(),
                    None => {
                        let found = self.find_queue(namespace, &to).ok().flatten();
                        targets.entry(to.clone()).or_insert(found).clone()
                    }
                };
                let Some(target) = known else {
                    redriven.kept += 1;
                    if redriven.kept >= KEPT_MAX as u64 { break None } else { continue }
                };
                break Some((to, target, revived(&delivery, died_in, self.now_ms()), delivery.place));
            };
            let Some((to, target, record, place)) = next else {
                redriven.finished = true;
                break;
            };
            let (bytes, priority) = (record_bytes(&record), self.priority_of(&record));
            let fits = |group: &Group| {
                group.name == to
                    && group.priority == priority
                    && group.places.last().is_none_or(|last| last.lane == place.lane)
                    && group.places.len() < GROUP_RECORDS
                    && group.bytes + bytes <= GROUP_BYTES
            };
            if !group.as_ref().is_some_and(fits)
                && let Some(full) = group.take()
            {
                self.take_back(namespace, &queue, &lessee, full, &mut redriven).await?;
            }
            let fresh =
                || Group { name: to, target, moved: Move::default(), places: Vec::new(), bytes: 0, priority };
            let group = group.get_or_insert_with(fresh);
            group.bytes += bytes;
            group.moved.records.push((place.offset, record));
            group.places.push(place);
        }
        if let Some(last) = group {
            self.take_back(namespace, &queue, &lessee, last, &mut redriven).await?;
        }
        Ok(redriven)
    }

    /// Moves records, and lets the queue's actor know.
    async fn take_back(
        self: &Arc<Broker>,
        namespace: &str,
        queue: &QueueInfo,
        lessee: &Lessee,
        group: Group,
        redriven: &mut Redriven,
    ) -> Result<(), RedriveError> {
        let Group { name, target, moved, places, priority, .. } = group;
        let Some(place) = places.first() else { return Ok(()) };
        // It may have got lanes since.
        let (_, queue_name) = weir_model::queue::split_name(queue.topic.name());
        let queue = self.need_queue(namespace, queue_name)?;
        let index = queue.meta.lanes.iter().position(|lane| *lane == place.lane).unwrap_or_default();
        let from = self.partition(&queue.topic, index as i32).map_err(not_there)?;
        let (_, target_name) = weir_model::queue::split_name(target.topic.name());
        let refused = |error: Unrouted| PublishError::Refused(error.to_string());
        let to = self.destinations(namespace, [target_name], priority, 0).map_err(refused)?;
        if to.is_empty() {
            return Err(TopologyError::NoSuchQueue(name).into());
        }
        let to = self.with_lanes(to).await?;
        let count = places.len() as u64;
        if self.move_surely(&from, moved, &to).await? {
            *redriven.moved.entry(name).or_default() += count;
            lessee.queue.settle(lessee.owner, places, Disposition::Accept).await?;
        }
        Ok(())
    }

    /// Moves records, and does not leave it open whether they were moved as long as that can be found out.
    async fn move_surely(
        self: &Arc<Broker>,
        from: &PartitionRef,
        moved: Move,
        to: &Destinations,
    ) -> Result<bool, PublishError> {
        let mut was_tried = false;
        for _ in 0..TRIES {
            let once =
                async { self.move_records(from, moved.clone(), to, Full::Refuse).await?.finish().await };
            match once.await {
                // What was tried before without an answer is what settled them.
                Ok(is_moved) => return Ok(is_moved || was_tried),
                Err(PublishError::Unavailable(Unavailable::TimedOut | Unavailable::Overloaded)) => {
                    was_tried = true;
                    tokio::time::sleep(TRY_AGAIN).await;
                }
                Err(error) => return Err(error),
            }
        }
        Err(Unavailable::TimedOut.into())
    }

    fn need_queue(&self, namespace: &str, name: &str) -> Result<QueueInfo, TopologyError> {
        let found = self.find_queue(namespace, name)?;
        found.ok_or_else(|| TopologyError::NoSuchQueue(name.to_owned()))
    }
}

fn not_there(error: LookupError) -> PublishError {
    match error {
        LookupError::Unavailable(unavailable) => unavailable.into(),
        other => PublishError::Refused(other.to_string()),
    }
}

/// The death that a record is to be taken back from: the last one elsewhere than here.
fn origin<'a>(deaths: &'a Deaths, here: &str) -> Option<&'a Death> {
    deaths.all.iter().find(|death| death.queue != here)
}

/// A record as it was before it died: with its old address, and with nothing noted of deaths, so that it may die again.
fn revived(delivery: &QueueDelivery, death: Option<&Death>, now: TimestampMs) -> Record {
    let mut record = delivery.record.record.clone();
    record.timestamp = now;
    record.headers.retain(|header| header.key != DEATHS_HEADER);
    if let Some(death) = death {
        let address = [
            (EXCHANGE_HEADER, Bytes::copy_from_slice(death.exchange.as_bytes())),
            (ROUTING_KEY_HEADER, death.keys.first().cloned().unwrap_or_default()),
        ];
        record.headers.retain(|header| ![EXCHANGE_HEADER, ROUTING_KEY_HEADER].contains(&header.key.as_str()));
        let header = |(name, value): (&str, Bytes)| Header { key: name.to_owned(), value: Some(value) };
        record.headers.splice(0..0, address.map(header));
    }
    record
}
