"""The processes that load the broker while it is killed: producers, consumers, and one that makes topics.

Each is a process of its own with a ledger of its own, and goes on over every restart by what its client
library does by itself. They stop on SIGTERM, after everything still under way has been answered.
"""

import random
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from killing.ledger import UNKNOWN_OFFSET

FLUSH_SECONDS = 60.0
# Longer than any restart: a record that is given up would leave a hole that nobody promised.
MESSAGE_TIMEOUT_MS = 300_000
IN_FLIGHT_RECORDS_MAX = 2_000
TICK_SECONDS = 0.02
GROUP = "readers"

PATIENT = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "socket.connection.setup.timeout.ms": 2000,
    "log_level": 0,
}


@dataclass(frozen=True)
class Role:
    """What kind of producer: its client's settings, and whether repeats are forbidden."""

    name: str
    settings: dict
    idempotent: bool


PRODUCERS = (
    Role("once-a", {"enable.idempotence": True, "linger.ms": 0}, True),
    Role("once-b", {"enable.idempotence": True, "linger.ms": 5, "compression.type": "zstd"}, True),
    # One request at a time keeps a plain producer's order over retries.
    Role("plain-a", {"acks": "all", "linger.ms": 2, "max.in.flight": 1}, False),
    Role("plain-b", {"acks": "1", "linger.ms": 5, "max.in.flight": 1, "compression.type": "lz4"}, False),
)


class Stopping:
    """Set by SIGTERM."""

    def __init__(self):
        self.asked = False
        signal.signal(signal.SIGTERM, self._ask)
        # Ctrl-C goes to the whole group of processes; the runner alone decides.
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _ask(self, *_) -> None:
        self.asked = True


def produce(
    role: Role, bootstrap: str, topics: list[str], partitions: int, rate: int, seed: int, ledger_path: Path
) -> None:
    """Sends numbered records, each partition with a sequence of its own, and notes what was acknowledged."""
    stopping = Stopping()
    dice = random.Random(f"{seed} {role.name}")
    refused: list[KafkaError] = []
    fatal: list[KafkaError] = []
    producer = Producer(
        {
            **PATIENT,
            "bootstrap.servers": bootstrap,
            "message.timeout.ms": MESSAGE_TIMEOUT_MS,
            "queue.buffering.max.messages": 100_000,
            # A fatal error would otherwise be raised out of `poll`, in the middle of other callbacks.
            "error_cb": lambda error: fatal.append(error) if error.fatal() else None,
            **role.settings,
        }
    )
    places = [(topic, partition) for topic in topics for partition in range(partitions)]
    sequences = dict.fromkeys(places, 0)
    filler = "".join(dice.choices("weir, lake and river", k=4096))

    # By lines: the runner watches the ledger grow to see that the broker answers again.
    with ledger_path.open("w", buffering=1) as ledger:

        def on_delivery(error, message) -> None:
            if error:
                refused.append(error)
                return
            name, sequence = message.value()[:64].split(b" ", 2)[:2]
            offset = UNKNOWN_OFFSET if message.offset() is None else message.offset()
            place = f"{message.topic()} {message.partition()} {offset}"
            ledger.write(f"ack {place} {name.decode()} {int(sequence)}\n")

        due = 0.0
        before = time.monotonic()
        while not stopping.asked and not refused and not fatal:
            now = time.monotonic()
            due = min(due + (now - before) * rate, rate * 0.2)
            before = now
            while due >= 1 and len(producer) < IN_FLIGHT_RECORDS_MAX:
                place = dice.choice(places)
                padding = filler[: dice.choice((0, 20, 200, 200, 1000, 4000))]
                value = f"{role.name} {sequences[place]} {padding}".encode()
                producer.produce(place[0], value=value, partition=place[1], on_delivery=on_delivery)
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


def consume(name: str, bootstrap: str, topics: list[str], seed: int, ledger_path: Path) -> None:
    """Reads in a group, commits what it read, and now and then leaves and comes back."""
    stopping = Stopping()
    dice = random.Random(f"{seed} {name}")
    with ledger_path.open("w", buffering=1 << 16) as ledger:
        while not stopping.asked:
            _membership(bootstrap, topics, ledger, stopping, dice.uniform(3, 9))


def _membership(bootstrap: str, topics: list[str], ledger, stopping: Stopping, stay_seconds: float) -> None:
    """One stay in the group, counted from its first assignment on: restarts make joining slow."""
    leave_at: list[float] = []

    def over() -> bool:
        return stopping.asked or bool(leave_at and time.monotonic() > leave_at[0])

    client = Consumer(
        {
            **PATIENT,
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 10_000,
            "heartbeat.interval.ms": 300,
            "fetch.wait.max.ms": 100,
            "check.crcs": True,
            "topic.metadata.refresh.interval.ms": 2000,
        }
    )

    def on_assign(consumer, partitions) -> None:
        # The positions are asked for here, so that the ledger has what the broker said, and when.
        while partitions and not over():
            asked = time.monotonic()
            try:
                found = consumer.committed(partitions, timeout=5)
            except KafkaException:
                continue
            told = time.monotonic()
            for entry in found:
                if entry.offset >= 0:
                    ledger.write(f"start {entry.topic} {entry.partition} {entry.offset} {asked} {told}\n")
            consumer.assign(found)
            if not leave_at:
                leave_at.append(told + stay_seconds)
            return

    read: dict[tuple[str, int], int] = {}

    def commit() -> None:
        if not read:
            return
        asked = time.monotonic()
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in read.items()]
        read.clear()
        try:
            answered = client.commit(offsets=offsets, asynchronous=False)
        except KafkaException:
            # Not promised, so not noted: it may have happened or not.
            return
        told = time.monotonic()
        for entry in answered:
            if entry.error is None:
                ledger.write(f"commit {entry.topic} {entry.partition} {entry.offset} {asked} {told}\n")

    client.subscribe(topics, on_assign=on_assign, on_revoke=lambda *_: commit(), on_lost=lambda *_: read.clear())
    try:
        while not over():
            for message in client.consume(num_messages=500, timeout=0.1):
                if message.error():
                    continue
                name, sequence = message.value()[:64].split(b" ", 2)[:2]
                place = (message.topic(), message.partition())
                ledger.write(f"read {place[0]} {place[1]} {message.offset()} {name.decode()} {int(sequence)}\n")
                read[place] = message.offset() + 1
            commit()
    finally:
        client.close()


def make_topics(bootstrap: str, seed: int, ledger_path: Path) -> None:
    """Creates topics, deletes half of them, and notes what was acknowledged."""
    stopping = Stopping()
    dice = random.Random(f"{seed} topics")
    admin = AdminClient({**PATIENT, "bootstrap.servers": bootstrap})
    number = 0
    with ledger_path.open("w", buffering=1) as ledger:

        def note(kind: str, topic: str, future) -> bool:
            try:
                future.result(30)
            except KafkaException:
                # Perhaps it was done, perhaps not: nothing was promised.
                return False
            ledger.write(f"{kind} {topic}\n")
            return True

        while not stopping.asked:
            topic = f"made-{number}"
            number += 1
            created = admin.create_topics([NewTopic(topic, dice.randint(1, 3), 1)], request_timeout=5)[topic]
            if note("made", topic, created) and dice.random() < 0.5:
                ledger.write(f"going {topic}\n")
                note("gone", topic, admin.delete_topics([topic], request_timeout=5)[topic])
            time.sleep(dice.uniform(0.1, 0.6))
