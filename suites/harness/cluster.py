"""Several nodes of one cluster on this machine, each a process with its own directory, and a network that can be harmed.

Clients reach a node at its own addresses. Nodes reach each other through `proxy`: what a node is told of its peers are
addresses of the proxy, a different one for each ordered pair, so that every pair can be cut by itself.
"""

import json
import os
import signal
import struct
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .broker import Broker, BrokerFailed
from .paths import weir_binary
from .proxy import Proxies
from .wire import call, connect

PROTOCOLS = ("cluster", "kafka", "amqp", "http")
# Few shards and small files: every start recovers all of them.
SMALL = {"shards": 3, "journal-file-bytes": "16MiB", "journal-bytes": "64MiB", "disk-reserve-bytes": 0}
ASK_SECONDS = 3.0
VERB_SECONDS = 60.0
FORM_SECONDS = 60.0
# Where a node tells of the cluster; the first that it knows is asked from then on.
STATUS_PATHS = ("/api/v1/cluster", "/api/cluster")
METADATA_KEY, METADATA_VERSION = 3, 1
NOBODY = -1


@dataclass(frozen=True)
class Shard:
    """What one node knows of one Raft group."""

    id: str
    leader: int | None
    term: int
    voters: tuple[int, ...] = ()
    applied: int | None = None
    # Voters that came back without their data and are filled anew.
    catching_up: tuple[int, ...] = ()


@dataclass(frozen=True)
class Status:
    """What one node says of the cluster."""

    nodes: tuple[int, ...]
    shards: dict[str, Shard]
    # The whole answer, for the words of a failure.
    said: dict = field(default_factory=dict, compare=False)


def _id(entry: object, *names: str) -> int | None:
    """A node's id, which may stand by itself or in an object; 0 and less are nobody."""
    if isinstance(entry, dict):
        entry = next((entry[name] for name in (*names, "id", "node_id", "node") if name in entry), None)
    return None if entry is None or int(entry) <= 0 else int(entry)


def parse_status(said: dict) -> Status:
    """The answer of the admin API, whether nodes stand in it by their ids or with more about them."""
    shards = {}
    for entry in said.get("shards", ()):
        name = str(entry.get("id", entry.get("shard")))
        voters = tuple(sorted(voter for one in entry.get("voters", ()) if (voter := _id(one)) is not None))
        applied = entry.get("applied_index")
        behind = tuple(entry.get("catching_up", ()))
        shards[name] = Shard(name, _id(entry.get("leader")), int(entry.get("term") or 0), voters, applied, behind)
    nodes = tuple(sorted(node for one in said.get("nodes", ()) if (node := _id(one)) is not None))
    return Status(nodes, shards, said)


