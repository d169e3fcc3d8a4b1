//! The topic whose partitions are the lots: one in each data shard.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_model::ShardId;
use weir_model::command::{Command, Outcome, PartitionMeta, Refusal, TopicMeta};
use weir_model::queue::{HIDDEN_NAMESPACE, full_name};
use weir_model::timer::TimerRow;
use weir_router::{Route, Routed};

use super::{Due, Target};
use crate::broker::Broker;
use crate::errors::{AdminError, LookupError, Unavailable, refused};
use crate::read::PartitionRef;
use crate::topics::Topic;

/// The topic's name in the hidden namespace.
const NAME: &str = "weir.parking";

/// Largest batch: the largest message of any front, with what is to become of it.
const BATCH_BYTES_MAX: u32 = (17 << 20) + (64 << 10);

/// Segments are small, so that their space comes back soon.
const SEGMENT_BYTES: u32 = 64 << 20;

/// What this node knows of lots beside the catalog.
#[derive(Debug, Default)]
pub(crate) struct Lots {
    /// Held by whoever creates them.
    creating: tokio::sync::Mutex<()>,
    /// There are lots that there were not before.
    pub(super) opened: Notify,
    /// Records that are just being taken back, and by how many.
    cancelling: Mutex<BTreeMap<(ShardId, TimerRow), usize>>,
}

/// Somebody is taking a record back. Nobody lets it go meanwhile.
#[derive(Debug)]
pub(super) struct Cancelling<'a> {
    lots: &'a Lots,
    key: (ShardId, TimerRow),
}

impl Lots {
    /// Says that a record is being taken back, until what is returned is dropped.
    pub(super) fn cancelling(&self, shard: ShardId, row: TimerRow) -> Cancelling<'_> {
        let key = (shard, row);
        *self.cancelling.lock().entry(key).or_default() += 1;
        Cancelling { lots: self, key }
    }

    /// Whether somebody is taking a record back.
    pub(super) fn is_cancelling(&self, shard: ShardId, row: TimerRow) -> bool {
        self.cancelling.lock().contains_key(&(shard, row))
    }
}

impl Drop for Cancelling<'_> {
    fn drop(&mut self) {
        let mut cancelling = self.lots.cancelling.lock();
        if let Some(count) = cancelling.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                cancelling.remove(&self.key);
            }
        }
    }
}

impl Broker {
    /// Sees to it that there is a lot in every data shard. Until somebody parks something there is none.
    pub async fn open_parking(&self) -> Result<Arc<Topic>, AdminError> {
        if let Some(topic) =
            self.parking_topic().filter(|topic| self.shards_without_lot(&topic.meta).is_empty())
        {
            return Ok(topic);
        }
        let _alone = self.lots.creating.lock().await;
        self.current_meta().await?;
        let config: BTreeMap<String, String> = [
            // Records stay until they are settled, and then no longer than their segments.
            ("retention.ms".to_owned(), "0".to_owned()),
            ("segment.bytes".to_owned(), SEGMENT_BYTES.to_string()),
            ("max.message.bytes".to_owned(), BATCH_BYTES_MAX.to_string()),
        ]
        .into();
        let known = self.parking_topic();
        let command = match &known {
            None => Command::CreateTopic {
                name: full_name(HIDDEN_NAMESPACE, NAME),
                topic_id: self.ids.topic_id(),
                placement: self.node.data_shards(),
                config: config.clone(),
            },
            Some(topic) => Command::AddPartitions {
                topic_id: topic.id(),
                expected: topic.partition_count() as u32,
                placement: self.shards_without_lot(&topic.meta),
            },
        };
        match self.propose_meta(command).await? {
            Outcome::Topic(_) | Outcome::Refused(Refusal::TopicExists(_) | Refusal::PartitionCount(_)) => {}
            other => return Err(refused(other)),
        }
        let topic = self.parking_topic().ok_or(Unavailable::Starting)?;
        let settings = self.settings_of(&topic.meta);
        self.look_after(self.open_partitions(&topic.meta.partitions, &settings).await)?;
        for index in 0..topic.partition_count() {
            // One that another node leads is made ready by that node.
            if let Ok(lot) = self.partition(&topic, index as i32)
                && lot.ready().is_ok()
            {
                self.open_subscription(&lot).await?;
            }
        }
        self.lots.opened.notify_waiters();
        Ok(topic)
    }

    /// The lot of a shard, if there is one.
    pub(super) fn lot_of_shard(&self, shard: ShardId) -> Option<PartitionRef> {
        let topic = self.parking_topic()?;
        let index = topic.meta.partitions.iter().position(|lot| lot.shard == shard)?;
        self.partition(&topic, index as i32).ok()
    }

    /// The lot for a record: that of a shard where it will go as things are now, so that its release is one command.
    pub async fn lot_for(&self, due: &Due) -> Result<PartitionRef, AdminError> {
        let topic = match self.parking_topic() {
            Some(topic) => topic,
            None => self.open_parking().await?,
        };
        let lots = &topic.meta.partitions;
        let index = match self.shard_of_target(due)? {
            Some(shard) => lots.iter().position(|lot| lot.shard == shard),
            None => None,
        };
        let any = || usize::from(sum_of(due)) % lots.len().max(1);
        let index = index.unwrap_or_else(any);
        let lot = self.partition(&topic, index as i32).map_err(|error| match error {
            LookupError::Unavailable(unavailable) => unavailable,
            LookupError::NotOpen { .. } | LookupError::UnknownPartition { .. } => Unavailable::Starting,
        })?;
        // Without it nothing would keep what is parked from going with its segment.
        self.open_subscription(&lot).await?;
        Ok(lot)
    }

    pub(super) fn parking_topic(&self) -> Option<Arc<Topic>> {
        let catalog = self.meta().ok()?.view().catalog();
        catalog.topic(&full_name(HIDDEN_NAMESPACE, NAME)).map(|meta| self.topics.get(&catalog, meta))
    }

    fn shards_without_lot(&self, topic: &TopicMeta) -> Vec<ShardId> {
        let has_none = |shard: &ShardId| topic.partitions.iter().all(|lot| lot.shard != *shard);
        self.node.data_shards().into_iter().filter(has_none).collect()
    }

    /// A shard where a record would go if it were released now.
    fn shard_of_target(&self, due: &Due) -> Result<Option<ShardId>, AdminError> {
        let catalog = self.meta()?.view().catalog();
        let shard = |name: &str| {
            let topic = catalog.topic(&full_name(&due.namespace, name))?;
            topic.partitions.first().map(|partition: &PartitionMeta| partition.shard)
        };
        Ok(match &due.target {
            Target::Queue(name) => shard(name),
            Target::Exchange { name, keys, properties } => {
                let keys: Vec<&[u8]> = keys.iter().map(|key| &key[..]).collect();
                let mut routed = Routed::new(name, &keys);
                if let Some(properties) = properties {
                    routed.properties = &**properties;
                }
                let mut route = Route::new();
                match self.router(&due.namespace)?.route(&routed, &mut route) {
                    Ok(()) => route.queues().find_map(|name| shard(name)),
                    Err(_) => None,
                }
            }
        })
    }
}

/// A number that spreads records without a target over the lots, those for one target over one.
fn sum_of(due: &Due) -> u16 {
    let (Target::Exchange { name, .. } | Target::Queue(name)) = &due.target;
    name.bytes().fold(0, |sum: u16, byte| sum.wrapping_mul(31).wrapping_add(u16::from(byte)))
}
