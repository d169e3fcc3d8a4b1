//! What policies say of queues and exchanges: of those that match a name the one of the highest priority counts, and of
//! the operator's likewise; what something was declared with comes before what a policy says, and of two bounds the
//! lower one holds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use weir_access::{NamePattern, PatternError};
use weir_model::TopicId;
use weir_model::command::{Command, Outcome, Refusal};
use weir_model::policy::{ApplyTo, InvalidPolicy, PolicyKey, PolicyMeta};
use weir_model::queue::{QueueKind, QueueMeta};
use weir_model::routing::{ArgumentValue, Arguments, ExchangeMeta};
use weir_router::Router;
use weir_shard::Topology;

use super::{InvalidArgument, QueueArguments, QueueInfo, Retention, TopologyError};
use crate::broker::Broker;
use crate::errors::{AdminError, Unavailable, refused};

/// What a policy may say of queues: each is an argument, but for its `x-`.
const OF_QUEUES: [&str; 15] = [
    "consumer-timeout",
    "dead-letter-exchange",
    "dead-letter-routing-key",
    "dead-letter-strategy",
    "delayed-retry-max",
    "delayed-retry-min",
    "delayed-retry-type",
    "delivery-limit",
    "expires",
    "max-age",
    "max-length",
    "max-length-bytes",
    "message-ttl",
    "overflow",
    "stream-max-segment-size-bytes",
];

/// What an operator's policy may say: bounds, in which the lower one holds, and what harms nobody.
const OF_OPERATORS: [&str; 7] = [
    "consumer-timeout",
    "delivery-limit",
    "expires",
    "max-length",
    "max-length-bytes",
    "message-ttl",
    "max-age",
];

/// Bounds: what is declared does not override them, but may be lower.
const BOUNDS: [&str; 5] = ["delivery-limit", "expires", "max-length", "max-length-bytes", "message-ttl"];

/// What policies of RabbitMQ say that changes nothing here: it has no mirrors, and pages by itself.
const WITHOUT_EFFECT: [&str; 10] = [
    "ha-mode",
    "ha-params",
    "ha-promote-on-failure",
    "ha-promote-on-shutdown",
    "ha-sync-batch-size",
    "ha-sync-mode",
    "queue-leader-locator",
    "queue-master-locator",
    "queue-mode",
    "queue-version",
];

/// The settings of a stream that follow from its arguments.
const RETENTION_SETTINGS: [&str; 3] = ["retention.ms", "retention.bytes", "segment.bytes"];

/// What a policy may say of exchanges.
const ALTERNATE_EXCHANGE: &str = "alternate-exchange";

/// Why a policy was not made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// A bound of its own is broken.
    #[error(transparent)]
    Policy(#[from] InvalidPolicy),
    /// Its pattern cannot be used.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// It says something that no policy says.
    #[error("a policy says nothing of '{0}' here")]
    Unknown(String),
    /// An operator's policy says something that only others say.
    #[error("an operator's policy says nothing of '{0}'")]
    NotOfOperators(String),
    /// What it says cannot be.
    #[error(transparent)]
    Argument(#[from] InvalidArgument),
    /// There is no such policy.
    #[error("there is no policy '{0}'")]
    NoSuchPolicy(String),
    /// It was not done for another reason.
    #[error(transparent)]
    Admin(#[from] AdminError),
}

impl From<Unavailable> for PolicyError {
    fn from(unavailable: Unavailable) -> PolicyError {
        PolicyError::Admin(unavailable.into())
    }
}

/// A policy with its pattern compiled.
#[derive(Debug)]
struct Compiled {
    meta: Arc<PolicyMeta>,
    pattern: NamePattern,
}

/// The policies of all namespaces, as of one change of them.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    changed_at: u64,
    /// By namespace and whether they are an operator's: the one that counts first.
    of: BTreeMap<(String, bool), Vec<Compiled>>,
}

/// What policies say of one queue or exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The policy that counts.
    pub policy: Option<Arc<PolicyMeta>>,
    /// The operator's policy that counts.
    pub operator: Option<Arc<PolicyMeta>>,
}

