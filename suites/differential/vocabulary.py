"""What random scenarios are made of: names, keys, arguments, properties and values, drawn with given dice."""

import random

KEYS = ("a", "b", "a.b", "a.b.c", "b.c", "", "a..b")
PATTERNS = ("#", "*", "a.*", "a.#", "*.b", "#.c", "*.*", "a.*.c", "#.b.#", "a", "a.b", "")
EXCHANGE_TYPES = ("direct", "fanout", "topic", "headers")
PREDECLARED = ("amq.direct", "amq.fanout", "amq.topic", "amq.headers", "amq.match")
# What is consumed, and asked to reply to, for replies without a queue.
REPLIES = "amq.rabbitmq.reply-to"
TAGS = "tbBsuIilLfdDSTFAVx"
WORDS = ("", "x", "apple", "grün", "a b", "0", "true")
# Milliseconds that never pass while a scenario runs, and such as pass when it waits.
LONG_MS, SHORT_MS, WAIT_MS = 600_000, 150, 450


def value(dice: random.Random, depth: int = 0) -> list:
    """A value of a table, of any type."""
    tag = dice.choice(TAGS if depth < 2 else TAGS.replace("F", "").replace("A", ""))
    ranges = {"b": 7, "B": 8, "s": 15, "u": 16, "I": 31, "i": 32, "l": 63, "L": 63, "T": 40}
    if tag in ranges:
        bits = ranges[tag]
        least = 0 if tag in "BuiT" else -(1 << bits)
        return [tag, dice.choice((0, 1, (1 << bits) - 1, least, dice.randrange(1 << min(bits, 20))))]
    match tag:
        case "t":
            return [tag, dice.random() < 0.5]
        case "f" | "d":
            return [tag, dice.choice((0.0, -0.0, 1.5, -2.25, 1e10, 0.5))]
        case "D":
            return [tag, [dice.randrange(4), dice.randrange(-9, 10_000)]]
        case "F":
            return [tag, table(dice, depth + 1)]
        case "A":
            return [tag, [value(dice, depth + 1) for _ in range(dice.randrange(3))]]
        case "V":
            return [tag, None]
    return [tag, dice.choice(WORDS)]


def table(dice: random.Random, depth: int = 0) -> list:
    names = dice.sample(("h1", "h2", "h3", "x-own", "grün"), dice.randrange(4))
    return [[name, value(dice, depth)] for name in names]


def routed_headers(dice: random.Random) -> list:
    """Headers of a few values, so that bindings match them now and then."""
    few = (["S", "x"], ["S", "y"], ["I", 1], ["l", 1], ["t", True], ["V", None], ["d", 1.0])
    if dice.random() < 0.15:
        # Alike in one way and not in another.
        few = (
            *(["x", "x"], ["S", ""], ["b", 1], ["B", 1], ["f", 1.0], ["T", 1], ["D", [0, 1]], ["D", [1, 10]]),
            *(["A", []], ["A", [["I", 1]]], ["F", []], ["F", [["a", ["I", 1]]]]),
            *(["t", False], ["d", 0.0], ["d", -0.0]),
        )
    return [[name, dice.choice(few)] for name in dice.sample(("h1", "h2", "x-h"), dice.randrange(1, 4))]


def headers_binding(dice: random.Random) -> dict:
    arguments = dict(routed_headers(dice))
    match = dice.choice(("all", "any", "all", "any", None, "all-with-x", "any-with-x"))
    if dice.random() < 0.04:
        arguments["x-match"] = dice.choice((["S", "most"], ["I", 1]))
    elif match:
        arguments["x-match"] = ["S", match]
    return arguments


def properties(dice: random.Random) -> dict:
    """Properties as publishers set them; now and then one that is refused."""
    made: dict = {}
    if dice.random() < 0.4:
        return made
    chances = {
        "content_type": lambda: dice.choice(("text/plain", "application/octet-stream", "")),
        "content_encoding": lambda: dice.choice(("utf-8", "gzip")),
        "delivery_mode": lambda: dice.choice((1, 2)) if dice.random() < 0.98 else dice.choice((0, 7)),
        "priority": lambda: dice.choice((0, 1, 5, 9, 255)),
        "correlation_id": lambda: dice.choice(("c1", "", "grün")),
        "reply_to": lambda: "somewhere",
        "message_id": lambda: f"id-{dice.randrange(100)}",
        "timestamp": lambda: dice.choice((0, 1_700_000_000, (1 << 63) - 1)),
        "type": lambda: "kind",
        "app_id": lambda: "app",
        "cluster_id": lambda: "cluster",
    }
    for name, draw in chances.items():
        if dice.random() < 0.2:
            made[name] = draw()
    luck = dice.random()
    if luck < 0.3:
        made["headers"] = table(dice)
    elif luck < 0.6:
        made["headers"] = routed_headers(dice)
    if dice.random() < 0.08:
        made["user_id"] = dice.choice(("guest", "guest", "guest", "other"))
    if dice.random() < 0.08:
        made["expiration"] = dice.choice((str(LONG_MS),) * 8 + ("0", "soon", "-1", ""))
    if dice.random() < 0.08:
        name = dice.choice(("CC", "CC", "BCC"))
        keys = ["A", [["S", dice.choice(KEYS)] for _ in range(dice.randrange(1, 3))]]
        made["headers"] = [*made.get("headers", []), [name, keys if dice.random() < 0.93 else ["S", "a"]]]
    return made


