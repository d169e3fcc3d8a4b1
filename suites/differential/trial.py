"""One scenario on both brokers: played, compared, and where they differ played again slowly before it counts."""

import contextlib
import json
import secrets
from collections import Counter
from dataclasses import dataclass, field

from .compare import Difference, Normaliser, differences, transcript
from .coverage import covered
from .differences import known
from .play import BRISK, CALM, UNHURRIED, Pace, Play, open_barrier
from .scenario import Step, with_audit

Address = tuple[str, int]
# How often RabbitMQ may answer otherwise than the time before until a scenario says nothing.
CALM_TRIALS = 3


def _is_late(steps: list[Step]) -> bool:
    """Whether RabbitMQ does something of it a moment after it has answered."""
    text = json.dumps(steps)
    return '["S", "stream"]' in text or ('["S", "quorum"]' in text and "x-dead-letter-exchange" in text)


@dataclass
class Verdict:
    """What came of one scenario."""

    name: str
    steps: list[Step]
    listed: Counter = field(default_factory=Counter)
    unlisted: list[Difference] = field(default_factory=list)
    # They differed once and not again, or RabbitMQ differed from itself.
    unsteady: bool = False
    # Of an unsteady one: what differed at first.
    passing: list[Difference] = field(default_factory=list)
    compared: int = 0
    coverage: Counter = field(default_factory=Counter)
    words: str = ""


class Pair:
    """The two brokers, as a worker sees them.

    `lie` changes what the second is taken to have answered. `alone` is held while a scenario uses exchanges that all
    scenarios share.
    """

    def __init__(self, rabbitmq: Address, weir: Address, lie=None, alone=None):
        self.rabbitmq = rabbitmq
        self.weir = weir
        self.lie = lie
        self.alone = alone or contextlib.nullcontext()
        self.barrier = None
        # Differences that were there again when there was time.
        self.seen: set[str] = set()

    def _on_rabbitmq(self, steps: list[Step], pace: Pace) -> tuple[list, list]:
        token = secrets.token_hex(3)
        raw = Play(self.rabbitmq, token, pace).run(steps)
        return raw, Normaliser(token).answers(raw)

    def _on_weir(self, steps: list[Step], pace: Pace, expected: list) -> list:
        if self.barrier is None or self.barrier.ended:
            self.barrier = open_barrier(self.weir)
        token = secrets.token_hex(3)
        raw = Play(self.weir, token, pace, self.barrier).run(steps, expected)
        made = Normaliser(token).answers(raw)
        if self.lie is not None:
            self.lie(made)
        return made

    def both(self, steps: list[Step], pace: Pace) -> tuple[list, list, list[Difference]]:
        """What each answered, and where that differs."""
        shares = '"amq.' in json.dumps(steps)
        with self.alone if shares else contextlib.nullcontext():
            raw, theirs = self._on_rabbitmq(steps, pace)
            ours = self._on_weir(steps, pace, raw)
        return theirs, ours, differences(steps, theirs, ours)

    def _calmly(self, steps: list[Step], first: list) -> tuple[list, list, list[Difference], bool]:
        """With plenty of time, until RabbitMQ answers twice alike up to the last difference; whether it did."""
        for _ in range(CALM_TRIALS):
            theirs, ours, found = self.both(steps, CALM)
            until = max((difference.index for difference in found), default=-1) + 1
            if first[:until] == theirs[:until]:
                return theirs, ours, found, True
            first = theirs
        return theirs, ours, found, False

    def trial(self, name: str, scenario: list[Step]) -> Verdict:
        """Plays a scenario; only a difference that stays when there is plenty of time is one."""
        steps = with_audit(scenario)
        theirs, ours, found = self.both(steps, UNHURRIED if _is_late(steps) else BRISK)
        verdict = Verdict(name, scenario)
        unlisted = [difference for difference in found if known(difference) is None]
        if any(difference.signature() not in self.seen for difference in unlisted):
            verdict.passing = unlisted
            steps = steps[: unlisted[-1].index + 1]
            theirs, ours, found, steady = self._calmly(steps, theirs)
            unlisted = [difference for difference in found if known(difference) is None]
            if not unlisted or not steady:
                verdict.unsteady = True
                found = [difference for difference in found if known(difference) is not None]
            self.seen |= {difference.signature() for difference in unlisted}
        verdict.compared = found[-1].index + 1 if found and found[-1].ends_comparison else len(steps)
        for difference in found:
            entry = known(difference)
            if entry is None:
                verdict.unlisted.append(difference)
            else:
                verdict.listed[entry.name] += 1
        for step, answer in zip(steps[: verdict.compared], theirs, strict=False):
            verdict.coverage.update(covered(step, answer))
        if verdict.unlisted:
            verdict.words = transcript(steps, theirs, ours, found)
        return verdict