impl Policies {
    pub(crate) fn of(topology: &Topology) -> Policies {
        let mut of: BTreeMap<(String, bool), Vec<Compiled>> = BTreeMap::new();
        for (key, meta) in topology.policies() {
            let compiled = Compiled { meta: Arc::clone(meta), pattern: NamePattern::new(&meta.pattern) };
            of.entry((key.namespace.clone(), key.operator)).or_default().push(compiled);
        }
        // They come by name, and stay so among equals.
        of.values_mut().for_each(|all| all.sort_by_key(|one| std::cmp::Reverse(one.meta.priority)));
        Policies { changed_at: topology.policies_changed_at(), of }
    }

    /// At which entry one of them was changed last.
    pub(crate) fn changed_at(&self) -> u64 {
        self.changed_at
    }

    fn first(
        &self,
        namespace: &str,
        operator: bool,
        name: &str,
        is_for: impl Fn(ApplyTo) -> bool,
    ) -> Option<Arc<PolicyMeta>> {
        let all = self.of.get(&(namespace.to_owned(), operator))?;
        let found = all.iter().find(|one| is_for(one.meta.apply_to) && one.pattern.matches(name.as_bytes()));
        found.map(|one| Arc::clone(&one.meta))
    }

    /// Those that count for a queue.
    pub(crate) fn of_queue(&self, namespace: &str, name: &str, kind: QueueKind) -> Applied {
        if self.of.is_empty() {
            return Applied::default();
        }
        let first = |operator| self.first(namespace, operator, name, |of| is_for_queue(of, kind));
        Applied { policy: first(false), operator: first(true) }
    }

    /// That which counts for an exchange.
    pub(crate) fn of_exchange(&self, namespace: &str, name: &str) -> Option<Arc<PolicyMeta>> {
        self.first(namespace, false, name, |of| matches!(of, ApplyTo::All | ApplyTo::Exchanges))
    }

    /// Whether exchanges of a namespace may have another alternate exchange than they were declared with.
    fn reroutes(&self, namespace: &str) -> bool {
        let all = self.of.get(&(namespace.to_owned(), false));
        all.is_some_and(|all| all.iter().any(|one| one.meta.says(ALTERNATE_EXCHANGE).is_some()))
    }

    /// The router of a namespace, with the alternate exchanges that policies say.
    fn with_alternates(&self, namespace: &str, mut router: Router) -> Router {
        for exchange in router.exchanges() {
            if exchange.name.is_empty() || exchange.alternate_exchange.is_some() {
                continue;
            }
            let policy = self.of_exchange(namespace, &exchange.name);
            let alternate = policy.as_ref().and_then(|policy| policy.says(ALTERNATE_EXCHANGE)?.as_text());
            let Some(alternate) = alternate.map(str::to_owned) else { continue };
            let meta = ExchangeMeta { alternate_exchange: Some(alternate), ..ExchangeMeta::clone(&exchange) };
            // It is there, and its kind is the same.
            if let Ok(with) = router.with_exchange(Arc::new(meta)) {
                router = with;
            }
        }
        router
    }
}

fn is_for_queue(apply_to: ApplyTo, kind: QueueKind) -> bool {
    match apply_to {
        ApplyTo::All | ApplyTo::Queues => true,
        ApplyTo::ClassicQueues => kind == QueueKind::Classic,
        ApplyTo::QuorumQueues => kind == QueueKind::Quorum,
        ApplyTo::Streams => kind == QueueKind::Stream,
        ApplyTo::Exchanges => false,
    }
}

impl Applied {
    /// What both policies say together; of two bounds the lower one.
    pub fn definition(&self) -> Arguments {
        let said = |policy: &Option<Arc<PolicyMeta>>| {
            policy.as_ref().map(|policy| policy.definition.clone()).unwrap_or_default()
        };
        let mut all = said(&self.policy);
        for (name, value) in said(&self.operator) {
            put(&mut all, &name, value);
        }
        all
    }

    /// The arguments of a queue that was declared with these.
    pub(crate) fn over(&self, declared: &Arguments) -> Arguments {
        let mut all = Arguments::new();
        for (name, value) in self.definition() {
            if OF_QUEUES.contains(&name.as_str()) {
                all.push((format!("x-{name}"), value));
            }
        }
        for (name, value) in declared {
            put(&mut all, name, value.clone());
        }
        all
    }
}

