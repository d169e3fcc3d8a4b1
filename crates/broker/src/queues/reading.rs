//! Reading a queue's records for its dispatcher.

use std::time::Duration;

use tokio::time::Instant;
use weir_dispatch::{Place, Want};
use weir_model::Offset;
use weir_shard::ReadError;

use super::QueueRecord;
use super::actor::Actor;
use super::record::{Run, Ttl, read_records};

/// Bytes read at once.
const READ_BYTES: usize = 1 << 20;

/// Bytes read for one record that came back or is dead: its batch is read.
const READ_ONE_BYTES: usize = 1;

/// How long to wait before records that could not be read are read again: what is damaged stays so, and a disk that
/// fails is not helped by haste.
const READ_AGAIN: Duration = Duration::from_secs(1);

impl Actor {
    /// Looks at what has been appended.
    pub(super) async fn note_growth(&mut self) {
        let mut grown = 0;
        for (number, lane) in &self.lanes {
            grown += self.dispatcher.appended(*number, lane.partition.next_offset());
        }
        let mut bytes = 0;
        while let Some(place) = self.dispatcher.wants_sizes() {
            match self.read_from(place, READ_BYTES).await {
                Ok(run) => {
                    let size = |record: &QueueRecord| {
                        record.record.value.as_ref().map_or(0, |value| value.len() as u64)
                    };
                    let sizes = run.records.iter().map(|(offset, record)| (*offset, size(record)));
                    bytes += self.dispatcher.size(place.lane, sizes, run.next);
                }
                // Retention has let it go.
                Err(ReadError::OutOfRange { log_start, .. }) if log_start > place.offset => {
                    self.dispatcher.size(place.lane, [], log_start);
                }
                Err(error) => {
                    // What cannot be read counts nothing, and handing it out says that it cannot be read.
                    tracing::error!(%error, ?place, "records could not be sized");
                    self.dispatcher.size(place.lane, [], Offset::MAX);
                }
            }
        }
        self.room.arrived(grown, bytes);
    }

    /// Says so, and looks again later.
    pub(super) fn read_failed(&mut self, error: &ReadError, want: Want) {
        tracing::error!(%error, ?want, "a queue's records could not be read; it tries again");
        self.read_again_at = Some(Instant::now() + READ_AGAIN);
    }

    pub(super) async fn read(&mut self, want: Want) -> Result<(), ReadError> {
        match want {
            Want::One(place) => {
                let records = self.read_batch(place).await?;
                self.dispatcher.supply_returned(place, records);
            }
            Want::From(place) => match self.read_from(place, READ_BYTES).await {
                Ok(run) => self.dispatcher.supply(place.lane, run.records, run.next),
                // Retention has let it go.
                Err(ReadError::OutOfRange { log_start, .. }) if log_start > place.offset => {
                    self.dispatcher.supply(place.lane, [], log_start);
                }
                Err(error) => return Err(error),
            },
        }
        Ok(())
    }

    /// The records of the batch that one is in, from that one on; it is not among them if it is not in the log any more.
    // Alone, because the futures that this actor waits for are not shared between threads.
    pub(super) async fn read_batch(&mut self, place: Place) -> Result<Vec<(Offset, QueueRecord)>, ReadError> {
        match self.read_from(place, READ_ONE_BYTES).await {
            Ok(run) => Ok(run.records),
            Err(ReadError::OutOfRange { .. }) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    async fn read_from(&mut self, place: Place, bytes: usize) -> Result<Run, ReadError> {
        let Some(lane) = self.lanes.get(&place.lane) else { return Err(ReadError::Closed) };
        let partition = lane.partition.clone();
        let ttl = self.options.ttl_ms.map(|ms| Ttl { ms, now: self.clock.now_ms() });
        read_records(&partition, place.offset, bytes, ttl).await
    }
}
