"""The brokers that are measured, as processes that are watched.

`kafka-flush` is a second node of the same Apache Kafka whose default of the topic setting
`flush.messages` is 1: it syncs every batch before it acknowledges it, which is what Weir always does.
RabbitMQ has a node of its own for each kind of queue, so that memory and CPU are told apart.
"""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness import install
from harness.broker import Broker, BrokerFailed, kafka, rabbitmq, weir
from harness.paths import ROOT, weir_binary
from harness.ports import free_port

from . import Fault, machine, processes

# Ends a child when the thread that started it ends in whatever way; it replaces itself by the child.
TIED = ["setpriv", "--pdeathsig", "KILL", "--"]
GONE_SECONDS = 30
# Fewer flushes of the disk than this mean that nothing was synced, whatever the settings say.
FLUSHES_PER_SECOND_LEAST = 1.0
NEVER = str(2**63 - 1)


def commit() -> str:
    command = ["git", "describe", "--always", "--dirty", "--exclude=*"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.strip()


def weir_version() -> str:
    binary = weir_binary("release")
    build = "release build" if binary.parent.name == "release" else f"binary {binary}"
    return f"Weir {commit()}, {build}, its own defaults"


def kafka_version() -> str:
    (jar,) = (part for part in install.kafka_class_path().split(":") if "/kafka_2.13-" in part)
    release = Path(jar).stem.rpartition("-")[2]
    java = subprocess.run(["java", "-version"], capture_output=True, text=True).stderr.splitlines()[0]
    return f"Apache Kafka {release}, KRaft, one node, its own defaults, {java}"


def rabbitmq_version() -> str:
    def installed(package: str) -> str:
        command = ["dpkg-query", "--show", "--showformat", "${Version}", package]
        return subprocess.run(command, capture_output=True, text=True).stdout.strip()

    return (
        f"RabbitMQ {installed('rabbitmq-server')} of Debian on Erlang {installed('erlang-base')}, one node for each "
        "kind of queue, its own defaults, without plugins"
    )


@dataclass(frozen=True)
class Kind:
    """One broker with one durability."""

    title: str
    make: Callable[[Path], Broker]
    # Said of all kinds of one broker.
    version: Callable[[], str]
    # How it makes durable what it acknowledges, in words, and whether that shows as flushes of the disk.
    synced: str
    syncs: bool
    # Setting of a topic by which the durability is checked, and its value.
    durability: tuple[str, str] | None = None
    # Of the queues that are measured on it; None for a broker without queues.
    queue_arguments: dict[str, str | int] | None = None


KINDS = {
    "weir": Kind(
        "Weir",
        lambda path: weir(path, profile="release"),
        weir_version,
        "Weir: every record by `fdatasync` before it is acknowledged.",
        syncs=True,
        durability=("weir.durability", "sync"),
        queue_arguments={},
    ),
    "kafka": Kind(
        "Kafka",
        kafka,
        kafka_version,
        "Kafka: acknowledged from the page cache, its default; the operating system writes later.",
        syncs=False,
        durability=("flush.messages", NEVER),
    ),
    "kafka-flush": Kind(
        "Kafka, flush.messages=1",
        lambda path: kafka(path, settings={"log.flush.interval.messages": "1"}),
        kafka_version,
        "Kafka with `flush.messages=1`: every batch is synced before it is acknowledged.",
        syncs=True,
        durability=("flush.messages", "1"),
    ),
    "rabbitmq-classic": Kind(
        "RabbitMQ, classic v1",
        rabbitmq,
        rabbitmq_version,
        "RabbitMQ, classic v1: a message is confirmed once it was synced (`fsync`, many at a time), or once a consumer has "
        "acknowledged it.",
        syncs=True,
        queue_arguments={"x-queue-version": 1},
    ),
    "rabbitmq-classic-2": Kind(
        "RabbitMQ, classic v2",
        rabbitmq,
        rabbitmq_version,
        "RabbitMQ, classic v2: a message below 4 KiB is confirmed from the page cache and never synced, as `strace` shows; "
        "a larger one as with v1.",
        syncs=False,
        queue_arguments={"x-queue-version": 2},
    ),
    "rabbitmq-quorum": Kind(
        "RabbitMQ, quorum",
        rabbitmq,
        rabbitmq_version,
        "RabbitMQ, quorum: every message by `fdatasync` of the write-ahead log before it is confirmed, many at a time; one "
        "node, which is its own majority.",
        syncs=True,
        queue_arguments={"x-queue-type": "quorum"},
    ),
}


class Peer:
    """One running broker."""

    def __init__(self, name: str, place: Path):
        self.name = name
        self.kind = KINDS[name]
        self.place = place
        place.mkdir()
        self.broker = self._made()
        self.named = 0
        # Topics that several cases read, by what is in them.
        self.filled: dict[tuple, str] = {}

    def _made(self) -> Broker:
        broker = self.kind.make(self.place / "data")
        broker.command = [*TIED, *broker.command]
        broker.addresses = {name: f"127.0.0.1:{free_port()}" for name in broker.addresses}
        return broker

    def new_name(self) -> str:
        """A name that nothing on this broker has yet."""
        self.named += 1
        return f"bench-{self.named}"

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    def check_running(self) -> None:
        if not self.broker.running():
            raise Fault(f"{self.kind.title} has ended\n{self.broker.log_tail()}")

    def pids(self) -> list[int]:
        self.check_running()
        return processes.tree(self.broker.pid)

    def cpu_seconds(self) -> float:
        return processes.cpu_seconds(self.pids())

    def memory(self) -> processes.Memory:
        return processes.memory(self.pids())

    def heap_used_mib(self) -> float | None:
        """What lives in the JVM's heap, garbage included; None for a broker without one."""
        jvm = self.pids()[-1]
        if "java" not in Path(f"/proc/{jvm}/comm").read_text() or not shutil.which("jcmd"):
            return None
        told = subprocess.run(["jcmd", str(jvm), "GC.heap_info"], capture_output=True, text=True).stdout
        used = re.search(r"heap\s+total.*?used (\d+)K", told)
        return int(used[1]) / 1024 if used else None

    def __enter__(self) -> "Peer":
        try:
            self.broker.start()
        except BaseException:
            self.kill()
            raise
        return self

    def __exit__(self, *_) -> None:
        self.kill()

    def kill(self) -> None:
        """`kill -9`, and only back when nothing of the process is left: a port and a lock are free again."""
        pids = processes.tree(self.broker.pid) if self.broker.process else []
        # A launcher's children too: not every one of them ends with it.
        processes.kill(pids[1:])
        self.broker.kill()
        deadline = time.monotonic() + GONE_SECONDS
        while not processes.gone(pids):
            if time.monotonic() > deadline:
                raise Fault(f"{self.kind.title} does not die of `kill -9`")
            time.sleep(0.001)

    def fresh(self) -> None:
        """The same broker without any data, as after its installation."""
        self.kill()
        shutil.rmtree(self.place / "data", ignore_errors=True)
        self.broker = self._made()
        self.broker.start()


class Watch:
    """What a broker and the machine spent from here until `end`."""

    def __init__(self, peer: Peer):
        self.peer = peer
        processes.forget_highest(peer.pids())
        self.began = time.monotonic()
        self.cpu = peer.cpu_seconds()
        self.read, self.written = processes.disk_bytes(peer.pids())
        self.flushes = machine.disk_flushes(peer.place)
        self.busy, self.stolen = machine.busy_seconds()

    def end(self, settle_seconds: float, client_cpu_seconds: float) -> dict[str, float]:
        """Waits for work that the broker put off until after its answers: it still belongs to the load."""
        loaded_seconds = time.monotonic() - self.began
        flushes = machine.disk_flushes(self.peer.place)
        time.sleep(settle_seconds)
        cpu = self.peer.cpu_seconds() - self.cpu
        read, written = processes.disk_bytes(self.peer.pids())
        busy, stolen = machine.busy_seconds()
        seconds = time.monotonic() - self.began
        memory = self.peer.memory()
        figures = {
            "watched_seconds": seconds,
            "broker_cpu_seconds": cpu,
            "client_cpu_seconds": client_cpu_seconds,
            # Everything else on the machine, kernel threads included, in cores.
            "other_cores": max(0.0, busy - self.busy - cpu - client_cpu_seconds) / seconds,
            "stolen_cores": (stolen - self.stolen) / seconds,
            "broker_read_bytes": read - self.read,
            "broker_written_bytes": written - self.written,
            "resident_mib": memory.resident_mib,
            "highest_mib": memory.highest_mib,
        }
        if flushes is not None:
            figures["disk_flushes_per_second"] = (flushes - self.flushes) / loaded_seconds
        return figures

    def check_synced(self, figures: dict[str, float]) -> None:
        """After a load that produced: a broker that is said to sync must have made the disk flush."""
        rate = figures.get("disk_flushes_per_second")
        if self.peer.kind.syncs and rate is not None and rate < FLUSHES_PER_SECOND_LEAST:
            raise Fault(f"{self.peer.kind.title} acknowledged, yet the disk flushed only {rate:.2f} times a second")


__all__ = ["KINDS", "TIED", "BrokerFailed", "Peer", "Watch"]
