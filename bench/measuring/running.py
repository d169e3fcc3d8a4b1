"""Clients as processes: they begin together, their threads are watched, and none outlives who waits for them."""

import contextlib
import json
import os
import re
import shlex
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass

from . import Fault, processes
from .peers import TIED, Peer

ENDING_POLL_SECONDS = 0.02
THREADS_POLL_SECONDS = 0.25
# With many processes, looking at all their threads must not be a load either.
PROCESSES_LOOKED_AT = 8
THREAD_SECONDS_LEAST = 0.5
OUTPUT_TAIL = 2000
RUN_SECONDS_SPARE = 120
END_SECONDS = 20
RESULT = re.compile(r"^\{.*\}$", re.MULTILINE)


@dataclass(frozen=True)
class Ended:
    """A load generator that ended as it should."""

    printed: str
    cpu_seconds: float
    # The share of a core that its busiest thread took.
    hottest_thread: float


class Running:
    """Load generators that run side by side; whatever happens, none outlives the `with`."""

    def __init__(self, commands: list[list[str]]):
        self.commands = commands
        self.processes: list[subprocess.Popen] = []
        self.outputs: list = []
        self.threads: list[dict[int, tuple[float, float, float, float]]] = [{} for _ in commands]

    def __enter__(self) -> "Running":
        try:
            for words in self.commands:
                output = tempfile.TemporaryFile("w+")
                self.outputs.append(output)
                self.processes.append(
                    subprocess.Popen(
                        [*TIED, *words], stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
                    )
                )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        for process in self.processes:
            if process.returncode is None:
                process.kill()
                process.wait()
        for output in self.outputs:
            output.close()

    def printed(self, index: int) -> str:
        self.outputs[index].seek(0)
        return self.outputs[index].read()

    def check_alive(self) -> None:
        for index, process in enumerate(self.processes):
            if process.poll() is not None:
                raise Fault(f"{shlex.join(self.commands[index])} ended early:\n{self.printed(index)[-OUTPUT_TAIL:]}")

    def wait(self, seconds_max: float, peer: Peer | None = None) -> list[Ended]:
        """Until all have ended; a broker that ends before them is a fault, not a reason to wait."""
        deadline = time.monotonic() + seconds_max
        usages: dict[int, float] = {}
        pause = THREADS_POLL_SECONDS * max(1, len(self.processes) / PROCESSES_LOOKED_AT)
        look = 0.0
        while len(usages) < len(self.processes):
            now = time.monotonic()
            if now > deadline:
                raise Fault(f"{shlex.join(self.commands[0])} did not end within {seconds_max:.0f} s")
            if now >= look:
                self.look(peer)
                look = now + pause
            for index, process in enumerate(self.processes):
                if index not in usages:
                    pid, status, usage = os.wait4(process.pid, os.WNOHANG)
                    if pid:
                        process.returncode = os.waitstatus_to_exitcode(status)
                        usages[index] = usage.ru_utime + usage.ru_stime
                        if process.returncode != 0:
                            raise Fault(
                                f"{shlex.join(self.commands[index])} ended with {process.returncode}:\n"
                                f"{self.printed(index)[-OUTPUT_TAIL:]}"
                            )
            time.sleep(ENDING_POLL_SECONDS)
        return [
            Ended(self.printed(index), usages[index], _hottest(self.threads[index]))
            for index in range(len(self.processes))
        ]

    def look(self, peer: Peer | None = None) -> None:
        """Notes what the threads took so far, and finds a broker that has ended."""
        now = time.monotonic()
        if peer:
            peer.check_running()
        for index, process in enumerate(self.processes):
            if process.returncode is None:
                _note_threads(self.threads[index], process.pid, now)

    def end(self) -> list[Ended]:
        """Tells all to end by SIGTERM, which they take as the end that was asked for."""
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
        ended = []
        deadline = time.monotonic() + END_SECONDS
        for index, process in enumerate(self.processes):
            while not (found := os.wait4(process.pid, os.WNOHANG))[0]:
                if time.monotonic() > deadline:
                    raise Fault(f"{shlex.join(self.commands[index])} did not end within {END_SECONDS} s of SIGTERM")
                time.sleep(ENDING_POLL_SECONDS)
            process.returncode = os.waitstatus_to_exitcode(found[1])
            usage = found[2].ru_utime + found[2].ru_stime
            ended.append(Ended(self.printed(index), usage, _hottest(self.threads[index])))
        return ended

    def interrupt(self) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGKILL)


def _note_threads(seen: dict[int, tuple[float, float, float, float]], pid: int, now: float) -> None:
    for thread, cpu in processes.thread_cpu_seconds(pid).items():
        first_at, first_cpu, _, _ = seen.get(thread, (now, cpu, now, cpu))
        seen[thread] = (first_at, first_cpu, now, cpu)


def _hottest(seen: dict[int, tuple[float, float, float, float]]) -> float:
    shares = [
        (last_cpu - first_cpu) / (last_at - first_at)
        for first_at, first_cpu, last_at, last_cpu in seen.values()
        if last_at - first_at >= THREAD_SECONDS_LEAST
    ]
    return max(shares, default=0.0)


def run(commands: list[list[str]], seconds: float, peer: Peer | None = None) -> list[Ended]:
    with Running(commands) as running:
        return running.wait(seconds * 4 + RUN_SECONDS_SPARE, peer)


def read_result(printed: str, count: int) -> dict[str, float]:
    """What a client said of `count` records; the client library's own words may stand around it."""
    found = RESULT.search(printed)
    if not found:
        raise Fault(f"no result in\n{printed[-OUTPUT_TAIL:]}")
    told = json.loads(found[0])
    if told["records"] != count or told["failed"] or told["double"]:
        raise Fault(f"{told['records']} of {count} records, {told['failed']} failed, {told['double']} double")
    return told
