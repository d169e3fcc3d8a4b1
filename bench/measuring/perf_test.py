"""RabbitMQ's PerfTest: its command, and what it counts while it runs.

Producers send a given number of messages; consumers would take more than there are. PerfTest counts every confirm and
every delivery, and tells these counts over HTTP. When both are what they have to be it is told to end: what is
missing or too much by then is found, which its own report of rates would not show.
"""

import re
import shlex
import time
import urllib.request
from dataclasses import dataclass

from harness import install
from harness.ports import free_port

from . import Fault, processes, queues
from .case import Case
from .peers import Peer
from .running import OUTPUT_TAIL, Running

MAIN = "com.rabbitmq.perf.PerfTest"
# Consumers never reach this: they go on until they are told to end.
DELIVERIES_WITHOUT_END = 2_000_000_000
CONFIRMED = re.compile(r"^perftest_confirm_latency_seconds_count (\S+)$", re.MULTILINE)
DELIVERED = re.compile(r"^perftest_latency_seconds_count (\S+)$", re.MULTILINE)
ANSWER_SECONDS = 10.0
STALLED_SECONDS = 60.0
POLL_SECONDS, POLL_SECONDS_NEAR = 0.1, 0.02
NEAR_SECONDS = 0.5
LOOK_SECONDS = 0.25


@dataclass(frozen=True)
class Done:
    """What all producers and consumers of one PerfTest did."""

    published: int
    delivered: int
    # From the first confirm or delivery to the last.
    seconds: float
    # Of the client from the first message on, and in all: the start of a JVM takes more than a second of CPU.
    cpu_seconds: float
    cpu_seconds_in_all: float
    hottest_thread: float


def version() -> str:
    (jar,) = re.findall(r"perf-test-([\d.]+)\.jar", install.rabbitmq_load())
    return jar


def words(case: Case, arguments: dict[str, str | int]) -> list[str]:
    """PerfTest's options for a case, without those that name a place or a number of messages."""
    many = ["-qp", "QUEUE-%d", "-qpf", "1", "-qpt", str(case.queues)] if case.queues > 1 else ["-u", "QUEUE"]
    given = ["-qa", ",".join(f"{name}={value}" for name, value in arguments.items())] if arguments else []
    sizes = ["-x", str(case.producers), "-y", str(case.consumers), "-s", str(case.record_bytes)]
    windows = ["-c", str(case.unconfirmed), "-q", str(case.prefetch)]
    # PerfTest counts what has the key of its consumer: with several queues it would give each its own.
    key = ["-k", "KEY"]
    durable = ["-f", "persistent", "-ad", "false"]
    return ["-e", "EXCHANGE", "-t", case.exchange, *key, *many, *given, *durable, *sizes, *windows]


def shown(case: Case, arguments: dict[str, str | int]) -> str:
    rest = ["-C", "COUNT", "-D", str(DELIVERIES_WITHOUT_END), "-mpr", "-mpp", "PORT"]
    return shlex.join(["java", "-cp", "CLASSPATH", MAIN, "-h", "URI", *words(case, arguments), *rest])


def queues_of(case: Case, name: str) -> list[str]:
    return [f"{name}-{number + 1}" for number in range(case.queues)] if case.queues > 1 else [name]


def counts(told: str) -> tuple[int, int]:
    """Confirms and deliveries so far."""
    found = [pattern.search(told) for pattern in (CONFIRMED, DELIVERED)]
    if not all(found):
        raise Fault(f"PerfTest tells no counts:\n{told[-OUTPUT_TAIL:]}")
    return int(float(found[0][1])), int(float(found[1][1]))


def ended(found: tuple[int, int], published: int, deliveries: int) -> bool:
    """Whether everything was confirmed and delivered; more than everything is a fault."""
    confirmed, delivered = found
    if confirmed > published or delivered > deliveries:
        raise Fault(f"{confirmed} confirms of {published} messages, {delivered} deliveries of {deliveries}")
    return found == (published, deliveries)


def _asked(port: int) -> tuple[int, int] | None:
    """The counts; None as long as PerfTest does not answer yet."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/metrics", timeout=ANSWER_SECONDS) as answer:
            return counts(answer.read().decode())
    except OSError:
        return None


def drive(peer: Peer, case: Case, name: str, count: int) -> Done:
    """Each producer sends `count` messages to new queues of a new name, and consumers take them."""
    port = free_port()
    published = count * case.producers
    deliveries = published * case.queues
    places = {"QUEUE": name, "QUEUE-%d": f"{name}-%d", "EXCHANGE": name, "KEY": name}
    given = [places.get(word, word) for word in words(case, peer.kind.queue_arguments)]
    limits = ["-C", str(count), "-D", str(DELIVERIES_WITHOUT_END), "-mpr", "-mpp", str(port)]
    command = ["java", "-cp", install.rabbitmq_load(), MAIN, "-h", queues.uri(peer), *given, *limits]
    with Running([command]) as client:
        pid = client.processes[0].pid
        first = before = advanced = time.monotonic()
        cpu_before, began, last, look = 0.0, False, (0, 0), 0.0
        while True:
            now = time.monotonic()
            if now >= look:
                client.check_alive()
                client.look(peer)
                look = now + LOOK_SECONDS
            found = _asked(port) or last
            now = time.monotonic()
            if not began and found != (0, 0):
                began, first, cpu_before = True, before, processes.cpu_seconds([pid])
            if found != last:
                last, advanced = found, now
            if ended(found, published, deliveries):
                break
            if now - advanced > STALLED_SECONDS:
                raise Fault(
                    f"{peer.kind.title}: {found[0]} of {published} messages confirmed, {found[1]} of {deliveries} "
                    f"delivered, and nothing more for {STALLED_SECONDS:.0f} s\n{client.printed(0)[-OUTPUT_TAIL:]}"
                )
            before = now
            left = (published + deliveries - sum(found)) * max(now - first, POLL_SECONDS) / max(sum(found), 1)
            time.sleep(POLL_SECONDS if began and left > NEAR_SECONDS else POLL_SECONDS_NEAR)
        cpu = processes.cpu_seconds([pid]) - cpu_before
        client.look()
        (told,) = client.end()
    return Done(published, deliveries, now - first, cpu, told.cpu_seconds, told.hottest_thread)
