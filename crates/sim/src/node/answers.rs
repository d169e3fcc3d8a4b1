//! What a node answers its clients: streams, what is declared, users, leaderships. Queues have rooms of their own.

use bytes::{Bytes, BytesMut};
use weir_broker::{AccessError, Acks, Broker, PublishError};
use weir_cluster::ShardHandle;
use weir_model::access::{AccessChange, DEFAULT_NAMESPACE, PermissionMeta, UserMeta};
use weir_model::command::{Command, Outcome, Refusal};
use weir_model::{NodeId, ShardId};

use super::{Process, node_id};
use crate::asks::{Answer, Ask};
use crate::declared::{STREAMS, exchange, topics};
use crate::ledger::Partition;
use crate::scenario::SHARDS;
use crate::wrong::Wrong;

impl Process {
    /// Answers one request.
    pub async fn answer(self, frame: Bytes) -> Bytes {
        let Some(ask) = Ask::decode(frame) else { return Answer::Refused("not a request".into()).encode() };
        self.carry_out(ask).await.unwrap_or(Answer::Retry).encode()
    }

    /// None where it must be tried again.
    async fn carry_out(&self, ask: Ask) -> Option<Answer> {
        match ask {
            Ask::Append(partition, batch) => self.append(partition, batch).await,
            Ask::Read(partition, offset, bytes_max) => self.read(partition, offset, bytes_max),
            Ask::Declare => self.declare().await,
            Ask::Publish(queue, postings, padding) => self.publish(queue, &postings, padding).await,
            Ask::Park(target, message, at) => self.park(target, message, at).await,
            Ask::Cancel(name) => self.cancel(&name).await,
            Ask::Consume(queue, session, credit) => self.consume(queue, session, credit).await,
            Ask::Next(session) => Some(self.next(session).await),
            Ask::Settle(said) => Some(self.settle(&said).await),
            Ask::Close(session) => Some(self.close(session).await),
            Ask::HandOver(to) => Some(self.hand_over(node_id(to as usize)).await),
            Ask::ChangeUser(name, version) => self.change_user(name, version).await,
            Ask::Compare => Some(self.compare().await),
        }
    }

    pub(super) fn broker(&self) -> Option<&std::sync::Arc<Broker>> {
        self.broker.get()
    }

    async fn append(&self, number: Partition, batch: Bytes) -> Option<Answer> {
        let broker = self.broker()?;
        let topic = broker.topic(STREAMS)?;
        let partition = broker.partition(&topic, number as i32).ok()?;
        let published = match broker.publish(&partition, batch, Acks::All).await {
            Ok(publishing) => publishing.await,
            Err(error) => Err(error),
        };
        match published {
            Ok(published) => Some(Answer::Appended(published.base_offset)),
            Err(PublishError::Unavailable(_) | PublishError::UnknownPartition) => None,
            Err(error) => Some(Answer::Refused(error.to_string())),
        }
    }

    /// Any replica answers, also before its broker has begun.
    fn read(&self, number: Partition, offset: i64, bytes_max: u32) -> Option<Answer> {
        let catalog = self.node.shard(ShardId::META)?.view().catalog();
        let partition = *catalog.topic(STREAMS)?.partitions.get(number as usize)?;
        let view = self.node.shard(partition.shard)?.view().partition(partition.id)?;
        let end = view.next_offset();
        if offset >= end {
            // A follower may be behind: that is no error, there is only nothing yet.
            return Some(Answer::Batches(end, Bytes::new()));
        }
        match view.read(offset, bytes_max as usize, false) {
            Ok(out) => {
                let mut all = BytesMut::with_capacity(out.bytes);
                out.chunks.iter().for_each(|chunk| all.extend_from_slice(chunk));
                Some(Answer::Batches(end, all.freeze()))
            }
            Err(error) => {
                tracing::info!(%error, offset, "read");
                None
            }
        }
    }

    async fn declare(&self) -> Option<Answer> {
        let broker = self.broker()?;
        let meta = self.node.shard(ShardId::META)?;
        for command in topics() {
            match meta.relay(command).await.ok()? {
                Outcome::Topic(_) | Outcome::Refused(Refusal::TopicExists(_)) => {}
                other => return Some(Answer::Refused(format!("{other:?}"))),
            }
        }
        let (exchange, bindings) = exchange()?;
        broker.declare_exchange(exchange).await.ok()?;
        for binding in bindings {
            broker.bind(binding).await.ok()?;
        }
        Some(Answer::Done)
    }

    async fn change_user(&self, name: String, version: Option<u32>) -> Option<Answer> {
        let broker = self.broker()?;
        let changes = match version {
            Some(_) if self.wrong == Some(Wrong::LosesUsers) => Vec::new(),
            Some(version) => {
                let user = UserMeta {
                    name: name.clone(),
                    tags: vec![format!("version-{version}")],
                    ..UserMeta::default()
                };
                let permission = PermissionMeta::everything(&name, DEFAULT_NAMESPACE);
                vec![AccessChange::PutUser { user, new: false }, AccessChange::PutPermission { permission }]
            }
            None => vec![AccessChange::DeleteUser { name }],
        };
        for change in changes {
            match broker.change_access(change).await {
                // A repeat finds what it did before.
                Ok(()) | Err(AccessError::Refused(Refusal::UnknownUser(_))) => {}
                Err(AccessError::Admin(_)) => return None,
                Err(error) => return Some(Answer::Refused(error.to_string())),
            }
        }
        Some(Answer::Done)
    }

    fn shards(&self) -> impl Iterator<Item = &ShardHandle> {
        (0..=SHARDS).filter_map(|shard| self.node.shard(ShardId(shard)))
    }

    /// Gives away what it leads. That comes to nothing if the other one is not there.
    async fn hand_over(&self, to: NodeId) -> Answer {
        for shard in self.shards() {
            if shard.leadership().is_leader && to != self.node.node_id() {
                let given = shard.transfer_leadership(to).await;
                tracing::info!(shard = %shard.id(), %to, ?given, "leadership given away");
            }
        }
        Answer::Done
    }

    async fn compare(&self) -> Answer {
        let mut compared = Vec::new();
        for shard in self.shards().filter(|shard| shard.leadership().ready) {
            let Ok(Outcome::Digest { index, digest }) = shard.propose(Command::TakeDigest).await else {
                continue;
            };
            let digest = digest ^ u64::from(self.wrong == Some(Wrong::DigestsDiffer));
            // A replica that differs stops; the leader itself does not answer then.
            if shard.propose(Command::CompareDigest { index, digest }).await.is_ok() {
                compared.push(shard.id().0);
            }
        }
        Answer::Compared(compared)
    }
}
