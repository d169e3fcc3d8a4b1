//! Incremental fetch sessions (KIP-227), without I/O and without a clock of their own.
//!
//! A consumer of many partitions would name all of them in every fetch and be told of all of them in
//! every answer. In a session the broker remembers the partitions; a fetch then names only what
//! changed, and the answer holds only partitions that have something to say. So a request that names
//! no partition is not an empty fetch: it asks for everything that the session knows.
//!
//! Sessions are remembered in a cache of bounded size. A session that nobody used for a while gives
//! way to a new one; while there is none, fetches are answered in full and without a session, which
//! every client understands.
//!
//! A partition that sent records moves behind the others, so that one that always has records starves
//! nobody.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use weir_kafka_wire::messages::fetch::{FetchableTopicResponse, PartitionData};
use weir_kafka_wire::{ErrorCode, FetchRequest, KafkaStr, Uuid};

/// Partitions that one session may have. Fetches of more are answered without a session.
pub const SESSION_PARTITIONS_MAX: usize = 100_000;
/// Epoch of a request that begins a session.
const INITIAL_EPOCH: i32 = 0;
/// Epoch of a request that ends its session, or wants none.
const FINAL_EPOCH: i32 = -1;
/// First version that names topics by id.
const TOPIC_IDS_FROM_VERSION: i16 = 13;

/// A topic as the client names it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum TopicRef {
    /// By name, before version 13.
    Name(KafkaStr),
    /// By id, from version 13 on.
    Id(Uuid),
}

/// One partition that a client wants to read from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// Which topic.
    pub topic: TopicRef,
    /// Which of its partitions.
    pub partition: i32,
    /// From where on.
    pub fetch_offset: i64,
    /// Epoch of the leader that the client knows, or -1.
    pub current_leader_epoch: i32,
    /// Epoch of the last record that the client has, or -1.
    pub last_fetched_epoch: i32,
    /// How many bytes at most.
    pub max_bytes: i32,
}

impl Wanted {
    fn key(&self) -> (TopicRef, i32) {
        (self.topic.clone(), self.partition)
    }
}

/// What a session remembers of one partition.
#[derive(Debug)]
struct Remembered {
    wanted: Wanted,
    /// As last told to the client; `None` makes sure that it is told again.
    high_watermark: Option<i64>,
    log_start: Option<i64>,
}

#[derive(Debug)]
struct Session {
    /// Epoch of the next request.
    epoch: i32,
    uses_topic_ids: bool,
    /// By position in line.
    line: BTreeMap<u64, Remembered>,
    places: BTreeMap<(TopicRef, i32), u64>,
    next_place: u64,
}

impl Session {
    fn new(uses_topic_ids: bool) -> Session {
        Session {
            epoch: next_epoch(INITIAL_EPOCH),
            uses_topic_ids,
            line: BTreeMap::new(),
            places: BTreeMap::new(),
            next_place: 0,
        }
    }

    /// Adds a partition at the end of the line, or changes what is wanted of it where it stands.
    fn put(&mut self, wanted: Wanted) -> &mut Remembered {
        let key = wanted.key();
        let place = *self.places.entry(key).or_insert_with(|| {
            self.next_place += 1;
            self.next_place
        });
        let remembered = self.line.entry(place).or_insert_with(|| Remembered {
            wanted: wanted.clone(),
            high_watermark: None,
            log_start: None,
        });
        remembered.wanted = wanted;
        remembered
    }

    fn forget(&mut self, key: &(TopicRef, i32)) {
        if let Some(place) = self.places.remove(key) {
            self.line.remove(&place);
        }
    }

    fn move_behind(&mut self, key: &(TopicRef, i32)) {
        let Some(place) = self.places.get_mut(key) else { return };
        if let Some(remembered) = self.line.remove(place) {
            self.next_place += 1;
            *place = self.next_place;
            self.line.insert(*place, remembered);
        }
    }

    /// Whether the client has to be told of this partition, which it then counts as told.
    fn must_tell(&mut self, key: &(TopicRef, i32), data: &PartitionData) -> bool {
        let Some(remembered) = self.places.get(key).and_then(|place| self.line.get_mut(place)) else {
            return false;
        };
        if !data.error_code.is_none() {
            // When the error has gone, the partition must be told again whatever its offsets are.
            remembered.high_watermark = None;
            return true;
        }
        let changed = remembered.high_watermark != Some(data.high_watermark)
            || remembered.log_start != Some(data.log_start_offset);
        remembered.high_watermark = Some(data.high_watermark);
        remembered.log_start = Some(data.log_start_offset);
        let has_records = data.records.as_ref().is_some_and(|records| !records.is_empty());
        changed || has_records || data.preferred_read_replica >= 0 || data.diverging_epoch.epoch >= 0
    }
}

/// Epochs count up from 1 and begin there again; 0 and -1 have meanings of their own.
fn next_epoch(epoch: i32) -> i32 {
    if epoch == i32::MAX { 1 } else { epoch + 1 }
}