/// Puts an argument in: in the place of what is there, but of two bounds the lower one stays.
fn put(arguments: &mut Arguments, name: &str, value: ArgumentValue) {
    let is_bound = BOUNDS.contains(&name.strip_prefix("x-").unwrap_or(name));
    match arguments.iter_mut().find(|(known, _)| known == name) {
        None => arguments.push((name.to_owned(), value)),
        Some((_, there)) => match (&*there, &value) {
            (ArgumentValue::Integer(known), ArgumentValue::Integer(new)) if is_bound => {
                *there = ArgumentValue::Integer(lower_bound(*known, *new));
            }
            _ => *there = value,
        },
    }
}

/// The lower of two bounds. Below zero there is none.
fn lower_bound(one: i64, other: i64) -> i64 {
    match (one < 0, other < 0) {
        (true, _) => other,
        (_, true) => one,
        _ => one.min(other),
    }
}

/// How often it is looked whether policies have changed, for queues that are in use: who changed them may be another node.
const LOOK_AT_POLICIES_EVERY: Duration = Duration::from_millis(500);

impl Broker {
    /// All policies of a namespace, or an operator's, by name.
    pub fn policies(&self, namespace: &str, operator: bool) -> Result<Vec<Arc<PolicyMeta>>, Unavailable> {
        let topology = self.meta()?.view().topology();
        let all = topology.policies().iter();
        let of = all.filter(|(key, _)| key.namespace == namespace && key.operator == operator);
        Ok(of.map(|(_, policy)| Arc::clone(policy)).collect())
    }

    /// The exchanges and bindings of a namespace, as this node knows them.
    pub fn router(&self, namespace: &str) -> Result<Router, Unavailable> {
        let topology = self.meta()?.view().topology();
        if topology.policies().is_empty() {
            return Ok(topology.router(namespace));
        }
        let policies = self.topics.policies(&topology);
        Ok(match policies.reroutes(namespace) {
            false => topology.router(namespace),
            true => self
                .topics
                .rerouted(&topology, namespace, |router| policies.with_alternates(namespace, router)),
        })
    }

    /// Makes a policy, or another one of it. Queues that are in use take it over at once.
    pub async fn put_policy(self: &Arc<Broker>, policy: PolicyMeta) -> Result<(), PolicyError> {
        check_policy(&policy)?;
        let before = self.stream_retentions();
        match self.propose_meta(Command::PutPolicy { policy }).await? {
            Outcome::Done => {
                self.apply_policies(&before).await;
                Ok(())
            }
            other => Err(refused(other).into()),
        }
    }

    /// Takes a policy back.
    pub async fn delete_policy(self: &Arc<Broker>, key: PolicyKey) -> Result<(), PolicyError> {
        let before = self.stream_retentions();
        match self.propose_meta(Command::DeletePolicy { key }).await? {
            Outcome::Done => {
                self.apply_policies(&before).await;
                Ok(())
            }
            Outcome::Refused(Refusal::UnknownPolicy(name)) => Err(PolicyError::NoSuchPolicy(name)),
            other => Err(refused(other).into()),
        }
    }

    /// What is declared and what policies say of a queue that is to be.
    pub(crate) fn arguments_of(
        &self,
        namespace: &str,
        name: &str,
        queue: &QueueMeta,
    ) -> Result<QueueArguments, TopologyError> {
        let policies = self.topics.policies(&self.meta()?.view().topology());
        let all = policies.of_queue(namespace, name, queue.kind).over(&queue.arguments);
        let read = |arguments: &Arguments| QueueArguments::read(namespace, name, queue.kind, arguments);
        Ok(read(&all).or_else(|_| read(&queue.arguments))?)
    }

