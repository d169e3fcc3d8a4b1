//! Records whose time has come: where each goes as things are now, and which of them go together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::try_join_all;
use weir_model::PartitionId;
use weir_model::batch::{BATCH_HEADER_BYTES, Header, Record};
use weir_model::timer::TimerRow;
use weir_router::{Route, Routed, Router};

use super::{Due, Target};
use crate::broker::Broker;
use crate::errors::PublishError;
use crate::moving::{Full, Move, record_bytes};
use crate::queues::EXPIRES_HEADER;
use crate::read::PartitionRef;
use crate::topology::{Destinations, Unrouted};

/// Bytes of records that go together, about.
const GROUP_BYTES: usize = 256 << 10;

/// Records that go together.
const GROUP_RECORDS: usize = 1_024;

/// What came of a release beside what was released.
#[derive(Debug, Default)]
pub(super) struct Released {
    /// Records that their targets do not take as they are.
    pub stuck: Vec<TimerRow>,
    /// Records that do not say where they go.
    pub without_target: Vec<TimerRow>,
}

pub(super) struct Release<'a> {
    broker: &'a Arc<Broker>,
    lot: &'a PartitionRef,
    random: &'a mut u64,
    routers: BTreeMap<String, Router>,
    route: Route,
    groups: Groups,
    released: Released,
}

/// Records that go to the same partitions, in their order.
#[derive(Debug)]
struct Group {
    destinations: Destinations,
    /// The partitions, rising.
    ids: Vec<PartitionId>,
    records: Vec<(TimerRow, Record)>,
    bytes: usize,
    bytes_max: usize,
}

/// Groups that have no partition in common, so that their order does not matter, and those before them.
#[derive(Debug, Default)]
struct Groups {
    closed: Vec<Group>,
    open: BTreeMap<usize, Group>,
    by_partition: BTreeMap<PartitionId, usize>,
    next: usize,
}

