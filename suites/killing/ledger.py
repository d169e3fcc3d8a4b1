"""What the workers were promised, what the broker holds in the end, and the judgement over both.

The judgement is a function of plain data, so that it can be shown to find every kind of damage in
ledgers made up for the purpose (`suites/kills --self-test`).

A ledger is a text file of one event a line, written by one worker:

    ack     <topic> <partition> <offset> <producer> <sequence>   an acknowledged record
    read    <topic> <partition> <offset> <producer> <sequence>   a record that a consumer was given
    commit  <topic> <partition> <offset> <asked at> <told at>    an acknowledged commit of an offset
    start   <topic> <partition> <offset> <asked at> <told at>    where a new owner of a partition begins
    made    <topic>                                              an acknowledged creation
    going   <topic>                                              a deletion that is asked for
    gone    <topic>                                              an acknowledged deletion

A producer's client knows no offset of a batch that it sent again and that the broker had long had: -1.
Times are of the machine's monotonic clock, which all processes share.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

Place = tuple[str, int]
Entry = tuple[int, str, int]
COMPLAINTS_SHOWN_PER_CHECK = 5
UNKNOWN_OFFSET = -1


@dataclass
class Ledgers:
    """The events of all workers together."""

    acks: dict[Place, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    reads: dict[Place, list[Entry]] = field(default_factory=lambda: defaultdict(list))
    commits: dict[Place, list[tuple[int, float, float]]] = field(default_factory=lambda: defaultdict(list))
    starts: dict[Place, list[tuple[int, float, float]]] = field(default_factory=lambda: defaultdict(list))
    made: set[str] = field(default_factory=set)
    going: set[str] = field(default_factory=set)
    gone: set[str] = field(default_factory=set)

    def load(self, path: Path) -> None:
        records = {"ack": self.acks, "read": self.reads}
        positions = {"commit": self.commits, "start": self.starts}
        with path.open() as lines:
            for line in lines:
                # Of a ledger that is still written the end can be half a line.
                if not line.endswith("\n"):
                    break
                kind, topic, *rest = line.split()
                if kind in records:
                    partition, offset, producer, sequence = rest
                    records[kind][topic, int(partition)].append((int(offset), producer, int(sequence)))
                elif kind in positions:
                    partition, offset, asked, told = rest
                    positions[kind][topic, int(partition)].append((int(offset), float(asked), float(told)))
                else:
                    {"made": self.made, "going": self.going, "gone": self.gone}[kind].add(topic)


@dataclass
class Held:
    """What the broker holds after the last restart."""

    records: dict[Place, list[Entry]]
    committed: dict[Place, int]
    topics: set[str]
    # Of a group with one member that joined anew after each restart, in the order of time.
    generations: list[int]
    # Whatever the probe of that group found wrong on the way.
    group_complaints: list[str] = field(default_factory=list)


def judge(ledgers: Ledgers, held: Held, idempotent: set[str]) -> dict[str, list[str]]:
    """For each property its complaints; no complaint means that it holds."""
    return {
        "offsets are dense": _dense(held),
        "every acknowledged record is there, at its offset": _kept(ledgers, held),
        "idempotent producers' records are there exactly once": _once(held, idempotent),
        "each producer's records are in the order it sent them": _ordered(held),
        "what a consumer was given is what is there": _unchanged(ledgers, held),
        "no committed offset was lost": _committed(ledgers, held),
        "group generations only rise, members outlive the broker": _generations(held),
        "topics made are there, topics deleted are not": _topics(ledgers, held),
    }


def _dense(held: Held) -> list[str]:
    complaints = []
    for (topic, partition), records in held.records.items():
        for expected, (offset, _, _) in enumerate(records):
            if offset != expected:
                complaints.append(f"{topic}-{partition}: offset {offset} where {expected} should be")
                break
    return complaints


def _kept(ledgers: Ledgers, held: Held) -> list[str]:
    complaints = []
    for place, acks in ledgers.acks.items():
        there = {offset: (producer, sequence) for offset, producer, sequence in held.records.get(place, ())}
        written = set(there.values())
        for offset, producer, sequence in acks:
            if offset == UNKNOWN_OFFSET:
                if (producer, sequence) not in written:
                    complaints.append(f"{place[0]}-{place[1]}: {producer}'s {sequence} was acknowledged, and is not there")
                continue
            found = there.get(offset)
            if found != (producer, sequence):
                where = f"{place[0]}-{place[1]}@{offset}"
                words = f"holds {found[0]}'s {found[1]}" if found else "holds nothing"
                complaints.append(f"{where}: {producer}'s {sequence} was acknowledged there, and it {words}")
    return complaints


def _once(held: Held, idempotent: set[str]) -> list[str]:
    complaints = []
    for (topic, partition), records in held.records.items():
        seen: dict[str, set[int]] = defaultdict(set)
        for offset, producer, sequence in records:
            if producer not in idempotent:
                continue
            if sequence in seen[producer]:
                complaints.append(f"{topic}-{partition}@{offset}: {producer}'s {sequence} for the second time")
            seen[producer].add(sequence)
        for producer, sequences in seen.items():
            missing = set(range(len(sequences))) - sequences
            if missing:
                complaints.append(f"{topic}-{partition}: {producer}'s {min(missing)} is missing, later ones are there")
    return complaints


def _ordered(held: Held) -> list[str]:
    """Repeats of a producer without idempotence are allowed; a first appearance out of order is not."""
    complaints = []
    for (topic, partition), records in held.records.items():
        highest: dict[str, int] = {}
        seen: dict[str, set[int]] = defaultdict(set)
        for offset, producer, sequence in records:
            if sequence in seen[producer]:
                continue
            if sequence < highest.get(producer, -1):
                complaints.append(
                    f"{topic}-{partition}@{offset}: {producer}'s {sequence} comes after its {highest[producer]}"
                )
            seen[producer].add(sequence)
            highest[producer] = max(sequence, highest.get(producer, -1))
    return complaints


def _unchanged(ledgers: Ledgers, held: Held) -> list[str]:
    complaints = []
    for place, reads in ledgers.reads.items():
        there = {offset: (producer, sequence) for offset, producer, sequence in held.records.get(place, ())}
        for offset, producer, sequence in reads:
            if there.get(offset) != (producer, sequence):
                complaints.append(
                    f"{place[0]}-{place[1]}@{offset}: a consumer was given {producer}'s {sequence}, "
                    f"there is now {there.get(offset)}"
                )
    return complaints


def _committed(ledgers: Ledgers, held: Held) -> list[str]:
    """A position asked for after a commit was acknowledged must not lie before that commit."""
    complaints = []
    for (topic, partition), commits in ledgers.commits.items():
        by_time = sorted(commits, key=lambda commit: commit[2])
        promised = max(offset for offset, _, _ in commits)
        last = held.committed.get((topic, partition), -1)
        if last < promised:
            complaints.append(f"{topic}-{partition}: {promised} was committed, and in the end it is {last}")
        at = 0
        floor = -1
        for offset, asked, _ in sorted(ledgers.starts.get((topic, partition), ()), key=lambda start: start[1]):
            while at < len(by_time) and by_time[at][2] < asked:
                floor = max(floor, by_time[at][0])
                at += 1
            if offset < floor:
                complaints.append(f"{topic}-{partition}: {floor} was committed, and a new owner began at {offset}")
    return complaints


def _generations(held: Held) -> list[str]:
    complaints = list(held.group_complaints)
    for before, after in zip(held.generations, held.generations[1:], strict=False):
        if after <= before:
            complaints.append(f"generation {after} follows {before}")
    return complaints


def _topics(ledgers: Ledgers, held: Held) -> list[str]:
    # A deletion that nobody answered may have happened or not.
    lost = [f"{topic} was created, and is not there" for topic in sorted(ledgers.made - ledgers.going - held.topics)]
    return lost + [f"{topic} was deleted, and is there" for topic in sorted(ledgers.gone & held.topics)]
