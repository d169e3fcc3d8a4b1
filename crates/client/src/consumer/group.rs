//! Membership in a group, by Kafka's classic protocol: join, share out, read, say that one is alive,
//! commit, and begin again whenever the coordinator says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use weir_kafka_wire::messages::join_group::{JoinGroupRequestProtocol, JoinGroupResponseMember};
use weir_kafka_wire::messages::leave_group::MemberIdentity;
use weir_kafka_wire::messages::offset_commit::{OffsetCommitRequestPartition, OffsetCommitRequestTopic};
use weir_kafka_wire::messages::offset_fetch::OffsetFetchRequestTopic;
use weir_kafka_wire::messages::sync_group::SyncGroupRequestAssignment;
use weir_kafka_wire::{
    ConsumerProtocolAssignment, ConsumerProtocolSubscription, ErrorCode, HeartbeatRequest, JoinGroupRequest,
    JoinGroupResponse, KafkaStr, LeaveGroupRequest, OffsetCommitRequest, OffsetFetchRequest, RequestMessage,
    SyncGroupRequest,
};

use super::assign::{self, Reader};
use super::fetcher::{Chunk, Fetcher};
use super::{Command, Shared, offsets};
use crate::error::ClientError;
use crate::network::Network;
use crate::retry::Retry;

/// The kind of group that consumers form.
const PROTOCOL_TYPE: &str = "consumer";

/// The layout of what members say of themselves: the oldest, which every client of a group can read.
const SUBSCRIPTION_VERSION: i16 = 0;

/// How much longer than the rebalance timeout an answer to a join may take.
const JOIN_GRACE: Duration = Duration::from_secs(10);

/// The task that keeps one membership.
#[derive(Debug)]
pub(super) struct Member {
    shared: Arc<Shared>,
    /// A join is answered when all members have joined; no fetch should wait for that, nor it for one.
    network: Arc<Network>,
    group: KafkaStr,
    chunks: mpsc::Sender<Result<Chunk, ClientError>>,
    commands: mpsc::Receiver<Command>,
    /// The node that keeps the group, if it is known.
    coordinator: Option<i32>,
    member_id: KafkaStr,
    generation: i32,
    /// Reads the current assignment.
    fetcher: Option<AbortHandle>,
}

/// Why a period of membership is over.
enum Over {
    /// A new generation is being formed, or the coordinator does not know us: join again.
    Rejoin,
    /// The consumer wants to go.
    Leave(oneshot::Sender<Result<(), ClientError>>),
    /// Nobody reads any more.
    Abandoned,
}

/// What a membership comes to that cannot go on.
type Fatal = ClientError;

impl Drop for Member {
    fn drop(&mut self) {
        self.stop_reading();
    }
}

impl Member {
    pub(super) fn new(
        shared: Arc<Shared>,
        group: String,
        chunks: mpsc::Sender<Result<Chunk, ClientError>>,
        commands: mpsc::Receiver<Command>,
    ) -> Member {
        Member {
            network: shared.network.apart(),
            shared,
            group: group.into(),
            chunks,
            commands,
            coordinator: None,
            member_id: KafkaStr::new(),
            generation: -1,
            fetcher: None,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            match self.one_generation().await {
                Ok(Over::Rejoin) => continue,
                Ok(Over::Leave(done)) => {
                    // If nobody waits for it, nobody needs to know.
                    let _ = done.send(self.leave().await);
                    return;
                }
                Ok(Over::Abandoned) => return,
                Err(error) => {
                    self.stop_reading();
                    let _ = self.chunks.send(Err(error)).await;
                    return;
                }
            }
        }
    }

