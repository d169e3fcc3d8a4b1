"""Scenarios that somebody thought of: each of RabbitMQ's errors, and each thing that it does in its own way.

They are played before those of the seeds. Each is a list of steps by its name; see `scenario` for what a step is.
"""

from . import raw_frames
from .scenario import Step
from .vocabulary import LONG_MS, SHORT_MS, WAIT_MS


def on(channel: str, method: str, **fields) -> Step:
    return {"on": channel, "do": method, **fields}


def queue(name: str, channel: str = "A1", **fields) -> Step:
    return on(channel, "queue.declare", queue=name, **fields)


def exchange(name: str, kind: str, channel: str = "A1", **fields) -> Step:
    return on(channel, "exchange.declare", exchange=name, type=kind, **fields)


def bind(name: str, source: str, key: str = "", **fields) -> Step:
    return on("A1", "queue.bind", queue=name, exchange=source, routing_key=key, **fields)


def publish(key: str, body: str = "m", exchange: str = "", channel: str = "A1", **fields) -> Step:
    return on(channel, "basic.publish", exchange=exchange, routing_key=key, body=body, **fields)


def get(name: str, channel: str = "A1", **fields) -> Step:
    return on(channel, "basic.get", queue=name, **fields)


def consume(name: str, tag: str, channel: str = "A1", **fields) -> Step:
    return on(channel, "basic.consume", queue=name, consumer_tag=tag, **fields)


def wait(ms: int = WAIT_MS) -> Step:
    return on("A1", "wait", ms=ms)


CONFIRM = on("A1", "confirm.select")
QUORUM = {"x-queue-type": ["S", "quorum"]}


def text(words: str) -> list:
    return ["S", words]


def many(key: str, count: int, **fields) -> list[Step]:
    return [publish(key, f"m{number}", **fields) for number in range(1, count + 1)]


def dead(**more) -> dict:
    """Arguments of a queue whose dead letters go to `dead~`."""
    return {"x-dead-letter-exchange": text(""), "x-dead-letter-routing-key": text("dead~"), **more}


def death(kind: dict, *, way: list[Step], **more) -> list[Step]:
    """Three messages, what is done to them, and what arrives as dead."""
    return [
        CONFIRM,
        queue("dead~", durable=True),
        queue("q1~", durable=True, arguments=dead(**kind, **more)),
        *many("q1~", 3, properties={"headers": [["own", ["I", 1]]], "expiration": str(LONG_MS)}),
        *way,
        on("A1", "drain", queue="dead~"),
    ]


