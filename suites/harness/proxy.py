"""The network between nodes: a TCP proxy for each ordered pair of them, whose links can be cut, slowed and reset.

Node `a` reaches node `b` at an address of its own, so that a fault concerns that pair alone. What is ruled over is a *link*,
the bytes that go from one node to another: the requests of the connections that `a` made to `b`, and the answers on those that
`b` made to `a`. A link that is cut holds what it has taken, as a network holds what a sender will repeat; when it is healed
the bytes arrive late, unless the connections are reset.

The proxy is a process of its own: what it carries must not wait for the checks, nor they for it. It takes a command a line
in JSON and answers each with a line; when its input ends, so does it.
"""

import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

CHUNK_BYTES = 1 << 18
# Of one connection in one direction, while its link is slow; a sender that has more waits, as on any network.
CHUNKS_HELD_MAX = 64
CONNECT_SECONDS = 2.0
ANSWER_SECONDS = 20.0


@dataclass
class Rule:
    """How one link treats what is sent over it."""

    cut: bool = False
    # New connections are closed at once, as by a host without a listener.
    refuse: bool = False
    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    bytes_per_second: float = 0.0
    # Lost packets as TCP shows them: now and then everything behind waits for a repetition.
    stall_chance: float = 0.0
    stall_ms: float = 0.0


class Link:
    """What a rule says at the moment, and who waits for another one."""

    def __init__(self):
        self.rule = Rule()
        self.is_open = asyncio.Event()
        self.is_open.set()
        self.carried_bytes = 0
        self.free_at = 0.0

    def follow(self, rule: Rule) -> None:
        self.rule = rule
        if rule.cut:
            self.is_open.clear()
        else:
            self.is_open.set()

    def delay_seconds(self, size: int, now: float) -> float:
        rule = self.rule
        wait = 0.0
        if rule.delay_ms or rule.jitter_ms:
            wait = max(0.0, rule.delay_ms + random.uniform(-rule.jitter_ms, rule.jitter_ms)) / 1000
        if rule.stall_chance and random.random() < rule.stall_chance:
            wait += rule.stall_ms / 1000
        if rule.bytes_per_second:
            self.free_at = max(self.free_at, now) + size / rule.bytes_per_second
            wait += self.free_at - now
        return wait


