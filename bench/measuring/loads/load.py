"""What all loads have in common: the case, the broker, how long, and the pause before each measurement."""

import math
import os
import time
from dataclasses import dataclass

from .. import Fault, client, machine
from ..case import Case
from ..peers import Peer

SPACE_SECONDS = 150
SPACE_SPARE_BYTES = 8 << 30


@dataclass(frozen=True)
class Scale:
    """How long and how much; a case says what, and this says how far it is driven."""

    seconds: float
    warm_seconds: float
    # A rate that still rises after so many runs is taken as it is.
    warm_runs_most: int
    idle_seconds: float
    settle_seconds: float
    # What one measurement may write, so that a fast disk does not fill within a round.
    bytes_max: int
    # What is stored before it is read, and before the broker is killed.
    consume_bytes: int
    restart_bytes: int
    # Messages that wait in a queue: on Weir, and on another broker at the most.
    backlog: int
    backlog_beside: int
    # Messages that are delayed, and the longest delay.
    delayed: int
    delay_seconds: float


class Load:
    """The base of all loads."""

    # Of the pause before a measurement, for loads that are many and leave little behind.
    IDLE_SECONDS_MOST = math.inf

    def __init__(self, case: Case, peer: Peer | None, scale: Scale):
        self.case = case
        self.peer = peer
        self.scale = scale

    def prepare(self) -> None:
        """Once, before the first round."""

    def measure(self) -> dict[str, float]:
        raise NotImplementedError

    @property
    def seconds(self) -> float:
        """Of one measurement of this case."""
        return self.scale.seconds * self.case.seconds_share

    def commands(self) -> list[str]:
        """The load generators' command lines, for the page."""
        return []

    def generator(self) -> str:
        """The program that makes the load, and its version, for the page."""
        return f"`{client.PROGRAM}` of {client.version()}"

    def pause(self) -> None:
        os.sync()
        time.sleep(min(self.scale.idle_seconds, self.IDLE_SECONDS_MOST))

    def await_space(self, needed: int) -> None:
        """Apache Kafka removes the files of a deleted topic only a minute later."""
        deadline = time.monotonic() + SPACE_SECONDS
        while machine.free_bytes(self.peer.place) < needed + SPACE_SPARE_BYTES:
            if time.monotonic() > deadline:
                raise Fault(f"{self.case.name}: less than {needed + SPACE_SPARE_BYTES:,} bytes free for the data")
            time.sleep(1)
