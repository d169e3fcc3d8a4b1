//! Creating, altering and deleting topics: first the catalog, then the partitions. Whatever a crash
//! leaves undone in between is done by `reconcile`.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use weir_model::command::{Command, Outcome, PartitionMeta, Refusal, TopicMeta};
use weir_model::names::check_topic_name;
use weir_model::settings::PartitionSettings;
use weir_model::{Offset, ShardId, TimestampMs, TopicId};

use crate::broker::Broker;
use crate::errors::{AdminError, Unavailable, refused};
use crate::options::TOPIC_PARTITIONS_MAX;
use crate::read::PartitionRef;
use crate::topics::{Topic, effective};

/// "Not created".
const NO_TIME: TimestampMs = -1;

/// A topic to be created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateTopic {
    /// Its name.
    pub name: String,
    /// How many partitions; `num.partitions` if it does not say.
    pub partitions: Option<u32>,
    /// How many replicas; the cluster's if it does not say. Another number than that is refused.
    pub replication: Option<u16>,
    /// Overrides of the broker's defaults, by topic setting name.
    pub config: BTreeMap<String, String>,
}

/// Creations that are under way because somebody used a topic, by name.
#[derive(Debug, Default)]
pub(crate) struct Flights {
    names: Mutex<BTreeMap<String, Arc<tokio::sync::Mutex<()>>>>,
}

impl Flights {
    fn join(&self, name: &str) -> Arc<tokio::sync::Mutex<()>> {
        self.names.lock().entry(name.to_owned()).or_default().clone()
    }

    /// Forgets a flight that nobody else is on.
    fn leave(&self, name: &str, flight: Arc<tokio::sync::Mutex<()>>) {
        let mut names = self.names.lock();
        // The map's and ours.
        if Arc::strong_count(&flight) <= 2 {
            names.remove(name);
        }
    }
}

impl Broker {
    /// Creates a topic and returns when all its partitions can be written to. With `validate_only`
    /// everything is checked and the topic that would come into being is returned; its id is none.
    pub async fn create_topic(
        &self,
        create: CreateTopic,
        validate_only: bool,
    ) -> Result<Arc<Topic>, AdminError> {
        let settings = self.check_creation(&create).await?;
        let count = create.partitions.unwrap_or(self.options.num_partitions);
        if validate_only {
            let nowhere = PartitionMeta { id: weir_model::PartitionId(0), shard: ShardId::META };
            let meta = TopicMeta {
                name: create.name,
                id: TopicId::NONE,
                partitions: vec![nowhere; count as usize],
                config: create.config,
                created_at: NO_TIME,
            };
            return Ok(Arc::new(Topic { meta: Arc::new(meta), settings: Arc::new(settings), queue: None }));
        }
        let command = Command::CreateTopic {
            name: create.name,
            topic_id: self.ids.topic_id(),
            placement: self.place(count)?,
            config: create.config,
        };
        let meta = match self.propose_meta(command).await? {
            Outcome::Topic(meta) => meta,
            other => return Err(refused(other)),
        };
        let opened = self.open_partitions(&meta.partitions, &settings).await;
        self.look_after(opened)?;
        if let Some(other) = self.colliding_topic(&meta.name) {
            tracing::warn!(
                topic = meta.name,
                other,
                "the two names differ only by '.' and '_', which Kafka's metrics mix up"
            );
        }
        tracing::info!(topic = meta.name, id = %meta.id, partitions = meta.partitions.len(), "topic created");
        self.topic_by_id(meta.id).ok_or(AdminError::UnknownTopic(meta.name))
    }

    /// Checks everything that can be told before the meta shard is asked. The settings it would have.
    async fn check_creation(&self, create: &CreateTopic) -> Result<PartitionSettings, AdminError> {
        check_topic_name(&create.name)?;
        let count = create.partitions.unwrap_or(self.options.num_partitions);
        if count == 0 || count > TOPIC_PARTITIONS_MAX {
            return Err(AdminError::InvalidPartitions(format!(
                "{count} partitions; a topic has from 1 to {TOPIC_PARTITIONS_MAX}"
            )));
        }
        let replicas = self.meta()?.voters().len();
        if let Some(asked) = create.replication
            && usize::from(asked) != replicas
        {
            return Err(AdminError::InvalidReplication(format!(
                "{asked} replicas; every topic of this cluster has {replicas}, ask for that or leave it open (-1)"
            )));
        }
        let settings = self.options.defaults.with_overrides(&create.config, self.majority())?;
        let catalog = self.current_meta().await?.view().catalog();
        if catalog.topic(&create.name).is_some() {
            return Err(AdminError::TopicExists(create.name.clone()));
        }
        Ok(settings)
    }

