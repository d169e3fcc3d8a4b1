"""Steps in few words, for scenarios that are written by hand."""

from ..scenario import Step
from ..vocabulary import LONG_MS, WAIT_MS


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
