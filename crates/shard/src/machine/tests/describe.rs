//! Outcomes, effects and state in words, for transcripts.

use std::fmt::Write;

use weir_model::SubscriptionId;
use weir_model::access::AccessRecords;
use weir_model::command::{Appended, Outcome, TopicMeta};

use crate::machine::{Effect, Machine};
use crate::state::partition::PartitionState;
use crate::state::subscription::Subscription;

pub(super) fn outcome(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Done => "done".into(),
        Outcome::Appended(a) => appended(a),
        Outcome::AppendedToAll(all) => {
            let each = all.iter().map(|one| match one {
                Ok(a) => appended(a),
                Err(refusal) => format!("refused: {refusal}"),
            });
            each.collect::<Vec<_>>().join("; ")
        }
        Outcome::Together(all) => {
            let each: Vec<String> = all.iter().map(self::outcome).collect();
            format!("together: {}", each.join("; "))
        }
        Outcome::Topic(meta) => format!("topic {}", topic(meta)),
        Outcome::Exchange(exchange) => format!("exchange {} {}", exchange.name, exchange.kind),
        Outcome::ProducerIds { first } => format!("producer ids from {first}"),
        Outcome::Incarnation(incarnation) => format!("incarnation {incarnation}"),
        Outcome::Digest { index, digest } => format!("digest of entry {index} is {digest:016x}"),
        Outcome::Refused(refusal) => format!("refused: {refusal}"),
    }
}

fn appended(a: &Appended) -> String {
    format!(
        "{} {}..={} epoch {} time {} start {}",
        if a.duplicate { "already at" } else { "appended at" },
        a.base_offset,
        a.last_offset,
        a.leader_epoch,
        a.time,
        a.log_start
    )
}

fn topic(meta: &TopicMeta) -> String {
    let partitions: Vec<String> =
        meta.partitions.iter().map(|partition| format!("{}@{}", partition.id, partition.shard)).collect();
    let config: Vec<String> = meta.config.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    // A namespace stands before the name with a zero byte, which no text shows.
    let name = meta.name.replace('\0', "|");
    format!("{name} id {} partitions [{}]{}", meta.id.0[0], partitions.join(" "), config.concat())
}

pub(super) fn effect(effect: &Effect) -> String {
    match effect {
        Effect::PartitionOpened(id) => format!("partition {id} opened"),
        Effect::PartitionConfigured(id) => format!("partition {id} configured"),
        Effect::PartitionClosed(id) => format!("partition {id} closed"),
        Effect::Appended { partition, batch, starts_segment } => format!(
            "partition {partition} grows by {} bytes at {}{}",
            batch.len(),
            batch.base_offset,
            if *starts_segment { " in a new segment" } else { "" }
        ),
        Effect::Trimmed { partition, log_start, segments_dropped } => {
            let dropped: Vec<String> = segments_dropped.iter().map(|id| id.to_string()).collect();
            format!("partition {partition} starts at {log_start}, segments dropped [{}]", dropped.join(" "))
        }
        Effect::Rewritten { partition, segments, kept, new } => {
            let old: Vec<String> = segments.iter().map(|id| id.to_string()).collect();
            let kept: Vec<String> = kept.iter().map(|(from, to)| format!("{from}-{to}")).collect();
            let new = new.map_or("nothing".into(), |new| format!("{} up to {}", new.id, new.last_offset));
            format!(
                "partition {partition} segments [{}] become {new}, kept [{}]",
                old.join(" "),
                kept.join(" ")
            )
        }
        Effect::SubscriptionChanged(partition, id) => {
            format!("partition {partition} subscription {id} changed")
        }
        Effect::TimersChanged(partition) => format!("partition {partition} deadlines changed"),
        Effect::TopologyChanged => "topology changed".into(),
        Effect::AccessChanged => "access changed".into(),
        Effect::NodesChanged => "nodes changed".into(),
        Effect::CatalogChanged => "catalog changed".into(),
        Effect::GroupChanged(name) => format!("group {name} changed"),
        Effect::LeadChanged { node, leaderships } => format!("node {node} leads, leadership {leaderships}"),
    }
}

