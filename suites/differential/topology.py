"""Exchanges, queues and bindings of one random scenario in the making: what is there, and what is done to it."""

import random

from . import vocabulary as words
from .scenario import Step


class Topology:
    """What was declared and bound so far, as far as anybody can tell without asking."""

    def __init__(self, dice: random.Random, profile: str):
        self.dice = dice
        self.profile = profile
        self.channels = dice.choice((["A1"], ["A1", "B1"], ["A1", "A2"], ["A1", "A2", "B1"], ["A1", "B1", "C1"]))
        self.queues: dict[str, Step] = {}
        self.exchanges: dict[str, Step] = {}
        self.bindings: list[Step] = []
        self.number = 0

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
        stream = self.profile == "streams" and self.luck(0.8)
        replicated = quorum or stream
        exclusive = self.luck(0.15)
        if stream:
            arguments = words.stream_arguments(self.dice)
        else:
            arguments = words.queue_arguments(self.dice, list(self.exchanges), quorum)
        step = self.step(
            "queue.declare",
            queue=name,
            durable=self.luck(0.95 if replicated else 0.5),
            exclusive=exclusive and (not replicated or self.luck(0.1)),
            auto_delete=self.luck(0.02 if replicated else 0.15),
            no_wait=self.luck(0.06),
            arguments=arguments,
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
