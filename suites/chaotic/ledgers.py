"""What clients were told while the cluster was harmed, with the time of everything that time decides.

Kafka's ledgers are those of `killing.ledger`, where an acknowledgement has its time at the end of its line. AMQP's are
those of `killing.queues`; an attempt's number says over which connection it was sent, since a publisher's order holds within
a connection: what it sent again over another one may overtake what still lies in a node that was cut off.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from killing.ledger import Ledgers, Place
from killing.queues import QueueLedgers

# Attempts that one connection of a publisher may have.
ATTEMPTS_PER_CONNECTION = 10_000_000


def attempt_number(connection: int, sent: int) -> int:
    return connection * ATTEMPTS_PER_CONNECTION + sent


def connection_of(attempt: int) -> int:
    return attempt // ATTEMPTS_PER_CONNECTION


@dataclass
class Told:
    """Everything that clients were told."""

    topics: Ledgers = field(default_factory=Ledgers)
    # When records of a partition were acknowledged, in the order of time once `sort` was called.
    acknowledged_at: dict[Place, list[float]] = field(default_factory=lambda: defaultdict(list))
    queues: QueueLedgers = field(default_factory=QueueLedgers)
    # Which node a consumer's session spoke to.
    node_of: dict[str, int] = field(default_factory=dict)

    def load_topics(self, path: Path) -> None:
        with path.open() as lines:
            for line in lines:
                if not line.endswith("\n"):
                    break
                kind, topic, *rest = line.split()
                if kind == "ack":
                    partition, offset, producer, sequence, at = rest
                    place = topic, int(partition)
                    self.topics.acks[place].append((int(offset), producer, int(sequence)))
                    self.acknowledged_at[place].append(float(at))

    def load_readers(self, path: Path) -> None:
        self.topics.load(path)

    def load_queues(self, path: Path) -> None:
        self.queues.load(path)
        self.node_of.update(session_nodes(self.queues.opened))

    def sort(self) -> "Told":
        for times in self.acknowledged_at.values():
            times.sort()
        return self


def session_name(consumer: str, number: int, node: int) -> str:
    """A session's name has its node in it: ledgers need no further kind of line."""
    return f"{consumer}/{number}@{node}"


def session_nodes(sessions) -> dict[str, int]:
    return {session: int(session.rsplit("@", 1)[1]) for session in sessions if "@" in session}
