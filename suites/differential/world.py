"""One random scenario in the making, and what is known of the brokers' state meanwhile.

A small model keeps most operations valid: it knows what was declared and bound, who consumes and what mode a channel
is in. It need not be right; a wrong guess is one more error that both brokers have to answer alike.
"""

import random

from . import vocabulary as words
from .scenario import Step
from .topology import Topology

STEPS_MIN, STEPS_MAX = 10, 34

# How often each operation is drawn, by what a scenario is about. What a profile does not name has the common weight.
COMMON = {
    "declare_queue": 5,
    "declare_queue_again": 2,
    "look_at_queue": 2,
    "declare_exchange": 3,
    "declare_exchange_again": 1.5,
    "odd_exchange": 0.7,
    "look_at_exchange": 0.6,
    "delete_exchange": 1,
    "bind_queue": 4,
    "unbind_queue": 1,
    "bind_exchange": 1.5,
    "unbind_exchange": 0.6,
    "purge": 0.7,
    "delete_queue": 1.3,
    "publish": 14,
    "get": 6,
    "consume": 5,
    "cancel": 1.5,
    "ack": 4,
    "nack": 2.5,
    "reject": 2.5,
    "recover": 1,
    "qos": 1.5,
    "confirm": 1,
    "transaction": 0.7,
    "close_channel": 0.8,
    "close_connection": 0.5,
    "drop": 0.3,
    "small_methods": 0.7,
    "request": 0.3,
    "reply": 0.3,
}
PROFILES = {
    "everything": {},
    "topology": {"publish": 6, "bind_queue": 8, "bind_exchange": 5, "declare_exchange": 6, "unbind_exchange": 2},
    "consuming": {"consume": 9, "ack": 9, "nack": 5, "reject": 5, "publish": 20, "qos": 4, "cancel": 3, "recover": 3},
    "dead letters": {"nack": 6, "reject": 6, "get": 10, "publish": 18},
    "transactions": {"transaction": 12, "publish": 18, "ack": 7, "nack": 5, "reject": 4, "get": 7},
    "quorum": {"publish": 16, "nack": 6, "reject": 6, "get": 8, "ack": 6},
    "streams": {"publish": 20, "consume": 9, "ack": 9, "qos": 3, "cancel": 3, "purge": 0.3, "get": 1},
    "replies": {"request": 9, "reply": 9, "get": 8, "publish": 4},
    "declarations": {
        "declare_queue": 12,
        "declare_queue_again": 12,
        "declare_exchange_again": 9,
        "odd_exchange": 4,
        "look_at_queue": 5,
        "publish": 5,
    },
}


