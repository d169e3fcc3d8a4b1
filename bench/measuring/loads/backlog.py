"""A queue in which messages wait by the million, beside an empty queue of the same broker.

Each phase is measured first on an empty queue and then on the one with the backlog: confirms one at a time,
publishing at full speed, and taking as many messages as were published; so the backlog stays as long as it is.
"""

import time
from dataclasses import dataclass

from .. import queue_load, queues
from ..peers import Peer, Watch
from .queue_load import FIRST_COUNT, LEFT_OUT_SECONDS, QueueLoads

# Slower than this a backlog is not filled.
FILL_RATE_LEAST = 1000
SECOND_SECONDS = 1.5
STRETCH_MAX = 40
# Memory is read when it no longer falls by more than this within so many looks, or at the latest then.
STEADY_MIB, STEADY_LOOKS, STEADY_SECONDS = 1.0, 3, 20.0
CONFIRMS_LEAST = 100


@dataclass
class Waiting:
    """The queue of a broker that is kept filled."""

    queue: str
    messages: int
    # The number of the next message.
    next_number: int
    empty_mib: float
    waiting_mib: float
    fill_per_second: float


def settled_mib(peer: Peer) -> float:
    """Resident memory once what was written behind is written and given back."""
    deadline = time.monotonic() + STEADY_SECONDS
    seen = [peer.memory().resident_mib]
    while time.monotonic() < deadline:
        time.sleep(1.0)
        seen.append(peer.memory().resident_mib)
        if len(seen) > STEADY_LOOKS and seen[-STEADY_LOOKS - 1] - seen[-1] < STEADY_MIB:
            break
    return seen[-1]


class Backlogs(QueueLoads):
    """Everything that needs a filled queue; the first of its cases fills it."""

    def prepare(self) -> None:
        key = ("backlog", self.case.record_bytes)
        if key not in self.peer.filled:
            self.peer.filled[key] = self._fill()
        self.backlog: Waiting = self.peer.filled[key]

    def commands(self) -> list[str]:
        published = self.publish_settings() | {"key": "QUEUE", "count": "COUNT"}
        consumed = self.consume_settings() | {"queues": "QUEUE", "count": "COUNT"}
        return [
            queue_load.shown("publish", **published),
            queue_load.shown("publish", **published | {"unconfirmed": 1}),
            queue_load.shown("consume", **consumed),
        ]

    def _fill(self) -> Waiting:
        messages = self.scale.backlog
        if self.peer.name != "weir":
            messages = min(messages, self.scale.backlog_beside)
        (queue,) = queues.new(self.peer)
        self.await_space(messages * self.case.record_bytes * 3)
        empty = settled_mib(self.peer)
        told, _ = self.publish(queue, messages, messages / FILL_RATE_LEAST / 4)
        queues.check_waiting(self.peer, [queue], messages)
        return Waiting(queue, messages, messages, empty, settled_mib(self.peer), messages / told["seconds"])


class Backlog(Backlogs):
    def prepare(self) -> None:
        self.rate = self._warm()
        super().prepare()

    def measure(self) -> dict[str, float]:
        peer, backlog = self.peer, self.backlog
        self.pause()
        (empty,) = queues.new(peer)
        count = int(self.rate * self.seconds) + 1
        watch = Watch(peer)
        begin = ((empty, 0), (backlog.queue, backlog.next_number))
        one = [self._one_at_a_time(queue, number) for queue, number in begin]
        backlog.next_number += one[1]["records"]
        published = []
        for queue, number in ((empty, one[0]["records"]), (backlog.queue, backlog.next_number)):
            told, _ = self.publish(queue, count, self.seconds, **{"from": number})
            published.append(count / told["seconds"])
        backlog.next_number += count
        drained = []
        for queue, told in ((empty, one[0]), (backlog.queue, one[1])):
            taken = count + told["records"]
            found, _ = self.consume(queue, taken, self.seconds, numbers=max(backlog.next_number, taken))
            drained.append(taken / found["seconds"])
        spent = watch.end(self.scale.settle_seconds, 0.0)
        queues.check_waiting(peer, [empty], 0)
        queues.check_waiting(peer, [backlog.queue], backlog.messages)
        queues.delete(peer, [empty])
        self.rate = published[0]
        return {
            "waiting_million": backlog.messages / 1e6,
            "fill_per_second": backlog.fill_per_second,
            "published_empty": published[0],
            "published_waiting": published[1],
            "published_of_empty": published[1] / published[0],
            "drained_empty": drained[0],
            "drained_waiting": drained[1],
            "drained_of_empty": drained[1] / drained[0],
            "confirmed_p99_empty_ms": one[0]["p99_ms"],
            "confirmed_p99_waiting_ms": one[1]["p99_ms"],
            "confirmed_p99_of_empty": one[1]["p99_ms"] / one[0]["p99_ms"],
            "empty_mib": backlog.empty_mib,
            "waiting_mib": backlog.waiting_mib,
            "above_empty_mib": backlog.waiting_mib - backlog.empty_mib,
            "highest_mib": spent["highest_mib"],
        }

    def _warm(self) -> float:
        """Messages a second into an empty queue, from which they are taken again; and how many one at a time."""
        (queue,) = queues.new(self.peer)
        count, rate = FIRST_COUNT, 0.0
        for _ in range(2):
            told, _ = self.publish(queue, count, self.seconds)
            rate = count / told["seconds"]
            self.consume(queue, count, self.seconds)
            count = min(int(rate * SECOND_SECONDS) + 1, count * STRETCH_MAX)
        told, _ = self.publish(queue, CONFIRMS_LEAST, self.seconds, unconfirmed=1)
        self.confirm_rate = CONFIRMS_LEAST / told["seconds"]
        queues.delete(self.peer, [queue])
        return rate

    def _one_at_a_time(self, queue: str, number: int) -> dict[str, float]:
        """Confirms with one message under way, for about as long as a phase takes."""
        left_out = int(self.confirm_rate * LEFT_OUT_SECONDS)
        count = max(int(self.confirm_rate * self.seconds), CONFIRMS_LEAST) + left_out
        settings = {"unconfirmed": 1, "from": number, "left-out": left_out}
        told, _ = self.publish(queue, count, self.seconds, **settings)
        return told