    /// What a policy says of an exchange.
    pub fn policy_of_exchange(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Arc<PolicyMeta>>, Unavailable> {
        Ok(self.topics.policies(&self.meta()?.view().topology()).of_exchange(namespace, name))
    }

    pub(crate) fn queue_by_id(&self, id: TopicId) -> Option<QueueInfo> {
        QueueInfo::of(self.topic_by_id(id)?).ok().flatten()
    }

    /// The streams, and how long their records stay by what was declared and what policies say.
    fn stream_retentions(&self) -> BTreeMap<TopicId, Retention> {
        let queues = self.topics().into_iter().filter_map(|topic| QueueInfo::of(topic).ok().flatten());
        let streams = queues.filter(|queue| queue.meta.kind == QueueKind::Stream);
        streams.map(|stream| (stream.topic.id(), stream.arguments.retention)).collect()
    }

    /// How long records of a stream stay, by what policies say of it now.
    async fn apply_retention(&self, stream: &QueueInfo) -> Result<(), AdminError> {
        let mut config = stream.topic.meta.config.clone();
        for name in RETENTION_SETTINGS {
            config.remove(name);
        }
        config.extend(stream.arguments.retention.settings());
        if config != stream.topic.meta.config {
            self.alter_topic(stream.topic.id(), config, false).await?;
        }
        Ok(())
    }

    /// Tells queues that are in use what policies say of them now, and streams for which that is not what it was before:
    /// what was set for others stays.
    async fn apply_policies(self: &Arc<Broker>, before: &BTreeMap<TopicId, Retention>) {
        for (id, retention) in self.stream_retentions() {
            if before.get(&id).is_none_or(|known| *known == retention) {
                continue;
            }
            let Some(stream) = self.queue_by_id(id) else { continue };
            if let Err(error) = self.apply_retention(&stream).await {
                tracing::warn!(%error, stream = stream.topic.name(), "a policy's retention could not be set");
            }
        }
        self.apply_policies_here().await;
        self.tell_of_policies().await;
    }

    /// Tells queues that are in use here when policies have changed, on whatever node: who changed them tells only those
    /// that he reaches.
    pub(crate) async fn follow_policies(self: Arc<Broker>) {
        let Ok(meta) = self.meta().cloned() else { return };
        let mut known = meta.view().policies_changed_at();
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_AT_POLICIES_EVERY) => {}
                () = self.stopped() => return,
            }
            let now = meta.view().policies_changed_at();
            if now != known {
                known = now;
                self.apply_policies_here().await;
            }
        }
    }

    /// Tells queues that are in use here what policies say of them now, and wakes those that have work to do by it.
    pub(crate) async fn apply_policies_here(self: &Arc<Broker>) {
        for id in self.running_queues().await {
            let Some(info) = self.queue_by_id(id) else { continue };
            let options = self.options_of(&info);
            if let Some(queue) = self.running_queue(id).await {
                // One that has ended meanwhile begins with them.
                let _ = queue.configure(options).await;
            }
        }
        for shard in self.shards_of_partitions() {
            if self.shard(shard).is_ok_and(|handle| handle.leadership().ready)
                && let Err(error) = self.wake_queues(shard).await
            {
                tracing::warn!(%shard, %error, "queues that nobody uses were not woken after a change of policies");
            }
        }
    }
}