/// What a fetch request asks for, and how it is to be answered.
#[derive(Debug)]
pub enum FetchContext {
    /// Everything named is answered, and there is no session.
    Sessionless(Vec<Wanted>),
    /// Everything named is answered, and a session begins.
    Full(Vec<Wanted>),
    /// Everything that the session knows is looked at; what changed is answered.
    Incremental(SessionRef, Vec<Wanted>),
    /// The session is not what the client thinks; it has to begin a new one.
    Refused(ErrorCode),
}

/// A session in use.
#[derive(Debug)]
pub struct SessionRef {
    id: i32,
    session: Arc<Mutex<Session>>,
}

/// All sessions of a front.
#[derive(Debug)]
pub struct FetchSessions {
    cache: Mutex<Cache>,
    sessions_max: usize,
    evict_unused: Duration,
}

#[derive(Debug, Default)]
struct Cache {
    sessions: BTreeMap<i32, Cached>,
    /// Least recently used first.
    by_use: BTreeMap<(Instant, i32), ()>,
    seed: u64,
    created: u64,
}

#[derive(Debug)]
struct Cached {
    session: Arc<Mutex<Session>>,
    used: Instant,
}

impl FetchSessions {
    /// A cache of at most `sessions_max` sessions
    /// (`max.incremental.fetch.session.cache.slots`); one that was unused for `evict_unused` gives way
    /// to a new one (`min.incremental.fetch.session.eviction.ms`). Ids are drawn from `seed`.
    pub fn new(sessions_max: usize, evict_unused: Duration, seed: u64) -> FetchSessions {
        FetchSessions { cache: Mutex::new(Cache { seed, ..Cache::default() }), sessions_max, evict_unused }
    }

