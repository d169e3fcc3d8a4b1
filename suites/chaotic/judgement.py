"""What must hold over what clients were told, what was done to the cluster, and what is there in the end.

As in `killing`, the judgement is a function of plain data, and `suites/chaos --self-test` shows that it finds each kind of
damage. What a single broker decides alone, several decide by turns, so some of it is judged by time: what a client reads may
have been sent long before, over a link that was cut or by a node that was paused, and a leader that has just come to lead may
not know which message was handed out last. Where nothing of the kind was done, neither is an excuse.
"""

import statistics
from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass, field

from killing.ledger import UNKNOWN_OFFSET, Held, Place, judge
from killing.queues import Copy, Got, QueueLedgers, Rounds, died, kept, sent, shown

from chaotic.ledgers import Told, connection_of
from chaotic.messages import EXPECTED, MARKS

# What a busy machine adds to the way of a delivery that nothing holds up.
CARRIED_SECONDS = 1.0
# How long after a cut or a pause what was held by it may still arrive.
HELD_SECONDS = 3.0
# How long a leader that has lost its cluster may believe that it leads, and so hand out messages.
DEPOSED_SECONDS = 3.0
# A fault's echo: elections, connections that are found dead.
ECHO_SECONDS = 5.0
OUTAGE_SECONDS_MAX = 30.0
LATE = ("pause", "cut")
SLOW = ("slow", "flap")


@dataclass(frozen=True)
class Fault:
    """Something that was done to nodes, from a time to a time of the monotonic clock."""

    kind: str
    nodes: tuple[int, ...]
    begin: float
    end: float
    words: str = ""
    # When its undoing began: from then on what it held may arrive, before all of it is undone.
    undoing: float | None = None

    @property
    def lets_through(self) -> float:
        return self.end if self.undoing is None else self.undoing


@dataclass(frozen=True)
class Kill:
    """A leader that was killed, and the partitions that it led."""

    at: float
    node: int
    led: tuple[Place, ...]


@dataclass
class History:
    """What was done to the cluster, and when leaders were seen to change."""

    faults: list[Fault] = field(default_factory=list)
    kills: list[Kill] = field(default_factory=list)
    elections: list[float] = field(default_factory=list)

    def disturbed(self, since: float, until: float) -> bool:
        """Whether leaders may have changed between two times."""
        if any(fault.begin <= until and fault.end + ECHO_SECONDS >= since for fault in self.faults):
            return True
        return any(since - CARRIED_SECONDS <= at <= until + CARRIED_SECONDS for at in self.elections)

    def carried_late(self, sent_before: float, read_at: float) -> bool:
        """Whether what was sent before one time may have been read as late as another."""
        if read_at <= sent_before + CARRIED_SECONDS:
            return True
        carriers = self._one_after_another(sent_before + CARRIED_SECONDS)
        for fault in carriers:
            if fault.kind in SLOW and read_at <= fault.end + HELD_SECONDS:
                return True
            if fault.kind in LATE and fault.lets_through <= read_at <= fault.end + HELD_SECONDS:
                return True
            if fault.kind in LATE and read_at <= fault.begin + DEPOSED_SECONDS:
                return True
        return False

    def _one_after_another(self, until: float) -> list[Fault]:
        """Faults that began by a time, and those that kept on holding what these held."""
        found = []
        for fault in sorted(self.faults, key=lambda fault: fault.begin):
            if fault.kind not in LATE + SLOW:
                continue
            if fault.begin <= until or any(before.end + HELD_SECONDS >= fault.begin for before in found):
                found.append(fault)
        return found


def judge_topics(told: Told, held: Held, idempotent: set[str]) -> dict[str, list[str]]:
    verdicts = judge(told.topics, held, idempotent)
    # Of groups only what was committed is looked at here, and no topics come and go.
    for name in list(verdicts):
        if name.startswith(("group generations", "topics made")):
            del verdicts[name]
    return verdicts | {"an offset is given to one record, and a record one offset": _one_offset(told)}


def _one_offset(told: Told) -> list[str]:
    complaints = []
    for ledger in (told.topics.acks, told.topics.reads):
        for (topic, partition), entries in ledger.items():
            record_at: dict[int, tuple[str, int]] = {}
            offset_of: dict[tuple[str, int], int] = {}
            for offset, producer, sequence in entries:
                if offset == UNKNOWN_OFFSET:
                    continue
                if record_at.setdefault(offset, (producer, sequence)) != (producer, sequence):
                    first = record_at[offset]
                    complaints.append(
                        f"{topic}-{partition}@{offset} was given to {first[0]}'s {first[1]} and to {producer}'s {sequence}"
                    )
                if offset_of.setdefault((producer, sequence), offset) != offset:
                    before = offset_of[producer, sequence]
                    complaints.append(f"{topic}-{partition}: {producer}'s {sequence} stands at {before} and at {offset}")
    return complaints


def judge_queues(told: Told, history: History) -> dict[str, list[str]]:
    ledgers = told.queues
    # Sessions speak to nodes that come and go; which of a broker's lives they were in decides nothing here.
    rounds = Rounds(ledgers, [])
    return {
        "every confirmed message came to a consumer or is in its queue": kept(ledgers, EXPECTED),
        "nothing is in a queue that was not sent to it": sent(ledgers, EXPECTED),
        "what was settled for good does not come again": _settled(ledgers, rounds, history),
        "what comes again says so": _marked(ledgers, rounds, history),
        "a queue gives what a publisher sent over a connection in its order": _ordered(ledgers, history),
        "rejections that a queue must know of are counted": _counted(ledgers, rounds),
        "a death is counted once": died(ledgers, EXPECTED),
    }


