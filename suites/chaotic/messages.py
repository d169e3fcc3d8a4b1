"""AMQP's clients: those of `suites/kills`, each connected to one node, and to another one when that connection ends.

A client does not wait for a node that says nothing: publishers give a connection up when no confirm has come for a while,
consumers when heartbeats stay away. Queues are quorum and classic ones, one that is written to in transactions, and one that
gets dead letters; consumers are given messages, ask for them one by one, or do so in transactions.
"""

import itertools
import random
import time
from pathlib import Path

import pika
from differential.client import Connection, Event
from killing.queue_workers import Address, Consumer, Consuming, Publisher, Publishing, marks_of, run_all
from killing.queues import Expected
from killing.workers import Stopping

from chaotic.ledgers import attempt_number, session_name

DYING = "chaos-dying"
DIES_AFTER_MS = 1000
CONFIRM_SECONDS = 6.0
HEARTBEAT_SECONDS = 4
DECLARE_SECONDS = 60.0
POLL_SECONDS = 0.02

PUBLISHERS = (
    Publishing("to-quorum", "chaos-quorum"),
    Publishing("to-quorum-too", "chaos-quorum"),
    Publishing("to-classic", "chaos-classic"),
    Publishing("to-dead", "chaos-dead", key=DYING),
    Publishing("to-tx", "chaos-tx", transactions=True),
)
CONSUMERS = (
    Consuming("quorum-a", "chaos-quorum"),
    Consuming("quorum-b", "chaos-quorum"),
    Consuming("quorum-poll", "chaos-quorum"),
    Consuming("classic-a", "chaos-classic"),
    Consuming("classic-poll", "chaos-classic"),
    Consuming("dead", "chaos-dead"),
    Consuming("dead-poll", "chaos-dead"),
    Consuming("tx", "chaos-tx", transactions=True),
)
QUEUES = sorted({consumer.queue for consumer in CONSUMERS})
MARKS = {marks_of(consumer) for consumer in CONSUMERS}
# A dead letter may come twice if its publishing is cut short, each copy with a life of its own.
EXPECTED = Expected(
    queue_of={publisher.name: publisher.queue for publisher in PUBLISHERS}
    | {marks_of(consumer): consumer.queue for consumer in CONSUMERS},
    ordered=set(QUEUES) - {"chaos-dead"},
    counted={"chaos-quorum"},
    doubled={"chaos-dead"},
    deaths={"to-dead": 1},
)
# Consumers of this name ask for each message; the others are given them.
POLLING = "-poll"
Nodes = dict[int, Address]


def consumers(manner: str) -> list[Consuming]:
    """Those of a manner; who consumes in transactions is always there."""
    polling = {"mixed": (True, False), "asynchronous": (False,), "polling": (True,)}[manner]
    return [one for one in CONSUMERS if one.transactions or one.name.endswith(POLLING) in polling]


def parameters(address: Address) -> pika.ConnectionParameters:
    host, port = address
    return pika.ConnectionParameters(
        host, port, heartbeat=HEARTBEAT_SECONDS, socket_timeout=5, stack_timeout=8, blocked_connection_timeout=30
    )


def declare(address: Address) -> None:
    """All queues, tried again until it is done: a cluster that has just been founded may not take them yet."""
    arguments = {
        "chaos-quorum": {"x-queue-type": "quorum"},
        DYING: {
            "x-queue-type": "quorum",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-message-ttl": DIES_AFTER_MS,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "chaos-dead",
        },
    }
    deadline = time.monotonic() + DECLARE_SECONDS
    while True:
        try:
            with pika.BlockingConnection(parameters(address)) as connection:
                channel = connection.channel()
                for queue in [*QUEUES, DYING]:
                    channel.queue_declare(queue, durable=True, arguments=arguments.get(queue))
                return
        except (pika.exceptions.AMQPError, OSError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


class Moving:
    """Which node comes next for a client."""

    def __init__(self, nodes: Nodes, dice: random.Random):
        numbers = list(nodes)
        dice.shuffle(numbers)
        self.nodes, self.numbers = nodes, itertools.cycle(numbers)

    def next(self) -> tuple[int, Address]:
        number = next(self.numbers)
        return number, self.nodes[number]


class MovingPublisher(Publisher):
    """Goes to the next node when a connection ends, is silent, or refuses."""

    def __init__(self, role: Publishing, nodes: Nodes, rate: int, seed: int, stopping: Stopping, path: Path):
        super().__init__(role, next(iter(nodes.values())), rate, seed, stopping, path)
        self.moving = Moving(nodes, self.dice)
        self.connections = 0
        self.heard_at = 0.0
        self.kept_count = self.kept_seen = 0

    def _connect(self) -> Connection:
        self.connections += 1
        self.next_attempt = attempt_number(self.connections, 0)
        connection = Connection(self.moving.next()[1]).open()
        self.heard_at = time.monotonic()
        return connection

    def _kept(self, number: int) -> None:
        self.kept_count += 1
        super()._kept(number)

    def _look(self, connection: Connection, waiting: dict[int, int]) -> None:
        super()._look(connection, waiting)
        now = time.monotonic()
        if not waiting or self.kept_count != self.kept_seen:
            self.heard_at, self.kept_seen = now, self.kept_count
        elif now - self.heard_at > CONFIRM_SECONDS:
            raise ConnectionError("no confirm has come for long")

    def _refused(self, event: Event) -> None:
        """What is not confirmed is sent again over the next connection."""
        raise ConnectionError(f"{event.name} {event.fields}")


class MovingConsumer(Consumer):
    def __init__(self, role: Consuming, nodes: Nodes, seed: int, stopping: Stopping, path: Path):
        super().__init__(role, next(iter(nodes.values())), seed, stopping, path)
        self.moving = Moving(nodes, self.dice)

    def _connect(self) -> tuple[str, pika.BlockingConnection]:
        number, address = self.moving.next()
        return session_name(self.role.name, self.sessions, number), pika.BlockingConnection(parameters(address))

    def _deliveries(self, channel):
        if not self.role.name.endswith(POLLING):
            yield from super()._deliveries(channel)
            return
        while True:
            got = channel.basic_get(self.role.queue)
            yield got
            if got[0] is None:
                time.sleep(POLL_SECONDS)


def publish_all(nodes: Nodes, rate: int, seed: int, place: Path) -> None:
    """Every publisher, until SIGTERM and until all that they sent was confirmed."""
    stopping = Stopping()
    run_all([MovingPublisher(role, nodes, rate, seed, stopping, ledger(place, role.name)) for role in PUBLISHERS])


def consume_all(nodes: Nodes, manner: str, seed: int, place: Path) -> None:
    """Every consumer of a manner, until SIGTERM."""
    stopping = Stopping()
    run_all([MovingConsumer(role, nodes, seed, stopping, ledger(place, role.name)) for role in consumers(manner)])


def ledger(place: Path, name: str) -> Path:
    return place / f"{name}.queue-ledger"


def ledgers(place: Path, manner: str) -> tuple[list[Path], list[Path]]:
    """The ledgers of publishers and of consumers."""
    return [ledger(place, role.name) for role in PUBLISHERS], [ledger(place, role.name) for role in consumers(manner)]