    /// A topic whose name differs from this one only by `.` and `_`. Kafka's metrics do not tell the
    /// two apart, so its tools warn of them; here both may exist, since other protocols' names need it.
    pub fn colliding_topic(&self, name: &str) -> Option<String> {
        let candidates = [name.replace('.', "_"), name.replace('_', ".")];
        candidates.into_iter().find(|other| other != name && self.topic(other).is_some())
    }

    /// The topic of this name, created with the defaults if there is none and
    /// `auto.create.topics.enable` says so. Many at once for one name create it once.
    pub async fn topic_or_create(&self, name: &str) -> Result<Arc<Topic>, AdminError> {
        if let Some(topic) = self.topic(name) {
            return Ok(topic);
        }
        check_topic_name(name)?;
        if !self.options.auto_create_topics {
            return Err(AdminError::UnknownTopic(name.to_owned()));
        }
        let flight = self.flights.join(name);
        let result = {
            let _alone = flight.lock().await;
            match self.topic(name) {
                Some(topic) => Ok(topic),
                None => {
                    let create = CreateTopic { name: name.to_owned(), ..CreateTopic::default() };
                    self.create_topic(create, false).await
                }
            }
        };
        self.flights.leave(name, flight);
        match result {
            // Somebody created it by hand at the same time.
            Err(AdminError::TopicExists(_)) => {
                self.topic(name).ok_or_else(|| AdminError::UnknownTopic(name.to_owned()))
            }
            result => result,
        }
    }

    /// Deletes a topic with its records and all groups' positions in it. It is gone from every
    /// listing at once; this returns when its partitions are closed.
    pub async fn delete_topic(&self, topic_id: TopicId) -> Result<(), AdminError> {
        let catalog = self.current_meta().await?.view().catalog();
        let Some(meta) = catalog.topic_by_id(topic_id).cloned() else {
            return Err(AdminError::UnknownTopic(topic_id.to_string()));
        };
        match self.propose_meta(Command::DeleteTopic { topic_id }).await? {
            Outcome::Done => {}
            other => return Err(refused(other)),
        }
        tracing::info!(topic = meta.name, id = %topic_id, "topic deleted");
        let finished = self.finish_deletion(&meta).await;
        self.look_after(finished)
    }

    /// If the second half of something failed, it is tried again in the background.
    pub(crate) fn look_after<T>(&self, half: Result<T, AdminError>) -> Result<T, AdminError> {
        if half.is_err() {
            self.unfinished.notify_one();
        }
        half
    }

    /// Closes the partitions of a topic that is marked as deleted, drops what groups know of it, and
    /// forgets it.
    pub(crate) async fn finish_deletion(&self, meta: &TopicMeta) -> Result<(), AdminError> {
        // What lies with another node alone is closed by that one, see `sweep_temporary`.
        let here = meta.partitions.iter().filter(|partition| !self.is_elsewhere(partition.shard));
        let closing = here.map(|partition| {
            self.propose_to(partition.shard, Command::ClosePartition { partition: partition.id })
        });
        for outcome in join_all(closing).await {
            match outcome? {
                Outcome::Done | Outcome::Refused(Refusal::UnknownPartition(_)) => {}
                other => return Err(refused(other)),
            }
        }
        // Most topics, and nearly all queues, have no group that knows of them.
        let dropping = self
            .node
            .data_shards()
            .into_iter()
            .filter(|shard| self.has_offsets_of(*shard, meta.id))
            .map(|shard| self.propose_to(shard, Command::DropTopicOffsets { topic_id: meta.id }));
        for outcome in join_all(dropping).await {
            outcome?;
        }
        match self.propose_meta(Command::ForgetTopic { topic_id: meta.id }).await? {
            Outcome::Done => self.uncount(meta),
            Outcome::Refused(Refusal::UnknownTopic(_)) => {}
            other => return Err(refused(other)),
        }
        Ok(())
    }

