"""Medians, ratios, and in words whether a target was met."""

import statistics
from dataclasses import dataclass

from .case import Case, Target
from .samples import Sample

CLIENT_BOUND_SHARE = 0.9

Taken = dict[tuple[str, str], list[Sample]]


def values(taken: Taken, case: str, peer: str, figure: str) -> list[float]:
    return [sample.figures[figure] for sample in taken.get((case, peer), ()) if figure in sample.figures]


def median(taken: Taken, case: str, peer: str, figure: str) -> float | None:
    found = values(taken, case, peer, figure)
    return statistics.median(found) if found else None


def client_bound(taken: Taken, case: str, peer: str) -> bool:
    share = median(taken, case, peer, "hottest_thread")
    return share is not None and share > CLIENT_BOUND_SHARE


@dataclass(frozen=True)
class Judged:
    """A target beside what was measured; `ratio` is the figure itself where the bound is absolute."""

    target: Target
    ours: float | None
    theirs: float | None
    ratio: float | None
    verdict: str


def judge(case: Case, target: Target, taken: Taken) -> Judged:
    ours = median(taken, case.name, "weir", target.figure)
    relative = target.beside is not None or target.beside_case is not None
    theirs = median(taken, target.beside_case or case.name, target.beside or "weir", target.figure) if relative else None
    if ours is None or (relative and not theirs):
        return Judged(target, ours, theirs, None, "not measured")
    ratio = ours / theirs if relative else ours
    if target.unless_client_bound and client_bound(taken, case.name, "weir"):
        return Judged(target, ours, theirs, ratio, "not judged: client-bound")
    met = ratio <= target.bound if target.at == "most" else ratio >= target.bound
    return Judged(target, ours, theirs, ratio, "met" if met else "missed")
