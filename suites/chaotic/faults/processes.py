"""Nodes that are killed, paused, stopped, restarted and drained."""

import shutil
import signal
import time

from faulting.scenario import CannotDo
from harness.broker import BrokerFailed

from chaotic.faults.ground import RESTART_SECONDS, Active, Ground, start

STARTS_CUT_SHORT_MAX = 3


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


def lose_directory(ground: Ground) -> Active | None:
    """A node dies and its directory with it. It has to come back by itself, and to have its votes again."""
    number = ground.one()
    if number is None:
        return None
    node = ground.node(number)
    ground.before_kill(number)
    node.kill()
    shutil.rmtree(node.data_dir)

    def undo() -> None:
        start(ground, (number,))
        began = time.monotonic()
        while without := ground.cluster.catching_up():
            if time.monotonic() - began > RESTART_SECONDS:
                raise BrokerFailed(f"node {number} has no vote in the shards {sorted(without)} after {RESTART_SECONDS:.0f} s")
            time.sleep(0.1)
        ground.say(f"node {number} votes everywhere again after another {time.monotonic() - began:.2f} s")

    # Until it has its votes again, no other may lose what it has.
    return Active("kill", (number,), f"killed node {number} and took its directory away", undo, frozenset([number]))


def replace_node(ground: Ground) -> Active | None:
    """A node is taken out of the cluster for good; another one of its number joins later, with nothing."""
    number = ground.one()
    if number is None:
        return None
    node, cluster = ground.node(number), ground.cluster
    began = time.monotonic()

    def others() -> list[int]:
        return [other for other in cluster.serving() if other != number]

    def is_listed() -> bool:
        statuses = [said for other in others() if (said := cluster.nodes[other].status()) is not None]
        return not statuses or any(number in status.nodes for status in statuses)

    def until(is_so, words: str) -> None:
        while not is_so():
            if time.monotonic() - began > 2 * RESTART_SECONDS:
                raise BrokerFailed(f"{words} after {2 * RESTART_SECONDS:.0f} s")
            time.sleep(0.1)

    def is_told() -> bool:
        told = cluster.verb("node", "remove", str(number), "--yes", "--no-wait", server=ground.dice.choice(others()))
        return told.returncode == 0

    until(is_told, f"nobody takes it that node {number} is to leave")
    until(lambda: not is_listed(), f"node {number} is to leave, and is not gone")
    until(lambda: not node.running(), f"node {number} was removed, and runs still")
    ground.say(f"node {number} has left after {time.monotonic() - began:.2f} s")
    node.kill()
    shutil.rmtree(node.data_dir)

    def votes_everywhere() -> bool:
        statuses = cluster.statuses().values()
        return bool(statuses) and all(number in shard.voters for said in statuses for shard in said.shards.values())

    def undo() -> None:
        nonlocal began
        began = time.monotonic()
        seeds = [address for peer, address in node.peers.items() if peer != number]
        with node.joining(seeds):
            start(ground, (number,))
        until(votes_everywhere, f"node {number} has joined, and has not all votes")
        ground.say(f"node {number} has joined and votes everywhere after {time.monotonic() - began:.2f} s")
        # From here on it reaches the others as before, by what can be cut.
        node.stop()
        start(ground, (number,))

    return Active("kill", (number,), f"took node {number} out of the cluster", undo, frozenset([number]))


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


def pause_minority(ground: Ground) -> Active | None:
    free = ground.free()
    if ground.room() < 1 or len(free) < ground.room():
        return None
    return _pause(ground, sorted(ground.dice.sample(free, ground.room())))


def pause_all(ground: Ground) -> Active | None:
    return _pause(ground, ground.cluster.numbers)


def pause_majority(ground: Ground) -> Active | None:
    return _pause(ground, sorted(ground.dice.sample(ground.cluster.numbers, len(ground.cluster.numbers) // 2 + 1)))


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
