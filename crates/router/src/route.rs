//! What comes of routing one message.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::hash;
use crate::table::targets::{Queue, Target, Targets};
use crate::table::topic::Word;

/// Where one message goes. Kept and handed in again, it needs no allocation for a message that goes
/// through the default exchange, or through a direct, fanout or topic exchange without passing on to
/// other exchanges.
#[derive(Debug, Default)]
pub struct Route {
    queues: Vec<Queue>,
    held_by: Vec<Arc<str>>,
    is_cut_short: bool,

    /// Targets met so far, repeats included: whether an exchange routed anywhere is whether it grew.
    met: usize,
    /// How many sets of targets went in. Within one set no queue is there twice.
    sets: usize,
    /// Exchanges that the message has come to or is about to, if it passes on to any.
    seen: BTreeSet<Arc<str>>,
    /// Of those the ones to be visited next.
    waiting: Vec<Arc<str>>,
    /// The next random number.
    random: u64,
    /// Words of the key that a topic exchange looks at.
    pub(crate) words: Vec<Word>,
}

impl Route {
    /// An empty one.
    pub fn new() -> Route {
        Route::default()
    }

    /// The queues that get the message, each once, in no particular order.
    pub fn queues(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.queues.iter().map(|queue| &queue.name)
    }

    /// Whether no queue gets it. A message that no queue gets and no exchange holds is what AMQP calls
    /// unroutable.
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// The exchanges that hold the message because it asks for a delay. When that has passed it is to be
    /// published to each of them again, its `is_delayed` false. They follow no alternate exchange
    /// meanwhile, which RabbitMQ's plugin does at once (rabbitmq-delayed-message-exchange#36).
    pub fn held_by(&self) -> &[Arc<str>] {
        &self.held_by
    }

    /// Whether exchanges were left out because they lie more than
    /// [`EXCHANGE_HOPS_MAX`](crate::limits::EXCHANGE_HOPS_MAX) bindings away.
    pub fn is_cut_short(&self) -> bool {
        self.is_cut_short
    }

    /// Forgets the message before.
    pub(crate) fn begin(&mut self, random: u64) {
        self.queues.clear();
        self.held_by.clear();
        self.is_cut_short = false;
        self.met = 0;
        self.sets = 0;
        self.seen.clear();
        self.waiting.clear();
        self.random = random;
    }

    /// Takes out repeats.
    pub(crate) fn finish(&mut self) {
        if self.sets > 1 && self.queues.len() > 1 {
            self.queues.sort_unstable_by_key(|queue| queue.order);
            self.queues.dedup_by_key(|queue| queue.order);
        }
    }

    /// Targets met so far.
    pub(crate) fn met(&self) -> usize {
        self.met
    }

    /// Adds targets that a binding of theirs matched.
    pub(crate) fn add_all(&mut self, targets: &Targets) {
        self.sets += 1;
        targets.for_each(|target| self.meet(target));
    }

    /// Adds one target.
    pub(crate) fn add(&mut self, target: &Target) {
        self.sets += 1;
        self.meet(target);
    }

    /// Adds one queue.
    pub(crate) fn add_queue(&mut self, queue: &Queue) {
        self.sets += 1;
        self.met += 1;
        self.queues.push(queue.clone());
    }

    fn meet(&mut self, target: &Target) {
        self.met += 1;
        match target {
            Target::Queue(queue) => self.queues.push(queue.clone()),
            Target::Exchange(name) => self.pass_on(name),
        }
    }

    /// The message goes on to an exchange, unless it has been there.
    pub(crate) fn pass_on(&mut self, exchange: &Arc<str>) {
        if self.seen.insert(Arc::clone(exchange)) {
            self.waiting.push(Arc::clone(exchange));
        }
    }

    /// The message came in by this exchange, which has been visited. Only now that it passes on it matters.
    pub(crate) fn came_by(&mut self, exchange: &Arc<str>) {
        if !self.waiting.is_empty() {
            self.seen.insert(Arc::clone(exchange));
            self.waiting.retain(|waiting| waiting != exchange);
        }
    }

    /// An exchange holds the message until its delay has passed.
    pub(crate) fn hold(&mut self, exchange: &Arc<str>) {
        self.held_by.push(Arc::clone(exchange));
    }

    /// The exchanges to be visited next, which are then no longer waiting.
    pub(crate) fn take_waiting(&mut self) -> Vec<Arc<str>> {
        std::mem::take(&mut self.waiting)
    }

    pub(crate) fn cut_short(&mut self) {
        self.is_cut_short = true;
    }

    /// A random number: the caller's first, and others made of it for further choices.
    pub(crate) fn draw(&mut self) -> u64 {
        let drawn = self.random;
        self.random = hash::mix(drawn);
        drawn
    }
}
