"""How messages are routed, delivered, settled and returned, and that they come out as they went in."""

from ..scenario import Step
from ..vocabulary import LONG_MS
from .steps import CONFIRM, QUORUM, bind, consume, exchange, get, many, on, publish, queue, text

DELIVERY: dict[str, list[Step]] = {
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
    "decimals and zeros in headers": [
        *[
            step
            for number, value in enumerate((["D", [1, 10]], ["d", 0.0], ["d", -0.0], ["f", 0.0], ["I", 0]))
            for step in (queue(f"q{number}~"), bind(f"q{number}~", "amq.headers", arguments={"h": value}))
        ],
        *[
            publish("", f"m{number}", "amq.headers", properties={"headers": [["h", value]]})
            for number, value in enumerate(
                (["D", [1, 10]], ["D", [2, 100]], ["d", 1.0], ["V", None], ["d", 0.0], ["d", -0.0], ["I", 0])
            )
        ],
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
    "who deletes a queue hears of it as its consumer": [
        queue("q1~"),
        consume("q1~", "t"),
        on("A1", "queue.delete", queue="q1~"),
    ],
    "a transaction's messages are routed when they are published": [
        queue("q1~"),
        on("A1", "tx.select"),
        publish("k", exchange="amq.direct"),
        bind("q1~", "amq.direct", "k"),
        on("A1", "tx.commit"),
        get("q1~"),
    ],
    "a transaction's messages are checked when they are published": [
        on("A1", "tx.select"),
        publish("q1~", properties={"headers": [["BCC", text("a")]]}),
        on("A1", "tx.commit"),
    ],
    "what was got before a channel has a prefetch": [
        queue("q1~"),
        *many("q1~", 8),
        get("q1~"),
        on("A1", "basic.qos", prefetch_count=3, **{"global": True}),
        get("q1~"),
        consume("q1~", "t"),
    ],
    "a channel's prefetch holds for all that it consumes": [
        queue("q1~"),
        consume("q1~", "t1"),
        *many("q1~", 2),
        consume("q1~", "t2", no_ack=True),
        on("A1", "basic.qos", prefetch_count=1, **{"global": True}),
        publish("q1~", "m3"),
        on("A1", "basic.ack", delivery_tag=0, multiple=True),
    ],
    "what a quorum queue takes back is in the order in which it went out": [
        CONFIRM,
        queue("q1~", durable=True, arguments=QUORUM | {"x-delivery-limit": ["l", 20]}),
        consume("q1~", "t"),
        *many("q1~", 3),
        on("A1", "basic.nack", delivery=0, requeue=True),
        on("A1", "channel.close", reply_code=200),
    ],
}
