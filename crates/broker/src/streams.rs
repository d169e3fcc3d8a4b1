//! Reading topics record by record and by offset, for protocols whose consumers take records one by one and say how
//! many more they take. Nothing is settled by it, and every reader reads on its own.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use weir_model::batch::Record;
use weir_model::{Offset, TimestampMs};

use crate::broker::Broker;
use crate::errors::AdminError;
use crate::queues::read_records;
use crate::read::{OffsetQuery, PartitionRef};
use crate::topics::Topic;
use crate::wait::FetchWait;

/// Bytes read at once from one partition.
const READ_BYTES: usize = 1 << 20;

/// Runs of records that wait for whoever reads. Its credit bounds the records.
const RUNS_WAITING_MAX: usize = 4;

/// How long a reader sleeps at most: a change of leaders wakes nobody.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Where to begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamStart {
    /// With the first record that is there.
    First,
    /// With the last record that is there, or with the next one if there is none.
    Last,
    /// With the next one.
    Next,
    /// With this one, or the first behind it that is there.
    Offset(Offset),
    /// With the first one whose timestamp is this or later.
    At(TimestampMs),
}

/// A record of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamRecord {
    /// Of which partition.
    pub partition: i32,
    /// Where it lies there.
    pub offset: Offset,
    /// As it is stored.
    pub record: Record,
}

/// What a reader takes more.
#[derive(Clone, Debug, Default)]
pub struct StreamCredit(Arc<Credit>);

#[derive(Debug, Default)]
struct Credit {
    records: AtomicU64,
    raised: Notify,
}

impl StreamCredit {
    /// So many records more.
    pub fn add(&self, records: u32) {
        self.0.records.fetch_add(records.into(), Ordering::AcqRel);
        self.0.raised.notify_one();
    }

    /// Whether it is the credit of these records.
    pub fn is_of(&self, records: &StreamRecords) -> bool {
        Arc::ptr_eq(&self.0, &records.credit.0)
    }

    fn left(&self) -> usize {
        self.0.records.load(Ordering::Acquire).try_into().unwrap_or(usize::MAX)
    }

    fn spend(&self, records: usize) {
        self.0.records.fetch_sub(records as u64, Ordering::AcqRel);
    }
}

/// The records of a topic: in order within each partition. Reading ends when this is dropped.
#[derive(Debug)]
pub struct StreamRecords {
    records: mpsc::Receiver<Vec<StreamRecord>>,
    credit: StreamCredit,
}

impl StreamRecords {
    /// The next records; none if the topic is gone.
    pub async fn next(&mut self) -> Option<Vec<StreamRecord>> {
        self.records.recv().await
    }
}

/// Which records a reader wants.
pub type RecordFilter = Arc<dyn Fn(&Record) -> bool + Send + Sync>;

/// How far a reader has come in a partition.
struct Cursor {
    partition: PartitionRef,
    next: Offset,
    filter: Option<RecordFilter>,
    at_hand: VecDeque<StreamRecord>,
}

impl Broker {
    /// Reads a topic from some point on: so many records, and more as they are taken; those that the filter lets through,
    /// if there is one. Fails where another node leads a partition.
    pub async fn read_stream(
        &self,
        topic: &Topic,
        start: StreamStart,
        credit: u32,
        filter: Option<RecordFilter>,
    ) -> Result<(StreamCredit, StreamRecords), AdminError> {
        let mut cursors = Vec::new();
        for index in 0..topic.partition_count() {
            let partition = self.partition(topic, index as i32).map_err(|_| {
                AdminError::UnknownPartition { topic: topic.name().to_owned(), index: index as i32 }
            })?;
            partition.ready()?;
            let next = first_offset(&partition, start).await?;
            cursors.push(Cursor { partition, next, filter: filter.clone(), at_hand: VecDeque::new() });
        }
        let (sender, records) = mpsc::channel(RUNS_WAITING_MAX);
        let given = StreamCredit::default();
        given.add(credit);
        tokio::spawn(read(cursors, given.clone(), sender));
        Ok((given.clone(), StreamRecords { records, credit: given }))
    }
}

async fn first_offset(partition: &PartitionRef, start: StreamStart) -> Result<Offset, AdminError> {
    let (first, end) = (partition.log_start(), partition.next_offset());
    Ok(match start {
        StreamStart::First => first,
        StreamStart::Last => (end - 1).max(first),
        StreamStart::Next => end,
        StreamStart::Offset(offset) => offset.max(first),
        StreamStart::At(time) => {
            let found = partition.list_offset(OffsetQuery::At(time)).await;
            found.map_err(|error| AdminError::Conflict(error.to_string()))?.map_or(end, |found| found.offset)
        }
    })
}

/// Reads until nobody takes what is read, or a partition is not led here any more or was deleted.
async fn read(mut cursors: Vec<Cursor>, credit: StreamCredit, records: mpsc::Sender<Vec<StreamRecord>>) {
    let wait = FetchWait::on(cursors.iter().map(|cursor| &cursor.partition));
    loop {
        if records.is_closed() {
            return;
        }
        let mark = wait.mark();
        let mut is_idle = true;
        for cursor in &mut cursors {
            if cursor.partition.ready().is_err() || cursor.partition.view().is_closed() {
                return;
            }
            if credit.left() == 0 {
                break;
            }
            let before = cursor.next;
            if let Err(error) = cursor.read_on().await {
                tracing::error!(%error, partition = %cursor.partition.id(), "a stream could not be read; it tries again");
                continue;
            }
            let run: Vec<_> = cursor.at_hand.drain(..cursor.at_hand.len().min(credit.left())).collect();
            // What the filter keeps back is passed over, however much it is, and read no faster than anything else.
            is_idle &= cursor.next == before;
            if !run.is_empty() {
                is_idle = false;
                credit.spend(run.len());
                if records.send(run).await.is_err() {
                    return;
                }
            }
        }
        if !is_idle {
            // All of it may have been kept back by the filter, and others have work too.
            tokio::task::yield_now().await;
            continue;
        }
        let again = Instant::now() + LOOK_AGAIN;
        tokio::select! {
            () = records.closed() => return,
            () = credit.0.raised.notified() => {}
            _ = wait.beyond(mark, 1, again), if credit.left() > 0 => {}
            () = tokio::time::sleep_until(again) => {}
        }
    }
}

impl Cursor {
    /// Sees to it that records are at hand, if there are any.
    async fn read_on(&mut self) -> Result<(), weir_shard::ReadError> {
        if !self.at_hand.is_empty() || self.next >= self.partition.next_offset() {
            return Ok(());
        }
        let run = match read_records(&self.partition, self.next, READ_BYTES, None).await {
            Ok(run) => run,
            // Retention has let it go.
            Err(weir_shard::ReadError::OutOfRange { log_start, .. }) if log_start > self.next => {
                self.next = log_start;
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let partition = self.partition.index();
        let records = run.records.into_iter();
        let records =
            records.filter(|(_, record)| self.filter.as_ref().is_none_or(|filter| filter(&record.record)));
        self.at_hand.extend(records.map(|(offset, record)| StreamRecord {
            partition,
            offset,
            record: record.record,
        }));
        self.next = self.next.max(run.next);
        Ok(())
    }
}
