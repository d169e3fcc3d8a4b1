"""Streams, direct replies, what each kind of queue does not have, and what RabbitMQ does one way or another."""

from ..scenario import Step
from ..vocabulary import LONG_MS
from .steps import CONFIRM, bind, consume, dead, get, many, on, publish, queue, text

KINDS: dict[str, list[Step]] = {
    "direct reply-to": [
        queue("q1~"),
        consume("amq.rabbitmq.reply-to", "t", no_ack=True),
        publish("q1~", "request", properties={"reply_to": "amq.rabbitmq.reply-to"}),
        get("q1~", "B1", no_ack=True),
        queue("amq.rabbitmq.reply-to", "B1", passive=True),
        publish("@reply", "reply", channel="B1", mandatory=True),
        publish("@reply", "again", channel="B2", properties={"correlation_id": "c"}),
        on("A1", "basic.cancel", consumer_tag="t"),
        publish("@reply", "too late", channel="B1", mandatory=True),
    ],
    "direct reply-to in the wrong way": [
        consume("amq.rabbitmq.reply-to", "t"),
        consume("amq.rabbitmq.reply-to", "t", no_ack=True),
        consume("amq.rabbitmq.reply-to", "t2", no_ack=True),
        publish("q1~", properties={"reply_to": "amq.rabbitmq.reply-to"}, channel="A2"),
        get("amq.rabbitmq.reply-to"),
        on("A1", "queue.delete", queue="amq.rabbitmq.reply-to"),
        on("A1", "queue.purge", queue="amq.rabbitmq.reply-to"),
        bind("amq.rabbitmq.reply-to", "amq.direct", "k"),
        publish("amq.rabbitmq.reply-to.nonsense", mandatory=True),
        publish("amq.rabbitmq.reply-to", mandatory=True),
    ],
    "a consumer's tag used again by who holds messages": [
        queue("q1~"),
        *many("q1~", 2, channel="B1"),
        consume("q1~", "t1"),
        consume("q1~", "t2", "A2"),
        consume("q1~", "t1"),
    ],
    "a stream": [
        CONFIRM,
        queue("s1~", durable=True, arguments={"x-queue-type": text("stream")}),
        *many("s1~", 3),
        on("A1", "basic.qos", prefetch_count=10),
        consume("s1~", "t1", arguments={"x-stream-offset": text("first")}),
        on("A1", "basic.ack", delivery=1, multiple=True),
        publish("s1~", "m4"),
        consume("s1~", "t2", arguments={"x-stream-offset": ["l", 2]}),
        on("A1", "basic.cancel", consumer_tag="t1"),
    ],
    "what a stream refuses": [
        queue("s1~", durable=True, arguments={"x-queue-type": text("stream")}),
        consume("s1~", "t"),
        on("A1", "basic.qos", prefetch_count=10),
        consume("s1~", "t", no_ack=True),
        get("s1~"),
        on("A1", "queue.purge", queue="s1~"),
        queue("s2~", arguments={"x-queue-type": text("stream")}),
        queue("s2~", durable=True, exclusive=True, arguments={"x-queue-type": text("stream")}),
        queue("s2~", durable=True, auto_delete=True, arguments={"x-queue-type": text("stream")}),
        queue("s2~", durable=True, arguments={"x-queue-type": text("stream"), "x-message-ttl": ["l", 5]}),
        queue("s2~", durable=True, arguments={"x-queue-type": text("stream"), "x-max-age": text("5x")}),
        queue("", durable=True, arguments={"x-queue-type": text("stream")}),
        on("A2", "basic.qos", prefetch_count=1, **{"global": True}),
        consume("s1~", "t", "A2"),
    ],
    "an offset of a stream that is none": [
        queue("s1~", durable=True, arguments={"x-queue-type": text("stream")}),
        on("A1", "basic.qos", prefetch_count=10),
        consume("s1~", "t", arguments={"x-stream-offset": text("nonsense")}),
    ],
    "consumers hear that their stream goes": [
        CONFIRM,
        queue("s1~", durable=True, arguments={"x-queue-type": text("stream")}),
        *many("s1~", 2),
        on("A1", "basic.qos", prefetch_count=1),
        consume("s1~", "t1", arguments={"x-stream-offset": text("first")}),
        on("B1", "basic.qos", prefetch_count=10),
        consume("s1~", "t2", "B1"),
        on("C1", "queue.delete", queue="s1~"),
        on("A1", "basic.cancel", consumer_tag="t1"),
    ],
    "a stream's messages are given back": [
        CONFIRM,
        queue("s1~", durable=True, arguments={"x-queue-type": text("stream")}),
        *many("s1~", 3),
        on("A1", "basic.qos", prefetch_count=2),
        consume("s1~", "t", arguments={"x-stream-offset": text("first")}),
        on("A1", "basic.nack", delivery=0, requeue=True),
    ],
    "a stream's messages are asked for again": [
        CONFIRM,
        queue("s1~", durable=True, arguments={"x-queue-type": text("stream")}),
        *many("s1~", 3),
        on("A1", "basic.qos", prefetch_count=2),
        consume("s1~", "t", arguments={"x-stream-offset": text("first")}),
        on("A1", "basic.recover", requeue=True),
    ],
    **{
        f"an offset of a stream: {offset[0]} {offset[1]}": [
            CONFIRM,
            queue("s1~", durable=True, arguments={"x-queue-type": text("stream")}),
            *many("s1~", 2),
            on("A1", "basic.qos", prefetch_count=10),
            consume("s1~", "t", arguments={"x-stream-offset": offset}),
            publish("s1~", "m3"),
        ]
        for offset in (
            *(text("first"), text("last"), text("next"), text("1h"), text("5x"), text(""), ["x", "first"]),
            *(["l", 1], ["I", 1000], ["l", -1], ["T", 0], ["T", 1 << 40], ["t", True], ["V", None]),
        )
    },
    "messages of a stream that were written at once": [
        CONFIRM,
        queue("s1~", durable=True, arguments={"x-queue-type": text("stream")}),
        publish("s1~", times=20),
        on("A1", "basic.qos", prefetch_count=2),
        consume("s1~", "t1", arguments={"x-stream-offset": text("first")}),
    ],
    "dead letters into a stream": [
        CONFIRM,
        queue("s1~", durable=True, arguments={"x-queue-type": text("stream")}),
        bind("s1~", "amq.direct", "dead~"),
        on("A1", "basic.qos", prefetch_count=10),
        consume("s1~", "t"),
        queue("q2~", arguments={**dead(), "x-dead-letter-exchange": text("amq.direct")}),
        publish("q2~"),
        get("q2~", "B1"),
        on("B1", "basic.reject", delivery=0),
    ],
    "a transaction and a stream": [
        on("A1", "tx.select"),
        queue("s1~", durable=True, arguments={"x-queue-type": text("stream")}),
        publish("s1~"),
        on("A1", "basic.qos", prefetch_count=2),
        consume("s1~", "t", arguments={"x-stream-offset": text("first")}),
        on("A1", "tx.commit"),
        on("A1", "basic.ack", delivery=0),
        on("A1", "tx.rollback"),
        on("A1", "basic.ack", delivery=0),
        on("A1", "tx.commit"),
    ],
    "a stream is deleted whatever is asked": [
        CONFIRM,
        queue("s1~", durable=True, arguments={"x-queue-type": text("stream")}),
        publish("s1~"),
        on("A1", "basic.qos", prefetch_count=10),
        consume("s1~", "t"),
        on("B1", "queue.delete", queue="s1~", if_unused=True),
        queue("s2~", durable=True, arguments={"x-queue-type": text("stream")}),
        publish("s2~"),
        on("A1", "queue.delete", queue="s2~", if_empty=True),
    ],
    "segments of a stream of any size": [
        queue(
            f"s{size}~",
            durable=True,
            arguments={"x-queue-type": text("stream"), "x-stream-max-segment-size-bytes": ["l", size]},
        )
        for size in (1, 1000, 500_000, 3_000_000_000, 3_000_000_001)
    ],
    "the tags of direct replies": [
        queue("q1~"),
        consume("amq.rabbitmq.reply-to", "t", no_ack=True),
        publish("q1~", properties={"reply_to": "amq.rabbitmq.reply-to"}),
        get("q1~", "B1", no_ack=True),
        publish("@reply", "first", channel="B1"),
        consume("q1~", "t2"),
        publish("q1~", "m1"),
        publish("@reply", "second", channel="B1"),
        publish("q1~", "m2"),
        on("A1", "basic.ack", delivery=1, multiple=True),
    ],
    "whether a queue of direct replies is there": [
        queue("q1~"),
        consume("amq.rabbitmq.reply-to", "t", no_ack=True),
        publish("q1~", properties={"reply_to": "amq.rabbitmq.reply-to"}),
        get("q1~", no_ack=True),
        queue("@reply", "A2", passive=True),
        queue("@reply", "B1", passive=True),
        queue("@reply", passive=True),
    ],
    "the tag of who waits for direct replies": [
        queue("q1~"),
        consume("amq.rabbitmq.reply-to", "t", no_ack=True),
        consume("q1~", "t"),
    ],
}

# What not every kind of queue has.
_ARGUMENTS = {
    "x-max-priority": ["l", 3],
    "x-message-ttl": ["l", LONG_MS],
    "x-expires": ["l", LONG_MS],
    "x-overflow": text("reject-publish"),
    "x-overflow ": text("reject-publish-dlx"),
    "x-delivery-limit": ["l", 3],
    "x-single-active-consumer": ["t", True],
    "x-queue-mode": text("lazy"),
    "x-max-length-bytes": ["l", 100],
    "x-max-age": text("1h"),
    "x-max-in-memory-length": ["l", 3],
    "x-quorum-initial-group-size": ["l", 1],
    "x-dead-letter-strategy": text("at-least-once"),
}

KINDS |= {
    f"a {kind} queue with {name} {value[1]}": [
        queue("q1~", durable=True, arguments={"x-queue-type": text(kind), name.strip(): value})
    ]
    for kind in ("classic", "quorum", "stream")
    for name, value in _ARGUMENTS.items()
}