def odd_argument(dice: random.Random) -> dict:
    """An argument of a queue that is refused, or should be."""
    return dice.choice(
        (
            {"x-message-ttl": ["l", -1]},
            {"x-message-ttl": ["S", "soon"]},
            {"x-message-ttl": ["d", 1.5]},
            {"x-expires": ["l", 0]},
            {"x-expires": ["l", -5]},
            {"x-expires": ["S", "x"]},
            {"x-max-length": ["l", -1]},
            {"x-max-length": ["S", "3"]},
            {"x-max-length-bytes": ["l", -1]},
            {"x-overflow": ["S", "drop-tail"]},
            {"x-overflow": ["l", 1]},
            {"x-dead-letter-exchange": ["l", 1]},
            {"x-dead-letter-routing-key": ["S", "a"]},
            {"x-dead-letter-routing-key": ["I", 1], "x-dead-letter-exchange": ["S", ""]},
            {"x-max-priority": ["l", -1]},
            {"x-max-priority": ["l", 256]},
            {"x-max-priority": ["S", "9"]},
            {"x-queue-mode": ["S", "busy"]},
            {"x-queue-mode": ["l", 1]},
            {"x-queue-type": ["S", "nonsense"]},
            {"x-queue-type": ["l", 1]},
            {"x-single-active-consumer": ["S", "yes"]},
            {"x-single-active-consumer": ["l", 1]},
            {"x-delivery-limit": ["l", 3]},
            {"x-message-ttl": ["l", 1 << 40]},
            {"x-expires": ["l", 1 << 40]},
        )
    )


def stream_arguments(dice: random.Random) -> dict:
    """Arguments of a stream."""
    made: dict = {"x-queue-type": ["S", "stream"]}
    chances = {
        "x-max-length-bytes": lambda: ["l", 1_000_000_000],
        "x-max-age": lambda: ["S", dice.choice(("1h", "7D", "2M", "1Y", "600s", "5m"))],
        "x-stream-max-segment-size-bytes": lambda: ["l", 500_000],
        "x-initial-cluster-size": lambda: ["l", 1],
        "x-queue-leader-locator": lambda: ["S", dice.choice(("client-local", "least-leaders"))],
        "x-own": lambda: value(dice),
    }
    made |= {name: draw() for name, draw in chances.items() if dice.random() < 0.12}
    if dice.random() < 0.05:
        made |= dice.choice(
            (
                {"x-max-age": ["S", dice.choice(("", "1", "h", "-1h", "1w", "1.5h", "1 h"))]},
                {"x-max-age": ["l", 5]},
                {"x-max-length-bytes": ["l", -1]},
                {"x-stream-max-segment-size-bytes": ["S", "x"]},
                {"x-message-ttl": ["l", LONG_MS]},
                {"x-dead-letter-exchange": ["S", ""]},
                {"x-max-length": ["l", 5]},
            )
        )
    return made


def stream_offset(dice: random.Random) -> dict:
    """Where a consumer of a stream begins."""
    if dice.random() < 0.15:
        return {}
    offsets = (["S", "first"], ["S", "first"], ["S", "next"], ["l", 0], ["I", 1], ["l", 3], ["l", 1000], ["T", 0])
    return {"x-stream-offset": dice.choice((*offsets, ["S", "last"]))}


def queue_arguments(dice: random.Random, exchanges: list[str], quorum: bool) -> dict:
    """Arguments of a queue; most queues have none or few."""
    made: dict = {}
    number = dice.choice(("l", "I", "I", "s", "i"))
    if quorum:
        made["x-queue-type"] = ["S", "quorum"]
        # Without one, 3.10 puts what comes back at the end; with one, it goes out first, as in later versions. Which
        # returns count has changed since.
        if dice.random() < 0.97:
            made["x-delivery-limit"] = ["l", 20]
    elif dice.random() < 0.1:
        made["x-queue-type"] = ["S", "classic"]
    if dice.random() < 0.1:
        made["x-message-ttl"] = dice.choice((["l", LONG_MS], ["I", LONG_MS]) * 5 + (["l", 0],))
    if dice.random() < 0.06:
        made["x-expires"] = ["l", LONG_MS]
    if dice.random() < 0.25:
        made["x-max-length"] = [number, dice.choice((1, 2, 3) * 6 + (0,))]
    if dice.random() < 0.03:
        made["x-max-length-bytes"] = ["l", dice.choice((0, 4, 100))]
    # A quorum queue of 3.10 notices late that it is full.
    if dice.random() < 0.07 and not quorum:
        made["x-overflow"] = ["S", dice.choice(("drop-head", "reject-publish", "reject-publish-dlx"))]
    if dice.random() < 0.35:
        made["x-dead-letter-exchange"] = ["S", dice.choice([*exchanges, *exchanges, "", "missing~"])]
        if dice.random() < 0.5:
            made["x-dead-letter-routing-key"] = ["S", dice.choice(("q1~", "q2~", *KEYS))]
    if dice.random() < 0.05:
        made["x-max-priority"] = ["l", dice.choice((0, 1, 5, 255))]
    if dice.random() < 0.08:
        made["x-single-active-consumer"] = ["t", dice.random() < 0.8]
    if dice.random() < 0.04:
        made["x-queue-mode"] = ["S", dice.choice(("lazy", "default"))]
    if dice.random() < 0.05:
        made["x-own"] = value(dice)
    if dice.random() < 0.03:
        made |= odd_argument(dice)
    return made
