"""What a scenario is: a function that does one fault to a broker of its own, and says what must be so.

A scenario passes if everything that it expects is so. An expectation that is not met is noted with its
words, and the scenario goes on, so that one run says all that is wrong; only what nothing can go on
without ends it. A fault that this machine does not let us do is a failure with words, never a pass.
"""

import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .records import Records
from .server import Server

COMPLAINTS_SHOWN = 6


class CannotDo(Exception):
    """The fault cannot be done here; the words say what is missing."""


@dataclass(frozen=True)
class Scenario:
    """A named fault, what the row of docs/reliability.md promises for it, and whether it is quick."""

    name: str
    promise: str
    run: Callable[["Trial"], None]
    slow: bool


ALL: list[Scenario] = []


def scenario(name: str, promise: str, *, slow: bool = False):
    """Makes a scenario of a function. Slow ones are no part of `make test`."""

    def register(run: Callable[["Trial"], None]) -> Callable[["Trial"], None]:
        ALL.append(Scenario(name, promise, run, slow))
        return run

    return register


class Trial:
    """One run of a scenario: its directory, its servers, and what was not as it should be."""

    def __init__(self):
        self.place = Path(tempfile.mkdtemp(prefix="weir-faults-"))
        self.complaints: list[str] = []
        self.notes: list[str] = []
        self.expectations = 0
        self.servers: list[Server] = []
        self.endings: list[Callable[[], object]] = []

    def server(self, data_dir: Path | None = None, **settings) -> Server:
        """A server on a directory of its own, not started."""
        server = Server(data_dir or self.place / f"data-{len(self.servers)}", settings)
        self.servers.append(server)
        return server

    def expect(self, truth: object, words: str) -> bool:
        """Notes what is not so."""
        self.expectations += 1
        if not truth:
            self.complaints.append(words)
        return bool(truth)

    def note(self, words: str) -> None:
        """A figure or a sentence that is worth printing and decides nothing."""
        self.notes.append(words)

    def at_end(self, undo: Callable[[], object]) -> None:
        """Run when the scenario is over, however it ended; the last first."""
        self.endings.append(undo)

    def all_there(self, server: Server, records: Records, **how) -> None:
        """Every acknowledged record is there, once, in order, for a client that checks."""
        for complaint in records.complaints(server.bootstrap, **how):
            self.expect(False, complaint)
        self.expect(records.acknowledged() > 0, "nothing was acknowledged, so nothing was shown")

    def close(self, keep: bool) -> None:
        for server in self.servers:
            server.kill()
        for undo in reversed(self.endings):
            undo()
        if not keep:
            shutil.rmtree(self.place, ignore_errors=True)