pub(super) fn state(machine: &Machine) -> String {
    let mut out = String::new();
    let root = machine.root();
    writeln!(
        out,
        "index {} time {} leaderships {} next partition {} next producer {}",
        machine.applied_index(),
        root.entry_time,
        root.leaderships,
        root.next_partition,
        root.next_producer
    )
    .unwrap();
    for meta in machine.catalog().topics() {
        writeln!(out, "topic {}", topic(&meta)).unwrap();
    }
    for meta in machine.catalog().deleting() {
        writeln!(out, "deleting topic {}", topic(&meta)).unwrap();
    }
    accounts(&mut out, machine);
    for (key, policy) in machine.topology().policies() {
        let whose = if key.operator { "operator's policy" } else { "policy" };
        let says = policy.definition.iter().map(|(name, value)| format!("{name} {value:?}"));
        writeln!(
            out,
            "{whose} {} in {}: \"{}\" for {} priority {}: {}",
            key.name,
            key.namespace,
            policy.pattern,
            policy.apply_to.name(),
            policy.priority,
            says.collect::<Vec<_>>().join(", ")
        )
        .unwrap();
    }
    for node in machine.nodes().iter() {
        let meta = &node.meta;
        let advertised: Vec<String> =
            meta.advertised.iter().map(|(name, at)| format!("{name}={at}")).collect();
        let zone = meta.zone.as_deref().unwrap_or("-");
        let draining = if node.draining { " draining" } else { "" };
        let leaving = if node.leaving { " leaving" } else { "" };
        let (at, version) = (advertised.join(" "), &meta.version);
        writeln!(out, "node {} at [{at}] zone {zone} version {version}{draining}{leaving}", meta.id).unwrap();
    }
    for (node, given) in machine.nodes().given_incarnations() {
        let whose = if given.is_nobodys() { "nobody".to_owned() } else { given.token.to_string() };
        writeln!(out, "node {node} is incarnation {}, given to {whose}", given.incarnation).unwrap();
    }
    for (id, state) in machine.partitions() {
        writeln!(out, "partition {id}: {}..{}", state.log_start, state.next_offset).unwrap();
        partition(&mut out, state);
        for row in machine.timers(id).iter().flat_map(|timers| timers.iter()) {
            writeln!(out, "  record {} at time {}", row.offset, row.at).unwrap();
        }
        for ((_, kind), window) in machine.windows().filter(|((of, _), _)| *of == id) {
            for (hash, noted) in window.iter() {
                let key: String =
                    hash.iter().filter(|byte| **byte > 0).map(|byte| char::from(*byte)).collect();
                let (offset, time) = (noted.base_offset, noted.time);
                writeln!(out, "  {kind:?} key {key}: at {offset} since {time}").unwrap();
            }
        }
        for ((_, subscription), state) in machine.subscriptions().filter(|((of, _), _)| *of == id) {
            subscribed(&mut out, subscription, state);
        }
    }
    let mut groups: Vec<_> = machine.groups().collect();
    groups.sort_by_key(|(name, _)| *name);
    for (name, group) in groups {
        writeln!(out, "group {name}").unwrap();
        if let Some(m) = group.membership() {
            let members: Vec<&str> = m.members.iter().map(|member| member.member_id.as_str()).collect();
            writeln!(out, "  generation {} at {}: [{}]", m.generation, m.changed_at, members.join(" "))
                .unwrap();
        }
        for o in group.offsets() {
            let (topic, partition) = (o.topic_id.0[0], o.partition);
            writeln!(out, "  topic {topic} partition {partition}: offset {} at {}", o.offset, o.committed_at)
                .unwrap();
        }
    }
    out
}

/// Users, namespaces and permissions, unless they are those of the beginning.
fn accounts(out: &mut String, machine: &Machine) {
    let records = machine.accounts().records();
    if records == AccessRecords::initial() {
        return;
    }
    for namespace in &records.namespaces {
        writeln!(out, "namespace {}", namespace.name).unwrap();
    }
    for user in &records.users {
        let forms = user.passwords.len();
        writeln!(out, "user {} tags [{}] forms of the password {forms}", user.name, user.tags.join(" "))
            .unwrap();
    }
    for p in &records.permissions {
        let (user, namespace) = (&p.user, &p.namespace);
        writeln!(out, "user {user} in {namespace}: {:?} {:?} {:?}", p.configure, p.write, p.read).unwrap();
    }
    for p in &records.topic_permissions {
        let (user, namespace, exchange) = (&p.user, &p.namespace, &p.exchange);
        writeln!(out, "user {user} in {namespace} with {exchange}: {:?} {:?}", p.write, p.read).unwrap();
    }
}

fn partition(out: &mut String, state: &PartitionState) {
    let ends = state.segments.iter().skip(1).map(|next| next.id.base - 1).chain([state.next_offset - 1]);
    for (segment, end) in state.segments.iter().zip(ends) {
        let earlier = segment.last_offset < end;
        let last = if earlier { format!(", up to {}", segment.last_offset) } else { String::new() };
        writeln!(
            out,
            "  segment {}: {} bytes, first at {}, newest {}{last}",
            segment.id, segment.bytes, segment.first_time, segment.max_timestamp
        )
        .unwrap();
    }
    for start in state.epochs.starts() {
        writeln!(out, "  epoch {} from {}", start.epoch, start.offset).unwrap();
    }
    for (id, producer) in state.producers.iter() {
        let batches: Vec<String> = producer
            .batches()
            .iter()
            .map(|batch| format!("{}-{}@{}", batch.first_sequence, batch.last_sequence, batch.base_offset))
            .collect();
        writeln!(out, "  producer {id} epoch {}: {}", producer.epoch, batches.join(" ")).unwrap();
    }
}

fn subscribed(out: &mut String, id: SubscriptionId, state: &Subscription) {
    writeln!(out, "  subscription {id}: head {} handed out {}", state.head(), state.handed_out()).unwrap();
    for (from, to) in state.settled_runs() {
        writeln!(out, "    settled {from}..={to}").unwrap();
    }
    for (from, to, marks) in state.marked_runs() {
        let dead = marks.dead.map(|reason| format!(" dead: {reason:?}")).unwrap_or_default();
        let (failures, returns, order) = (marks.failures, marks.returns, marks.order);
        writeln!(out, "    back {from}..={to}: failures {failures} returns {returns} order {order}{dead}")
            .unwrap();
    }
}