    /// Whether a group of a shard has a position in a topic.
    fn has_offsets_of(&self, shard: ShardId, topic: TopicId) -> bool {
        let Some(handle) = self.node.shard(shard) else { return true };
        let view = handle.view();
        let groups = view.groups().into_iter().filter_map(|name| view.group(&name));
        groups.into_iter().any(|group| group.offsets().any(|commit| commit.topic_id == topic))
    }

    /// Replaces a topic's overrides by these.
    pub async fn alter_topic(
        &self,
        topic_id: TopicId,
        config: BTreeMap<String, String>,
        validate_only: bool,
    ) -> Result<Arc<Topic>, AdminError> {
        let settings = self.options.defaults.with_overrides(&config, self.majority())?;
        let _alone = self.alterations.lock().await;
        self.current_meta().await?;
        let topic =
            self.topic_by_id(topic_id).ok_or_else(|| AdminError::UnknownTopic(topic_id.to_string()))?;
        if validate_only {
            return Ok(topic);
        }
        let meta = match self.propose_meta(Command::ConfigureTopic { topic_id, config }).await? {
            Outcome::Topic(meta) => meta,
            other => return Err(refused(other)),
        };
        let configured = self.configure_partitions(&meta.partitions, &settings).await;
        self.look_after(configured)?;
        self.topic_by_id(topic_id).ok_or(AdminError::UnknownTopic(meta.name))
    }

    /// Raises the number of a topic's partitions to `total`.
    pub async fn add_partitions(
        &self,
        topic_id: TopicId,
        total: u32,
        validate_only: bool,
    ) -> Result<Arc<Topic>, AdminError> {
        let _alone = self.alterations.lock().await;
        self.current_meta().await?;
        let topic =
            self.topic_by_id(topic_id).ok_or_else(|| AdminError::UnknownTopic(topic_id.to_string()))?;
        let present = topic.partition_count() as u32;
        if total <= present {
            return Err(AdminError::InvalidPartitions(format!(
                "the topic '{}' has {present} partitions; their number can only be raised",
                topic.name()
            )));
        }
        if total > TOPIC_PARTITIONS_MAX {
            return Err(AdminError::InvalidPartitions(format!(
                "{total} partitions; a topic has from 1 to {TOPIC_PARTITIONS_MAX}"
            )));
        }
        if validate_only {
            return Ok(topic);
        }
        let placement = self.place(total - present)?;
        let command = Command::AddPartitions { topic_id, expected: present, placement };
        let meta = match self.propose_meta(command).await? {
            Outcome::Topic(meta) => meta,
            other => return Err(refused(other)),
        };
        let added = meta.partitions.get(present as usize..).unwrap_or_default();
        let opened = self.open_partitions(added, &topic.settings).await;
        self.look_after(opened)?;
        self.topic_by_id(topic_id).ok_or(AdminError::UnknownTopic(meta.name))
    }

    /// Removes all records below `before`, or all there are; the new log start is returned.
    pub async fn delete_records(
        &self,
        partition: &PartitionRef,
        before: Option<Offset>,
    ) -> Result<Offset, AdminError> {
        partition.ready()?;
        let (log_start, next_offset) = (partition.log_start(), partition.next_offset());
        let wanted = before.unwrap_or(next_offset);
        if wanted < 0 || wanted > next_offset {
            return Err(AdminError::OffsetOutOfRange { offset: wanted, log_start, next_offset });
        }
        if wanted > log_start {
            self.trim(partition.shard(), partition.id(), wanted, log_start).await?;
        }
        Ok(partition.log_start())
    }

    /// Raises a partition's log start.
    pub(crate) async fn trim(
        &self,
        shard: ShardId,
        partition: weir_model::PartitionId,
        log_start: Offset,
        was: Offset,
    ) -> Result<(), AdminError> {
        match self.propose_to(shard, Command::Trim { partition, log_start }).await? {
            Outcome::Done => {
                self.metrics.offsets_trimmed.inc_by(log_start.saturating_sub(was).max(0) as u64);
                Ok(())
            }
            other => Err(refused(other)),
        }
    }

