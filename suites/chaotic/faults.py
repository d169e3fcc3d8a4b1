"""Every fault that the nemesis knows: how it is done to a running cluster, and how it is undone.

A fault takes nodes that nothing else is being done to, and says which of them cannot take part in a majority until it is
undone, so that faults that come together leave one. Those that leave none on purpose come alone.
"""

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from faulting import filesystems
from faulting.clock import Clock, settable
from faulting.injection import Injection, inject
from faulting.scenario import CannotDo
from faulting.stored import batches_in, flip
from harness import proxy
from harness.broker import BrokerEnded, BrokerFailed
from harness.cluster import Cluster, Node
from harness.proxy import Rule

STATUS_IO_ERROR, STATUS_HARMED = 74, 65
RESTART_SECONDS = 90.0
END_BY_ITSELF_SECONDS = 20.0
DISK_MEGABYTES = 2048
HELD_FREE_BYTES = 64 << 10
CLOCK_STEPS_SECONDS = (-86_400, -3600, -30, -2, 2, 30, 3600, 86_400)
STARTS_CUT_SHORT_MAX = 3


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


# ---------------------------------------------------------------------------- processes


def _kill(ground: Ground, numbers: list[int], words: str) -> Active:
    for number in numbers:
        ground.before_kill(number)
    for number in numbers:
        ground.node(number).process.send_signal(signal.SIGKILL)
    for number in numbers:
        ground.node(number).kill()
    taken = tuple(numbers)
    return Active("kill", taken, words, lambda: start(ground, taken), frozenset(numbers))


def kill_leader(ground: Ground) -> Active | None:
    number = ground.a_leader()
    return number and _kill(ground, [number], f"killed node {number}, which led")


def kill_node(ground: Ground) -> Active | None:
    number = ground.one()
    return number and _kill(ground, [number], f"killed node {number}")


def kill_minority(ground: Ground) -> Active | None:
    free = ground.free()
    if ground.room() < 1 or len(free) < ground.room():
        return None
    some = sorted(ground.dice.sample(free, ground.room()))
    return _kill(ground, some, f"killed nodes {some} at once")