    /// Joins, reads and beats until something ends it.
    async fn one_generation(&mut self) -> Result<Over, Fatal> {
        let joined = match self.join().await? {
            Ok(joined) => joined,
            Err(over) => return Ok(over),
        };
        let Some(partitions) = self.sync(&joined).await? else { return Ok(Over::Rejoin) };
        let Some(positions) = self.positions(&partitions).await? else { return Ok(Over::Rejoin) };
        tracing::debug!(group = %self.group, generation = self.generation, ?positions, "assigned");
        let epoch = self.shared.state.lock().assign(&positions);
        if !positions.is_empty() {
            let fetcher = Fetcher::new(self.shared.clone(), epoch, positions, self.chunks.clone());
            self.fetcher = Some(tokio::spawn(fetcher.run()).abort_handle());
        }
        let over = self.stay(epoch).await;
        // Whatever was acknowledged is worth keeping, also when the membership ends in error. While a new
        // generation forms, the coordinator still takes the old one's commits.
        if !matches!(over, Ok(Over::Abandoned)) {
            self.commit(epoch).await.unwrap_or_else(|error| {
                tracing::debug!(%error, group = %self.group, "the last positions were not committed");
            });
        }
        self.stop_reading();
        self.shared.state.lock().revoke();
        over
    }

    fn stop_reading(&mut self) {
        if let Some(fetcher) = self.fetcher.take() {
            fetcher.abort();
        }
    }

    /// Beats and commits until the generation ends.
    async fn stay(&mut self, epoch: u64) -> Result<Over, Fatal> {
        let options = self.shared.options.clone();
        let mut beat_at = Instant::now() + options.heartbeat_interval;
        let mut commit_at = options.commit_interval.map(|interval| Instant::now() + interval);
        let mut failing: Option<Retry> = None;
        loop {
            let commit_time = commit_at.unwrap_or(beat_at);
            tokio::select! {
                command = self.commands.recv() => match command {
                    Some(Command::Commit(done)) => {
                        let result = self.commit(epoch).await;
                        let rejoin = result.as_ref().err().and_then(ClientError::code).is_some_and(is_about_membership);
                        // If nobody waits for it, nobody needs to know.
                        let _ = done.send(result);
                        if rejoin {
                            self.forget_if_unknown(None);
                            return Ok(Over::Rejoin);
                        }
                    }
                    Some(Command::Leave(done)) => return Ok(Over::Leave(done)),
                    None => return Ok(Over::Abandoned),
                },
                () = self.chunks.closed() => return Ok(Over::Abandoned),
                () = tokio::time::sleep_until(beat_at) => {
                    beat_at = Instant::now() + options.heartbeat_interval;
                    match self.beat().await {
                        Ok(()) => failing = None,
                        Err(error) if error.code().is_some_and(is_about_membership) => {
                            tracing::debug!(%error, group = %self.group, "joining again");
                            self.forget_if_unknown(error.code());
                            return Ok(Over::Rejoin);
                        }
                        Err(error) => {
                            let retry = failing.get_or_insert_with(|| self.network.retry());
                            if !error.is_retryable() || retry.is_over() {
                                return Err(error);
                            }
                            beat_at = Instant::now() + retry.next_pause();
                        }
                    }
                }
                () = tokio::time::sleep_until(commit_time), if commit_at.is_some() => {
                    commit_at = options.commit_interval.map(|interval| Instant::now() + interval);
                    if let Err(error) = self.commit(epoch).await {
                        // The next beat tells whether the membership has ended.
                        tracing::debug!(%error, group = %self.group, "positions were not committed");
                    }
                }
            }
        }
    }

    /// A coordinator that does not know the member any more wants it to begin anew.
    fn forget_if_unknown(&mut self, code: Option<ErrorCode>) {
        if code == Some(ErrorCode::UNKNOWN_MEMBER_ID) {
            self.member_id = KafkaStr::new();
            self.generation = -1;
        }
    }