/// Checks what a policy says.
pub fn check_policy(policy: &PolicyMeta) -> Result<(), PolicyError> {
    policy.check()?;
    NamePattern::checked(&policy.pattern)?;
    for (name, value) in &policy.definition {
        let known = OF_QUEUES.contains(&name.as_str()) || WITHOUT_EFFECT.contains(&name.as_str());
        if policy.key.operator && !OF_OPERATORS.contains(&name.as_str()) {
            return Err(PolicyError::NotOfOperators(name.clone()));
        }
        if name == ALTERNATE_EXCHANGE && value.as_text().is_some() {
            continue;
        }
        if !known {
            return Err(PolicyError::Unknown(name.clone()));
        }
    }
    // What no kind of queue may have is refused; what only some kinds have counts for these.
    let arguments = Applied { policy: Some(Arc::new(policy.clone())), operator: None }.over(&Vec::new());
    for kind in [QueueKind::Classic, QueueKind::Quorum, QueueKind::Stream] {
        if is_for_queue(policy.apply_to, kind) {
            QueueArguments::read(&policy.key.namespace, "", kind, &arguments)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(name: &str, operator: bool, priority: i32, says: &[(&str, i64)]) -> PolicyMeta {
        let key = PolicyKey { namespace: "/".into(), operator, name: name.into() };
        let definition =
            says.iter().map(|(name, value)| ((*name).to_owned(), ArgumentValue::Integer(*value)));
        PolicyMeta {
            key,
            pattern: "^q".into(),
            priority,
            definition: definition.collect(),
            ..PolicyMeta::default()
        }
    }

    fn compiled(all: &[PolicyMeta]) -> Policies {
        let mut policies = Policies::default();
        for meta in all {
            let compiled =
                Compiled { pattern: NamePattern::new(&meta.pattern), meta: Arc::new(meta.clone()) };
            policies.of.entry((meta.key.namespace.clone(), meta.key.operator)).or_default().push(compiled);
        }
        policies.of.values_mut().for_each(|all| all.sort_by_key(|one| std::cmp::Reverse(one.meta.priority)));
        policies
    }

    #[test]
    fn one_policy_counts_and_one_of_the_operators() {
        let quorum =
            PolicyMeta { apply_to: ApplyTo::QuorumQueues, ..policy("d", false, 9, &[("expires", 4)]) };
        let all = [
            policy("a", false, 1, &[("message-ttl", 1)]),
            policy("b", false, 2, &[("message-ttl", 2), ("max-length", 10)]),
            policy("c", false, 2, &[("message-ttl", 3)]),
            policy("a", true, 0, &[("max-length", 7)]),
            quorum,
        ];
        let policies = compiled(&all);
        let of = |kind, name: &str| {
            let applied = policies.of_queue("/", name, kind);
            let name = |policy: Option<Arc<PolicyMeta>>| policy.map(|policy| policy.key.name.clone());
            (name(applied.policy), name(applied.operator))
        };
        assert_eq!(of(QueueKind::Classic, "q1"), (Some("b".into()), Some("a".into())));
        assert_eq!(of(QueueKind::Quorum, "q1"), (Some("d".into()), Some("a".into())));
        assert_eq!(of(QueueKind::Classic, "other"), (None, None));
        assert_eq!(policies.of_queue("elsewhere", "q1", QueueKind::Classic), Applied::default());
    }

    #[test]
    fn what_was_declared_comes_first_and_of_two_bounds_the_lower_one() {
        let said =
            [("max-length", 10), ("message-ttl", 500), ("delivery-limit", -1), ("consumer-timeout", 9)];
        let applied = Applied {
            policy: Some(Arc::new(policy("p", false, 0, &said))),
            operator: Some(Arc::new(policy("o", true, 0, &[("max-length", 20), ("expires", 3)]))),
        };
        let integer = ArgumentValue::Integer;
        let declared = vec![
            ("x-max-length".to_owned(), integer(15)),
            ("x-message-ttl".to_owned(), integer(100)),
            ("x-delivery-limit".to_owned(), integer(4)),
            ("x-consumer-timeout".to_owned(), integer(50)),
            ("x-else".to_owned(), integer(1)),
        ];
        let all: BTreeMap<_, _> = applied.over(&declared).into_iter().collect();
        let expected = [
            ("x-consumer-timeout", 50),
            ("x-delivery-limit", 4),
            ("x-else", 1),
            ("x-expires", 3),
            ("x-max-length", 10),
            ("x-message-ttl", 100),
        ];
        assert_eq!(all, expected.map(|(name, value)| (name.to_owned(), integer(value))).into());
    }

    #[test]
    fn a_policy_says_what_queues_and_exchanges_can_be_told() {
        let refuse =
            |operator, says: &[(&str, i64)]| check_policy(&policy("p", operator, 0, says)).unwrap_err();
        assert!(matches!(refuse(false, &[("federation-upstream", 1)]), PolicyError::Unknown(_)));
        assert!(matches!(refuse(true, &[("ha-mode", 1)]), PolicyError::NotOfOperators(_)));
        assert!(matches!(refuse(false, &[("message-ttl", -1)]), PolicyError::Argument(_)));
        assert!(matches!(refuse(false, &[]), PolicyError::Policy(InvalidPolicy::Empty)));
        assert!(matches!(
            check_policy(&PolicyMeta { pattern: "(".into(), ..policy("p", false, 0, &[("expires", 1)]) }),
            Err(PolicyError::Pattern(_))
        ));
        assert_eq!(check_policy(&policy("p", false, 0, &[("message-ttl", 5), ("ha-mode", 1)])), Ok(()));
    }
}