async def carry(link: Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Everything from one end to the other, in order, for as long as both are there."""
    loop = asyncio.get_running_loop()
    held: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(CHUNKS_HELD_MAX)

    async def take() -> None:
        last = 0.0
        while True:
            await link.is_open.wait()
            # Small pieces where the rate is bound, so that it is even.
            data = await reader.read(1 << 14 if link.rule.bytes_per_second else CHUNK_BYTES)
            now = loop.time()
            # Nothing overtakes what was sent before it.
            last = max(last, now + link.delay_seconds(len(data), now))
            await held.put((last, data))
            if not data:
                return

    taking = asyncio.create_task(take())
    try:
        while True:
            due, data = await held.get()
            wait = due - loop.time()
            if wait > 0:
                await asyncio.sleep(wait)
            # An end of the stream is news as well, and does not pass a cut.
            await link.is_open.wait()
            if not data:
                if writer.can_write_eof():
                    writer.write_eof()
                return
            link.carried_bytes += len(data)
            writer.write(data)
            await writer.drain()
    finally:
        taking.cancel()


class Network:
    """All links and listeners."""

    def __init__(self):
        self.links: dict[tuple[int, int], Link] = {}
        self.targets: dict[tuple[int, int], tuple[str, int]] = {}
        self.connections: dict[tuple[int, int], set[asyncio.StreamWriter]] = {}
        self.servers: list[asyncio.Server] = []

    async def listen(self, source: int, target: int, host: str, port: int) -> int:
        """Opens the address at which `source` finds `target`; its port."""
        pair = (source, target)
        for link in (pair, pair[::-1]):
            self.links.setdefault(link, Link())
        self.targets[pair] = (host, port)
        self.connections[pair] = set()
        server = await asyncio.start_server(lambda *ends: self._serve(pair, *ends), "127.0.0.1", 0)
        self.servers.append(server)
        return server.sockets[0].getsockname()[1]

    async def _serve(self, pair: tuple[int, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = self.links[pair], self.links[pair[::-1]]
        ends = {writer}
        self.connections[pair].add(writer)
        try:
            # A connection is made by packets in both directions.
            while not (there.is_open.is_set() and back.is_open.is_set()):
                if there.rule.refuse or back.rule.refuse:
                    raise ConnectionRefusedError
                await there.is_open.wait()
                await back.is_open.wait()
            if there.rule.refuse or back.rule.refuse:
                raise ConnectionRefusedError
            opening = asyncio.open_connection(*self.targets[pair], limit=CHUNK_BYTES)
            far_reader, far_writer = await asyncio.wait_for(opening, CONNECT_SECONDS)
            ends.add(far_writer)
            self.connections[pair].add(far_writer)
            for end in ends:
                end.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            async with asyncio.TaskGroup() as both:
                both.create_task(carry(there, reader, far_writer))
                both.create_task(carry(back, far_reader, writer))
        except* (TimeoutError, OSError):
            pass
        finally:
            self.connections[pair] -= ends
            for end in ends:
                end.transport.abort()

    def follow(self, source: int, target: int, rule: Rule) -> None:
        self.links.setdefault((source, target), Link()).follow(rule)

    def reset(self, one: int, other: int) -> int:
        """Ends every connection between two nodes; how many there were."""
        ended = 0
        for pair in ((one, other), (other, one)):
            for writer in list(self.connections.get(pair, ())):
                writer.transport.abort()
                ended += 1
        return ended

    async def obey(self, command: dict) -> object:
        match command:
            case {"do": "listen", "source": source, "target": target, "host": host, "port": port}:
                return await self.listen(source, target, host, port)
            case {"do": "rules", "rules": rules}:
                for source, target, rule in rules:
                    self.follow(source, target, Rule(**rule))
                return len(rules)
            case {"do": "reset", "pairs": pairs}:
                return sum(self.reset(*pair) for pair in pairs)
            case {"do": "carried"}:
                return [[*link, self.links[link].carried_bytes] for link in sorted(self.links)]
        raise ValueError(f"no such command: {command}")


async def serve() -> None:
    network = Network()
    loop = asyncio.get_running_loop()
    commands = asyncio.StreamReader(limit=1 << 20)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():
        try:
            answer = {"done": await network.obey(json.loads(line))}
        except (ValueError, TypeError, KeyError, OSError) as failure:
            answer = {"failed": f"{type(failure).__name__}: {failure}"}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    # Whoever is still connected has nothing to be told.
    os._exit(0)


class ProxyFailed(Exception):
    """The proxy did not do what it was told."""


Pair = tuple[int, int]


class Proxies:
    """The proxy's process, and the shapes that a network can be given."""

    def __init__(self, nodes: list[int]):
        self.nodes = nodes
        self.ports: dict[Pair, int] = {}
        self.rules: dict[Pair, Rule] = {pair: Rule() for pair in self.all_links()}
        self.lock = threading.Lock()
        self.process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def all_links(self) -> list[Pair]:
        return [(a, b) for a in self.nodes for b in self.nodes if a != b]

    def _command(self, **command) -> object:
        with self.lock:
            try:
                self.process.stdin.write(json.dumps(command) + "\n")
                self.process.stdin.flush()
                line = self.process.stdout.readline()
            except OSError as failure:
                raise ProxyFailed(f"the proxy is gone: {failure}") from None
        if not line:
            raise ProxyFailed(f"the proxy ended with status {self.process.poll()}")
        answer = json.loads(line)
        if "failed" in answer:
            raise ProxyFailed(answer["failed"])
        return answer["done"]

    def open(self, source: int, target: int, port: int) -> int:
        """The port at which `source` reaches `target`, which listens at `port`."""
        opened = self._command(do="listen", source=source, target=target, host="127.0.0.1", port=port)
        self.ports[source, target] = opened
        return opened

    def follow(self, links: list[Pair], rule: Rule) -> None:
        """These links follow the rule, all at once."""
        self._command(do="rules", rules=[[*link, asdict(rule)] for link in links])
        self.rules.update(dict.fromkeys(links, rule))

    def cut(self, links: list[Pair], *, refuse: bool = False, reset: bool = False) -> None:
        """Nothing passes. Without `reset` the ends of a connection learn of it by silence alone."""
        self.follow(links, Rule(cut=True, refuse=refuse))
        if reset:
            self.reset(links)

    def reset(self, links: list[Pair]) -> int:
        return self._command(do="reset", pairs=sorted({tuple(sorted(link)) for link in links}))

    def heal(self, links: list[Pair] | None = None, *, reset: bool = False) -> None:
        """Everything passes again: what was held arrives late, or its connection ends."""
        links = self.all_links() if links is None else links
        if reset:
            # Before anything moves: what was held is not to arrive.
            self.reset(links)
        self.follow(links, Rule())

    def cut_links(self) -> set[Pair]:
        return {link for link, rule in self.rules.items() if rule.cut}

    def carried_bytes(self) -> dict[Pair, int]:
        return {(source, target): count for source, target, count in self._command(do="carried")}

    def close(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def both_ways(pairs: list[Pair]) -> list[Pair]:
    return sorted({link for a, b in pairs for link in ((a, b), (b, a))})


def between(some: list[int], others: list[int]) -> list[Pair]:
    """All links between two groups, in both directions."""
    return both_ways([(a, b) for a in some for b in others])


def isolate(node: int, nodes: list[int]) -> list[Pair]:
    """One node hears nobody, and nobody hears it."""
    return between([node], [other for other in nodes if other != node])


def deaf(node: int, nodes: list[int]) -> list[Pair]:
    """A node is heard and hears nobody."""
    return [(other, node) for other in nodes if other != node]


def mute(node: int, nodes: list[int]) -> list[Pair]:
    """A node hears everybody and is heard by nobody."""
    return [(node, other) for other in nodes if other != node]


def bridge(middle: int, nodes: list[int]) -> list[Pair]:
    """Two halves that cannot hear each other, and one node in the middle that hears, and is heard by, both."""
    others = [node for node in nodes if node != middle]
    half = len(others) // 2
    return between(others[:half], others[half:])


def ring(nodes: list[int]) -> list[Pair]:
    """Everybody hears a majority, and no two the same one: of five each its neighbours, of three each the one behind it."""
    count = len(nodes)
    if count == 3:
        return [(nodes[a], nodes[(a + 1) % 3]) for a in range(3)]
    reach = (count // 2 + 1) // 2
    apart = lambda a, b: min((a - b) % count, (b - a) % count)  # noqa: E731
    return [(nodes[a], nodes[b]) for a in range(count) for b in range(count) if a != b and apart(a, b) > reach]


def shattered(nodes: list[int]) -> list[Pair]:
    """Nobody hears anybody."""
    return [(a, b) for a in nodes for b in nodes if a != b]


if __name__ == "__main__":
    asyncio.run(serve())
