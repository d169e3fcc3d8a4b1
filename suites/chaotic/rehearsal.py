"""Shows that the nemesis leaves a majority where it says so, that every fault is done and undone, and that the seed decides.

Nodes that only say whom they hear stand where a cluster would. Each fault lasts a moment.
"""

import itertools
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from harness.broker import BrokerFailed
from harness.cluster import Cluster

from chaotic import faults, nemesis
from chaotic.judgement import History
from chaotic.shapes import FAKE, agrees

# Until each was done, and then some, by chance.
SECONDS_MAX, SECONDS_MORE = 60.0, 5.0
LASTS_SECONDS = 0.3
ASKED_OF_A_BROKER = {"drain", "replace-node"}


def has_majority(cluster: Cluster) -> bool:
    """Whether so many nodes run, and hear each other, that they are most of all."""
    serving, cut = set(cluster.serving()), cluster.proxies.cut_links()
    return any(
        not any(link in cut for link in itertools.permutations(some, 2))
        for some in itertools.combinations(sorted(serving), len(cluster.nodes) // 2 + 1)
    )


def rehearse(count: int, place: Path) -> list[str]:
    """What was wrong."""
    wrong: list[str] = []
    # What is asked of a broker itself cannot be rehearsed with nodes that are none.
    kinds = [replace(kind, seconds_max=LASTS_SECONDS) for kind in nemesis.chosen(None, count) if kind.name not in ASKED_OF_A_BROKER]
    cluster = Cluster(place, count, binary=FAKE, listeners=("cluster", "http"))
    timeline = nemesis.Timeline(place / "timeline", False)
    ground = faults.Ground(cluster, place, nemesis.dice_for(count), timeline.say)
    acting = nemesis.Nemesis(ground, History(), timeline, kinds, named=True)

    def look() -> None:
        # A link that comes and goes is counted as gone by the nemesis, whatever it is at the moment.
        if not any(kind.alone for kind, *_ in acting.active) and not has_majority(cluster):
            doing = [active.words for _, active, *_ in acting.active]
            wrong.append(
                f"no majority is left by {doing}: {cluster.serving()} run, {sorted(cluster.proxies.cut_links())} are cut"
            )

    pause, nemesis.PAUSE_SECONDS_MAX = nemesis.PAUSE_SECONDS_MAX, 0.3
    try:
        faults.prepare(ground, {kind.name for kind in kinds})
        cluster.found()
        names = {kind.name for kind in kinds}
        began = time.monotonic()
        while names - set(acting.done) and time.monotonic() - began < SECONDS_MAX:
            acting.run(1.0, look)
        acting.run(SECONDS_MORE, look)
        acting.end_all()
        missed = sorted(names - set(acting.done))
        if missed or acting.undoable:
            wrong.append(f"not done: {missed} {acting.undoable}")
        if cluster.serving() != cluster.numbers or cluster.proxies.cut_links() or not agrees(cluster):
            wrong.append(f"not undone: {cluster.serving()} run, {sorted(cluster.proxies.cut_links())} are cut")
        if len(acting.history.faults) != sum(acting.done.values()):
            wrong.append(f"{sum(acting.done.values())} faults were done, {len(acting.history.faults)} are told of")
    except BrokerFailed as failure:
        wrong.append(f"{failure}\n{timeline.lines[-5:]}")
    finally:
        nemesis.PAUSE_SECONDS_MAX = pause
        cluster.close()
        ground.close()
    return wrong


def self_test() -> tuple[int, int]:
    passed = failed = 0
    for count in (3, 5):
        place = Path(tempfile.mkdtemp(prefix="weir-chaos-rehearsal-"))
        began = time.monotonic()
        try:
            wrong = rehearse(count, place)
        finally:
            shutil.rmtree(place, ignore_errors=True)
        passed += not wrong
        failed += bool(wrong)
        words = "NOT SO: " + "; ".join(wrong[:3]) if wrong else "all done and undone, a majority left"
        print(f"{count} nodes, faults in {time.monotonic() - began:.0f} s: {words}")
    return passed, failed