    /// Number of sessions.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.cache.lock().sessions.len()
    }

    /// What this request, of this version, asks for.
    pub fn begin(&self, request: &FetchRequest, version: i16, now: Instant) -> FetchContext {
        let by_id = version >= TOPIC_IDS_FROM_VERSION;
        if request.session_epoch == INITIAL_EPOCH || request.session_epoch == FINAL_EPOCH {
            if request.session_id != 0 {
                self.remove(request.session_id);
            }
            let wanted = wanted_by(request, by_id, false);
            return match request.session_epoch {
                FINAL_EPOCH => FetchContext::Sessionless(wanted),
                _ => FetchContext::Full(wanted),
            };
        }
        let Some(session) = self.use_session(request.session_id, now) else {
            return FetchContext::Refused(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        };
        let mut state = session.session.lock();
        if state.epoch != request.session_epoch {
            return FetchContext::Refused(ErrorCode::INVALID_FETCH_SESSION_EPOCH);
        }
        if state.uses_topic_ids != by_id {
            return FetchContext::Refused(ErrorCode::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        for wanted in wanted_by(request, by_id, true) {
            state.put(wanted);
        }
        for forgotten in &request.forgotten_topics_data {
            let topic = topic_ref(&forgotten.topic, forgotten.topic_id, by_id, false);
            for &partition in &forgotten.partitions {
                state.forget(&(topic.clone(), partition));
            }
        }
        state.epoch = next_epoch(state.epoch);
        let size = state.line.len();
        let wanted = state.line.values().map(|remembered| remembered.wanted.clone()).collect();
        drop(state);
        if size > SESSION_PARTITIONS_MAX {
            self.remove(session.id);
            return FetchContext::Refused(ErrorCode::FETCH_SESSION_ID_NOT_FOUND);
        }
        if size == 0 {
            // A session with nothing in it is over, and the answer says so by naming none.
            self.remove(session.id);
            return FetchContext::Sessionless(Vec::new());
        }
        FetchContext::Incremental(session, wanted)
    }

    /// Chooses from what was read what is answered: the session's id and the topics.
    pub fn finish(
        &self,
        context: FetchContext,
        read: Vec<(TopicRef, PartitionData)>,
        now: Instant,
    ) -> (i32, Vec<FetchableTopicResponse>) {
        match context {
            FetchContext::Refused(_) | FetchContext::Sessionless(_) => (0, group_by_topic(read)),
            FetchContext::Full(wanted) => {
                let id = self.create(wanted, &read, now).unwrap_or(0);
                (id, group_by_topic(read))
            }
            FetchContext::Incremental(session, _) => {
                let mut state = session.session.lock();
                let mut told = Vec::with_capacity(read.len());
                for (topic, data) in read {
                    let key = (topic, data.partition_index);
                    if !state.must_tell(&key, &data) {
                        continue;
                    }
                    if data.records.as_ref().is_some_and(|records| !records.is_empty()) {
                        state.move_behind(&key);
                    }
                    told.push((key.0, data));
                }
                drop(state);
                (session.id, group_by_topic(told))
            }
        }
    }

    fn create(&self, wanted: Vec<Wanted>, read: &[(TopicRef, PartitionData)], now: Instant) -> Option<i32> {
        if wanted.is_empty() || wanted.len() > SESSION_PARTITIONS_MAX {
            return None;
        }
        let mut cache = self.cache.lock();
        if cache.sessions.len() >= self.sessions_max && !cache.evict(now, self.evict_unused) {
            return None;
        }
        let mut session = Session::new(matches!(wanted[0].topic, TopicRef::Id(_)));
        let mut detached: BTreeMap<TopicRef, TopicRef> = BTreeMap::new();
        for mut wanted in wanted {
            // The name is a slice of the request's frame, which must not live as long as the session.
            let topic = detached.entry(wanted.topic).or_insert_with_key(TopicRef::detached);
            wanted.topic = topic.clone();
            session.put(wanted);
        }
        for (topic, data) in read {
            let key = (topic.clone(), data.partition_index);
            session.must_tell(&key, data);
            if data.records.as_ref().is_some_and(|records| !records.is_empty()) {
                session.move_behind(&key);
            }
        }
        let id = cache.fresh_id();
        cache.sessions.insert(id, Cached { session: Arc::new(Mutex::new(session)), used: now });
        cache.by_use.insert((now, id), ());
        Some(id)
    }

    fn use_session(&self, id: i32, now: Instant) -> Option<SessionRef> {
        let mut cache = self.cache.lock();
        let cached = cache.sessions.get_mut(&id)?;
        let before = std::mem::replace(&mut cached.used, now);
        let session = cached.session.clone();
        cache.by_use.remove(&(before, id));
        cache.by_use.insert((now, id), ());
        Some(SessionRef { id, session })
    }

    fn remove(&self, id: i32) {
        let mut cache = self.cache.lock();
        if let Some(cached) = cache.sessions.remove(&id) {
            cache.by_use.remove(&(cached.used, id));
        }
    }
}

impl Cache {
    /// Removes the session that was unused for longest, if that is long enough.
    fn evict(&mut self, now: Instant, evict_unused: Duration) -> bool {
        let Some((&(used, id), ())) = self.by_use.first_key_value() else { return false };
        if now.duration_since(used) < evict_unused {
            return false;
        }
        self.by_use.remove(&(used, id));
        self.sessions.remove(&id);
        true
    }

    /// An id above zero that no session has and nobody guesses from another one.
    fn fresh_id(&mut self) -> i32 {
        loop {
            self.created += 1;
            let id = (mix(self.seed.wrapping_add(self.created)) >> 33) as i32;
            if id > 0 && !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }
}

/// The finaliser of SplitMix64.
fn mix(mut z: u64) -> u64 {
    z = z.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl TopicRef {
    fn detached(&self) -> TopicRef {
        match self {
            TopicRef::Name(name) => TopicRef::Name(name.detached()),
            TopicRef::Id(id) => TopicRef::Id(*id),
        }
    }
}

fn topic_ref(name: &KafkaStr, id: Uuid, by_id: bool, detach: bool) -> TopicRef {
    match (by_id, detach) {
        (true, _) => TopicRef::Id(id),
        (false, true) => TopicRef::Name(name.detached()),
        (false, false) => TopicRef::Name(name.clone()),
    }
}

fn wanted_by(request: &FetchRequest, by_id: bool, detach: bool) -> Vec<Wanted> {
    let count = request.topics.iter().map(|topic| topic.partitions.len()).sum();
    let mut all = Vec::with_capacity(count);
    for topic in &request.topics {
        let name = topic_ref(&topic.topic, topic.topic_id, by_id, detach);
        for partition in &topic.partitions {
            all.push(Wanted {
                topic: name.clone(),
                partition: partition.partition,
                fetch_offset: partition.fetch_offset,
                current_leader_epoch: partition.current_leader_epoch,
                last_fetched_epoch: partition.last_fetched_epoch,
                max_bytes: partition.partition_max_bytes,
            });
        }
    }
    all
}

/// Partitions of one topic that follow each other share an entry, as in Kafka.
fn group_by_topic(read: Vec<(TopicRef, PartitionData)>) -> Vec<FetchableTopicResponse> {
    let mut topics: Vec<FetchableTopicResponse> = Vec::new();
    let mut last: Option<TopicRef> = None;
    for (topic, data) in read {
        if last.as_ref() != Some(&topic) {
            let (name, topic_id) = match &topic {
                TopicRef::Name(name) => (name.clone(), Uuid::ZERO),
                TopicRef::Id(id) => (KafkaStr::new(), *id),
            };
            topics.push(FetchableTopicResponse { topic: name, topic_id, partitions: Vec::new() });
            last = Some(topic);
        }
        if let Some(entry) = topics.last_mut() {
            entry.partitions.push(data);
        }
    }
    topics
}

#[cfg(test)]
mod tests;
