"""What the kernel says of processes: CPU time, memory, and bytes read from and written to disks."""

import contextlib
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
KIB_PER_MIB = 1024
RESET_HIGHEST = "5"
# A broker's children may come and go, such as RabbitMQ's `df`. That the broker itself is there is asked elsewhere.
GONE = (FileNotFoundError, ProcessLookupError)


def tree(pid: int) -> list[int]:
    """A process and its descendants: a launcher's JVM is what works."""
    found = [pid]
    for member in found:
        for children in Path(f"/proc/{member}/task").glob("*/children"):
            with contextlib.suppress(*GONE):
                found += map(int, children.read_text().split())
    return found


def cpu_seconds(pids: list[int]) -> float:
    """Of processes that are there, and of children of theirs that have ended and been waited for."""
    total = 0
    for pid in pids:
        with contextlib.suppress(*GONE):
            # The name in parentheses may hold anything, spaces too.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total / TICKS_PER_SECOND


def thread_cpu_seconds(pid: int) -> dict[int, float]:
    """For each thread the seconds that it was on a core; a process that has ended has none."""
    found = {}
    for thread in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(*GONE, IndexError):
            found[int(thread.parent.name)] = int(thread.read_text().split()[0]) / 1e9
    return found


@dataclass(frozen=True)
class Memory:
    """Resident memory; the files that a process has mapped are part of it, unless it says otherwise."""

    resident_mib: float
    anonymous_mib: float
    highest_mib: float


def memory(pids: list[int]) -> Memory:
    def summed(field: str) -> float:
        kib = 0
        for pid in pids:
            with contextlib.suppress(*GONE):
                # One that is just ending has no memory any more.
                found = re.search(rf"^{field}:\s+(\d+)", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
                kib += int(found[1]) if found else 0
        return kib / KIB_PER_MIB

    return Memory(summed("VmRSS"), summed("RssAnon"), summed("VmHWM"))


def forget_highest(pids: list[int]) -> None:
    """The highest resident memory begins anew from what it is now."""
    for pid in pids:
        with contextlib.suppress(*GONE):
            Path(f"/proc/{pid}/clear_refs").write_text(RESET_HIGHEST)


def disk_bytes(pids: list[int]) -> tuple[int, int]:
    """Bytes that were fetched from disks for these processes, and bytes that they made the kernel write."""

    def summed(field: str) -> int:
        total = 0
        for pid in pids:
            with contextlib.suppress(*GONE):
                total += int(re.search(rf"^{field}: (\d+)", Path(f"/proc/{pid}/io").read_text(), re.MULTILINE)[1])
        return total

    return summed("read_bytes"), summed("write_bytes")


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def kill(pids: list[int]) -> None:
    """`kill -9` of what is still there."""
    for pid in pids:
        with contextlib.suppress(*GONE):
            os.kill(pid, signal.SIGKILL)
