//! `/api/v1/groups`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{Path, State};
use serde::{Deserialize, Serialize};
use weir_broker::groups::{CommitRequest, CommittedOffset, GroupDescription, GroupState, MemberDescription};
use weir_broker::{Broker, OffsetQuery, PartitionRef, Topic};
use weir_kafka_wire::ConsumerProtocolAssignment;
use weir_model::command::OffsetCommit;

use super::topics::find;
use super::{Answer, body};
use crate::error::ApiError;
use crate::front::Front;

/// The kind of group whose assignments say which partitions a member reads.
const CONSUMERS: &str = "consumer";

/// A group in a listing.
#[derive(Debug, Serialize)]
pub(super) struct Listed {
    name: String,
    kind: String,
    state: &'static str,
}

/// A group in full.
#[derive(Debug, Serialize)]
pub(super) struct Described {
    name: String,
    kind: String,
    state: &'static str,
    generation: i32,
    assignor: String,
    /// Records that the group has not read yet, of all partitions with a position.
    total_lag: i64,
    members: Vec<Member>,
    positions: Vec<Position>,
}

#[derive(Debug, Serialize)]
struct Member {
    member_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    instance_id: Option<String>,
    client_id: String,
    host: String,
    /// Partitions by topic.
    assignment: BTreeMap<String, Vec<i32>>,
}

#[derive(Debug, Serialize)]
struct Position {
    topic: String,
    partition: i32,
    offset: i64,
    /// Offset that the next record will get.
    next_offset: Option<i64>,
    lag: Option<i64>,
    committed_at_ms: i64,
    /// The member that reads the partition now.
    member_id: Option<String>,
}

/// Where a group is to go on.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Reset {
    /// `start`, `end`, an offset, or `@` and a time in milliseconds since 1970.
    to: String,
    /// One topic; all in which the group has positions if none.
    topic: Option<String>,
    /// Some of its partitions; all if none.
    partitions: Option<Vec<i32>>,
    /// Only say what would happen.
    #[serde(default)]
    dry_run: bool,
}

/// One position that was moved.
#[derive(Debug, Serialize)]
pub(super) struct Moved {
    topic: String,
    partition: i32,
    from: Option<i64>,
    to: i64,
}

/// What was done.
#[derive(Debug, Serialize)]
pub(super) struct Deleted {
    deleted: String,
}

pub(super) async fn list(State(front): State<Arc<Front>>) -> Json<Vec<Listed>> {
    let mut groups: Vec<Listed> = front
        .broker
        .list_groups()
        .into_iter()
        .map(|group| Listed { name: group.group, kind: group.protocol_type, state: group.state.name() })
        .collect();
    groups.sort_by(|a, b| a.name.cmp(&b.name));
    Json(groups)
}

pub(super) async fn describe(State(front): State<Arc<Front>>, Path(name): Path<String>) -> Answer<Described> {
    let broker = &front.broker;
    let group = existing(broker, &name)?;
    let committed = broker.fetch_offsets(&name, None).await?;
    let members: Vec<Member> =
        group.members.iter().map(|member| described_member(&group.protocol_type, member)).collect();
    let positions: Vec<Position> =
        committed.iter().filter_map(|committed| position(broker, &members, committed)).collect();
    Ok(Json(Described {
        name,
        kind: group.protocol_type,
        state: group.state.name(),
        generation: group.generation,
        assignor: group.protocol,
        total_lag: positions.iter().filter_map(|position| position.lag).sum(),
        members,
        positions,
    }))
}

pub(super) async fn delete(State(front): State<Arc<Front>>, Path(name): Path<String>) -> Answer<Deleted> {
    existing(&front.broker, &name)?;
    front.broker.delete_group(&name).await?;
    Ok(Json(Deleted { deleted: name }))
}

pub(super) async fn reset(
    State(front): State<Arc<Front>>,
    Path(name): Path<String>,
    bytes: Result<Bytes, BytesRejection>,
) -> Answer<Vec<Moved>> {
    let request: Reset = body(bytes)?;
    let target = Target::parse(&request.to)?;
    let broker = &front.broker;
    let group = broker.describe_group(&name)?;
    if !group.members.is_empty() {
        return Err(ApiError::not_empty(&name));
    }
    // A group may be given positions before its first member comes; without a topic there are none to move.
    if group.state == GroupState::Dead && request.topic.is_none() {
        return Err(ApiError::unknown_group(&name));
    }
    let committed = broker.fetch_offsets(&name, None).await?;
    let mut moved = Vec::new();
    let mut offsets = Vec::new();
    for (topic, index) in what_to_move(broker, &request, &committed)? {
        let partition = broker.partition(&topic, index)?;
        let to = target.find(&partition).await?;
        let from = committed.iter().find(|c| c.topic_id == topic.id() && c.partition == index);
        moved.push(Moved {
            topic: topic.name().to_owned(),
            partition: index,
            from: from.map(|c| c.offset),
            to,
        });
        offsets.push(OffsetCommit {
            topic_id: topic.id(),
            partition: index,
            offset: to,
            leader_epoch: -1,
            metadata: String::new(),
            committed_at: 0,
        });
    }
    if !request.dry_run && !offsets.is_empty() {
        let commit = CommitRequest { group: name, generation: -1, offsets, ..CommitRequest::default() };
        for result in broker.commit_offsets(commit).await? {
            result.map_err(|error| {
                ApiError::bad_request(error.to_string(), "look at the topic and try again")
            })?;
        }
    }
    Ok(Json(moved))
}

