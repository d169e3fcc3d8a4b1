"""What AMQP's clients were told of queues over kills, and the judgement over it.

As in `ledger`, the judgement is a function of plain data, and `suites/kills --self-test` shows that it finds damage.
A ledger is a text file of one event a line, written by one client. A message is three words: its publisher's name, its
number, and the attempt. Whatever is sent again has another attempt, so that every copy can be told from every other.

    sent    <message>                                           it is about to be sent
    kept    <publisher> <number>                                the broker has confirmed it, or its transaction
    opened  <session> <at>                                      a consumer has a connection
    got     <queue> <message> <redelivered> <count> <session> <at>   it was given a message; how often that failed or died
    acked   <queue> <message> <session> <at>                    it has sent an acknowledgement
    back    <queue> <message> <session> <at>                    it has rejected it, to come again
    freed   <queue> <session> <at>                              it ends its connection, with what it has
    settled <session> <asked> <told>                            a round of answers, see below
    left    <queue> <message>                                   it was there in the end

AMQP has no answer to an acknowledgement. A consumer makes certain by a round: it asks for something that the queue itself
answers, then publishes to it and is confirmed, and both once more. What it acknowledged before the round began is settled
when the round is over. A transaction's commit is a round by itself. Times are of the machine's monotonic clock; what a
session was given, it was given by the process that it connected to, however late it reads it.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

Message = tuple[str, int, int]
Copy = tuple[str, Message]


@dataclass(frozen=True)
class Event:
    """Something that a consumer did with a message."""

    queue: str
    message: Message
    session: str
    at: float


@dataclass(frozen=True)
class Got(Event):
    """A delivery."""

    redelivered: bool = False
    count: int = 0


@dataclass
class QueueLedgers:
    """The events of all clients together."""

    sent: set[Message] = field(default_factory=set)
    kept: set[tuple[str, int]] = field(default_factory=set)
    opened: dict[str, float] = field(default_factory=dict)
    got: list[Got] = field(default_factory=list)
    acked: list[Event] = field(default_factory=list)
    back: list[Event] = field(default_factory=list)
    # By session: the queue, and when.
    freed: dict[str, tuple[str, float]] = field(default_factory=dict)
    settled: dict[str, list[tuple[float, float]]] = field(default_factory=lambda: defaultdict(list))
    left: list[Copy] = field(default_factory=list)

    def load(self, path: Path) -> None:
        with path.open() as lines:
            for line in lines:
                # Of a ledger that is still written the end can be half a line.
                if not line.endswith("\n"):
                    break
                kind, *rest = line.split()
                getattr(self, f"_{kind}")(rest)

    def _sent(self, words: list[str]) -> None:
        self.sent.add(_message(words))

    def _kept(self, words: list[str]) -> None:
        self.kept.add((words[0], int(words[1])))

    def _opened(self, words: list[str]) -> None:
        self.opened[words[0]] = float(words[1])

    def _got(self, words: list[str]) -> None:
        queue, redelivered, count, session, at = words[0], *words[4:]
        self.got.append(Got(queue, _message(words[1:4]), session, float(at), redelivered == "1", int(count)))

    def _acked(self, words: list[str]) -> None:
        self.acked.append(Event(words[0], _message(words[1:4]), words[4], float(words[5])))

    def _back(self, words: list[str]) -> None:
        self.back.append(Event(words[0], _message(words[1:4]), words[4], float(words[5])))

    def _freed(self, words: list[str]) -> None:
        self.freed[words[1]] = (words[0], float(words[2]))

    def _settled(self, words: list[str]) -> None:
        self.settled[words[0]].append((float(words[1]), float(words[2])))

    def _left(self, words: list[str]) -> None:
        self.left.append((words[0], _message(words[1:4])))


def _message(words: list[str]) -> Message:
    return words[0], int(words[1]), int(words[2])


@dataclass(frozen=True)
class Expected:
    """What is known of the queues."""

    # Where each publisher's messages end up, be it later or by their death.
    queue_of: dict[str, str]
    # Queues that give a publisher's messages in their order.
    ordered: set[str]
    # Queues whose deliveries carry a count of failures.
    counted: set[str]
    # Queues in which a kill may leave a message twice, each with a life of its own. They are known by their numbers alone.
    doubled: set[str] = field(default_factory=set)
    # How often a publisher's messages have died when they are given to a consumer.
    deaths: dict[str, int] = field(default_factory=dict)
    # Queues with so many orders: a message's number decides its priority.
    priorities: dict[str, int] = field(default_factory=dict)


def judge_queues(ledgers: QueueLedgers, starts: list[float], expected: Expected) -> dict[str, list[str]]:
    """For each property its complaints; no complaint means that it holds. `starts` are the broker's, the first included."""
    told = Rounds(ledgers, sorted(starts))
    return {
        "every confirmed message came to a consumer or is in its queue": kept(ledgers, expected),
        "nothing is in a queue that was not sent to it": sent(ledgers, expected),
        "what was settled for good does not come again": _settled(ledgers, told, expected),
        "what comes again says so": _marked(ledgers, told, expected),
        "a queue gives a publisher's messages in their order": _ordered(ledgers, expected),
        "failed deliveries are counted": _counted(ledgers, told, expected),
        "a death is counted once": died(ledgers, expected),
    }


class Rounds:
    """Which process a session spoke to, and which round made certain what it said."""

    def __init__(self, ledgers: QueueLedgers, starts: list[float]):
        self.lives = {session: bisect_right(starts, at) for session, at in ledgers.opened.items()}
        self.rounds = {session: sorted(rounds) for session, rounds in ledgers.settled.items()}

    def life(self, session: str) -> int:
        return self.lives[session]

    def certain(self, session: str, at: float) -> float | None:
        """When it was certain that what a session had said, or had been given, is on the disk; none if never."""
        rounds = self.rounds.get(session, [])
        index = bisect_left(rounds, (at, 0.0))
        return rounds[index][1] if index < len(rounds) else None