class Node(Broker):
    """One member. `under` is a command that runs it, for faults that need one."""

    def __init__(self, number: int, place: Path, binary: Path, settings: dict[str, str], listeners: Iterable[str] = PROTOCOLS):
        self.number = number
        self.binary = binary
        self.settings = settings
        self.peers: dict[int, str] = {}
        # Where nodes are of a cluster that it joins when it starts next.
        self.seeds: list[str] = []
        self.under: list[str] = []
        # Always, as a clock that can be set.
        self.wrapping: list[str] = []
        self.paused = False
        place.mkdir(parents=True, exist_ok=True)
        super().__init__([], place / "data", tuple(listeners))
        self.log = place.parent / f"node-{number}.log"
        self.take_lasting_ports()

    def begin(self) -> None:
        flags = [f"--{name}={value}" for name, value in self.settings.items()]
        command = [str(self.binary), "serve", "--node-id", str(self.number), *flags]
        if self.seeds:
            command += ["--join", ",".join(self.seeds)]
        elif self.peers:
            command += ["--peers", ",".join(f"{peer}={address}" for peer, address in sorted(self.peers.items()))]
        self.command = [*self.under, *self.wrapping, *command]
        super().begin()

    @contextmanager
    def joining(self, seeds: list[str]):
        """Within it a start is that of a node that joins a cluster."""
        self.seeds = seeds
        try:
            yield
        finally:
            self.seeds = []

    def port(self, protocol: str) -> int:
        return int(self.addresses[protocol].rsplit(":", 1)[1])

    def address(self, protocol: str) -> tuple[str, int]:
        return "127.0.0.1", self.port(protocol)

    def pause(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)
        self.paused = True

    def resume(self) -> None:
        if self.process is not None and self.paused:
            os.kill(self.pid, signal.SIGCONT)
        self.paused = False

    def kill(self) -> None:
        super().kill()
        self.paused = False

    def serving(self) -> bool:
        """Whether there is a process that is not paused."""
        return self.running() and not self.paused

    def http(self, path: str, method: str = "GET", body: dict | None = None) -> tuple[int, str]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} if data else {}
        asked = urllib.request.Request(f"http://{self.addresses['http']}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=ASK_SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode(errors="replace")

    def ready(self) -> bool:
        try:
            return self.serving() and self.http("/health/ready")[0] == 200
        except OSError:
            return False

    def status(self) -> Status | None:
        """What it says of the cluster; nothing if it does not answer."""
        if not self.serving():
            return None
        for path in STATUS_PATHS:
            try:
                code, body = self.http(path)
                if code == 200:
                    return parse_status(json.loads(body))
            except (OSError, ValueError):
                return None
        return None

    def metadata(self) -> dict[tuple[str, int], int]:
        """Of every partition the node that leads it, as this one tells Kafka's clients; -1 for nobody."""
        with connect(self.addresses["kafka"], ASK_SECONDS) as connection:
            # No list of topics is all of them.
            return parse_metadata(call(connection, METADATA_KEY, METADATA_VERSION, struct.pack(">i", -1)))


def parse_metadata(answer: bytes) -> dict[tuple[str, int], int]:
    at = 0

    def number(shape: str) -> int:
        nonlocal at
        (found,) = struct.unpack_from(shape, answer, at)
        at += struct.calcsize(shape)
        return found

    def text() -> str:
        nonlocal at
        length = max(0, number(">h"))
        at += length
        return answer[at - length : at].decode()

    for _ in range(number(">i")):
        number(">i"), text(), number(">i"), text()
    number(">i")
    leaders = {}
    for _ in range(number(">i")):
        _, topic, _ = number(">h"), text(), number(">b")
        for _ in range(number(">i")):
            _, partition, leader = number(">h"), number(">i"), number(">i")
            leaders[topic, partition] = leader
            # Replicas, and those in step.
            for _ in range(2):
                count = number(">i")
                at += 4 * max(0, count)
    return leaders


class Cluster:
    """So many nodes, founded together."""

    def __init__(
        self,
        place: Path,
        count: int,
        *,
        settings: dict[str, str] | None = None,
        binary: Path | None = None,
        listeners: Iterable[str] = PROTOCOLS,
    ):
        self.place = place
        self.binary = binary or weir_binary()
        if not self.binary.exists():
            raise BrokerFailed(f"{self.binary} is not there; run `make build`, or name another in WEIR_BINARY")
        chosen = {name: str(value) for name, value in {**SMALL, **(settings or {})}.items() if value is not None}
        # One node that is alone has no listener for others.
        listeners = tuple(name for name in listeners if count > 1 or name != "cluster")
        numbers = list(range(1, count + 1))
        self.nodes = {number: Node(number, place / f"node-{number}", self.binary, chosen, listeners) for number in numbers}
        self.proxies = Proxies(numbers)
        if count > 1:
            for node in self.nodes.values():
                own = node.addresses["cluster"]
                node.peers = {
                    other.number: own
                    if other is node
                    else f"127.0.0.1:{self.proxies.open(node.number, other.number, other.port('cluster'))}"
                    for other in self.nodes.values()
                }

    # ------------------------------------------------------------------ processes

    @property
    def numbers(self) -> list[int]:
        return list(self.nodes)

    @property
    def minority(self) -> int:
        """How many nodes may be away while the others go on; one that is alone may be away itself."""
        return (len(self.nodes) - 1) // 2 if len(self.nodes) > 1 else 1

    @property
    def bootstrap(self) -> str:
        return ",".join(node.bootstrap for node in self.nodes.values())

    def found(self, seconds: float = FORM_SECONDS) -> float:
        """Starts all nodes; after how many seconds the last of them was ready."""
        return self.start(self.numbers, seconds)

    def start(self, numbers: Iterable[int], seconds: float = FORM_SECONDS) -> float:
        """Starts these side by side, since none may become ready without the others; the longest time that one took."""
        nodes = [self.nodes[number] for number in numbers]
        for node in nodes:
            node.start_seconds = seconds
            node.begin()
        try:
            return max((node.await_ready() for node in nodes), default=0.0)
        except BrokerFailed as failure:
            raise BrokerFailed(f"of nodes {[node.number for node in nodes]} one did not start: {failure}") from None

    def serving(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node.serving()]

    def ended_by_themselves(self) -> list[int]:
        """Nodes that ended though nobody ended them."""
        return [number for number, node in self.nodes.items() if node.process is not None and not node.running()]

    def stop(self) -> None:
        """All of them, in good order."""
        failures = []
        for node in self.nodes.values():
            node.resume()
            try:
                node.stop()
            except BrokerFailed as failure:
                failures.append(f"node {node.number}: {failure}")
        if failures:
            raise BrokerFailed("; ".join(failures))

    def close(self) -> None:
        """Ends everything, however it stands."""
        for node in self.nodes.values():
            node.kill()
        self.proxies.close()

    def logs(self) -> str:
        """How the log of each node ends."""
        return "".join(f"--- the log of node {node.number} ends with\n{node.log_tail()}\n" for node in self.nodes.values())

    def verb(self, *words: str, server: int | None = None) -> subprocess.CompletedProcess:
        """A verb of the command line, answered by one of the nodes."""
        number = server or next(iter(self.serving()), None)
        if number is None:
            raise BrokerFailed(f"no node runs that `{' '.join(words)}` could be asked of")
        command = [str(self.binary), *words, "--server", f"http://{self.nodes[number].addresses['http']}"]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=VERB_SECONDS)

    # ------------------------------------------------------------------ who leads

    def statuses(self) -> dict[int, Status]:
        return {number: said for number in self.serving() if (said := self.nodes[number].status()) is not None}

    def shard_leaders(self) -> dict[str, tuple[int, int]]:
        """Of each shard its leader and term, by the node that knows the highest term."""
        known: dict[str, tuple[int, int]] = {}
        for status in self.statuses().values():
            for shard in status.shards.values():
                if shard.leader is not None and shard.term >= known.get(shard.id, (0, -1))[1]:
                    known[shard.id] = (shard.leader, shard.term)
        return known

    def catching_up(self) -> set[str]:
        """The shards in which a node has no vote yet, by what any of them says."""
        statuses = self.statuses().values()
        return {shard.id for status in statuses for shard in status.shards.values() if shard.catching_up}

    def partition_leaders(self) -> dict[tuple[str, int], int]:
        """Of each partition its leader, by what most nodes tell clients."""
        told: dict[tuple[str, int], list[int]] = {}
        for number in self.serving():
            try:
                for place, leader in self.nodes[number].metadata().items():
                    told.setdefault(place, []).append(leader)
            except (OSError, ValueError, KeyError, struct.error):
                continue
        return {place: max(set(leaders), key=leaders.count) for place, leaders in told.items()}

    def leads(self, number: int) -> int:
        """How many shards, or else partitions, a node leads."""
        shards = self.shard_leaders()
        if shards:
            return sum(leader == number for leader, _ in shards.values())
        return sum(leader == number for leader in self.partition_leaders().values())

    def leader(self) -> int | None:
        """The node that leads most."""
        counts = {number: self.leads(number) for number in self.serving()}
        return max(counts, key=counts.get) if any(counts.values()) else None

    def discord(self) -> str | None:
        """Why the cluster is not at rest: a node that is not ready, a shard without a leader, or nodes that disagree."""
        for number, node in self.nodes.items():
            if not node.ready():
                return f"node {number} is not ready"
        statuses = self.statuses()
        if missing := set(self.numbers) - set(statuses):
            return f"nodes {sorted(missing)} do not tell of the cluster"
        views = {number: {s.id: (s.leader, s.term) for s in status.shards.values()} for number, status in statuses.items()}
        first = views[self.numbers[0]]
        for number, view in views.items():
            if leaderless := [shard for shard, (leader, _) in view.items() if leader is None]:
                return f"node {number} knows no leader of the shards {leaderless}"
            if view != first:
                return f"nodes {self.numbers[0]} and {number} disagree: {first}, {view}"
        if any("kafka" not in node.addresses for node in self.nodes.values()):
            return None
        try:
            told = [node.metadata() for node in self.nodes.values()]
        except (OSError, ValueError, struct.error) as failure:
            return f"a node tells Kafka's clients nothing: {failure}"
        for leaders in told:
            if NOBODY in leaders.values():
                return f"Kafka's clients are told of no leader of {[place for place, of in leaders.items() if of == NOBODY]}"
            if leaders != told[0]:
                return f"Kafka's clients are told different leaders: {leaders}, {told[0]}"
        return None

    def await_rest(self, seconds: float) -> float:
        """Until every node is ready and all agree on who leads; how long it took."""
        began = time.monotonic()
        while (why := self.discord()) is not None:
            if ended := self.ended_by_themselves():
                raise BrokerFailed(f"nodes {ended} ended by themselves")
            if time.monotonic() - began > seconds:
                raise BrokerFailed(f"not at rest after {seconds:.0f} s: {why}")
            time.sleep(0.1)
        return time.monotonic() - began
