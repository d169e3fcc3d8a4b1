"""Links between nodes that are cut, one way or both, slowed, and reset."""

import random
import threading

from harness import proxy
from harness.proxy import Rule

from chaotic.faults.ground import Active, Ground


def _cut(ground: Ground, links: list[proxy.Pair], words: str, away: list[int]) -> Active:
    proxies, dice = ground.cluster.proxies, ground.dice
    refuse, reset, reset_after = dice.random() < 0.3, dice.random() < 0.4, dice.random() < 0.5
    proxies.cut(links, refuse=refuse, reset=reset)
    nodes = tuple(sorted({node for link in links for node in link}))
    manner = ["connections reset" if reset else "connections silent", "new ones refused" if refuse else "new ones silent"]
    manner.append("all reset in the end" if reset_after else "what was held comes late")
    return Active(
        "cut", nodes, f"{words} ({', '.join(manner)})", lambda: proxies.heal(links, reset=reset_after), frozenset(away)
    )


def isolate_node(ground: Ground) -> Active | None:
    number = ground.one()
    return number and _cut(ground, proxy.isolate(number, ground.cluster.numbers), f"cut off node {number}", [number])


def isolate_leader(ground: Ground) -> Active | None:
    number = ground.a_leader()
    return number and _cut(ground, proxy.isolate(number, ground.cluster.numbers), f"cut off node {number}, which led", [number])


def halves(ground: Ground) -> Active | None:
    small, large = ground.split()
    if len(small) > ground.room():
        return None
    return _cut(ground, proxy.between(small, large), f"split {small} from {large}", small)


def bridge(ground: Ground) -> Active | None:
    numbers = ground.cluster.numbers
    ground.dice.shuffle(numbers)
    middle = numbers[0]
    return _cut(ground, proxy.bridge(middle, numbers), f"node {middle} alone is heard by {sorted(numbers[1:])}", [])


def ring(ground: Ground) -> Active | None:
    numbers = ground.cluster.numbers
    ground.dice.shuffle(numbers)
    return _cut(ground, proxy.ring(numbers), f"a ring of majorities {numbers}", [])


def deaf(ground: Ground) -> Active | None:
    number = ground.a_leader() or ground.one()
    return number and _cut(ground, proxy.deaf(number, ground.cluster.numbers), f"node {number} hears nobody", [number])


def mute(ground: Ground) -> Active | None:
    number = ground.a_leader() or ground.one()
    return number and _cut(ground, proxy.mute(number, ground.cluster.numbers), f"nobody hears node {number}", [number])


def one_way(ground: Ground) -> Active | None:
    link = ground.dice.choice(ground.cluster.proxies.all_links())
    return _cut(ground, [link], f"node {link[1]} does not hear node {link[0]}", [])


def shatter(ground: Ground) -> Active | None:
    numbers = ground.cluster.numbers
    return _cut(ground, proxy.shattered(numbers), "nobody hears anybody", numbers)


def flap(ground: Ground) -> Active | None:
    """A link, or all of a node's, that come and go."""
    number = ground.one()
    if number is None:
        return None
    proxies, numbers = ground.cluster.proxies, ground.cluster.numbers
    links = proxy.isolate(number, numbers) if ground.dice.random() < 0.5 else ground.dice.sample(proxies.all_links(), 1)
    dice = random.Random(ground.dice.random())
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            proxies.cut(links, reset=dice.random() < 0.3)
            over.wait(dice.uniform(0.1, 1.5))
            proxies.heal(links, reset=dice.random() < 0.3)
            over.wait(dice.uniform(0.1, 1.5))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()

    def undo() -> None:
        over.set()
        thread.join()
        proxies.heal(links)

    nodes = tuple(sorted({node for link in links for node in link}))
    return Active("flap", nodes, f"the links {links} come and go", undo, frozenset([number]))


def _slow(ground: Ground, rule: Rule, words: str) -> Active:
    proxies = ground.cluster.proxies
    number = ground.dice.choice([None, *ground.cluster.numbers])
    links = proxies.all_links() if number is None else proxy.isolate(number, ground.cluster.numbers)
    proxies.follow(links, rule)
    where = "everywhere" if number is None else f"around node {number}"
    nodes = tuple(ground.cluster.numbers if number is None else [number])
    return Active("slow", nodes, f"{words} {where}", lambda: proxies.heal(links))


def delay(ground: Ground) -> Active | None:
    ms = ground.dice.choice((5, 20, 100, 250))
    return _slow(ground, Rule(delay_ms=ms, jitter_ms=ms / 2), f"{ms} ms of delay")


def loss(ground: Ground) -> Active | None:
    """Packets that are lost, as connections show it: everything behind them waits until they were sent again."""
    chance, ms = ground.dice.choice(((0.01, 200), (0.05, 200), (0.02, 1000), (0.5, 1000)))
    return _slow(ground, Rule(delay_ms=1, stall_chance=chance, stall_ms=ms), f"{chance:.0%} waits of {ms} ms")


def throttle(ground: Ground) -> Active | None:
    kilobytes = ground.dice.choice((100, 500, 2000))
    return _slow(ground, Rule(bytes_per_second=kilobytes * 1000), f"{kilobytes} kB/s")


def reset_connections(ground: Ground) -> Active | None:
    links = ground.cluster.proxies.all_links()
    some = ground.dice.sample(links, ground.dice.randint(1, len(links)))
    ended = ground.cluster.proxies.reset(some)
    nodes = tuple(sorted({node for link in some for node in link}))
    return Active("cut", nodes, f"reset {ended} ends of connections on {len(some)} links", lambda: None)