    /// Joins the next generation. A command to leave ends the waiting.
    async fn join(&mut self) -> Result<Result<JoinGroupResponse, Over>, Fatal> {
        let mut retry = self.network.retry();
        loop {
            let request = self.join_request()?;
            let at_most = self.shared.options.rebalance_timeout + JOIN_GRACE;
            // Taken out for the time of the request, so that commands can be heard meanwhile.
            let mut commands = std::mem::replace(&mut self.commands, mpsc::channel(1).1);
            let heard = {
                let asked = self.ask(&request, at_most);
                let mut asked = std::pin::pin!(asked);
                loop {
                    tokio::select! {
                        answer = &mut asked => break Ok(answer),
                        command = commands.recv() => match command {
                            // Everything acknowledged was committed when the last generation ended.
                            Some(Command::Commit(done)) => drop(done.send(Ok(()))),
                            Some(Command::Leave(done)) => break Err(Over::Leave(done)),
                            None => break Err(Over::Abandoned),
                        },
                    }
                }
            };
            self.commands = commands;
            let error = match heard {
                Err(over) => return Ok(Err(over)),
                Ok(Ok(answer)) if answer.error_code.is_none() => {
                    self.member_id = answer.member_id.detached();
                    self.generation = answer.generation_id;
                    return Ok(Ok(answer));
                }
                Ok(Ok(answer)) => {
                    if answer.error_code == ErrorCode::MEMBER_ID_REQUIRED {
                        self.member_id = answer.member_id.detached();
                        continue;
                    }
                    self.forget_if_unknown(Some(answer.error_code));
                    self.refused("joining", answer.error_code)
                }
                Ok(Err(error)) => error,
            };
            self.after(&mut retry, error).await?;
        }
    }

    fn join_request(&self) -> Result<JoinGroupRequest, Fatal> {
        let options = &self.shared.options;
        let subscription = ConsumerProtocolSubscription {
            topics: vec![KafkaStr::from(&self.shared.topic)],
            ..Default::default()
        };
        let protocol = JoinGroupRequestProtocol {
            name: assign::NAME.into(),
            metadata: subscription.encode(SUBSCRIPTION_VERSION)?,
        };
        Ok(JoinGroupRequest {
            group_id: self.group.clone(),
            session_timeout_ms: milliseconds(options.session_timeout),
            rebalance_timeout_ms: milliseconds(options.rebalance_timeout),
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id(),
            protocol_type: PROTOCOL_TYPE.into(),
            protocols: vec![protocol],
            ..Default::default()
        })
    }

