//! A change of leaders: consumers go on at the next leader. What their clients have stays with them, and what they settle is
//! settled there, unless nobody could say so in time. The client hears nothing of it, except that messages may come again.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use weir_amqp_wire::ShortStr;
use weir_amqp_wire::methods::basic;
use weir_broker::Broker;
use weir_broker::queues::{ConsumerId, OwnerId, QueueDeliveries, QueueGone, QueueRef};
use weir_broker::topology::QueueInfo;
use weir_dispatch::NewConsumer;
use weir_model::TopicId;

use super::basic::next;
use super::{Connection, Feed, Settling};
use crate::channel::{ConsumerKey, Delivered};

/// How long to wait before another attempt: at first, and at most.
const PAUSE: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// How often somebody tries to consume where others keep him from it: they may be of his own connection's past.
const REFUSALS_MAX: u32 = 8;

/// A consumer that is on its way to another leader.
pub(super) type Resubscribing = Pin<Box<dyn Future<Output = Resubscribed> + Send>>;

/// What came of it.
pub(super) struct Resubscribed {
    feed: Whose,
    /// None if the queue is not there any more, or somebody else has it for himself.
    subscribed: Option<Subscribed>,
}

struct Subscribed {
    info: QueueInfo,
    queue: QueueRef,
    id: ConsumerId,
    deliveries: QueueDeliveries,
}

/// Which consumer it is.
struct Whose {
    channel: u16,
    owner: OwnerId,
    tag: ShortStr,
    before: ConsumerKey,
    shared: bool,
}

impl Settling {
    /// Tells the queue, or whoever leads it next; fails only if there is nothing to settle any more.
    pub(super) async fn tell(&self) -> Result<(), QueueGone> {
        let (owner, places) = (self.owner, self.places.clone());
        match self.again {
            true => self.queue.settle_again(owner, places, self.disposition).await,
            false => self.queue.settle(owner, places, self.disposition).await,
        }
    }

    /// As [`Settling::tell`]; returns when it is durable.
    pub(super) async fn tell_durably(&self) -> Result<(), QueueGone> {
        let (owner, places) = (self.owner, self.places.clone());
        match self.again {
            true => self.queue.settle_again_durably(owner, places, self.disposition).await,
            false => self.queue.settle_durably(owner, places, self.disposition).await,
        }
    }
}

fn pause(attempt: u32) -> Duration {
    (PAUSE * 2_u32.saturating_pow(attempt.min(16))).min(PAUSE_MAX)
}

fn find(broker: &Broker, topic: TopicId) -> Option<QueueInfo> {
    QueueInfo::of(broker.topic_by_id(topic)?).ok().flatten()
}

/// Consumes again as soon as somebody leads the queue; none if there is nothing to consume any more.
async fn subscribe(broker: Arc<Broker>, topic: TopicId, asked: NewConsumer) -> Option<Subscribed> {
    let mut refusals = 0;
    for attempt in 0.. {
        let info = find(&broker, topic)?;
        if let Ok(queue) = broker.open_queue(&info).await {
            match queue.subscribe(asked.clone()).await {
                Ok(Ok((id, deliveries))) => return Some(Subscribed { info, queue, id, deliveries }),
                Ok(Err(_)) if refusals >= REFUSALS_MAX => return None,
                Ok(Err(_)) => refusals += 1,
                Err(QueueGone) => {}
            }
        }
        tokio::time::sleep(pause(attempt)).await;
    }
    None
}

impl Connection {
    /// The queue of a consumer is gone, or its leader is.
    pub(super) fn resubscribe(&mut self, feed: Feed) {
        let consumer = self.channels.get(&feed.channel).and_then(|channel| channel.consumers.get(&feed.tag));
        let Some(consumer) = consumer else { return };
        let Feed { channel, owner, tag, consumer: before, shared, .. } = feed;
        // How much it may get is known when it may get something: what its client has counts.
        let asked = NewConsumer { credit: consumer.asked.credit.map(|_| 0), ..consumer.asked.clone() };
        let (broker, feed) = (Arc::clone(&self.front.broker), Whose { channel, owner, tag, before, shared });
        if find(&broker, before.topic).is_none() {
            return self.cancelled(&feed);
        }
        tracing::debug!(topic = %before.topic, tag = %feed.tag, "a consumer waits for its queue's next leader");
        self.resubscribing.push(Box::pin(async move {
            let subscribed = subscribe(broker, feed.before.topic, asked).await;
            Resubscribed { feed, subscribed }
        }));
    }

    /// A consumer has another leader, or none at all.
    pub(super) async fn resubscribed(&mut self, Resubscribed { feed, subscribed }: Resubscribed) {
        let channel = self.channels.get_mut(&feed.channel).filter(|channel| channel.owner == feed.owner);
        let consumer = channel.and_then(|channel| {
            let consumer = channel.consumers.get_mut(&feed.tag)?;
            let is_it = consumer.id == feed.before.id && consumer.info.topic.id() == feed.before.topic;
            is_it.then_some((&mut channel.unsettled, &mut channel.queues, consumer))
        });
        let Some((unsettled, queues, consumer)) = consumer else {
            // It was cancelled meanwhile.
            if let Some(subscribed) = subscribed {
                let _ = subscribed.queue.cancel(subscribed.id).await;
            }
            return;
        };
        let Some(Subscribed { info, queue, id, deliveries }) = subscribed else {
            return self.cancelled(&feed);
        };
        let key = ConsumerKey { topic: info.topic.id(), id };
        let mut has = 0;
        for delivered in unsettled.all_mut() {
            if let Delivered::Leased(leased) = delivered
                && leased.consumer == Some(feed.before)
            {
                has += u32::from(leased.credited);
                (leased.consumer, leased.queue, leased.again) = (Some(key), queue.clone(), true);
            }
        }
        if let Some(credit) = consumer.asked.credit.map(|credit| credit.saturating_sub(has)) {
            self.credit.insert(key, (queue.clone(), credit));
        }
        (consumer.info, consumer.queue, consumer.id) = (info, queue.clone(), id);
        queues.insert(key.topic, queue.clone());
        let Whose { channel, owner, tag, shared, .. } = feed;
        self.deliveries.push(next(Feed { channel, owner, tag, consumer: key, shared, queue, deliveries }));
    }

    /// A consumer gets nothing more, and its client is told so if it understands that.
    fn cancelled(&mut self, feed: &Whose) {
        if let Some(channel) = self.channels.get_mut(&feed.channel) {
            channel.consumers.remove(&feed.tag);
        }
        if self.client.takes_cancel {
            self.send(feed.channel, basic::Cancel { consumer_tag: feed.tag.clone(), no_wait: true });
        }
    }
}