ERRORS: dict[str, list[Step]] = {
    "publish to a missing exchange": [publish("k", exchange="missing~")],
    "publish to a missing exchange, confirmed": [CONFIRM, publish("k", exchange="missing~")],
    "bind to a missing exchange": [queue("q1~"), bind("q1~", "missing~")],
    "bind a missing queue": [bind("missing~", "amq.direct")],
    "bind exchanges that are missing": [
        on("A1", "exchange.bind", destination="missing~", source="amq.direct"),
        on("A1", "exchange.bind", destination="amq.direct", source="missing~"),
    ],
    "consume from a missing queue": [consume("missing~", "t")],
    "get from a missing queue": [get("missing~")],
    "purge a missing queue": [on("A1", "queue.purge", queue="missing~")],
    "passive declares of what is missing": [
        queue("missing~", passive=True),
        on("A1", "exchange.declare", exchange="missing~", passive=True),
    ],
    "an empty queue name with none declared": [
        get(""),
        consume("", "t"),
        bind("", "amq.direct"),
        on("A1", "queue.purge"),
        on("A1", "queue.delete"),
        on("A1", "queue.unbind", exchange="amq.direct"),
        queue("", passive=True),
    ],
    "an empty queue name means the last": [
        queue("q1~"),
        queue("q2~"),
        bind("", "amq.direct"),
        publish("q2~", exchange="amq.direct"),
        bind("", "amq.direct", "k"),
        get(""),
        on("A1", "queue.unbind", exchange="amq.direct", routing_key="k"),
        queue("q1~", passive=True),
        on("A1", "queue.purge"),
        queue("", passive=True),
        on("A1", "queue.delete"),
        get(""),
    ],
    "deleting and unbinding what is absent": [
        on("A1", "queue.delete", queue="missing~"),
        on("A1", "exchange.delete", exchange="missing~"),
        queue("q1~"),
        on("A1", "queue.unbind", queue="q1~", exchange="amq.direct", routing_key="k"),
        on("A1", "queue.unbind", queue="missing~", exchange="amq.direct", routing_key="k"),
        on("A1", "queue.unbind", queue="q1~", exchange="missing~", routing_key="k"),
        on("A1", "exchange.unbind", destination="amq.fanout", source="amq.direct", routing_key="k"),
        on("A1", "exchange.unbind", destination="missing~", source="amq.direct", routing_key="k"),
    ],
    "a queue declared otherwise": [
        queue("q1~"),
        queue("q1~", durable=True),
        queue("q1~", auto_delete=True),
        queue("q1~", exclusive=True),
        queue("q1~", arguments={"x-message-ttl": ["l", 1000]}),
        queue("q1~", arguments={"x-own": ["l", 1000]}),
        queue("q1~", arguments={"x-queue-type": text("classic")}),
        queue("q1~", arguments={"x-queue-type": text("quorum")}, durable=True),
        queue("q1~"),
    ],
    "arguments declared otherwise": [
        queue("q1~", arguments={"x-message-ttl": ["l", LONG_MS], "x-dead-letter-exchange": text("a~")}),
        queue("q1~", arguments={"x-message-ttl": ["I", LONG_MS], "x-dead-letter-exchange": text("a~")}),
        queue("q1~", arguments={"x-message-ttl": ["l", 5], "x-dead-letter-exchange": text("a~")}),
        queue("q1~", arguments={"x-message-ttl": ["l", LONG_MS], "x-dead-letter-exchange": text("b~")}),
        queue("q1~", arguments={"x-message-ttl": ["l", LONG_MS]}),
        queue("q1~"),
    ],
    "an exchange declared otherwise": [
        exchange("x1~", "direct"),
        exchange("x1~", "fanout"),
        exchange("x1~", "direct", durable=True),
        exchange("x1~", "direct", auto_delete=True),
        exchange("x1~", "direct", internal=True),
        exchange("x1~", "direct", arguments={"alternate-exchange": text("amq.fanout")}),
        exchange("x1~", "direct", arguments={"x-own": text("y")}),
        exchange("x1~", "direct"),
    ],
    "an unknown type of exchange": [exchange("x1~", "nonsense"), exchange("x2~", "")],
    "another connection's exclusive queue": [
        queue("q1~", exclusive=True),
        queue("q1~", "B1", exclusive=True),
        queue("q1~", "B1"),
        queue("q1~", "B1", passive=True),
        get("q1~", "B1"),
        consume("q1~", "t", "B1"),
        on("B1", "queue.bind", queue="q1~", exchange="amq.fanout"),
        on("B1", "queue.unbind", queue="q1~", exchange="amq.fanout"),
        on("B1", "queue.purge", queue="q1~"),
        on("B1", "queue.delete", queue="q1~"),
        queue("q1~", "A2", exclusive=True),
        publish("q1~", channel="B1"),
        get("q1~"),
    ],
    "get of a queue with a single active consumer": [
        queue("q1~", arguments={"x-single-active-consumer": ["t", True]}),
        publish("q1~"),
        get("q1~"),
    ],
    "reserved names": [
        queue("amq.new"),
        queue("amq.new", passive=True),
        exchange("amq.new", "direct"),
        exchange("amq.direct", "direct", durable=True),
        exchange("amq.direct", "topic", durable=True),
        on("A1", "exchange.delete", exchange="amq.direct"),
        on("A1", "exchange.declare", exchange="amq.rabbitmq.trace", passive=True),
        publish("k", exchange="amq.rabbitmq.trace"),
    ],
    "the default exchange is not to be changed": [
        queue("q1~"),
        exchange("", "direct"),
        on("A1", "exchange.declare", passive=True),
        on("A1", "exchange.delete"),
        bind("q1~", "", "k"),
        on("A1", "queue.unbind", queue="q1~", routing_key="q1~"),
        on("A1", "exchange.bind", destination="", source="amq.direct"),
        on("A1", "exchange.bind", destination="amq.direct", source=""),
        on("A1", "exchange.unbind", destination="amq.direct", source=""),
    ],
    "an internal exchange": [
        exchange("x1~", "fanout", internal=True),
        queue("q1~"),
        bind("q1~", "x1~"),
        publish("k", exchange="x1~"),
        on("A1", "exchange.bind", destination="x1~", source="amq.fanout"),
        publish("k", exchange="amq.fanout"),
        get("q1~"),
    ],
    "exclusive consumers": [
        queue("q1~"),
        consume("q1~", "t1", exclusive=True),
        consume("q1~", "t2", "B1"),
        consume("q1~", "t3", "B1", exclusive=True),
        on("A1", "basic.cancel", consumer_tag="t1"),
        consume("q1~", "t2", "B1"),
        consume("q1~", "t1", exclusive=True),
    ],
    "deleting what is used or not empty": [
        queue("q1~"),
        publish("q1~"),
        on("A1", "queue.delete", queue="q1~", if_empty=True),
        consume("q1~", "t"),
        on("B1", "queue.delete", queue="q1~", if_unused=True),
        exchange("x1~", "fanout"),
        bind("q1~", "x1~"),
        on("A1", "exchange.delete", exchange="x1~", if_unused=True),
        on("A1", "queue.unbind", queue="q1~", exchange="x1~"),
        on("A1", "exchange.delete", exchange="x1~", if_unused=True),
        on("A1", "queue.delete", queue="q1~"),
    ],
    "unknown delivery tags": [
        queue("q1~"),
        *many("q1~", 3),
        on("A1", "basic.ack", delivery_tag=1),
        get("q1~"),
        on("A1", "basic.ack", delivery=0),
        on("A1", "basic.ack", delivery_tag=1),
        get("q1~"),
        on("A1", "basic.nack", delivery_tag=5, multiple=True),
        on("A1", "basic.reject", delivery_tag=0),
        on("A1", "basic.ack", delivery_tag=0, multiple=True),
        on("A1", "basic.nack", delivery_tag=0, multiple=True, requeue=True),
        on("A1", "basic.ack", delivery_tag=0),
    ],
    "bad expirations": [
        queue("q1~"),
        *[publish("q1~", properties={"expiration": value}) for value in ("soon", "-1", "", "1.5", " 5", "99999999999")],
    ],
    "a forged user": [queue("q1~"), publish("q1~", properties={"user_id": "other"}), get("q1~")],
    "one's own user": [queue("q1~"), publish("q1~", properties={"user_id": "guest"}), get("q1~")],
    "confirms and transactions exclude each other": [
        CONFIRM,
        CONFIRM,
        on("A1", "tx.select"),
        on("A2", "tx.select"),
        on("A2", "tx.select"),
        on("A2", "confirm.select"),
        on("A3", "tx.commit"),
        on("A3", "tx.rollback"),
    ],
    "CC and BCC": [
        *[queue(name) for name in ("q1~", "q2~", "q3~")],
        publish("q1~", properties={"headers": [["CC", ["A", [text("q2~")]]], ["BCC", ["A", [text("q3~")]]]]}),
        *[get(name, no_ack=True) for name in ("q1~", "q2~", "q3~")],
        publish("q1~", properties={"headers": [["CC", text("q2~")]]}),
        publish("q1~", properties={"headers": [["BCC", text("q2~")]]}),
        publish("q1~", properties={"headers": [["CC", ["A", [["I", 1]]]]]}),
    ],
    "bad x-match": [
        queue("q1~"),
        bind("q1~", "amq.headers", arguments={"x-match": text("most")}),
        bind("q1~", "amq.headers", arguments={"x-match": ["I", 1]}),
        bind("q1~", "amq.headers"),
    ],
    "a consumer's tag used again": [queue("q1~"), consume("q1~", "t"), consume("q1~", "t", "A2"), consume("q1~", "t")],
    "not implemented": [
        queue("q1~"),
        publish("q1~", immediate=True),
        on("A1", "basic.qos", prefetch_size=10),
        on("A1", "basic.recover"),
        on("A1", "basic.recover_async"),
        on("A1", "channel.flow"),
    ],
    "global prefetch and a quorum queue": [
        queue("q1~", durable=True, arguments=QUORUM),
        on("A1", "basic.qos", prefetch_count=1, **{"global": True}),
        consume("q1~", "t"),
    ],
    "deleting a quorum queue on conditions": [
        queue("q1~", durable=True, arguments=QUORUM),
        on("A1", "queue.delete", queue="q1~", if_unused=True),
        on("A1", "queue.delete", queue="q1~", if_empty=True),
        on("A1", "queue.delete", queue="q1~"),
    ],
    "quorum queues are durable and nobody's own": [
        queue("q1~", arguments=QUORUM),
        queue("q1~", durable=True, exclusive=True, arguments=QUORUM),
        queue("q1~", durable=True, auto_delete=True, arguments=QUORUM),
        queue("q1~", durable=True, arguments=QUORUM | {"x-max-priority": ["l", 3]}),
        queue("", durable=True, arguments=QUORUM),
    ],
    "channels": [
        on("A1", "channel.open"),
        on("A2", "queue.declare", queue="q1~", anyway=True),
        on("A1", "channel.close", reply_code=200),
        on("A1", "channel.close", reply_code=200, anyway=True),
        on("A2", "basic.ack", anyway=True),
        on("A3", "channel.close_ok"),
        on("A3", "channel.flow_ok", active=True),
    ],
    "cancelling what is not there": [
        on("A1", "basic.cancel", consumer_tag="unknown"),
        on("A1", "basic.cancel", consumer_tag=""),
        on("A1", "basic.cancel", consumer_tag="unknown", no_wait=True),
    ],
    "names with line ends": [
        queue("q\n1~"),
        queue("q1~", passive=True),
        exchange("x\r\n1~", "direct"),
        on("A1", "exchange.declare", exchange="x1~", passive=True),
        bind("q\r1~", "x1\n~", "k"),
        publish("k", exchange="x1~"),
        get("q1~", no_ack=True),
    ],
    "names that are long or no text": [
        queue("n" * 240 + "~"),
        queue("\udcff\udcfe~"),
        exchange("\udcff\udcfe~", "direct"),
        bind("q1~", "amq.direct", "\udcff"),
    ],
    "a consumer's priority that is no number": [
        queue("q1~"),
        consume("q1~", "t", arguments={"x-priority": text("high")}),
        consume("q1~", "t", arguments={"x-priority": ["t", True]}),
        consume("q1~", "t", arguments={"x-priority": ["l", 3]}),
    ],
    "a dead letter's key without an exchange": [
        queue("q1~", arguments={"x-dead-letter-routing-key": text("k")}),
        queue("q2~", arguments={"x-dead-letter-exchange": ["l", 1]}),
        queue("q3~", arguments={"x-dead-letter-exchange": text("missing~")}),
        publish("q3~"),
        get("q3~"),
        on("A1", "basic.reject", delivery=0),
    ],
}

