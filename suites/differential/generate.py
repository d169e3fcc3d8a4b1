"""Scenarios from a seed: mostly random operations on a small world, and now and then one about time that passes."""

import random

from . import vocabulary as words
from .mangle import mangled
from .scenario import Step
from .world import PROFILES, World


def scenario(seed: int) -> list[Step]:
    """The scenario of a seed: the same every time."""
    dice = random.Random(seed)
    luck = dice.random()
    if luck < 0.05:
        return _expiry(dice)
    if luck < 0.09:
        return mangled(dice)
    profile = dice.choice(list(PROFILES))
    return World(dice, profile).steps()


def _expiry(dice: random.Random) -> list[Step]:
    """Messages whose time passes: those of a queue's time and of their own, and where they go."""
    here = "A1"
    routing = {"x-dead-letter-exchange": ["S", dice.choice(("x1~", ""))]}
    if routing["x-dead-letter-exchange"][1] == "" or dice.random() < 0.5:
        routing["x-dead-letter-routing-key"] = ["S", "dead~"]
    if dice.random() < 0.6:
        routing["x-message-ttl"] = ["l", dice.choice((words.SHORT_MS, words.LONG_MS, 0))]
    if dice.random() < 0.3:
        routing |= {"x-max-length": ["l", dice.choice((1, 2))]}
        if dice.random() < 0.6:
            routing |= {"x-overflow": ["S", dice.choice(("reject-publish", "reject-publish-dlx"))]}
    if dice.random() < 0.3:
        del routing["x-dead-letter-exchange"]
        routing.pop("x-dead-letter-routing-key", None)
    quorum = {"x-queue-type": ["S", "quorum"], "x-delivery-limit": ["l", 20]}
    # A quorum queue of 3.10 notices late that it is full.
    kind = quorum if dice.random() < 0.2 and "x-max-length" not in routing else {}
    made: list[Step] = [
        {"on": here, "do": "confirm.select"},
        {"on": here, "do": "exchange.declare", "exchange": "x1~", "type": "fanout"},
        {"on": here, "do": "queue.declare", "queue": "dead~", "durable": True},
        {"on": here, "do": "queue.bind", "queue": "dead~", "exchange": "x1~"},
        {"on": here, "do": "queue.declare", "queue": "q1~", "durable": True, "arguments": routing | kind},
    ]
    for number in range(dice.randrange(1, 5)):
        properties = {}
        if dice.random() < 0.6:
            # A quorum queue looks for what has expired with the next thing that it does, and counts it until then.
            least = words.SHORT_MS if kind else 0
            properties["expiration"] = str(dice.choice((words.SHORT_MS, words.LONG_MS, least)))
        if dice.random() < 0.3:
            properties["headers"] = words.routed_headers(dice)
        publish = {"on": here, "do": "basic.publish", "routing_key": "q1~", "body": f"m{number}"}
        made.append({**publish, "properties": properties})
    wait = {"on": here, "do": "wait", "ms": words.WAIT_MS}
    if dice.random() < 0.3:
        # What is out does not expire, and does when it comes back.
        made.append({"on": here, "do": "basic.get", "queue": "q1~"})
        made += [wait, {"on": here, "do": "basic.nack", "delivery": 0, "requeue": True}]
    made.append(wait)
    if dice.random() < 0.4:
        made.append({"on": here, "do": "basic.publish", "routing_key": "q1~", "body": "later"})
    made.append({"on": here, "do": "queue.declare", "queue": "q1~", "passive": True})
    made.append({"on": here, "do": "basic.get", "queue": dice.choice(("q1~", "dead~"))})
    made.append({"on": here, "do": "basic.reject", "delivery": 0, "requeue": dice.random() < 0.5})
    made += [wait, {"on": here, "do": "drain", "queue": "dead~"}]
    return made