    /// Brings the assignments, if it falls to this member, and gets its own: the partitions of the topic.
    /// None if another generation has begun meanwhile.
    async fn sync(&mut self, joined: &JoinGroupResponse) -> Result<Option<Vec<i32>>, Fatal> {
        let leads = joined.leader == joined.member_id && !joined.skip_assignment;
        let assignments = if leads { self.share_out(&joined.members).await? } else { Vec::new() };
        let request = SyncGroupRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id(),
            protocol_type: Some(PROTOCOL_TYPE.into()),
            protocol_name: Some(joined.protocol_name.clone().unwrap_or_else(|| assign::NAME.into())),
            assignments,
        };
        let mut retry = self.network.retry();
        let at_most = self.shared.options.rebalance_timeout + JOIN_GRACE;
        let answer = loop {
            let error = match self.ask(&request, at_most).await {
                Ok(answer) if answer.error_code.is_none() => break answer,
                Ok(answer) if is_about_membership(answer.error_code) => {
                    self.forget_if_unknown(Some(answer.error_code));
                    return Ok(None);
                }
                Ok(answer) => self.refused("sharing out", answer.error_code),
                Err(error) => error,
            };
            self.after(&mut retry, error).await?;
        };
        if answer.assignment.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let assignment = ConsumerProtocolAssignment::decode(answer.assignment).map_err(|why| {
            ClientError::Malformed { address: format!("the leader of group '{}'", self.group), why }
        })?;
        let ours = assignment
            .assigned_partitions
            .into_iter()
            .filter(|topic| topic.topic == self.shared.topic.as_str());
        Ok(Some(ours.flat_map(|topic| topic.partitions).collect()))
    }

    /// What each member is to read.
    async fn share_out(
        &self,
        members: &[JoinGroupResponseMember],
    ) -> Result<Vec<SyncGroupRequestAssignment>, Fatal> {
        let mut readers = Vec::with_capacity(members.len());
        for member in members {
            let subscription =
                ConsumerProtocolSubscription::decode(member.metadata.clone()).map_err(|why| {
                    ClientError::Malformed {
                        address: format!("member {} of group '{}'", member.member_id, self.group),
                        why,
                    }
                })?;
            readers.push(Reader {
                member_id: member.member_id.as_str().to_owned(),
                instance_id: member.group_instance_id.as_ref().map(|id| id.as_str().to_owned()),
                topics: subscription.topics.iter().map(|topic| topic.as_str().to_owned()).collect(),
            });
        }
        let topics: BTreeSet<&String> = readers.iter().flat_map(|reader| &reader.topics).collect();
        let mut partitions = BTreeMap::new();
        for topic in topics {
            // Partitions may have been added since the last generation.
            self.network.forget(topic);
            match self.network.topic(topic, false).await {
                Ok(info) => drop(partitions.insert(topic.clone(), info.leaders.len())),
                // A topic that does not exist has nothing to share out.
                Err(error) if error.code() == Some(ErrorCode::UNKNOWN_TOPIC_OR_PARTITION) => {}
                Err(error) => return Err(error),
            }
        }
        let mut assignments = Vec::with_capacity(readers.len());
        for (member_id, assignment) in assign::assign(&readers, &partitions) {
            let assignment = assign::message(&assignment).encode(SUBSCRIPTION_VERSION)?;
            assignments.push(SyncGroupRequestAssignment { member_id: member_id.into(), assignment });
        }
        Ok(assignments)
    }

    /// Where to read each partition from: behind what is committed, or where the options say. None if
    /// another generation has begun meanwhile.
    async fn positions(&mut self, partitions: &[i32]) -> Result<Option<BTreeMap<i32, i64>>, Fatal> {
        if partitions.is_empty() {
            return Ok(Some(BTreeMap::new()));
        }
        let topic = OffsetFetchRequestTopic {
            name: KafkaStr::from(&self.shared.topic),
            partition_indexes: partitions.to_vec(),
        };
        let request = OffsetFetchRequest {
            group_id: self.group.clone(),
            topics: Some(vec![topic]),
            require_stable: true,
            ..Default::default()
        };
        let mut retry = self.network.retry();
        let committed = loop {
            let error = match self.ask(&request, self.network.options.request_timeout).await {
                Ok(answer) => {
                    let found = answer.topics.iter().flat_map(|topic| &topic.partitions);
                    let bad =
                        found.clone().map(|partition| partition.error_code).find(|code| !code.is_none());
                    match bad.or(Some(answer.error_code).filter(|code| !code.is_none())) {
                        None => {
                            let found = found.filter(|partition| partition.committed_offset >= 0);
                            break found
                                .map(|partition| (partition.partition_index, partition.committed_offset))
                                .collect::<BTreeMap<i32, i64>>();
                        }
                        Some(code) if is_about_membership(code) => {
                            self.forget_if_unknown(Some(code));
                            return Ok(None);
                        }
                        Some(code) => self.refused("finding the positions", code),
                    }
                }
                Err(error) => error,
            };
            self.after(&mut retry, error).await?;
        };
        let never: Vec<i32> = partitions.iter().copied().filter(|p| !committed.contains_key(p)).collect();
        let Shared { topic, options, .. } = &*self.shared;
        let mut positions = offsets::find(&self.network, topic, &never, options.start).await?;
        positions.extend(committed.into_iter().filter(|(partition, _)| partitions.contains(partition)));
        Ok(Some(positions))
    }

    async fn beat(&mut self) -> Result<(), ClientError> {
        let request = HeartbeatRequest {
            group_id: self.group.clone(),
            generation_id: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id(),
        };
        let at_most = self.shared.options.session_timeout;
        let answer = self.ask(&request, at_most).await?;
        self.coordinator_moved(answer.error_code);
        ClientError::check(answer.error_code, || format!("a heartbeat in group '{}'", self.group))
    }

    /// Commits what is acknowledged; one attempt more if the coordinator has moved.
    async fn commit(&mut self, epoch: u64) -> Result<(), ClientError> {
        let offsets = self.shared.state.lock().uncommitted();
        if offsets.is_empty() {
            return Ok(());
        }
        let partitions = offsets.iter().map(|(partition, offset)| OffsetCommitRequestPartition {
            partition_index: *partition,
            committed_offset: *offset,
            ..Default::default()
        });
        let request = OffsetCommitRequest {
            group_id: self.group.clone(),
            generation_id_or_member_epoch: self.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id(),
            topics: vec![OffsetCommitRequestTopic {
                name: KafkaStr::from(&self.shared.topic),
                partitions: partitions.collect(),
                ..Default::default()
            }],
            ..Default::default()
        };
        let mut retry = Retry::for_at_most(self.shared.options.session_timeout);
        loop {
            let error = match self.ask(&request, self.network.options.request_timeout).await {
                Ok(answer) => {
                    let answers = answer.topics.iter().flat_map(|topic| &topic.partitions);
                    match answers.map(|partition| partition.error_code).find(|code| !code.is_none()) {
                        None => {
                            self.shared.state.lock().committed(epoch, &offsets);
                            return Ok(());
                        }
                        Some(code) => self.refused("committing", code),
                    }
                }
                Err(error) => error,
            };
            self.after(&mut retry, error).await?;
        }
    }

    async fn leave(&mut self) -> Result<(), ClientError> {
        // A static member keeps its place: that is what it is for.
        if self.member_id.is_empty() || self.shared.options.instance_id.is_some() {
            return Ok(());
        }
        let request = LeaveGroupRequest {
            group_id: self.group.clone(),
            member_id: self.member_id.clone(),
            members: vec![MemberIdentity { member_id: self.member_id.clone(), ..Default::default() }],
        };
        let answer = self.ask(&request, self.network.options.request_timeout).await?;
        match answer.error_code {
            // It is out already.
            ErrorCode::UNKNOWN_MEMBER_ID => Ok(()),
            code => ClientError::check(code, || format!("leaving group '{}'", self.group)),
        }
    }

    /// Asks the coordinator, once.
    async fn ask<R: RequestMessage>(
        &mut self,
        request: &R,
        at_most: Duration,
    ) -> Result<R::Response, ClientError> {
        let id = match self.coordinator {
            Some(id) => id,
            None => {
                let id = self.network.coordinator(&self.group).await?;
                self.coordinator = Some(id);
                id
            }
        };
        let asked = async { self.network.node(id).await?.send(request).await?.wait(at_most).await };
        let answer = asked.await;
        if answer.is_err() {
            self.coordinator = None;
        }
        answer
    }

    fn coordinator_moved(&mut self, code: ErrorCode) {
        if matches!(code, ErrorCode::NOT_COORDINATOR | ErrorCode::COORDINATOR_NOT_AVAILABLE) {
            self.coordinator = None;
        }
    }

    /// Pauses before the next attempt; gives the error back if there is none. Membership errors of a join
    /// are answered by joining again, so they count as retryable here.
    async fn after(&mut self, retry: &mut Retry, error: ClientError) -> Result<(), ClientError> {
        let Some(code) = error.code() else { return retry.after(error).await };
        self.coordinator_moved(code);
        let again = matches!(code, ErrorCode::UNKNOWN_MEMBER_ID | ErrorCode::REBALANCE_IN_PROGRESS);
        if again && self.generation == -1 && !retry.is_over() {
            tokio::time::sleep(retry.next_pause()).await;
            return Ok(());
        }
        retry.after(error).await
    }

    fn instance_id(&self) -> Option<KafkaStr> {
        self.shared.options.instance_id.as_ref().map(KafkaStr::from)
    }

    fn refused(&self, doing: &str, code: ErrorCode) -> ClientError {
        ClientError::Refused { what: format!("{doing} in group '{}'", self.group), code, message: None }
    }
}

/// Whether the code says that the membership, as the member knows it, is over.
fn is_about_membership(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::REBALANCE_IN_PROGRESS | ErrorCode::ILLEGAL_GENERATION | ErrorCode::UNKNOWN_MEMBER_ID
    )
}

fn milliseconds(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}