SEMANTICS: dict[str, list[Step]] = {
    "predeclared exchanges": [
        exchange(name, kind, durable=True)
        for name, kind in (
            ("amq.direct", "direct"),
            ("amq.fanout", "fanout"),
            ("amq.topic", "topic"),
            ("amq.headers", "headers"),
            ("amq.match", "headers"),
        )
    ],
    "topics": [
        step
        for number, pattern in enumerate(("#", "*", "a.#", "#.b", "a.*.c", "*.#", "#.#", "", "a.b", "*.*"))
        for step in (queue(f"q{number}~"), bind(f"q{number}~", "amq.topic", pattern))
    ]
    + [publish(key, key or "empty", "amq.topic") for key in ("", "a", "a.b", "a.b.c", "b", ".", "a.", ".b", "a..c")],
    "headers": [
        step
        for number, arguments in enumerate(
            (
                {"x-match": text("all"), "h": text("x"), "g": ["I", 1]},
                {"x-match": text("any"), "h": text("x"), "g": ["I", 1]},
                {"h": text("x")},
                {"x-match": text("all"), "h": ["V", None]},
                {"x-match": text("any-with-x"), "x-h": text("x")},
                {"x-match": text("all-with-x"), "x-h": text("x"), "h": text("x")},
                {"x-match": text("all"), "x-h": text("x")},
                {"x-match": text("any")},
                {},
            )
        )
        for step in (queue(f"q{number}~"), bind(f"q{number}~", "amq.headers", arguments=arguments))
    ]
    + [
        publish("", f"m{number}", "amq.headers", properties={"headers": headers})
        for number, headers in enumerate(
            (
                [],
                [["h", text("x")]],
                [["h", text("x")], ["g", ["I", 1]]],
                [["h", text("x")], ["g", ["l", 1]]],
                [["h", text("y")], ["g", ["d", 1.0]]],
                [["x-h", text("x")]],
                [["h", ["V", None]]],
            )
        )
    ],
    "an alternate exchange": [
        exchange("spare~", "fanout"),
        exchange("x1~", "direct", arguments={"alternate-exchange": text("spare~")}),
        queue("q1~"),
        CONFIRM,
        publish("k", "m1", "x1~", mandatory=True),
        bind("q1~", "spare~"),
        publish("k", "m2", "x1~", mandatory=True),
        get("q1~", no_ack=True),
        on("A1", "exchange.delete", exchange="spare~"),
        publish("k", "m3", "x1~", mandatory=True),
    ],
    "exchanges in a ring deliver once": [
        exchange("x1~", "fanout"),
        exchange("x2~", "fanout"),
        queue("q1~"),
        on("A1", "exchange.bind", destination="x2~", source="x1~"),
        on("A1", "exchange.bind", destination="x1~", source="x2~"),
        bind("q1~", "x1~"),
        bind("q1~", "x2~"),
        publish("k", exchange="x1~"),
    ],
    "auto-delete": [
        exchange("x1~", "fanout", auto_delete=True),
        exchange("x2~", "fanout", auto_delete=True),
        queue("q1~", auto_delete=True),
        on("A1", "exchange.bind", destination="x2~", source="x1~"),
        bind("q1~", "x2~"),
        consume("q1~", "t1"),
        consume("q1~", "t2"),
        on("A1", "basic.cancel", consumer_tag="t1"),
        queue("q1~", passive=True),
        on("A1", "basic.cancel", consumer_tag="t2"),
        queue("q1~", passive=True),
        on("A1", "exchange.declare", exchange="x2~", passive=True),
        on("A1", "exchange.declare", exchange="x1~", passive=True),
    ],
    "confirms": [
        CONFIRM,
        queue("q1~"),
        *many("q1~", 3),
        publish("nowhere~", mandatory=True),
        publish("nowhere~"),
        publish("q1~", mandatory=True),
    ],
    "a prefetch for each consumer": [
        queue("q1~"),
        *many("q1~", 6),
        on("A1", "basic.qos", prefetch_count=2),
        consume("q1~", "t1"),
        on("A1", "basic.qos", prefetch_count=1),
        consume("q1~", "t2"),
        on("A1", "basic.ack", delivery=0),
        on("A1", "basic.ack", delivery_tag=0, multiple=True),
    ],
    "a prefetch for the channel": [
        queue("q1~"),
        *many("q1~", 6),
        on("A1", "basic.qos", prefetch_count=2, **{"global": True}),
        consume("q1~", "t1"),
        consume("q1~", "t2"),
        on("A1", "basic.ack", delivery=0),
        on("A1", "basic.qos", prefetch_count=4, **{"global": True}),
        on("A1", "basic.qos", prefetch_count=0, **{"global": True}),
    ],
    "both prefetches": [
        queue("q1~"),
        *many("q1~", 6),
        on("A1", "basic.qos", prefetch_count=3, **{"global": True}),
        on("A1", "basic.qos", prefetch_count=2),
        consume("q1~", "t1"),
        consume("q1~", "t2"),
        on("A1", "basic.nack", delivery=0, requeue=True),
    ],
    "requeued to where it was": [
        queue("q1~"),
        *many("q1~", 4),
        *[get("q1~")] * 3,
        on("A1", "basic.nack", delivery=1, requeue=True),
        on("A1", "basic.reject", delivery=0, requeue=True),
        get("q1~"),
        on("A1", "basic.nack", delivery_tag=0, multiple=True, requeue=True),
        on("A1", "drain", queue="q1~"),
    ],
    # Without a limit, 3.10 puts what comes back at the end.
    "requeued to a quorum queue": [
        CONFIRM,
        queue("q1~", durable=True, arguments=QUORUM | {"x-delivery-limit": ["l", 20]}),
        *many("q1~", 4),
        *[get("q1~")] * 3,
        on("A1", "basic.nack", delivery=1, requeue=True),
        on("A1", "basic.reject", delivery=0, requeue=True),
        on("A1", "drain", queue="q1~"),
    ],
    "recover": [
        queue("q1~"),
        *many("q1~", 3),
        *[get("q1~")] * 2,
        on("A1", "basic.recover", requeue=True),
        get("q1~"),
        consume("q1~", "t"),
        on("A1", "basic.recover_async", requeue=True),
        on("A1", "basic.recover", requeue=True),
    ],
    "a channel's end gives back": [
        queue("q1~"),
        *many("q1~", 3),
        consume("q1~", "t"),
        on("A1", "channel.close", reply_code=200),
        on("B1", "drain", queue="q1~"),
    ],
    "a connection's end gives back, in the order of the queue": [
        queue("q1~"),
        *many("q1~", 4),
        get("q1~"),
        get("q1~", "A2"),
        get("q1~"),
        on("A0", "drop"),
        on("B1", "drain", queue="q1~"),
    ],
    "a delivery limit": [
        CONFIRM,
        queue("dead~", durable=True),
        queue("q1~", durable=True, arguments=dead(**QUORUM, **{"x-delivery-limit": ["l", 2]})),
        publish("q1~"),
        *[get("q1~"), on("A1", "basic.reject", delivery=0, requeue=True)] * 4,
        on("A1", "drain", queue="dead~"),
    ],
    "dead by rejection": death({}, way=[*[get("q1~")] * 2, on("A1", "basic.nack", delivery=1, multiple=True)]),
    "dead by length": death({}, way=[], **{"x-max-length": ["l", 1]}),
    "dead by time": death({}, way=[wait()], **{"x-message-ttl": ["l", SHORT_MS]}),
    "dead by rejection, quorum": death(QUORUM, way=[get("q1~"), on("A1", "basic.reject", delivery=0)]),
    "dead by length, quorum": death(QUORUM, way=[], **{"x-max-length": ["l", 1]}),
    "dead by time, quorum": death(QUORUM, way=[wait()], **{"x-message-ttl": ["l", SHORT_MS]}),
    "dead twice": [
        CONFIRM,
        queue("q1~", arguments={"x-dead-letter-exchange": text(""), "x-dead-letter-routing-key": text("q2~")}),
        queue("q2~", arguments={"x-dead-letter-exchange": text(""), "x-dead-letter-routing-key": text("q1~")}),
        publish("q1~", properties={"headers": [["CC", ["A", [text("none~")]]], ["BCC", ["A", [text("secret~")]]]]}),
        *[
            step
            for name in ("q1~", "q2~", "q1~", "q2~")
            for step in (get(name), on("A1", "basic.reject", delivery=0))
        ],
        get("q1~", no_ack=True),
    ],
    "a cycle of dead letters without a rejection": [
        CONFIRM,
        queue("q1~", arguments={"x-dead-letter-exchange": text(""), "x-message-ttl": ["l", SHORT_MS]}),
        publish("q1~"),
        wait(),
        queue("q1~", passive=True),
    ],
    "dead letters keep their key or get another": [
        CONFIRM,
        exchange("x1~", "topic"),
        queue("dead~"),
        bind("dead~", "x1~", "#"),
        queue("q1~", arguments={"x-dead-letter-exchange": text("x1~")}),
        bind("q1~", "amq.direct", "k"),
        publish("k", exchange="amq.direct"),
        get("q1~"),
        on("A1", "basic.reject", delivery=0),
        get("dead~", no_ack=True),
    ],
    "time of the message and of the queue": [
        CONFIRM,
        queue("q1~", arguments={"x-message-ttl": ["l", LONG_MS]}),
        publish("q1~", "short", properties={"expiration": str(SHORT_MS)}),
        publish("q1~", "long"),
        wait(),
        queue("q1~", passive=True),
        publish("q1~", "behind", properties={"expiration": str(SHORT_MS)}),
        wait(),
        queue("q1~", passive=True),
        get("q1~", no_ack=True),
        get("q1~", no_ack=True),
    ],
    "no time at all": [
        CONFIRM,
        queue("q1~", arguments={"x-message-ttl": ["l", 0]}),
        publish("q1~", "nobody waits"),
        queue("q1~", passive=True),
        consume("q1~", "t"),
        publish("q1~", "somebody waits"),
        queue("q2~"),
        publish("q2~", "nobody", properties={"expiration": "0"}),
        get("q2~"),
    ],
    "a queue expires when nobody uses it": [
        queue("q1~", arguments={"x-expires": ["l", 600]}),
        queue("q2~", arguments={"x-expires": ["l", 600]}),
        consume("q2~", "t"),
        wait(1500),
        queue("q1~", passive=True),
        queue("q2~", passive=True),
    ],
    "length counts what is ready": [
        CONFIRM,
        queue("q1~", arguments={"x-max-length": ["l", 2]}),
        *many("q1~", 2),
        get("q1~"),
        *many("q1~", 2),
        queue("q1~", passive=True),
        on("A1", "basic.nack", delivery=0, requeue=True),
        on("A1", "drain", queue="q1~"),
    ],
    "no length at all": [CONFIRM, queue("q1~", arguments={"x-max-length": ["l", 0]}), publish("q1~"), get("q1~")],
    "refused when it is full": [
        CONFIRM,
        queue("q1~", arguments={"x-max-length": ["l", 1], "x-overflow": text("reject-publish")}),
        *many("q1~", 3),
        on("A1", "drain", queue="q1~"),
    ],
    "priorities of messages": [
        queue("q1~", arguments={"x-max-priority": ["l", 5]}),
        *[publish("q1~", f"m{level}", properties={"priority": level}) for level in (0, 5, 3, 9)],
        publish("q1~", "none"),
        on("A1", "drain", queue="q1~"),
    ],
    "priorities of consumers": [
        queue("q1~"),
        on("A1", "basic.qos", prefetch_count=1),
        on("B1", "basic.qos", prefetch_count=1),
        consume("q1~", "low"),
        consume("q1~", "high", "B1", arguments={"x-priority": ["I", 5]}),
        *many("q1~", 3, channel="C1"),
        on("B1", "basic.ack", delivery=0),
    ],
    "consumers take turns": [
        queue("q1~"),
        consume("q1~", "t1"),
        consume("q1~", "t2", "A2"),
        consume("q1~", "t3", "B1"),
        *many("q1~", 7, channel="C1"),
    ],
    "a single active consumer": [
        queue("q1~", arguments={"x-single-active-consumer": ["t", True]}),
        consume("q1~", "t1"),
        consume("q1~", "t2", "A2"),
        consume("q1~", "t3", "B1"),
        *many("q1~", 2, channel="C1"),
        on("A1", "basic.cancel", consumer_tag="t1"),
        publish("q1~", "m3", channel="C1"),
        on("A2", "channel.close", reply_code=200),
        on("C1", "queue.declare", queue="q1~", passive=True),
    ],
    "consumers hear that their queue goes": [
        queue("q1~"),
        consume("q1~", "t1"),
        consume("q1~", "t2", "B1", no_wait=True),
        on("C1", "queue.delete", queue="q1~"),
        on("A1", "basic.cancel", consumer_tag="t1"),
    ],
    "transactions": [
        queue("q1~"),
        on("A1", "tx.select"),
        *many("q1~", 2),
        queue("q1~", "B1", passive=True),
        on("A1", "tx.rollback"),
        *many("q1~", 2),
        publish("nowhere~", mandatory=True),
        on("A1", "tx.commit"),
        get("q1~"),
        on("A1", "basic.ack", delivery=0),
        on("A1", "tx.rollback"),
        on("A1", "basic.ack", delivery=0),
        on("A1", "tx.commit"),
        get("q1~"),
        on("A1", "basic.nack", delivery=0, requeue=True),
        on("A1", "tx.commit"),
        get("q1~"),
    ],
    "a transaction's errors come when it is committed or before": [
        on("A1", "tx.select"),
        publish("k", exchange="missing~"),
        on("A1", "tx.commit"),
    ],
    "direct reply-to": [
        consume("amq.rabbitmq.reply-to", "t", no_ack=True),
        publish("q1~", properties={"reply_to": "amq.rabbitmq.reply-to"}, channel="A2"),
        consume("amq.rabbitmq.reply-to", "t2", "B1"),
    ],
    "arguments that mean nothing any more": [
        queue("q1~", arguments={"x-queue-mode": text("lazy")}),
        queue("q2~", arguments={"x-own": ["F", [["a", ["l", 1]]]]}),
        queue("q3~", arguments={"x-queue-version": ["l", 2]}),
        queue("q4~", arguments={"x-queue-master-locator": text("min-masters")}),
    ],
    "every type in a header": [
        queue("q1~"),
        *[
            step
            for tag, value in (
                ("t", True),
                ("b", -5),
                ("B", 250),
                ("s", -300),
                ("u", 65_000),
                ("I", -70_000),
                ("i", 4_000_000_000),
                ("l", -(1 << 62)),
                ("f", 1.5),
                ("d", -2.25),
                ("D", [2, 314]),
                ("S", "grün"),
                ("T", 1_700_000_000),
                ("F", [["a", ["S", "b"]], ["a", ["I", 1]]]),
                ("A", [["I", 1], ["S", "two"], ["V", None]]),
                ("V", None),
                ("x", "\udcff\udc80"),
                ("L", 5),
            )
            for step in (
                publish("q1~", properties={"headers": [["z", [tag, value]], ["a", ["V", None]]]}),
                get("q1~", no_ack=True),
            )
        ],
    ],
    "every property": [
        queue("q1~"),
        publish(
            "q1~",
            properties={
                "content_type": "text/plain",
                "content_encoding": "utf-8",
                "headers": [],
                "delivery_mode": 2,
                "priority": 255,
                "correlation_id": "c",
                "reply_to": "r",
                "expiration": str(LONG_MS),
                "message_id": "m",
                "timestamp": (1 << 64) - 1,
                "type": "t",
                "user_id": "guest",
                "app_id": "a",
                "cluster_id": "c",
            },
        ),
        get("q1~", no_ack=True),
        publish("q1~", "", properties={"delivery_mode": 0}),
        get("q1~", no_ack=True),
        publish("q1~", "x" * 131_064),
        publish("q1~", "x" * 131_065),
        publish("q1~", "x" * 400_000),
        on("A1", "drain", queue="q1~"),
    ],
    "a returned message": [
        publish("nowhere~", "body", mandatory=True, properties={"headers": [["h", text("x")]], "priority": 3}),
        publish("nowhere~", "", "amq.direct", mandatory=True),
        publish("nowhere~", "y" * 200_000, "amq.direct", mandatory=True),
    ],
}

ALL: dict[str, list[Step]] = {**ERRORS, **SEMANTICS, **raw_frames.ALL}
