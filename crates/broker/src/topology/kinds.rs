//! Which arguments each kind of queue has, as in RabbitMQ: those of another kind are refused, and its own must be the same
//! when a queue is declared again.

use weir_model::queue::QueueKind;

/// Arguments of classic queues, in the order in which RabbitMQ compares them.
const CLASSIC: [&str; 17] = [
    "x-expires",
    "x-message-ttl",
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-priority",
    "x-overflow",
    "x-queue-mode",
    "x-queue-version",
    "x-single-active-consumer",
    "x-queue-type",
    "x-queue-master-locator",
    "x-message-deduplication",
    "x-cache-size",
    "x-cache-ttl",
    "x-consumer-timeout",
];

/// Arguments of quorum queues.
const QUORUM: [&str; 22] = [
    "x-dead-letter-exchange",
    "x-dead-letter-routing-key",
    "x-dead-letter-strategy",
    "x-expires",
    "x-max-length",
    "x-max-length-bytes",
    "x-max-in-memory-length",
    "x-max-in-memory-bytes",
    "x-overflow",
    "x-single-active-consumer",
    "x-queue-type",
    "x-quorum-initial-group-size",
    "x-delivery-limit",
    "x-message-ttl",
    "x-queue-leader-locator",
    "x-message-deduplication",
    "x-cache-size",
    "x-cache-ttl",
    "x-consumer-timeout",
    "x-delayed-retry-type",
    "x-delayed-retry-min",
    "x-delayed-retry-max",
];

/// Arguments of streams.
const STREAM: [&str; 7] = [
    "x-max-length-bytes",
    "x-queue-type",
    "x-max-age",
    "x-stream-max-segment-size-bytes",
    "x-stream-filter-size-bytes",
    "x-initial-cluster-size",
    "x-queue-leader-locator",
];

/// An argument that every kind takes, though it only means something to some.
const EVERYWHERE: &str = "x-queue-leader-locator";

/// The arguments of a kind, in the order in which RabbitMQ compares them.
pub(super) fn arguments_of(kind: QueueKind) -> &'static [&'static str] {
    match kind {
        QueueKind::Classic => &CLASSIC,
        QueueKind::Quorum => &QUORUM,
        QueueKind::Stream => &STREAM,
    }
}

/// Whether a kind has an argument that is a queue's.
pub(super) fn has_argument(kind: QueueKind, name: &str) -> bool {
    arguments_of(kind).contains(&name)
}

/// Whether an argument is another kind's, and so refused. What is no kind's means nothing and is taken.
pub(super) fn is_of_another_kind(kind: QueueKind, name: &str) -> bool {
    let others = [&CLASSIC[..], &QUORUM, &STREAM];
    !has_argument(kind, name) && name != EVERYWHERE && others.iter().any(|known| known.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_argument_is_a_kinds_or_another_kinds_or_nobodys() {
        let others = |name| {
            [QueueKind::Classic, QueueKind::Quorum, QueueKind::Stream]
                .map(|kind| is_of_another_kind(kind, name))
        };
        assert_eq!(others("x-max-length-bytes"), [false; 3]);
        assert_eq!(others("x-message-ttl"), [false, false, true]);
        assert_eq!(others("x-max-priority"), [false, true, true]);
        assert_eq!(others("x-queue-mode"), [false, true, true]);
        assert_eq!(others("x-delivery-limit"), [true, false, true]);
        assert_eq!(others("x-max-in-memory-length"), [true, false, true]);
        assert_eq!(others("x-quorum-initial-group-size"), [true, false, true]);
        assert_eq!(others("x-max-age"), [true, true, false]);
        assert_eq!(others("x-queue-leader-locator"), [false; 3]);
        assert_eq!(others("x-own"), [false; 3]);
    }
}