impl<'a> Release<'a> {
    pub(super) fn new(broker: &'a Arc<Broker>, lot: &'a PartitionRef, random: &'a mut u64) -> Release<'a> {
        Release {
            broker,
            lot,
            random,
            routers: BTreeMap::new(),
            route: Route::new(),
            groups: Groups::default(),
            released: Released::default(),
        }
    }

    /// Releases records in this order. When this returns they are where they go, but for those that it names. After an
    /// error some of them may be; asking again does not take them there twice.
    pub(super) async fn run(mut self, records: Vec<(TimerRow, Record)>) -> Result<Released, PublishError> {
        for (row, mut record) in records {
            match Due::take(&mut record) {
                Ok(due) => {
                    let destinations = self.destinations(&due, &record)?;
                    let destinations = self.broker.with_lanes(destinations).await?;
                    self.groups.add(destinations, row, arriving(record, &due, self.broker.now_ms()));
                }
                Err(error) => {
                    let (lot, offset) = (self.lot.shard(), row.offset);
                    tracing::error!(%lot, offset, %error, "a parked record stays where it is");
                    self.released.without_target.push(row);
                }
            }
        }
        let mut moving = Vec::new();
        for Group { destinations, records, .. } in std::mem::take(&mut self.groups).finish() {
            let deadlines: Vec<TimerRow> = records.iter().map(|(row, _)| *row).collect();
            let records = records.into_iter().map(|(row, record)| (row.offset, record)).collect();
            let moved = Move { records, deadlines: deadlines.clone() };
            match self.broker.move_records(self.lot, moved, &destinations, Full::PassOver).await {
                Ok(sent) => moving.push(sent.finish()),
                Err(PublishError::TooLarge { bytes, max }) => {
                    let lot = self.lot.shard();
                    tracing::warn!(%lot, bytes, max, "a parked record is larger than its target takes; it is kept");
                    self.released.stuck.extend(deadlines);
                }
                Err(error) => return Err(error),
            }
        }
        // Where somebody took one back meanwhile, the others that go with it are tried again.
        try_join_all(moving).await?;
        Ok(self.released)
    }

    /// Where a record goes as things are now; nowhere if its target is gone, or leads nowhere.
    fn destinations(&mut self, due: &Due, record: &Record) -> Result<Destinations, PublishError> {
        let refused = |error: Unrouted| PublishError::Refused(error.to_string());
        let priority = self.broker.priority_of(record);
        let random = self.next_random();
        let (name, keys, properties) = match &due.target {
            Target::Queue(name) => {
                let names = [name.as_str()];
                return self.broker.destinations(&due.namespace, names, priority, random).map_err(refused);
            }
            Target::Exchange { name, keys, properties } => (name, keys, properties),
        };
        if !self.routers.contains_key(&due.namespace) {
            let router = self.broker.router(&due.namespace)?;
            self.routers.insert(due.namespace.clone(), router);
        }
        let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
        let mut routed = Routed { random, ..Routed::new(name, &keys) };
        if let Some(properties) = properties {
            routed.properties = &**properties;
        }
        let router = self.routers.get(&due.namespace);
        match router.map(|router| router.route(&routed, &mut self.route)) {
            Some(Ok(())) => {}
            _ => return Ok(Destinations::default()),
        }
        let names = self.route.queues().map(|name| &**name);
        self.broker.destinations(&due.namespace, names, priority, random).map_err(refused)
    }

    fn next_random(&mut self) -> u64 {
        // Xorshift, which never comes to 0.
        let mut random = *self.random;
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        *self.random = random;
        random
    }
}

impl Groups {
    fn add(&mut self, destinations: Destinations, row: TimerRow, record: Record) {
        let mut ids: Vec<PartitionId> = destinations.partitions.iter().map(PartitionRef::id).collect();
        ids.sort_unstable();
        let bytes = record_bytes(&record);
        let owners: BTreeSet<usize> =
            ids.iter().filter_map(|id| self.by_partition.get(id)).copied().collect();
        let owner = match owners.first().filter(|_| owners.len() == 1) {
            Some(owner) => self.open.get_mut(owner).filter(|group| {
                group.ids == ids
                    && group.destinations.is_same_elsewhere(&destinations)
                    && group.has_room(bytes)
            }),
            None => None,
        };
        if let Some(group) = owner {
            group.bytes += bytes;
            group.records.push((row, record));
            return;
        }
        owners.into_iter().for_each(|owner| self.close(owner));
        let number = self.next;
        self.next += 1;
        self.by_partition.extend(ids.iter().map(|id| (*id, number)));
        let least =
            destinations.partitions.iter().map(|partition| partition.settings().max_message_bytes).min();
        let least = least.map_or(usize::MAX, |max| (max as usize).saturating_sub(BATCH_HEADER_BYTES));
        let (records, bytes_max) = (vec![(row, record)], GROUP_BYTES.min(least));
        self.open.insert(number, Group { destinations, ids, records, bytes, bytes_max });
    }

    fn close(&mut self, number: usize) {
        if let Some(group) = self.open.remove(&number) {
            for id in &group.ids {
                self.by_partition.remove(id);
            }
            self.closed.push(group);
        }
    }

    /// All groups in an order that keeps that of the records for each partition.
    fn finish(mut self) -> Vec<Group> {
        self.closed.extend(self.open.into_values());
        self.closed
    }
}

impl Group {
    fn has_room(&self, bytes: usize) -> bool {
        // What may be refused is refused by itself.
        !self.destinations.goes_alone()
            && self.records.len() < GROUP_RECORDS
            && self.bytes + bytes <= self.bytes_max
    }
}

/// A record as it arrives now.
fn arriving(mut record: Record, due: &Due, now: i64) -> Record {
    record.timestamp = now;
    if let Some(after) = due.expires_after_ms {
        let at = Bytes::copy_from_slice(&now.saturating_add(after).to_be_bytes());
        record.headers.push(Header { key: EXPIRES_HEADER.to_owned(), value: Some(at) });
    }
    record
}