def _settled(ledgers: QueueLedgers, rounds: Rounds, history: History) -> list[str]:
    certain: dict[Copy, float] = {}
    for event in ledgers.acked:
        at = rounds.certain(event.session, event.at)
        if at is not None and event.queue not in EXPECTED.doubled:
            copy = event.queue, event.message
            certain[copy] = min(at, certain.get(copy, at))
    complaints = []
    for got in ledgers.got:
        at = certain.get((got.queue, got.message))
        if at is not None and got.at > at and not history.carried_late(at, got.at):
            complaints.append(
                f"{got.queue}: {shown(got.message)} came to {got.session} {got.at - at:.3f} s after it was settled for good"
            )
    for queue, message in ledgers.left:
        if (queue, message) in certain:
            complaints.append(f"{queue}: {shown(message)} was settled for good, and is there in the end")
    return complaints


def _by_copy(ledgers: QueueLedgers) -> dict[Copy, list[Got]]:
    copies: dict[Copy, list[Got]] = defaultdict(list)
    for got in sorted(ledgers.got, key=lambda got: got.at):
        copies[got.queue, got.message].append(got)
    return copies


def _marked(ledgers: QueueLedgers, rounds: Rounds, history: History) -> list[str]:
    complaints = []
    for (queue, message), gots in _by_copy(ledgers).items():
        if queue in EXPECTED.doubled:
            continue
        for before, after in zip(gots, gots[1:], strict=False):
            if after.redelivered or after.at - before.at <= CARRIED_SECONDS:
                # Two sessions read side by side: which was given it first, their ledgers do not say so finely.
                continue
            # Its leader was asked for something after it had handed the message out, and was the same all the while.
            certain = rounds.certain(before.session, before.at)
            until = after.at if certain is None else min(certain, after.at)
            if not history.disturbed(before.at - CARRIED_SECONDS, until) and not history.carried_late(before.at, after.at):
                complaints.append(f"{queue}: {shown(message)} came again without a mark after {after.at - before.at:.3f} s")
    return complaints


def _ordered(ledgers: QueueLedgers, history: History) -> list[str]:
    """Within a session, of what comes for the first time, where leaders have not changed between."""
    complaints = []
    last: dict[tuple, Got] = {}
    for got in sorted(ledgers.got, key=lambda got: got.at):
        if got.queue not in EXPECTED.ordered or got.redelivered or got.message[0] in MARKS:
            continue
        place = (got.queue, got.session, got.message[0], connection_of(got.message[2]))
        before = last.get(place)
        if before and before.message[2] > got.message[2] and not history.disturbed(before.at, got.at):
            complaints.append(f"{got.queue}: {shown(got.message)} came to {got.session} after {shown(before.message)}")
        last[place] = got
    return complaints


def _counted(ledgers: QueueLedgers, rounds: Rounds) -> list[str]:
    rejected: dict[Copy, list[float]] = defaultdict(list)
    for event in ledgers.back:
        certain = rounds.certain(event.session, event.at)
        if certain is not None and event.queue in EXPECTED.counted:
            rejected[event.queue, event.message].append(certain)
    complaints = []
    copies = _by_copy(ledgers) if rejected else {}
    for (queue, message), times in rejected.items():
        for got in copies.get((queue, message), ()):
            known = sum(at + CARRIED_SECONDS < got.at for at in times)
            if got.count < known:
                complaints.append(f"{queue}: {shown(message)} has the count {got.count} after {known} rejections")
    return complaints


def outages(told: Told, history: History) -> tuple[list[float], list[str]]:
    """After each kill of a leader the longest time without an acknowledgement on a partition that it led.

    Where another fault began before writes went on, the time is not the kill's, and is left out.
    """
    seconds, complaints = [], []
    for kill in history.kills:
        gaps = {place: _gap(told.acknowledged_at.get(place, []), kill.at) for place in kill.led}
        for (topic, partition), gap in gaps.items():
            if gap is None:
                complaints.append(f"{topic}-{partition}: nothing was acknowledged any more after node {kill.node} was killed")
        if not gaps or None in gaps.values():
            continue
        place, longest = max(gaps.items(), key=lambda entry: entry[1])
        if any(kill.at < fault.begin <= kill.at + longest for fault in history.faults):
            continue
        seconds.append(longest)
        if longest > OUTAGE_SECONDS_MAX:
            complaints.append(f"{place[0]}-{place[1]}: {longest:.1f} s without an acknowledgement after a kill")
    return seconds, complaints


def _gap(times: list[float], at: float, window_seconds: float = 1.0) -> float | None:
    """The longest pause that begins within a moment after a kill: answers may have been under way at that time."""
    first = bisect_right(times, at)
    if first == len(times):
        return None
    longest = times[first] - at
    for index in range(first, min(bisect_left(times, at + window_seconds), len(times) - 1)):
        longest = max(longest, times[index + 1] - times[index])
    return longest


def percentiles(seconds: list[float]) -> str:
    if not seconds:
        return "no leader was killed"
    ordered = sorted(seconds)
    at = lambda share: ordered[min(len(ordered) - 1, int(share * len(ordered)))]  # noqa: E731
    return (
        f"without an acknowledged write after {len(ordered)} kills of a leader: p50 {statistics.median(ordered):.2f} s, "
        f"p99 {at(0.99):.2f} s, at most {ordered[-1]:.2f} s"
    )
