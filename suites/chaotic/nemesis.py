"""Which fault comes when, from a seed, and the timeline of what was done.

The seed fixes the draws; who leads, and how long a start takes, it does not.
"""

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from pathlib import Path

from faulting.scenario import CannotDo
from harness.broker import BrokerFailed
from killing.ledger import Place

from chaotic.faults import KINDS, RESTART_SECONDS, Active, Ground, Kind, start
from chaotic.judgement import Fault, History, Kill
from chaotic.records import TOPICS

PAUSE_SECONDS_MAX = 4.0
# The chance that a fault that may come beside others does.
TOGETHER = 0.35
TICK_SECONDS = 0.05
WATCH_SECONDS = 0.4
# A leader killed in each cycle is started again at once, or when the others have taken over.
AT_ONCE = 0.5
TAKE_OVER_SECONDS = 40.0


class Timeline:
    """What was done and seen, in words, on the screen if wanted and in a file always."""

    def __init__(self, path: Path, shown: bool):
        self.began = time.monotonic()
        self.lines: list[str] = []
        self.file = path.open("w", buffering=1)
        self.shown = shown

    def say(self, words: str) -> None:
        line = f"{time.monotonic() - self.began:8.2f} s  {words}"
        self.lines.append(line)
        self.file.write(line + "\n")
        if self.shown:
            print(line, flush=True)


class Watch:
    """Looks at who leads, again and again, and notes when that changes."""

    def __init__(self, ground: Ground, history: History):
        self.ground, self.history = ground, history
        self.over = threading.Event()
        self.known: dict[str, tuple[int, int]] = {}
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not self.over.wait(WATCH_SECONDS):
            leaders = self.ground.cluster.shard_leaders()
            changed = [shard for shard, leader in leaders.items() if self.known.get(shard, leader) != leader]
            if changed:
                self.history.elections.append(time.monotonic())
                terms = [f"{shard} by node {leaders[shard][0]} in term {leaders[shard][1]}" for shard in sorted(changed)]
                self.ground.say(f"    led: {', '.join(terms)}")
            self.known.update(leaders)

    def close(self) -> None:
        self.over.set()
        self.thread.join()