def shown(message: Message) -> str:
    return f"{message[0]}'s {message[1]} (attempt {message[2]})"


def kept(ledgers: QueueLedgers, expected: Expected) -> list[str]:
    there = {(got.queue, *got.message[:2]) for got in ledgers.got}
    there |= {(queue, *message[:2]) for queue, message in ledgers.left}
    return [
        f"{publisher}'s {number} was confirmed, and never came out of {expected.queue_of[publisher]}"
        for publisher, number in sorted(ledgers.kept)
        if (expected.queue_of[publisher], publisher, number) not in there
    ]


def sent(ledgers: QueueLedgers, expected: Expected) -> list[str]:
    complaints = []
    for queue, message in [*((got.queue, got.message) for got in ledgers.got), *ledgers.left]:
        if message not in ledgers.sent:
            complaints.append(f"{queue}: {shown(message)} came, and was never sent")
        elif expected.queue_of[message[0]] != queue:
            complaints.append(f"{queue}: {shown(message)} came, and belongs into {expected.queue_of[message[0]]}")
    return complaints


def _settled(ledgers: QueueLedgers, told: Rounds, expected: Expected) -> list[str]:
    certain: dict[Copy, tuple[float, int]] = {}
    for event in ledgers.acked:
        at = told.certain(event.session, event.at)
        if at is not None:
            certain.setdefault((event.queue, event.message), (at, told.life(event.session)))
    complaints = []
    for got in ledgers.got:
        at, life = certain.get((got.queue, got.message), (None, 0))
        if got.queue in expected.doubled:
            continue
        if at is not None and got.at > at and told.life(got.session) >= life:
            complaints.append(f"{got.queue}: {shown(got.message)} came {got.at - at:.3f} s after it was settled for good")
    for queue, message in ledgers.left:
        if (queue, message) in certain and queue not in expected.doubled:
            complaints.append(f"{queue}: {shown(message)} was settled for good, and is there in the end")
    return complaints


def _by_copy(ledgers: QueueLedgers, told: Rounds) -> dict[Copy, list[Got]]:
    copies: dict[Copy, list[Got]] = defaultdict(list)
    for got in sorted(ledgers.got, key=lambda got: (told.life(got.session), got.at)):
        copies[got.queue, got.message].append(got)
    return copies


def _marked(ledgers: QueueLedgers, told: Rounds, expected: Expected) -> list[str]:
    """A delivery after an earlier one is marked, unless a kill took the broker's memory of the earlier one."""
    complaints = []
    for (queue, message), gots in _by_copy(ledgers, told).items():
        if queue in expected.doubled:
            # Each kill may have made one more of it.
            unmarked, lives = sum(not got.redelivered for got in gots), told.life(gots[-1].session)
            if unmarked > 2 * lives - 1:
                complaints.append(f"{queue}: {shown(message)} came {unmarked} times without a mark over {lives} lives")
            continue
        for before, after in zip(gots, gots[1:], strict=False):
            if after.redelivered:
                continue
            if told.life(before.session) == told.life(after.session):
                complaints.append(f"{queue}: {shown(message)} came again without a mark, and without a kill between")
            elif told.certain(before.session, before.at) is not None:
                complaints.append(f"{queue}: {shown(message)} came again without a mark, long after it had come")
    return complaints


def _ordered(ledgers: QueueLedgers, expected: Expected) -> list[str]:
    """Within a session, of what comes for the first time."""
    complaints = []
    last: dict[tuple, Message] = {}
    for got in sorted(ledgers.got, key=lambda got: got.at):
        if got.queue not in expected.ordered or got.redelivered:
            continue
        priority = got.message[1] % expected.priorities.get(got.queue, 1)
        place = (got.queue, got.session, got.message[0], priority)
        before = last.get(place)
        if before and before[2] > got.message[2]:
            complaints.append(f"{got.queue}: {shown(got.message)} came to {got.session} after {shown(before)}")
        last[place] = got.message
    return complaints


def _counted(ledgers: QueueLedgers, told: Rounds, expected: Expected) -> list[str]:
    """A count is at least the rejections that the queue must know, and at most all that may have been a failure."""
    rejected: dict[Copy, list[Event]] = defaultdict(list)
    for event in ledgers.back:
        rejected[event.queue, event.message].append(event)
    ends: dict[str, list[float]] = defaultdict(list)
    for queue, at in ledgers.freed.values():
        ends[queue].append(at)
    complaints = []
    for (queue, message), gots in _by_copy(ledgers, told).items():
        if queue not in expected.counted:
            continue
        for got in gots:
            life = told.life(got.session)
            backs = [event for event in rejected[queue, message] if event.at < got.at]
            # Before a kill only those count that are certain.
            known = [
                event
                for event in backs
                if told.life(event.session) == life or told.certain(event.session, event.at) is not None
            ]
            # A connection that ends may take deliveries with it that its client never read, and so does a kill.
            most = len(backs) + sum(at < got.at for at in ends[queue]) + life
            if got.count < len(known):
                complaints.append(f"{queue}: {shown(message)} has the count {got.count} after {len(known)} rejections")
            if got.count > most:
                complaints.append(f"{queue}: {shown(message)} has the count {got.count}, and may have {most} at most")
    return complaints


def died(ledgers: QueueLedgers, expected: Expected) -> list[str]:
    return [
        f"{got.queue}: {shown(got.message)} says that it died {got.count} times"
        for got in ledgers.got
        if got.queue not in expected.counted and got.count != expected.deaths.get(got.message[0], 0)
    ]
