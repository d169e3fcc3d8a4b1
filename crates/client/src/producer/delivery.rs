//! What a caller waits for: one shared outcome per batch, so that a record costs no allocation.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::error::ClientError;

/// Where a record went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// The partition.
    pub partition: i32,
    /// The record's offset; -1 where the broker does not tell (durability `async`, acks `None`).
    pub offset: i64,
}

/// A record on its way: resolves when it is durable. Dropping it does not take the record back.
#[derive(Debug)]
#[must_use = "without awaiting it nobody knows whether the record is durable"]
pub struct Delivery {
    outcome: Arc<Outcome>,
    /// The record's place in its batch.
    index: i64,
    /// Its place among the wakers, once it has one.
    place: Option<usize>,
}

impl Future for Delivery {
    type Output = Result<Delivered, ClientError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let index = self.index;
        let this = &mut *self;
        let mut state = this.outcome.state.lock();
        if let Some(result) = &state.result {
            return Poll::Ready(result.clone().map(|base| this.outcome.delivered(base, index)));
        }
        match this.place.and_then(|place| state.wakers.get_mut(place)) {
            Some(waker) => waker.clone_from(context.waker()),
            None => {
                this.place = Some(state.wakers.len());
                state.wakers.push(context.waker().clone());
            }
        }
        Poll::Pending
    }
}

/// What becomes of a batch.
#[derive(Debug)]
pub(super) struct Outcome {
    partition: i32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The batch's base offset, or why it failed.
    result: Option<Result<i64, ClientError>>,
    /// At most one for each record of the batch.
    wakers: Vec<Waker>,
}

impl Outcome {
    pub(super) fn new(partition: i32) -> Arc<Outcome> {
        Arc::new(Outcome { partition, state: Mutex::default() })
    }

    /// The delivery of the record at this place in the batch.
    pub(super) fn delivery(self: &Arc<Outcome>, index: i64) -> Delivery {
        Delivery { outcome: self.clone(), index, place: None }
    }

    fn delivered(&self, base: i64, index: i64) -> Delivered {
        let offset = if base < 0 { -1 } else { base + index };
        Delivered { partition: self.partition, offset }
    }

    /// Tells everybody. The first result stays.
    pub(super) fn settle(&self, result: Result<i64, ClientError>) {
        let wakers = {
            let mut state = self.state.lock();
            if state.result.is_some() {
                return;
            }
            state.result = Some(result);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}