    /// Opens partitions on their shards, all at once.
    pub(crate) async fn open_partitions(
        &self,
        partitions: &[PartitionMeta],
        settings: &PartitionSettings,
    ) -> Result<(), AdminError> {
        let opening = partitions.iter().map(|partition| {
            let command =
                Command::OpenPartition { partition: partition.id, settings: settings.clone(), epoch_base: 0 };
            self.propose_to(partition.shard, command)
        });
        for outcome in join_all(opening).await {
            match outcome? {
                Outcome::Done => {}
                other => return Err(refused(other)),
            }
        }
        Ok(())
    }

    /// Gives partitions their settings, all at once.
    async fn configure_partitions(
        &self,
        partitions: &[PartitionMeta],
        settings: &PartitionSettings,
    ) -> Result<(), AdminError> {
        let configuring = partitions.iter().map(|partition| {
            let command = Command::ConfigurePartition { partition: partition.id, settings: settings.clone() };
            self.propose_to(partition.shard, command)
        });
        for outcome in join_all(configuring).await {
            match outcome? {
                Outcome::Done => {}
                other => return Err(refused(other)),
            }
        }
        Ok(())
    }

    /// Where the next partitions go: each to the shard that has the fewest, as far as this node has counted.
    pub(crate) fn place(&self, count: u32) -> Result<Vec<ShardId>, Unavailable> {
        let is_counted = !self.loads.lock().is_empty();
        if !is_counted {
            self.count_loads();
        }
        let mut loads = self.loads.lock();
        if loads.is_empty() {
            return Err(Unavailable::Starting);
        }
        let next = |_| {
            let least = loads.iter_mut().min_by_key(|(shard, load)| (**load, **shard));
            least.map(|(shard, load)| {
                *load += 1;
                *shard
            })
        };
        Ok((0..count).map_while(next).collect())
    }

    /// A topic is gone.
    fn uncount(&self, meta: &TopicMeta) {
        let mut loads = self.loads.lock();
        for partition in &meta.partitions {
            if let Some(load) = loads.get_mut(&partition.shard) {
                *load = load.saturating_sub(1);
            }
        }
        drop(loads);
        self.topics.forget(meta.id);
    }

    /// Counts the partitions of every shard anew.
    pub(crate) fn count_loads(&self) {
        let Ok(meta) = self.meta() else { return };
        let catalog = meta.view().catalog();
        let mut loads: BTreeMap<ShardId, u64> =
            self.node.data_shards().into_iter().map(|shard| (shard, 0)).collect();
        let topics = catalog.topics();
        for partition in topics.iter().flat_map(|topic| &topic.partitions) {
            // Nothing is placed on a temporary shard for its load.
            if let Some(load) = loads.get_mut(&partition.shard) {
                *load += 1;
            }
        }
        *self.loads.lock() = loads;
        self.topics.forget_all_but(&catalog);
    }

    /// The settings that a topic's partitions must have.
    pub(crate) fn settings_of(&self, meta: &TopicMeta) -> PartitionSettings {
        effective(&self.options.defaults, meta)
    }

    fn majority(&self) -> u32 {
        let voters = self.meta().map(|meta| meta.voters().len()).unwrap_or(1);
        (voters / 2 + 1) as u32
    }

    /// The meta shard, with all that was decided before this call, whoever leads it.
    pub(crate) async fn current_meta(&self) -> Result<&weir_cluster::ShardHandle, Unavailable> {
        let meta = self.meta()?;
        match ready(meta) {
            Ok(()) => Ok(meta),
            Err(Unavailable::NotLeader { .. }) => {
                Box::pin(meta.catch_up()).await?;
                Ok(meta)
            }
            Err(error) => Err(error),
        }
    }

    pub(crate) async fn propose_meta(&self, command: Command) -> Result<Outcome, Unavailable> {
        self.propose_to(ShardId::META, command).await
    }

    /// Has a shard's leader carry out a command. What it did can be seen here when this returns.
    pub(crate) async fn propose_to(&self, shard: ShardId, command: Command) -> Result<Outcome, Unavailable> {
        Ok(self.shard(shard)?.relay(command).await?)
    }
}

/// Whether this node leads the shard and has applied the beginning of its leadership.
pub(crate) fn ready(shard: &weir_cluster::ShardHandle) -> Result<(), Unavailable> {
    let leadership = shard.leadership();
    match (leadership.is_leader, leadership.ready) {
        (true, true) => Ok(()),
        (true, false) => Err(Unavailable::Starting),
        (false, _) => Err(Unavailable::NotLeader { leader: leadership.leader }),
    }
}
