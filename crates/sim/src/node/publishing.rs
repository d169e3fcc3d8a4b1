//! Publishing to queues, parking, and taking back what is parked.

use bytes::Bytes;
use weir_broker::parking::{Due, ParkedBatch, ParkedName, Target};
use weir_broker::topology::DEDUPLICATION_HEADER;
use weir_broker::{AdminError, PublishError};
use weir_model::ShardId;
use weir_model::batch::{BatchBuilder, Header, Record};
use weir_model::queue::DEFAULT_NAMESPACE;

use super::{Process, now_ms};
use crate::asks::{Answer, ParkFor, Posting};
use crate::declared::{BOTH, LATER, QueueNumber, lots_name, rules};
use crate::queues::Message;
use crate::wrong::Wrong;

/// What [`Wrong::ReleasesEarly`] means, in milliseconds.
const EARLY_MS: i64 = 700;

impl Process {
    pub(super) async fn publish(
        &self,
        queue: QueueNumber,
        postings: &[Posting],
        padding: u32,
    ) -> Option<Answer> {
        let broker = self.broker()?;
        let destinations = broker.destinations(DEFAULT_NAMESPACE, [rules(queue).name], None, 0).ok()?;
        if destinations.is_empty() {
            // It has not been declared yet.
            return None;
        }
        if self.wrong == Some(Wrong::LosesMessages) && postings.iter().any(|p| p.message.number % 16 == 7) {
            return Some(Answer::Done);
        }
        let padding = vec![b'.'; padding as usize];
        let mut builder = BatchBuilder::new();
        for Posting { message, key } in postings {
            let key = key.filter(|_| self.wrong != Some(Wrong::ForgetsKeys));
            let headers: Vec<Header> = key.into_iter().map(key_header).collect();
            let value = message.to_string();
            builder.push(now_ms(), Some(&padding), Some(value.as_bytes()), &headers);
        }
        let published = match broker.publish_to(&destinations, builder.build()).await {
            Ok(publishing) => publishing.await,
            Err(error) => Err(error),
        };
        match published {
            Ok(()) => Some(Answer::Done),
            Err(PublishError::Unavailable(_)) => None,
            Err(error) => Some(Answer::Refused(error.to_string())),
        }
    }

    pub(super) async fn park(&self, target: ParkFor, message: Message, at: i64) -> Option<Answer> {
        let broker = self.broker()?;
        // Where there are none the broker would make lots of its own liking.
        self.node.shard(ShardId::META)?.view().catalog().topic(&lots_name())?;
        let target = match target {
            ParkFor::Queue(queue) => Target::Queue(rules(queue).name.to_owned()),
            ParkFor::Exchange => {
                Target::Exchange { name: BOTH.to_owned(), keys: vec![Bytes::new()], properties: None }
            }
        };
        let due = Due { namespace: DEFAULT_NAMESPACE.to_owned(), target, expires_after_ms: None };
        let lot = broker.lot_for(&due).await.ok()?;
        let value = Bytes::from(message.to_string());
        let record = Record { timestamp: now_ms(), value: Some(value), ..Record::default() };
        let at = if self.wrong == Some(Wrong::ReleasesEarly) { at - EARLY_MS } else { at };
        let mut batch = ParkedBatch::new();
        batch.push(record, &due, at);
        let parked = match broker.park(&lot, batch).await {
            Ok(parking) => parking.await,
            Err(error) => Err(error),
        };
        if self.wrong == Some(Wrong::ReleasesTwice) {
            let posting = Posting { message, key: None };
            self.publish(LATER, &[posting], 0).await?;
        }
        match parked {
            Ok(parked) => Some(Answer::Parked(parked.name(0, at).to_string())),
            Err(PublishError::Unavailable(_)) => None,
            Err(error) => Some(Answer::Refused(error.to_string())),
        }
    }

    pub(super) async fn cancel(&self, name: &str) -> Option<Answer> {
        let Ok(name) = name.parse::<ParkedName>() else { return Some(Answer::Refused("no name".into())) };
        match self.broker()?.cancel_parked(name).await {
            Ok(was_there) => Some(Answer::Cancelled(was_there)),
            Err(AdminError::Unavailable(_)) => None,
            Err(error) => Some(Answer::Refused(error.to_string())),
        }
    }
}

fn key_header(key: u32) -> Header {
    Header { key: DEDUPLICATION_HEADER.to_owned(), value: Some(Bytes::from(key.to_string())) }
}
