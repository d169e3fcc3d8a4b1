"""Shows that the network between nodes has the shapes that it is said to have, and that nodes are ended and continued.

Nodes that only say whom they hear stand where a cluster would.
"""

import json
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from harness import proxy
from harness.cluster import Cluster
from harness.proxy import Rule

FAKE = Path(__file__).with_name("fake_node.py")
# The fakes' beats are far apart compared with what a machine that is busy adds.
SETTLE_SECONDS = 10.0


def hears(cluster: Cluster, number: int) -> list[int]:
    return json.loads(cluster.nodes[number].http("/api/v1/cluster")[1])["hears"]


def expected(cluster: Cluster, number: int) -> list[int]:
    """Whom a node can hear, by the links that are cut and the nodes that run."""
    cut = cluster.proxies.cut_links()
    return sorted(other for other in cluster.serving() if other != number and (other, number) not in cut)


def comes_to_be(so: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SETTLE_SECONDS
    while not so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def agrees(cluster: Cluster) -> bool:
    return comes_to_be(lambda: all(hears(cluster, number) == expected(cluster, number) for number in cluster.serving()))


def _shape(links: Callable[[list[int]], list[proxy.Pair]], *, reset: bool = False):
    def run(cluster: Cluster) -> bool:
        cluster.proxies.cut(links(cluster.numbers), reset=reset)
        if not cluster.proxies.cut_links() or not agrees(cluster):
            return False
        cluster.proxies.heal(reset=reset)
        return agrees(cluster)

    return run


def _pause(cluster: Cluster) -> bool:
    cluster.nodes[2].pause()
    if cluster.serving() != [number for number in cluster.numbers if number != 2] or not agrees(cluster):
        return False
    cluster.nodes[2].resume()
    return agrees(cluster)


def _kill(cluster: Cluster) -> bool:
    cluster.nodes[1].kill()
    others = agrees(cluster) and 1 not in cluster.serving()
    cluster.start([1])
    return others and agrees(cluster) and len((cluster.nodes[1].data_dir / "starts").read_text().split()) == 2


def _leader(cluster: Cluster) -> bool:
    """The lowest number that is heard by a majority leads; when it is cut off, the next one does for the others."""
    if not comes_to_be(lambda: cluster.leader() == 1):
        return False
    cluster.nodes[1].kill()
    led = comes_to_be(lambda: cluster.leader() == 2)
    cluster.start([1])
    return led and comes_to_be(lambda: cluster.leader() == 1)


def _slow(cluster: Cluster) -> bool:
    """Nodes hear each other over slow links still, later than over quick ones."""
    cluster.proxies.follow(cluster.proxies.all_links(), Rule(delay_ms=100, jitter_ms=50, stall_chance=0.02, stall_ms=100))
    slow = agrees(cluster)
    cluster.proxies.heal()
    return slow and agrees(cluster)


def _late(cluster: Cluster) -> bool:
    """What was held by a cut arrives when it is over; nothing was carried while it lasted."""
    cluster.proxies.cut([(1, 2)])
    time.sleep(0.2)
    before = cluster.proxies.carried_bytes()[1, 2]
    time.sleep(0.5)
    still = cluster.proxies.carried_bytes()[1, 2]
    cluster.proxies.heal()
    return before == still and comes_to_be(lambda: cluster.proxies.carried_bytes()[1, 2] > still)


CHECKS: tuple[tuple[str, Callable[[Cluster], bool]], ...] = (
    ("one node isolated", _shape(lambda all: proxy.isolate(1, all))),
    ("one node isolated, connections reset", _shape(lambda all: proxy.isolate(2, all), reset=True)),
    ("a node that hears nobody", _shape(lambda all: proxy.deaf(1, all))),
    ("a node that nobody hears", _shape(lambda all: proxy.mute(3, all))),
    ("one link, one way", _shape(lambda all: [(1, 2)])),
    ("two halves", _shape(lambda all: proxy.between(all[: len(all) // 2], all[len(all) // 2 :]))),
    ("a bridge", _shape(lambda all: proxy.bridge(all[-1], all))),
    ("a ring of majorities", _shape(proxy.ring)),
    ("nobody hears anybody", _shape(proxy.shattered)),
    ("slow links", _slow),
    ("a cut holds what was sent", _late),
    ("a paused node", _pause),
    ("a killed node", _kill),
    ("the leader is found", _leader),
)


def self_test() -> tuple[int, int]:
    passed = failed = 0
    for count in (3, 5):
        place = Path(tempfile.mkdtemp(prefix="weir-chaos-shapes-"))
        cluster = Cluster(place, count, binary=FAKE, listeners=("cluster", "http"))
        try:
            cluster.found()
            if not agrees(cluster):
                print(f"{count} nodes do not hear each other before anything is done to them")
                failed += 1
            for name, check in CHECKS:
                if check(cluster):
                    print(f"{count} nodes, {name}: as it should be")
                    passed += 1
                else:
                    heard = {number: hears(cluster, number) for number in cluster.serving()}
                    print(f"{count} nodes, {name}: NOT SO; they hear {heard}, cut are {sorted(cluster.proxies.cut_links())}")
                    failed += 1
                    cluster.proxies.heal()
        finally:
            cluster.close()
            shutil.rmtree(place, ignore_errors=True)
    return passed, failed
