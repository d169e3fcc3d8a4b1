"""The load generator: librdkafka's own `rdkafka_performance`, its settings, and what it prints.

Every setting that is not librdkafka's default is on the command line, and so on the page.
"""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from harness import install

from . import Fault
from .running import OUTPUT_TAIL, Ended

PROGRAM = "rdkafka_performance"
# It makes a report of statistics at this interval, which with thousands of partitions would be a load of its own.
REPORT_MS = 1_000_000
QUIET = ["-q", "-i", str(REPORT_MS)]

PRODUCED = re.compile(r"(\d+) messages produced .*?(\d+) delivered \(offset -?\d+, (\d+) failed\) in (\d+)ms")
CONSUMED = re.compile(r"(\d+) messages \((\d+) bytes\) consumed in (\d+)ms")


@dataclass(frozen=True)
class Done:
    """What one or several of them did together."""

    records: int
    seconds: float
    cpu_seconds: float
    hottest_thread: float


def program() -> Path:
    return install.librdkafka() / "examples" / PROGRAM


def version() -> str:
    return (program().parent.parent.parent / "version").read_text().strip()


def properties(settings: dict[str, str | int]) -> list[str]:
    return [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]


def produce_words(settings: dict, record_bytes: int, partition: int | None, extra: tuple[str, ...] = ()) -> list[str]:
    named = [] if partition is None else ["-p", str(partition)]
    return ["-P", "-a", "-1", "-s", str(record_bytes), *named, *properties(settings), *extra, *QUIET]


def consume_words(partitions: int, settings: dict, extra: tuple[str, ...] = ()) -> list[str]:
    named = [word for number in range(partitions) for word in ("-p", str(number))]
    return ["-C", "-o", "beginning", *named, *properties(settings), *extra, *QUIET]


def shown(words: list[str]) -> str:
    """A command as it stands on the page, with many partitions written as a range."""
    text = shlex.join([PROGRAM, "-b", "BROKER", "-t", "TOPIC", *words, "-c", "COUNT"])
    return re.sub(r"-p 0 (?:-p \d+ )+-p (\d+)", r"-p 0 … -p \1", text)


def command(bootstrap: str, topic: str, words: list[str], count: int) -> list[str]:
    return [str(program()), "-b", bootstrap, "-t", topic, *words, "-c", str(count)]


def read_produced(printed: str, count: int) -> float:
    """The seconds until the last of `count` records was acknowledged."""
    found = PRODUCED.search(printed)
    if not found:
        raise Fault(f"no result of a producer in\n{printed[-OUTPUT_TAIL:]}")
    sent, delivered, failed, milliseconds = map(int, found.groups())
    if failed or delivered != count or sent != count:
        raise Fault(f"{delivered} of {count} records acknowledged, {failed} failed")
    return max(milliseconds, 1) / 1000


def read_consumed(printed: str, count: int, record_bytes: int) -> float:
    """The seconds from the first to the last of `count` records."""
    found = CONSUMED.search(printed)
    if not found:
        raise Fault(f"no result of a consumer in\n{printed[-OUTPUT_TAIL:]}")
    records, size, milliseconds = map(int, found.groups())
    if "Consume error" in printed:
        raise Fault(f"errors while reading:\n{printed[-OUTPUT_TAIL:]}")
    if records != count or size != count * record_bytes:
        raise Fault(f"{records} records with {size} bytes read, {count} of {record_bytes} bytes are there")
    return max(milliseconds, 1) / 1000


def produced(ended: list[Ended], counts: list[int]) -> Done:
    """Several producers that began together: their records over the time of the slowest."""
    return Done(
        sum(counts),
        max(read_produced(one.printed, count) for one, count in zip(ended, counts, strict=True)),
        sum(one.cpu_seconds for one in ended),
        max(one.hottest_thread for one in ended),
    )
