"""Kafka's clients: producers with idempotence whose records have keys, and a group that reads.

The group is that of `suites/kills`. A producer's key decides the partition, so that every key is a sequence of its own
with the key's place in the name: `once-a.k3` sends 0, 1, 2 and so on, and each must be there once, in that order.
"""

import logging
import random
import sys
import time
from pathlib import Path

from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from killing.ledger import UNKNOWN_OFFSET
from killing.workers import PATIENT, Role, Stopping, consume

TOPICS = ["orders", "clicks"]
PARTITIONS = 4
KEYS = 12
# Longer than any fault and the calm after it: a record that is given up would leave a hole that nobody promised.
MESSAGE_TIMEOUT_MS = 600_000
FLUSH_SECONDS = 90.0
IN_FLIGHT_RECORDS_MAX = 1_000
TICK_SECONDS = 0.02
CREATE_SECONDS = 60.0

PRODUCERS = (
    Role("once-a", {"linger.ms": 0}, True),
    Role("once-b", {"linger.ms": 5, "compression.type": "zstd"}, True),
    Role("once-c", {"linger.ms": 20, "batch.num.messages": 50, "compression.type": "lz4"}, True),
)
READERS = ("reader-a", "reader-b")


def create_topics(bootstrap: str) -> None:
    """With as many replicas as the cluster gives."""
    admin = AdminClient({**PATIENT, "bootstrap.servers": bootstrap})
    wanted = [NewTopic(topic, PARTITIONS, -1) for topic in TOPICS]
    deadline = time.monotonic() + CREATE_SECONDS
    while wanted:
        for topic, future in admin.create_topics(wanted, request_timeout=20).items():
            try:
                future.result(30)
                wanted = [new for new in wanted if new.topic != topic]
            except Exception as failure:
                # A retry finds what an earlier try made without saying so.
                if "already exists" in str(failure).lower():
                    wanted = [new for new in wanted if new.topic != topic]
                elif time.monotonic() > deadline:
                    raise
        time.sleep(0.1 if wanted else 0)


def logger_to(path: Path) -> logging.Logger:
    """What a producer says of its numbers, for whoever looks into a failure."""
    logger = logging.getLogger(path.name)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(created).3f %(message)s"))
    logger.addHandler(handler)
    return logger


def produce(role: Role, bootstrap: str, rate: int, seed: int, ledger_path: Path) -> None:
    """Sends numbered records by key until SIGTERM, and notes what was acknowledged, and when."""
    stopping = Stopping()
    dice = random.Random(f"{seed} {role.name}")
    refused: list[KafkaError] = []
    fatal: list[KafkaError] = []
    producer = Producer(
        {
            **PATIENT,
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "acks": "all",
            "partitioner": "murmur2_random",
            "message.timeout.ms": MESSAGE_TIMEOUT_MS,
            # A request whose leader fell silent is given up soon, and sent to whoever leads by then.
            "request.timeout.ms": 3000,
            "socket.timeout.ms": 4000,
            "topic.metadata.refresh.interval.ms": 2000,
            "queue.buffering.max.messages": 100_000,
            "error_cb": lambda error: fatal.append(error) if error.fatal() else None,
            # Why it began a new epoch of its producer id, if it did: what it sends again under that nobody knows for a repeat.
            "debug": "eos",
            **role.settings,
        },
        logger=logger_to(ledger_path.with_suffix(".log")),
    )
    sequences = {(topic, key): 0 for topic in TOPICS for key in range(KEYS)}
    places = list(sequences)
    filler = "".join(dice.choices("weir, lake and river", k=4096))

    with ledger_path.open("w", buffering=1) as ledger:

        def on_delivery(error, message) -> None:
            if error:
                refused.append(error)
                return
            name, sequence = message.value()[:64].split(b" ", 2)[:2]
            offset = UNKNOWN_OFFSET if message.offset() is None else message.offset()
            place = f"{message.topic()} {message.partition()} {offset}"
            ledger.write(f"ack {place} {name.decode()} {int(sequence)} {time.monotonic():.6f}\n")

        due = 0.0
        before = time.monotonic()
        while not stopping.asked and not refused and not fatal:
            now = time.monotonic()
            due = min(due + (now - before) * rate, rate * 0.2)
            before = now
            while due >= 1 and len(producer) < IN_FLIGHT_RECORDS_MAX:
                topic, key = place = dice.choice(places)
                padding = filler[: dice.choice((0, 20, 200, 200, 1000, 4000))]
                value = f"{role.name}.k{key} {sequences[place]} {padding}".encode()
                producer.produce(topic, value=value, key=f"{role.name}.k{key}", on_delivery=on_delivery)
                sequences[place] += 1
                due -= 1
            producer.poll(TICK_SECONDS)
        unanswered = 0 if refused or fatal else producer.flush(FLUSH_SECONDS)
    if fatal:
        sys.exit(f"{role.name}: {fatal[0].str()}")
    if refused:
        sys.exit(f"{role.name}: a record was refused: {refused[0].str()}")
    if unanswered:
        sys.exit(f"{role.name}: {unanswered} records had no answer after {FLUSH_SECONDS:.0f} s")


def read(name: str, bootstrap: str, seed: int, ledger_path: Path) -> None:
    consume(name, bootstrap, TOPICS, seed, ledger_path)


def idempotent_names() -> set[str]:
    """Everybody whose records must be there exactly once."""
    return {f"{role.name}.k{key}" for role in PRODUCERS for key in range(KEYS)}