@dataclass
class Nemesis:
    """Does faults to the ground, and keeps the history of it."""

    ground: Ground
    history: History
    timeline: Timeline
    kinds: list[Kind]
    named: bool = False
    active: list[tuple[Kind, Active, float, float]] = field(default_factory=list)
    done: dict[str, int] = field(default_factory=dict)
    undoable: dict[str, str] = field(default_factory=dict)

    def __post_init__(self):
        self.dice = self.ground.dice
        self.ground.before_kill = self._note_kill

    def _note_kill(self, number: int) -> None:
        """If nothing else is done, what a leader's end costs is measured."""
        if not self.active:
            led = led_by(self.ground, number)
            if led:
                self.history.kills.append(Kill(time.monotonic(), number, led))

    def run(self, seconds: float, healthy=lambda: None) -> None:
        """Faults for so long; `healthy` raises when there is no use in going on."""
        end = time.monotonic() + seconds
        next_at = time.monotonic() + self.dice.uniform(0.2, min(seconds, PAUSE_SECONDS_MAX))
        while (now := time.monotonic()) < end:
            for entry in [entry for entry in self.active if entry[3] <= now]:
                self._end(entry)
            if now >= next_at:
                self._begin_one()
                next_at = time.monotonic() + self.dice.uniform(0.2, PAUSE_SECONDS_MAX)
            self.look_for_ends()
            healthy()
            time.sleep(TICK_SECONDS)

    def _allowed(self, kind: Kind) -> bool:
        if kind.alone:
            return not self.active
        if any(other.alone for other, *_ in self.active):
            return False
        return not (kind.network and any(other.network for other, *_ in self.active))

    def _begin_one(self) -> None:
        waiting = self.named and any(kind.name not in self.done for kind in self.kinds)
        if self.active and (waiting or self.dice.random() > TOGETHER):
            return
        kinds = [kind for kind in self.kinds if self._allowed(kind)]
        if not kinds:
            return
        # What was asked for by name is done once before anything is done again.
        new = [kind for kind in kinds if kind.name not in self.done] if self.named else []
        (kind,) = self.dice.choices(new or kinds, [kind.weight for kind in new or kinds])
        began = time.monotonic()
        try:
            active = kind.begin(self.ground)
        except CannotDo as missing:
            self.timeline.say(f"{kind.name} cannot be done: {missing}")
            self.undoable[kind.name] = str(missing)
            self.kinds = [other for other in self.kinds if other is not kind]
            return
        if active is None:
            return
        self.done[kind.name] = self.done.get(kind.name, 0) + 1
        hold = self.dice.uniform(min(0.2, kind.seconds_max), kind.seconds_max)
        self.timeline.say(f"{kind.name}: {active.words}; for {hold:.1f} s")
        self.ground.taken.update(active.nodes if active.away else ())
        self.ground.away |= active.away
        self.active.append((kind, active, began, time.monotonic() + hold))

    def _end(self, entry: tuple[Kind, Active, float, float]) -> None:
        kind, active, began, _ = entry
        self.active.remove(entry)
        undoing = time.monotonic()
        try:
            self._undo(active)
        except CannotDo as missing:
            self.undoable[kind.name] = str(missing)
        self.timeline.say(f"{kind.name} is over")
        self.history.faults.append(Fault(active.kind, active.nodes, began, time.monotonic(), active.words, undoing))
        self.ground.taken = {node for _, other, *_ in self.active if other.away for node in other.nodes}
        self.ground.away = {node for _, other, *_ in self.active for node in other.away}

    def _undo(self, active: Active) -> None:
        """A node that starts may wait for what a fault of the network holds: that ends meanwhile, when its time has come."""
        with ThreadPoolExecutor(1) as apart:
            undone = apart.submit(active.undo)
            while not undone.done():
                now = time.monotonic()
                for other in [other for other in self.active if other[0].network and other[3] <= now]:
                    self._end(other)
                wait([undone], TICK_SECONDS)
        undone.result()

    def missed(self) -> list[str]:
        """Kinds that were not done yet."""
        return [kind.name for kind in self.kinds if kind.name not in self.done]

    def end_all(self) -> None:
        """The last first."""
        for entry in list(reversed(self.active)):
            self._end(entry)

    def give_up(self) -> None:
        """Nothing is undone: somebody else starts everything anew."""
        for _, active, began, _ in self.active:
            self.history.faults.append(Fault(active.kind, active.nodes, began, time.monotonic(), active.words))
        self.active.clear()

    def look_for_ends(self) -> None:
        may = {node for _, active, *_ in self.active for node in active.may_end}
        if ended := [number for number in self.ground.cluster.ended_by_themselves() if number not in may]:
            codes = {number: self.ground.node(number).process.returncode for number in ended}
            raise BrokerFailed(f"nodes ended by themselves, with status {codes}")

    def one_cycle(self, acknowledged_since) -> None:
        """Kills a leader, and starts it again at once or after the others have taken over what it led.

        `acknowledged_since` tells which partitions have had an acknowledgement after a time.
        """
        ground = self.ground
        number = ground.a_leader()
        if number is None:
            number = ground.dice.choice(ground.cluster.serving())
        led = led_by(ground, number)
        at_once = len(ground.cluster.nodes) < 3 or self.dice.random() < AT_ONCE
        at = time.monotonic()
        ground.node(number).kill()
        self.history.kills.append(Kill(at, number, led))
        self.timeline.say(f"killed node {number}, which led {len(led)} partitions{'; started at once' if at_once else ''}")
        if not at_once:
            while waiting := set(led) - acknowledged_since(at):
                if time.monotonic() - at > TAKE_OVER_SECONDS:
                    words = f"{TAKE_OVER_SECONDS:.0f} s after node {number} was killed"
                    raise BrokerFailed(f"{words} nothing is acknowledged on {sorted(waiting)}")
                time.sleep(TICK_SECONDS)
            self.timeline.say(f"all that it led is written to again, {time.monotonic() - at:.2f} s after")
        start(ground, (number,))
        ground.cluster.await_rest(RESTART_SECONDS)
        self.history.faults.append(Fault("kill", (number,), at, time.monotonic()))


def led_by(ground: Ground, number: int) -> tuple[Place, ...]:
    """The partitions under load that a node leads."""
    leaders = ground.cluster.partition_leaders()
    return tuple(sorted(place for place, leader in leaders.items() if leader == number and place[0] in TOPICS))


def chosen(names: list[str] | None, nodes: int) -> list[Kind]:
    """The kinds of these names, or all that so many nodes can have."""
    known = {kind.name for kind in KINDS}
    if unknown := set(names or ()) - known:
        raise ValueError(f"no such faults: {', '.join(sorted(unknown))}; there are {', '.join(sorted(known))}")
    kinds = [kind for kind in KINDS if (not names or kind.name in names) and kind.nodes_min <= nodes]
    if not kinds:
        raise ValueError(f"{nodes} nodes can have none of these faults")
    return kinds


def dice_for(seed: int) -> random.Random:
    return random.Random(f"{seed} nemesis")