class World(Topology):
    """Makes the steps of a scenario of one profile with given dice."""

    def __init__(self, dice: random.Random, profile: str):
        super().__init__(dice, profile)
        self.weights = COMMON | PROFILES[profile]
        self.tags: list[str] = []
        self.modes: dict[str, str] = {}
        # Channels that were given something which they have to settle, most likely.
        self.holders: list[str] = []
        # Channels that consume direct replies.
        self.askers: list[str] = []
        self.messages = 0

    def steps(self) -> list[Step]:
        dice = self.dice
        made: list[Step] = []
        for channel in self.channels:
            if dice.random() < 0.6 and self.profile != "transactions":
                made.append({"on": channel, "do": "confirm.select"})
                self.modes[channel] = "confirm"
        if self.profile == "streams":
            # Without one, nobody may consume from a stream.
            counts = [dice.choice((1, 2, 10)) for _ in self.channels]
            pairs = zip(self.channels, counts, strict=True)
            made += [self.step("basic.qos", on, prefetch_count=count) for on, count in pairs]
        made += self.declare_exchange() if dice.random() < 0.9 else []
        made += self.declare_queue()
        made += self.declare_queue() if dice.random() < 0.6 else []
        made += self.bind_queue() if self.exchanges else []
        names, weights = zip(*self.weights.items(), strict=True)
        for name in dice.choices(names, weights, k=dice.randrange(STEPS_MIN, STEPS_MAX)):
            made += getattr(self, name)()
        return made

    def publish(self) -> list[Step]:
        """One message, or a few alike."""
        made = []
        exchange = "" if self.luck(0.55) or not self.exchanges else self.exchange()
        key = self.queue() if not exchange else self.dice.choice(words.KEYS)
        bound = [step for step in self.bindings if step.get("exchange", step.get("source")) == exchange]
        if exchange and bound and self.luck(0.6):
            key = self.dice.choice(bound).get("routing_key", "")
        on = self.on()
        many = self.dice.choice((5, 20, 60)) if self.luck(0.05) else None
        for _ in range(1 if many else self.dice.choice((1, 1, 1, 2, 3))):
            self.messages += 1
            body = f"m{self.messages}"
            if self.luck(0.02) and not many:
                body = body.ljust(self.dice.choice((131_064, 131_065, 300_000)), ".")
            elif self.luck(0.02):
                body = ""
            made.append(
                self.step(
                    "basic.publish",
                    on,
                    exchange=exchange,
                    routing_key=key,
                    mandatory=self.luck(0.3),
                    immediate=self.luck(0.003),
                    properties=words.properties(self.dice),
                    body=body,
                    times=many,
                )
            )
        return made

    def get(self) -> list[Step]:
        queue = self.queue()
        step = self.step("basic.get", self.owner(queue), queue=queue, no_ack=self.luck(0.2))
        if not step.get("no_ack"):
            self.holders.append(step["on"])
        return [step]

    def consume(self) -> list[Step]:
        queue = self.queue()
        tag = f"t{len(self.tags) + 1}"
        if self.tags and self.luck(0.06):
            tag = self.dice.choice(self.tags)
        elif self.luck(0.1):
            tag = ""
        else:
            self.tags.append(tag)
        arguments = {}
        stream = self.queues.get(queue, {}).get("arguments", {}).get("x-queue-type") == ["S", "stream"]
        if stream and self.luck(0.9):
            arguments |= words.stream_offset(self.dice)
        elif self.luck(0.15):
            arguments["x-priority"] = ["I", self.dice.choice((-1, 1, 5, 10))]
        elif self.luck(0.01):
            arguments["x-priority"] = self.dice.choice((["S", "high"], ["d", 1.0]))
        step = self.step(
            "basic.consume",
            self.owner(queue),
            queue=queue,
            consumer_tag=tag,
            no_local=self.luck(0.1),
            no_ack=self.luck(0.2),
            exclusive=self.luck(0.05),
            no_wait=bool(tag) and self.luck(0.06),
            arguments=arguments,
        )
        if not step.get("no_ack"):
            self.holders.append(step["on"])
        return [step]

    def request(self) -> list[Step]:
        """A request that wants its reply without a queue of its own."""
        on = self.dice.choice(self.channels[:2])
        made = []
        if on not in self.askers or self.luck(0.1):
            self.askers.append(on)
            self.tags.append(f"t{len(self.tags) + 1}")
            no_ack = self.luck(0.95)
            made = [self.step("basic.consume", on, queue=words.REPLIES, consumer_tag=self.tags[-1], no_ack=no_ack)]
        self.messages += 1
        properties = words.properties(self.dice) | {"reply_to": words.REPLIES}
        asked = self.step(
            "basic.publish", on, routing_key=self.queue(), properties=properties, body=f"m{self.messages}"
        )
        return [*made, asked]

    def reply(self) -> list[Step]:
        """A reply to the last request that somebody got, most likely."""
        self.messages += 1
        properties = words.properties(self.dice)
        if self.luck(0.1):
            return [self.step("queue.declare", queue="@reply", passive=True)]
        mandatory = self.luck(0.5)
        return [
            self.step(
                "basic.publish",
                routing_key="@reply",
                mandatory=mandatory,
                properties=properties,
                body=f"m{self.messages}",
            )
        ]

    def cancel(self) -> list[Step]:
        if self.luck(0.1):
            return [self.step("basic.cancel", consumer_tag="unknown", no_wait=self.luck(0.1))]
        on = self.dice.choice(self.holders[-4:] or [self.on()])
        return [{"on": on, "do": "basic.cancel", "consumer": self.dice.randrange(4)}]

    def settling(self, method: str, multiple: bool, **fields) -> list[Step]:
        on = self.dice.choice(self.holders[-4:]) if self.holders and self.luck(0.95) else self.on()
        step: Step = {"on": on, "do": method}
        if self.luck(0.04):
            step["delivery_tag"] = self.dice.choice((0, 0, 99))
        else:
            step["delivery"] = self.dice.choice((0, 0, 0, 1, 2))
        if multiple:
            step["multiple"] = True
        return [{**step, **{name: value for name, value in fields.items() if value}}]

    def ack(self) -> list[Step]:
        return self.settling("basic.ack", self.luck(0.3))

    def nack(self) -> list[Step]:
        return self.settling("basic.nack", self.luck(0.35), requeue=self.luck(0.5))

    def reject(self) -> list[Step]:
        return self.settling("basic.reject", False, requeue=self.luck(0.5))

    def recover(self) -> list[Step]:
        method = "basic.recover" if self.luck(0.8) else "basic.recover_async"
        return [self.step(method, requeue=self.luck(0.95))]

    def qos(self) -> list[Step]:
        size = 1 if self.luck(0.02) else 0
        count = self.dice.choice((0, 1, 1, 2, 3))
        is_global = self.luck(0.15 if self.profile == "quorum" else 0.35)
        return [self.step("basic.qos", prefetch_size=size, prefetch_count=count, **{"global": is_global})]

    def confirm(self) -> list[Step]:
        on = self.on()
        self.modes.setdefault(on, "confirm")
        return [self.step("confirm.select", on, no_wait=self.luck(0.1))]

    def transaction(self) -> list[Step]:
        on = self.on()
        if self.modes.get(on) != "tx" and self.luck(0.9):
            if self.modes.get(on) == "confirm" and self.luck(0.8):
                return []
            self.modes[on] = "tx"
            return [self.step("tx.select", on)]
        return [self.step(self.dice.choice(("tx.commit", "tx.commit", "tx.rollback")), on)]

    def close_channel(self) -> list[Step]:
        on = self.on()
        self.modes.pop(on, None)
        return [self.step("channel.close", on, reply_code=200, reply_text="bye")]

    def close_connection(self) -> list[Step]:
        return [self.step("connection.close", f"{self.on()[0]}0", reply_code=200, reply_text="bye")]

    def drop(self) -> list[Step]:
        return [{"on": f"{self.on()[0]}0", "do": "drop"}]

    def small_methods(self) -> list[Step]:
        luck = self.dice.random()
        if luck < 0.4:
            return [self.step("channel.flow", active=True)]
        if luck < 0.5:
            return [self.step("channel.flow")]
        if luck < 0.9:
            flags = {name: self.luck(0.5) for name in ("exclusive", "passive", "active", "write", "read")}
            return [self.step("access.request", realm="/data", **flags)]
        return [self.step("channel.open")]
