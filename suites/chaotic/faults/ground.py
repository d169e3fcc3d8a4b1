"""What faults are done to, and what each of them says of itself."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from faulting.clock import Clock
from harness.cluster import Cluster, Node

RESTART_SECONDS = 90.0


@dataclass
class Active:
    """A fault that has begun: what it is to the judge, on which nodes, and how it ends."""

    kind: str
    nodes: tuple[int, ...]
    words: str
    undo: Callable[[], None]
    # Nodes that are no part of a majority while it lasts.
    away: frozenset[int] = frozenset()
    # Nodes that may end by themselves because of it.
    may_end: frozenset[int] = frozenset()


@dataclass
class Ground:
    """What faults are done to: the cluster, and what was prepared for them."""

    cluster: Cluster
    place: Path
    dice: random.Random
    say: Callable[[str], None]
    clocks: dict[int, Clock] = field(default_factory=dict)
    disks: dict[int, Path] = field(default_factory=dict)
    endings: list[Callable[[], None]] = field(default_factory=list)
    # Nodes that a fault has now, and those of them that are away.
    taken: set[int] = field(default_factory=set)
    away: set[int] = field(default_factory=set)
    # Called with a node that is about to be killed, while it still leads.
    before_kill: Callable[[int], None] = lambda number: None

    def at_end(self, undo: Callable[[], None]) -> None:
        self.endings.append(undo)

    def free(self) -> list[int]:
        return [number for number in self.cluster.serving() if number not in self.taken]

    def room(self) -> int:
        """How many more nodes may be away."""
        return self.cluster.minority - len(self.away)

    def one(self) -> int | None:
        free = self.free()
        return self.dice.choice(free) if free and self.room() > 0 else None

    def a_leader(self) -> int | None:
        """A node that leads something, drawn by how much it leads."""
        counts = {number: self.cluster.leads(number) for number in self.free()}
        leading = [number for number, count in counts.items() for _ in range(count)]
        return self.dice.choice(leading) if leading and self.room() > 0 else None

    def split(self) -> tuple[list[int], list[int]]:
        """All nodes in a smaller and a larger part, by chance."""
        numbers = self.cluster.numbers
        self.dice.shuffle(numbers)
        small = self.dice.randint(1, max(1, (len(numbers) - 1) // 2))
        return sorted(numbers[:small]), sorted(numbers[small:])

    def node(self, number: int) -> Node:
        return self.cluster.nodes[number]

    def close(self) -> None:
        for undo in reversed(self.endings):
            undo()
        self.endings.clear()


def start(ground: Ground, numbers: tuple[int, ...]) -> None:
    down = [number for number in numbers if ground.node(number).process is None]
    for number in numbers:
        ground.node(number).under = []
    seconds = ground.cluster.start(down, RESTART_SECONDS)
    ground.say(f"nodes {list(down)} are ready again after {seconds:.2f} s")