/// A group that exists.
fn existing(broker: &Broker, name: &str) -> Result<GroupDescription, ApiError> {
    match broker.describe_group(name)? {
        group if group.state == GroupState::Dead => Err(ApiError::unknown_group(name)),
        group => Ok(group),
    }
}

fn described_member(kind: &str, member: &MemberDescription) -> Member {
    let assignment = match kind {
        CONSUMERS if !member.assignment.is_empty() => {
            ConsumerProtocolAssignment::decode(member.assignment.clone()).unwrap_or_default()
        }
        _ => ConsumerProtocolAssignment::default(),
    };
    let topics = assignment.assigned_partitions.into_iter();
    Member {
        member_id: member.member_id.clone(),
        instance_id: member.instance_id.clone(),
        client_id: member.client_id.clone(),
        host: member.client_host.clone(),
        assignment: topics.map(|topic| (topic.topic.as_str().to_owned(), topic.partitions)).collect(),
    }
}

fn position(broker: &Broker, members: &[Member], committed: &CommittedOffset) -> Option<Position> {
    let topic = broker.topic_by_id(committed.topic_id)?;
    let next_offset = broker.partition(&topic, committed.partition).ok().map(|p| p.next_offset());
    let reads = |member: &&Member| {
        let partitions = member.assignment.get(topic.name());
        partitions.is_some_and(|partitions| partitions.contains(&committed.partition))
    };
    Some(Position {
        topic: topic.name().to_owned(),
        partition: committed.partition,
        offset: committed.offset,
        next_offset,
        lag: next_offset.map(|next| (next - committed.offset).max(0)),
        committed_at_ms: committed.committed_at,
        member_id: members.iter().find(reads).map(|member| member.member_id.clone()),
    })
}

/// The partitions whose positions are to be moved.
fn what_to_move(
    broker: &Broker,
    request: &Reset,
    committed: &[CommittedOffset],
) -> Result<Vec<(Arc<Topic>, i32)>, ApiError> {
    let Some(name) = &request.topic else {
        if request.partitions.is_some() {
            return Err(ApiError::bad_request(
                "partitions are given without a topic",
                "name the topic as well",
            ));
        }
        let known = committed.iter().filter_map(|c| Some((broker.topic_by_id(c.topic_id)?, c.partition)));
        return Ok(known.collect());
    };
    let topic = find(broker, name)?;
    let all = 0..topic.partition_count() as i32;
    match &request.partitions {
        None => Ok(all.map(|index| (topic.clone(), index)).collect()),
        Some(some) => {
            let some: BTreeSet<i32> = some.iter().copied().collect();
            if let Some(index) = some.iter().find(|index| !all.contains(index)) {
                let message = format!("the topic '{name}' has no partition {index}");
                return Err(ApiError::bad_request(message, "GET /api/v1/topics/NAME lists its partitions"));
            }
            Ok(some.into_iter().map(|index| (topic.clone(), index)).collect())
        }
    }
}

/// A place in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Find(OffsetQuery),
    Offset(i64),
}

impl Target {
    fn parse(text: &str) -> Result<Target, ApiError> {
        let number = |text: &str| text.parse::<i64>().ok().filter(|number| *number >= 0);
        let target = match text {
            "start" => Some(Target::Find(OffsetQuery::Earliest)),
            "end" => Some(Target::Find(OffsetQuery::Latest)),
            _ => match text.strip_prefix('@') {
                Some(time) => number(time).map(|time| Target::Find(OffsetQuery::At(time))),
                None => number(text).map(Target::Offset),
            },
        };
        target.ok_or_else(|| {
            let remedy = "use start, end, an offset, or @ and a time in milliseconds since 1970";
            ApiError::bad_request(format!("'{text}' is not a place in a log"), remedy)
        })
    }

    /// The offset; one that is not there any more, or not yet, becomes the nearest that is.
    async fn find(self, partition: &PartitionRef) -> Result<i64, ApiError> {
        let (start, end) = (partition.log_start(), partition.next_offset());
        match self {
            Target::Offset(offset) => Ok(offset.clamp(start, end)),
            Target::Find(query) => Ok(partition.list_offset(query).await?.map_or(end, |found| found.offset)),
        }
    }
}
