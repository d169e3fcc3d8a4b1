"""The shortest scenario that still shows a difference: steps are left out, then fields of what remains."""

import time

from .differences import known
from .play import Pace
from .scenario import Step, with_audit
from .trial import Pair, Verdict

QUICK = Pace(quiet=0.01, patience=0.35)
SECONDS_MAX = 25.0
# Without these a step is another one.
ESSENTIAL = set("on do queue exchange source destination body delivery delivery_tag consumer hex ms".split())


def minimise(pair: Pair, steps: list[Step], signature: str) -> Verdict:
    """A scenario with a difference of this signature in which nothing is superfluous, as far as time allows."""
    deadline = time.monotonic() + SECONDS_MAX

    def shows(candidate: list[Step]) -> bool:
        if time.monotonic() > deadline:
            return False
        try:
            found = pair.both(with_audit(candidate), QUICK)[2]
        except OSError:
            return False
        return any(known(one) is None and one.signature() == signature for one in found)

    kept = _without_steps(_up_to(pair, steps, signature), shows)
    kept = _without_fields(kept, shows)
    verdict = pair.trial("minimal", kept)
    if any(one.signature() == signature for one in verdict.unlisted):
        return verdict
    return pair.trial("not minimal", steps)


def _up_to(pair: Pair, steps: list[Step], signature: str) -> list[Step]:
    """The scenario without what comes after the difference."""
    found = pair.both(with_audit(steps), QUICK)[2]
    at = [one.index for one in found if one.signature() == signature]
    return steps[: at[0] + 1] if at else steps


def _without_steps(steps: list[Step], shows) -> list[Step]:
    """Delta debugging: large pieces first, then single steps."""
    size = max(1, len(steps) // 2)
    while True:
        at = 0
        while at < len(steps):
            candidate = steps[:at] + steps[at + size :]
            if candidate and shows(candidate):
                steps = candidate
            else:
                at += size
        if size == 1:
            return steps
        size //= 2


def _without_fields(steps: list[Step], shows) -> list[Step]:
    for index in range(len(steps)):
        for path in _fields(steps[index]):
            candidate = [*steps]
            candidate[index] = _without(steps[index], path)
            if candidate[index] != steps[index] and shows(candidate):
                steps = candidate
    return steps


def _fields(step: Step) -> list[tuple[str, ...]]:
    paths: list[tuple[str, ...]] = []
    for name, value in step.items():
        if name in ESSENTIAL:
            continue
        paths.append((name,))
        if name in ("arguments", "properties"):
            paths += [(name, inner) for inner in value]
    return paths


def _without(step: Step, path: tuple[str, ...]) -> Step:
    name, *inner = path
    if not inner:
        return {key: value for key, value in step.items() if key != name}
    if name not in step:
        return step
    return {**step, name: {key: value for key, value in step[name].items() if key != inner[0]}}
