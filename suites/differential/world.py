"""One random scenario in the making, and what is known of the brokers' state meanwhile.

A small model keeps most operations valid: it knows what was declared and bound, who consumes and what mode a channel
is in. It need not be right; a wrong guess is one more error that both brokers have to answer alike.
"""

import random

from . import vocabulary as words
from .scenario import Step

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
}
PROFILES = {
    "everything": {},
    "topology": {"publish": 6, "bind_queue": 8, "bind_exchange": 5, "declare_exchange": 6, "unbind_exchange": 2},
    "consuming": {"consume": 9, "ack": 9, "nack": 5, "reject": 5, "publish": 20, "qos": 4, "cancel": 3, "recover": 3},
    "dead letters": {"nack": 6, "reject": 6, "get": 10, "publish": 18},
    "transactions": {"transaction": 12, "publish": 18, "ack": 7, "nack": 5, "reject": 4, "get": 7},
    "quorum": {"publish": 16, "nack": 6, "reject": 6, "get": 8, "ack": 6},
    "declarations": {
        "declare_queue": 12,
        "declare_queue_again": 12,
        "declare_exchange_again": 9,
        "odd_exchange": 4,
        "look_at_queue": 5,
        "publish": 5,
    },
}


class World:
    """Makes the steps of a scenario of one profile with given dice."""

    def __init__(self, dice: random.Random, profile: str):
        self.dice = dice
        self.profile = profile
        self.weights = COMMON | PROFILES[profile]
        self.channels = dice.choice((["A1"], ["A1", "B1"], ["A1", "A2"], ["A1", "A2", "B1"], ["A1", "B1", "C1"]))
        self.queues: dict[str, Step] = {}
        self.exchanges: dict[str, Step] = {}
        self.bindings: list[Step] = []
        self.tags: list[str] = []
        self.modes: dict[str, str] = {}
        # Channels that were given something which they have to settle, most likely.
        self.holders: list[str] = []
        self.messages = 0
        self.number = 0

    def steps(self) -> list[Step]:
        dice = self.dice
        made: list[Step] = []
        for channel in self.channels:
            if dice.random() < 0.6 and self.profile != "transactions":
                made.append({"on": channel, "do": "confirm.select"})
                self.modes[channel] = "confirm"
        made += self.declare_exchange() if dice.random() < 0.9 else []
        made += self.declare_queue()
        made += self.declare_queue() if dice.random() < 0.6 else []
        made += self.bind_queue() if self.exchanges else []
        names, weights = zip(*self.weights.items(), strict=True)
        for name in dice.choices(names, weights, k=dice.randrange(STEPS_MIN, STEPS_MAX)):
            made += getattr(self, name)()
        return made

    def luck(self, chance: float) -> bool:
        return self.dice.random() < chance

    def on(self) -> str:
        return self.dice.choice(self.channels)

    def step(self, method: str, on: str | None = None, **fields) -> Step:
        """A step; fields that are false or empty are left out, as they are on the wire."""
        kept = {name: value for name, value in fields.items() if value not in (False, "", None, {})}
        return {"on": on or self.on(), "do": method, **kept}

    def queue(self) -> str:
        """A queue that most likely is there."""
        if self.luck(0.03):
            return "missing~"
        if self.luck(0.03):
            return self.dice.choice(("", "@0"))
        # The first two are used most, so that things happen there.
        known = list(self.queues) or ["q1~"]
        return self.dice.choice(known[:2] if self.luck(0.7) else known)

    def exchange(self) -> str:
        luck = self.dice.random()
        if luck < 0.03:
            return "missing~"
        if luck < 0.06 or not self.exchanges:
            return self.dice.choice(words.PREDECLARED)
        return self.dice.choice(list(self.exchanges))

    def type_of(self, exchange: str) -> str:
        if exchange in self.exchanges:
            return self.exchanges[exchange].get("type", "")
        return "headers" if exchange == "amq.match" else exchange.removeprefix("amq.")

    def owner(self, queue: str) -> str | None:
        """A channel that may use the queue, if it is somebody's own."""
        step = self.queues.get(queue)
        if step is None or not step.get("exclusive") or self.luck(0.1):
            return None
        return self.dice.choice([channel for channel in self.channels if channel[0] == step["on"][0]])

    def declare_exchange(self) -> list[Step]:
        self.number += 1
        name = f"x{self.number}~"
        arguments = {}
        if self.luck(0.25):
            arguments["alternate-exchange"] = ["S", self.exchange()]
        if self.luck(0.05):
            arguments["x-own"] = words.value(self.dice)
        step = self.step(
            "exchange.declare",
            exchange=name,
            type=self.dice.choice(words.EXCHANGE_TYPES),
            durable=self.luck(0.6),
            auto_delete=self.luck(0.15),
            internal=self.luck(0.08),
            no_wait=self.luck(0.06),
            arguments=arguments,
        )
        self.exchanges[name] = step
        return [step]

    def declare_exchange_again(self) -> list[Step]:
        if not self.exchanges:
            return self.declare_exchange()
        again = {**self.dice.choice(list(self.exchanges.values())), "on": self.on()}
        if self.luck(0.5):
            match self.dice.randrange(5):
                case 0:
                    again["type"] = self.dice.choice(words.EXCHANGE_TYPES)
                case 1:
                    again["arguments"] = {"alternate-exchange": ["S", self.dice.choice(("amq.fanout", "other~"))]}
                case 2:
                    again.pop("arguments", None)
                case _:
                    flag = self.dice.choice(("durable", "auto_delete", "internal"))
                    again[flag] = not again.get(flag)
        return [again]

    def odd_exchange(self) -> list[Step]:
        declare = "exchange.declare"
        known = self.dice.choice(words.PREDECLARED)
        return [
            self.dice.choice(
                (
                    self.step(declare, exchange="odd~", type="nonsense"),
                    self.step(declare, exchange="odd~"),
                    self.step(declare, exchange="amq.new", type="direct"),
                    self.step(declare, type="direct"),
                    self.step(declare, passive=True),
                    self.step(declare, exchange=known, type=self.type_of(known), durable=True),
                    self.step(declare, exchange=known, type="topic", durable=self.luck(0.5)),
                    self.step("exchange.delete", exchange=known),
                    self.step("exchange.delete"),
                    self.step("exchange.bind", destination=known, routing_key="a"),
                    self.step("exchange.bind", source=known, routing_key="a"),
                    self.step("queue.bind", queue=self.queue(), routing_key="a"),
                    self.step("queue.unbind", queue=self.queue(), routing_key="a"),
                    self.step("exchange.unbind", destination=known, routing_key="a"),
                    self.step("exchange.unbind", source=known, routing_key="a"),
                    self.step("queue.declare", queue="amq.new"),
                )
            )
        ]

    def look_at_exchange(self) -> list[Step]:
        return [self.step("exchange.declare", exchange=self.exchange(), passive=True, type="topic")]

    def delete_exchange(self) -> list[Step]:
        name = self.exchange()
        return [
            self.step("exchange.delete", exchange=name, if_unused=self.luck(0.5), no_wait=self.luck(0.08)),
        ]

    def declare_queue(self) -> list[Step]:
        made = self.luck(0.08)
        self.number += 1
        name = "" if made else f"q{len(self.queues) + 1}~"
        quorum = self.luck(0.7 if self.profile == "quorum" else 0.06)
        exclusive = self.luck(0.15)
        step = self.step(
            "queue.declare",
            queue=name,
            durable=self.luck(0.95 if quorum else 0.5),
            exclusive=exclusive and (not quorum or self.luck(0.1)),
            auto_delete=self.luck(0.02 if quorum else 0.15),
            no_wait=self.luck(0.06),
            arguments=words.queue_arguments(self.dice, list(self.exchanges), quorum),
        )
        if name:
            self.queues[name] = step
        return [step]

    def declare_queue_again(self) -> list[Step]:
        if not self.queues:
            return self.declare_queue()
        first = self.dice.choice(list(self.queues.values()))
        again = {**first, "on": self.owner(first["queue"]) or self.on()}
        if self.luck(0.55):
            if self.luck(0.5):
                flag = self.dice.choice(("durable", "auto_delete", "exclusive"))
                again[flag] = not again.get(flag)
            elif self.luck(0.4):
                again.pop("arguments", None)
            else:
                more = words.queue_arguments(self.dice, list(self.exchanges), False)
                again["arguments"] = {**again.get("arguments", {}), **more}
        return [again]

    def look_at_queue(self) -> list[Step]:
        queue = self.queue()
        return [self.step("queue.declare", self.owner(queue), queue=queue, passive=True, no_wait=self.luck(0.03))]

    def binding(self, source: str) -> tuple[str, dict]:
        kind = self.type_of(source)
        key = self.dice.choice(words.PATTERNS if kind == "topic" else words.KEYS)
        arguments = words.headers_binding(self.dice) if kind == "headers" else {}
        return key, arguments or ({"x-own": ["S", "x"]} if self.luck(0.04) else {})

    def bind_queue(self) -> list[Step]:
        queue, source = self.queue(), self.exchange()
        key, arguments = self.binding(source)
        step = self.step(
            "queue.bind",
            self.owner(queue),
            queue=queue,
            exchange=source,
            routing_key=key,
            no_wait=self.luck(0.06),
            arguments=arguments,
        )
        self.bindings.append(step)
        return [step]

    def unbind_queue(self) -> list[Step]:
        bound = [step for step in self.bindings if step["do"] == "queue.bind"]
        if not bound or self.luck(0.2):
            return [self.step("queue.unbind", queue=self.queue(), exchange=self.exchange(), routing_key="a")]
        step = {**self.dice.choice(bound), "do": "queue.unbind"}
        step.pop("no_wait", None)
        if self.luck(0.1):
            step.pop("arguments", None)
        return [step]

    def bind_exchange(self) -> list[Step]:
        source = self.exchange()
        key, arguments = self.binding(source)
        step = self.step(
            "exchange.bind",
            destination=self.exchange(),
            source=source,
            routing_key=key,
            no_wait=self.luck(0.06),
            arguments=arguments,
        )
        self.bindings.append(step)
        return [step]

    def unbind_exchange(self) -> list[Step]:
        bound = [step for step in self.bindings if step["do"] == "exchange.bind"]
        if not bound:
            return [self.step("exchange.unbind", destination=self.exchange(), source=self.exchange())]
        return [{**self.dice.choice(bound), "do": "exchange.unbind"}]

    def purge(self) -> list[Step]:
        queue = self.queue()
        return [self.step("queue.purge", self.owner(queue), queue=queue, no_wait=self.luck(0.1))]

    def delete_queue(self) -> list[Step]:
        queue = self.queue()
        return [
            self.step(
                "queue.delete",
                self.owner(queue),
                queue=queue,
                if_unused=self.luck(0.3),
                if_empty=self.luck(0.3),
                no_wait=self.luck(0.08),
            )
        ]

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
        if self.luck(0.15):
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