def kill_majority(ground: Ground) -> Active | None:
    some = sorted(ground.dice.sample(ground.cluster.numbers, len(ground.cluster.numbers) // 2 + 1))
    return _kill(ground, some, f"killed nodes {some} at once, a majority")


def kill_all(ground: Ground) -> Active | None:
    return _kill(ground, ground.cluster.numbers, "killed all nodes at once")


def kill_while_starting(ground: Ground) -> Active | None:
    number = ground.one()
    if number is None:
        return None
    node = ground.node(number)
    node.kill()
    times = ground.dice.randint(1, STARTS_CUT_SHORT_MAX)
    for _ in range(times):
        node.start_and_kill_after(ground.dice.uniform(0.0, 0.5))
    words = f"killed node {number}, and {times} times while it started"
    return Active("kill", (number,), words, lambda: start(ground, (number,)), frozenset([number]))


def stop_node(ground: Ground) -> Active | None:
    number = ground.one()
    if number is None:
        return None
    ground.node(number).stop()
    words = f"stopped node {number} in good order"
    return Active("restart", (number,), words, lambda: start(ground, (number,)), frozenset([number]))


def rolling_restart(ground: Ground) -> Active | None:
    for number in ground.cluster.numbers:
        ground.node(number).stop()
        start(ground, (number,))
        ground.cluster.await_rest(RESTART_SECONDS)
    return Active("restart", tuple(ground.cluster.numbers), "restarted all nodes, one after the other", lambda: None)


def _pause(ground: Ground, numbers: list[int]) -> Active:
    for number in numbers:
        ground.node(number).pause()

    def undo() -> None:
        for number in numbers:
            ground.node(number).resume()

    return Active("pause", tuple(numbers), f"paused nodes {numbers}", undo, frozenset(numbers))


def pause_node(ground: Ground) -> Active | None:
    number = ground.one()
    return number and _pause(ground, [number])


def pause_leader(ground: Ground) -> Active | None:
    number = ground.a_leader()
    return number and _pause(ground, [number])


def pause_majority(ground: Ground) -> Active | None:
    return _pause(ground, sorted(ground.dice.sample(ground.cluster.numbers, len(ground.cluster.numbers) // 2 + 1)))


# ---------------------------------------------------------------------------- network


def _cut(ground: Ground, links: list[proxy.Pair], words: str, away: list[int]) -> Active:
    proxies, dice = ground.cluster.proxies, ground.dice
    refuse, reset, reset_after = dice.random() < 0.3, dice.random() < 0.4, dice.random() < 0.5
    proxies.cut(links, refuse=refuse, reset=reset)
    nodes = tuple(sorted({node for link in links for node in link}))
    manner = ["connections reset" if reset else "connections silent", "new ones refused" if refuse else "new ones silent"]
    manner.append("all reset in the end" if reset_after else "what was held comes late")
    return Active("cut", nodes, f"{words} ({', '.join(manner)})", lambda: proxies.heal(links, reset=reset_after), frozenset(away))


def isolate_node(ground: Ground) -> Active | None:
    number = ground.one()
    return number and _cut(ground, proxy.isolate(number, ground.cluster.numbers), f"cut off node {number}", [number])


def isolate_leader(ground: Ground) -> Active | None:
    number = ground.a_leader()
    return number and _cut(
        ground, proxy.isolate(number, ground.cluster.numbers), f"cut off node {number}, which led", [number]
    )


def halves(ground: Ground) -> Active | None:
    small, large = ground.split()
    if len(small) > ground.room():
        return None
    return _cut(ground, proxy.between(small, large), f"split {small} from {large}", small)


def bridge(ground: Ground) -> Active | None:
    numbers = ground.cluster.numbers
    ground.dice.shuffle(numbers)
    middle = numbers[0]
    return _cut(ground, proxy.bridge(middle, numbers), f"node {middle} alone is heard by {sorted(numbers[1:])}", [])


def ring(ground: Ground) -> Active | None:
    numbers = ground.cluster.numbers
    ground.dice.shuffle(numbers)
    return _cut(ground, proxy.ring(numbers), f"a ring of majorities {numbers}", [])


def deaf(ground: Ground) -> Active | None:
    number = ground.a_leader() or ground.one()
    return number and _cut(ground, proxy.deaf(number, ground.cluster.numbers), f"node {number} hears nobody", [number])


def mute(ground: Ground) -> Active | None:
    number = ground.a_leader() or ground.one()
    return number and _cut(ground, proxy.mute(number, ground.cluster.numbers), f"nobody hears node {number}", [number])


def one_way(ground: Ground) -> Active | None:
    link = ground.dice.choice(ground.cluster.proxies.all_links())
    return _cut(ground, [link], f"node {link[1]} does not hear node {link[0]}", [])


def shatter(ground: Ground) -> Active | None:
    numbers = ground.cluster.numbers
    return _cut(ground, proxy.shattered(numbers), "nobody hears anybody", numbers)


def flap(ground: Ground) -> Active | None:
    """A link, or all of a node's, that come and go."""
    number = ground.one()
    if number is None:
        return None
    proxies, numbers = ground.cluster.proxies, ground.cluster.numbers
    links = proxy.isolate(number, numbers) if ground.dice.random() < 0.5 else ground.dice.sample(proxies.all_links(), 1)
    dice = random.Random(ground.dice.random())
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            proxies.cut(links, reset=dice.random() < 0.3)
            over.wait(dice.uniform(0.1, 1.5))
            proxies.heal(links, reset=dice.random() < 0.3)
            over.wait(dice.uniform(0.1, 1.5))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def undo() -> None:
        over.set()
        thread.join()
        proxies.heal(links)

    nodes = tuple(sorted({node for link in links for node in link}))
    return Active("flap", nodes, f"the links {links} come and go", undo, frozenset([number]))


def _slow(ground: Ground, rule: Rule, words: str) -> Active:
    proxies = ground.cluster.proxies
    number = ground.dice.choice([None, *ground.cluster.numbers])
    links = proxies.all_links() if number is None else proxy.isolate(number, ground.cluster.numbers)
    proxies.follow(links, rule)
    where = "everywhere" if number is None else f"around node {number}"
    nodes = tuple(ground.cluster.numbers if number is None else [number])
    return Active("slow", nodes, f"{words} {where}", lambda: proxies.heal(links))


def delay(ground: Ground) -> Active | None:
    ms = ground.dice.choice((5, 20, 100, 250))
    return _slow(ground, Rule(delay_ms=ms, jitter_ms=ms / 2), f"{ms} ms of delay")


def loss(ground: Ground) -> Active | None:
    """Packets that are lost, as connections show it: everything behind them waits until they were sent again."""
    chance, ms = ground.dice.choice(((0.01, 200), (0.05, 200), (0.02, 1000)))
    return _slow(ground, Rule(delay_ms=1, stall_chance=chance, stall_ms=ms), f"{chance:.0%} waits of {ms} ms")


def throttle(ground: Ground) -> Active | None:
    kilobytes = ground.dice.choice((100, 500, 2000))
    return _slow(ground, Rule(bytes_per_second=kilobytes * 1000), f"{kilobytes} kB/s")


def reset_connections(ground: Ground) -> Active | None:
    links = ground.cluster.proxies.all_links()
    some = ground.dice.sample(links, ground.dice.randint(1, len(links)))
    ended = ground.cluster.proxies.reset(some)
    nodes = tuple(sorted({node for link in some for node in link}))
    return Active("cut", nodes, f"reset {ended} ends of connections on {len(some)} links", lambda: None)


# ---------------------------------------------------------------------------- disks and clocks


def _restart_under(ground: Ground, number: int, injection: Injection) -> bool:
    """Kills a node and starts it with calls that are meddled with; whether it became ready."""
    node = ground.node(number)
    node.kill()
    node.under = injection.command
    node.start_seconds = RESTART_SECONDS
    try:
        node.start()
    except BrokerEnded as ended:
        if ended.status != STATUS_IO_ERROR:
            raise
        return False
    return True


def slow_sync(ground: Ground) -> Active | None:
    number = ground.one()
    if number is None:
        return None
    ms = ground.dice.choice((20, 100, 400))
    _restart_under(ground, number, inject(ground.place, "fdatasync", f"delay_enter={ms * 1000}"))

    def undo() -> None:
        ground.node(number).kill()
        start(ground, (number,))

    return Active("slow-sync", (number,), f"syncs of node {number} take {ms} ms more", undo, frozenset([number]))


def failing_sync(ground: Ground) -> Active | None:
    number = ground.one()
    if number is None:
        return None
    at = ground.dice.choice((1, 20, 100, 400))
    injection = inject(ground.place, "fdatasync", f"error=EIO:when={at}+")
    _restart_under(ground, number, injection)
    node = ground.node(number)

    def undo() -> None:
        if node.process is not None and injection.done():
            # It has to end by itself, and to say so by its status.
            status = node.process.wait(END_BY_ITSELF_SECONDS)
            node.process = None
            if status != STATUS_IO_ERROR:
                raise BrokerFailed(f"node {number} ended with status {status} after a sync had failed")
        node.kill()
        start(ground, (number,))

    words = f"syncs of node {number} fail from one thread's {at}th on"
    return Active("kill", (number,), words, undo, frozenset([number]), frozenset([number]))


def full_disk(ground: Ground) -> Active | None:
    number = ground.one()
    if number is None or number not in ground.disks:
        return None
    mount = ground.disks[number]
    block = mount / "somebody-elses-block"
    leave = ground.dice.choice((0, HELD_FREE_BYTES))
    with block.open("wb") as file:
        # Most of it without writing; the rest byte by byte.
        os.posix_fallocate(file.fileno(), 0, max(1, filesystems.free_bytes(mount) - (4 << 20)))
    rest = filesystems.fill(mount, leave)

    def undo() -> None:
        rest.unlink()
        block.unlink()

    return Active("full-disk", (number,), f"the disk of node {number} has {leave} bytes left", undo, frozenset([number]))


def flipped_bytes(ground: Ground) -> Active | None:
    """Bits of closed and open segments change while a node is down; they change back in the end, if nobody mended them."""
    number = ground.one()
    if number is None:
        return None
    node = ground.node(number)
    node.kill()
    candidates = [path for path in sorted(node.data_dir.glob("shards/*/*/*.log")) if batches_in(path)]
    done: list[tuple[Path, int, int, bytes]] = []
    for path in ground.dice.sample(candidates, min(len(candidates), ground.dice.randint(1, 3))):
        batch = ground.dice.choice(batches_in(path))
        position = batch.position + ground.dice.randrange(21, batch.bytes)
        content = path.read_bytes()[batch.position : batch.position + batch.bytes]
        flip(path, position)
        done.append((path, position, batch.position, content))
    names = [f"{path.relative_to(node.data_dir)} at {position}" for path, position, _, _ in done]
    node.start_seconds = RESTART_SECONDS
    refused = False
    try:
        node.start()
    except BrokerEnded as ended:
        # It may refuse to open what is harmed, if it says so.
        if ended.status != STATUS_HARMED:
            _flip_back(done)
            raise
        refused = True

    def undo() -> None:
        node.kill()
        mended = len(done) - _flip_back(done)
        ground.say(f"node {number}: {mended} of {len(done)} flipped bytes were mended by itself, the others put back")
        start(ground, (number,))

    words = f"flipped a bit of node {number} in {', '.join(names) or 'nothing'}{', which it refuses to open' if refused else ''}"
    return Active("flip", (number,), words, undo, frozenset([number]))


def _flip_back(done: list[tuple[Path, int, int, bytes]]) -> int:
    """Where the bytes are still as they were harmed; how many were."""
    count = 0
    for path, position, begin, content in done:
        try:
            now = path.read_bytes()[begin : begin + len(content)]
        except FileNotFoundError:
            continue
        if now != content and len(now) == len(content):
            flip(path, position)
            count += 1
    return count


def clock_step(ground: Ground) -> Active | None:
    free = [number for number in ground.free() if number in ground.clocks]
    if not free or ground.room() < 1:
        return None
    number = ground.dice.choice(free)
    seconds = ground.dice.choice(CLOCK_STEPS_SECONDS)
    ground.clocks[number].set(seconds)
    return Active(
        "clock",
        (number,),
        f"the clock of node {number} is {seconds:+d} s off",
        lambda: ground.clocks[number].set(0),
        frozenset([number]),
    )


# ---------------------------------------------------------------------------- an operator


def drain(ground: Ground) -> Active | None:
    number = ground.one()
    if number is None:
        return None

    def verb(word: str) -> None:
        done = ground.cluster.verb("node", word, str(number))
        if done.returncode != 0:
            raise CannotDo(f"`weir node {word} {number}` ends with {done.returncode}: {done.stderr.strip()[-300:]}")

    verb("drain")
    deadline = time.monotonic() + RESTART_SECONDS
    while ground.cluster.leads(number):
        if time.monotonic() > deadline:
            raise BrokerFailed(f"node {number} is drained, and leads still after {RESTART_SECONDS:.0f} s")
        time.sleep(0.1)
    return Active("drain", (number,), f"drained node {number}", lambda: verb("undrain"))


@dataclass(frozen=True)
class Kind:
    """A fault by its name, and under which circumstances it may come."""

    name: str
    begin: Callable[[Ground], Active | None]
    weight: int
    nodes_min: int = 3
    # Nothing else is done meanwhile: it leaves no majority, or needs every node.
    alone: bool = False
    # One at a time, as links follow one rule.
    network: bool = False
    # The longest that it lasts.
    seconds_max: float = 10.0


KINDS = (
    Kind("kill-leader", kill_leader, 6),
    Kind("kill-node", kill_node, 3),
    Kind("kill-minority", kill_minority, 2, nodes_min=5),
    Kind("kill-majority", kill_majority, 2, alone=True, seconds_max=5),
    Kind("kill-all", kill_all, 2, nodes_min=1, alone=True, seconds_max=3),
    Kind("kill-while-starting", kill_while_starting, 2),
    Kind("stop-node", stop_node, 2),
    Kind("rolling-restart", rolling_restart, 1, alone=True, seconds_max=1),
    Kind("pause-node", pause_node, 2, seconds_max=15),
    Kind("pause-leader", pause_leader, 3, seconds_max=15),
    Kind("pause-majority", pause_majority, 1, alone=True),
    Kind("isolate-node", isolate_node, 2, network=True, seconds_max=30),
    Kind("isolate-leader", isolate_leader, 4, network=True, seconds_max=30),
    Kind("halves", halves, 3, network=True, seconds_max=30),
    Kind("bridge", bridge, 3, alone=True, network=True, seconds_max=20),
    Kind("ring", ring, 3, alone=True, network=True, seconds_max=20),
    Kind("deaf", deaf, 2, network=True, seconds_max=20),
    Kind("mute", mute, 2, network=True, seconds_max=20),
    Kind("one-way", one_way, 2, network=True, alone=True, seconds_max=20),
    Kind("shatter", shatter, 1, alone=True, network=True),
    Kind("flap", flap, 2, network=True, seconds_max=20),
    Kind("delay", delay, 2, network=True, seconds_max=15),
    Kind("loss", loss, 2, network=True, seconds_max=15),
    Kind("throttle", throttle, 1, network=True, seconds_max=10),
    Kind("reset", reset_connections, 2, network=True, seconds_max=0.5),
    Kind("slow-sync", slow_sync, 2, seconds_max=15),
    Kind("failing-sync", failing_sync, 2, seconds_max=10),
    Kind("full-disk", full_disk, 2, seconds_max=15),
    Kind("flip", flipped_bytes, 1),
    Kind("clock", clock_step, 2, seconds_max=20),
    Kind("drain", drain, 2, seconds_max=10),
)


def prepare(ground: Ground, names: set[str]) -> None:
    """What has to be there before the nodes start, for the faults that need it; whatever cannot be done raises."""
    if "full-disk" in names:
        for number, node in ground.cluster.nodes.items():
            trial = _Place(ground, node.data_dir.parent)
            ground.disks[number] = filesystems.ext4(trial, DISK_MEGABYTES)
            node.data_dir = ground.disks[number] / "data"
    if "clock" in names:
        for number, node in ground.cluster.nodes.items():
            ground.clocks[number] = settable(node.data_dir.parent if number not in ground.disks else ground.disks[number].parent)
            node.wrapping = ground.clocks[number].command
    if names & {"slow-sync", "failing-sync"}:
        inject(ground.place, "fdatasync", "delay_enter=1")


@dataclass
class _Place:
    """As much of a trial as `filesystems` asks for."""

    ground: Ground
    place: Path

    def at_end(self, undo: Callable[[], None]) -> None:
        self.ground.at_end(undo)
