"""Disks that are slow, fail, are full or change what they hold, and clocks that are set."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faulting import filesystems
from faulting.clock import settable
from faulting.injection import Injection, inject
from faulting.stored import batches_in, flip
from harness.broker import BrokerEnded, BrokerFailed

from chaotic.faults.ground import RESTART_SECONDS, Active, Ground, start

STATUS_IO_ERROR, STATUS_HARMED = 74, 65
END_BY_ITSELF_SECONDS = 20.0
DISK_MEGABYTES = 2048
HELD_FREE_BYTES = 64 << 10
CLOCK_STEPS_SECONDS = (-86_400, -3600, -30, -2, 2, 30, 3600, 86_400)


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

    words = (
        f"flipped a bit of node {number} in {', '.join(names) or 'nothing'}{', which it refuses to open' if refused else ''}"
    )
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


def prepare(ground: Ground, names: set[str]) -> None:
    """What has to be there before the nodes start, for the faults that need it; whatever cannot be done raises."""
    if "full-disk" in names:
        for number, node in ground.cluster.nodes.items():
            trial = _Place(ground, node.data_dir.parent)
            ground.disks[number] = filesystems.ext4(trial, DISK_MEGABYTES)
            node.data_dir = ground.disks[number] / "data"
    if "clock" in names:
        for number, node in ground.cluster.nodes.items():
            ground.clocks[number] = settable(
                node.data_dir.parent if number not in ground.disks else ground.disks[number].parent
            )
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
