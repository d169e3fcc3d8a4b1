"""Gives a scenario to one broker, step by step, and notes everything that comes, by step and channel.

After each step everything that it causes has to arrive before the next begins, or the comparison of two brokers
would be one of their speeds. So a step ends when its answer is there (or the answer to a question behind it on the
same channel), what was published on a channel in confirm mode is confirmed, every open channel has answered a ping
(`channel.flow`, which changes nothing), and nothing has come for a moment. The second broker is given as much time as
it needs to send as much as the first did, up to a bound; what does not come by then is a difference.
"""

import time
from dataclasses import dataclass, field

from .client import Connection, Event, pump
from .scenario import AUDITOR, DRAINED_MAX, WORDS, Step, channel_of, connection_of, is_answered, own_names

ANSWER_SECONDS = 10.0
# What bytes cause is not known beforehand; what goes wrong in a handshake may be told late.
BYTES_SECONDS, HANDSHAKE_SECONDS = 0.5, 6.0
END_SECONDS = 3.0
PING = "channel.flow"

# What came after one step, by connection and channel.
Answer = dict[str, list[Event]]


@dataclass(frozen=True)
class Pace:
    """How long silence has to last after a step, and how long more is waited for if more is expected; seconds."""

    quiet: float
    patience: float


BRISK = Pace(quiet=0.006, patience=1.0)
# For whatever was seen to differ: slow enough that speed is no reason.
CALM = Pace(quiet=0.05, patience=4.0)


@dataclass
class Channel:
    """What a client knows of its channel."""

    # Delivery tags that are not settled, oldest first.
    unsettled: list[int] = field(default_factory=list)
    # Several consumers were delivered to at once: their tags' order is chance.
    mixed: bool = False
    consumers: list[str] = field(default_factory=list)
    no_ack: dict[str, bool] = field(default_factory=dict)
    confirming: bool = False
    published: int = 0
    unconfirmed: set[int] = field(default_factory=set)
    transacted: bool = False
    # Settled in a transaction that is not committed.
    held: list[int] = field(default_factory=list)


class Play:
    """One scenario on one broker."""

    def __init__(self, address: tuple[str, int], token: str, pace: Pace, barrier: Connection | None = None):
        self.address = address
        self.suffix = f"~{token}"
        self.pace = pace
        self.barrier = barrier
        self.connections: dict[str, Connection] = {}
        self.channels: dict[str, Channel] = {}
        self.made_names: list[str] = []
        self.fresh: dict[str, list[tuple[int, int]]] = {}
        self.pings: dict[tuple[str, int], int] = {}

    def run(self, steps: list[Step], expected: list[Answer] | None = None) -> list[Answer]:
        """Plays all steps; `expected` is what another broker answered."""
        answers = []
        try:
            for index, step in enumerate(steps):
                wanted = expected[index] if expected and index < len(expected) else None
                answers.append(self._step(step, wanted))
        finally:
            self._clean(steps)
        return answers

    def _step(self, step: Step, wanted: Answer | None) -> Answer:
        self.fresh = {}
        self.step = step
        if step["do"] == "wait":
            self._settle(step["ms"] / 1000, None)
            return self._collect()
        name = connection_of(step)
        if step["do"] == "drop":
            if name in self.connections:
                self.connections.pop(name).drop()
                self._forget(name)
            self._settle(self.pace.quiet, wanted)
            return self._collect()
        if step.get("first") and name not in self.connections:
            # It speaks its own handshake.
            self.connections[name] = Connection(self.address)
        connection = self.connections[name] if step.get("first") else self._connection(name)
        if step["do"] == "bytes":
            connection.send_bytes(bytes.fromhex(step["hex"]))
            if not any(connection.events.values()):
                pump([connection], HANDSHAKE_SECONDS if step.get("first") else BYTES_SECONDS)
            self._settle(self.pace.quiet, wanted)
            return self._collect()
        number = channel_of(step)
        if number and not step.get("anyway") and number not in connection.open_channels:
            if not self._open_channel(name, connection, number):
                return {"": [Event("channel not opened", {})], **self._collect()}
        if step["do"] == "drain":
            self._drain(connection, number, self._named(step["queue"]))
            return self._collect()
        fields = self._fields(step)
        if fields is None:
            return {"": [Event("skipped", {})]}
        self._before_sending(step)
        if "times" in step:
            self._send_many(connection, number, fields)
        else:
            connection.send(number, step["do"], self.step.get("properties"), step.get("body", ""), **fields)
        if is_answered(step):
            self._await(connection, number)
        self._confirmed(connection, f"{name}{number}")
        self._settle(self.pace.quiet, wanted)
        return self._collect()

    def _send_many(self, connection: Connection, number: int, fields: dict) -> None:
        """Messages of one kind in one piece, as a publisher that does not wait sends them."""
        frames = b""
        for count in range(self.step["times"]):
            body = f"{self.step.get('body', '')}.{count}"
            frames += connection.method_frame(number, self.step["do"], fields)
            frames += connection.content_frames(number, self.step.get("properties", {}), body)
        connection.send_bytes(frames)

    def _connection(self, name: str) -> Connection:
        connection = self.connections.get(name)
        if connection is None or connection.ended:
            self._forget(name)
            connection = self.connections[name] = Connection(self.address).open()
        return connection

    def _forget(self, name: str) -> None:
        for key in [key for key in self.channels if key[0] == name]:
            del self.channels[key]

    def _open_channel(self, name: str, connection: Connection, number: int) -> bool:
        key = f"{name}{number}"
        self.channels[key] = Channel()
        connection.send(number, "channel.open")
        self._await(connection, number)
        events = connection.events.get(number, [])
        if events and events[-1].name == "channel.open_ok":
            events.pop()
            return True
        return False

    def _named(self, text):
        """A string, or what holds strings, with the scenario's own names made unique."""
        if isinstance(text, str):
            return text.replace("~", self.suffix)
        if isinstance(text, list | tuple):
            return [self._named(part) for part in text]
        if isinstance(text, dict):
            return {self._named(name): self._named(part) for name, part in text.items()}
        return text

    def _fields(self, step: Step) -> dict | None:
        """The method's fields with what only the broker knows; none if there is no such thing."""
        fields = {name: self._named(value) for name, value in step.items() if name not in WORDS}
        if "properties" in step:
            step = self.step = {**step, "properties": self._named(step["properties"])}
        channel = self.channels.get(step["on"])
        for name in ("queue", "routing_key"):
            made = fields.get(name)
            if isinstance(made, str) and made.startswith("@"):
                if int(made[1:]) >= len(self.made_names):
                    return None
                fields[name] = self.made_names[int(made[1:])]
        if "consumer" in step:
            if not channel or not channel.consumers:
                return None
            fields["consumer_tag"] = channel.consumers[step["consumer"] % len(channel.consumers)]
        if "delivery" in step:
            if not channel or not channel.unsettled:
                return None
            fields["delivery_tag"] = channel.unsettled[step["delivery"] % len(channel.unsettled)]
            if channel.mixed and step.get("multiple"):
                fields["delivery_tag"] = max(channel.unsettled)
        if "delivery_tag" in fields and channel:
            self._settled(channel, fields["delivery_tag"], bool(step.get("multiple")))
        return fields

    def _settled(self, channel: Channel, tag: int, multiple: bool) -> None:
        gone = [
            one
            for one in channel.unsettled
            if one == tag or (multiple and (tag == 0 or (one < tag and tag in channel.unsettled)))
        ]
        channel.unsettled = [one for one in channel.unsettled if one not in gone]
        channel.mixed = channel.mixed and bool(channel.unsettled)
        if channel.transacted:
            channel.held += gone

    def _before_sending(self, step: Step) -> None:
        channel = self.channels.get(step["on"])
        if channel is None:
            return
        match step["do"]:
            case "basic.publish" if channel.confirming:
                for _ in range(step.get("times", 1)):
                    channel.published += 1
                    channel.unconfirmed.add(channel.published)
            case "basic.recover" | "basic.recover_async" if step.get("requeue"):
                channel.unsettled = []
                channel.mixed = False
            case "basic.consume":
                # Known before its answer: with no_wait there is none.
                tag = self._named(step.get("consumer_tag", ""))
                channel.no_ack[tag] = bool(step.get("no_ack"))
                if step.get("no_wait") and tag and tag not in channel.consumers:
                    channel.consumers.append(tag)
            case "basic.cancel" if step.get("no_wait"):
                tag = self._named(step.get("consumer_tag", ""))
                channel.consumers = [one for one in channel.consumers if one != tag]
            case "confirm.select":
                channel.confirming = channel.confirming or bool(step.get("no_wait"))

    def _await(self, connection: Connection, number: int) -> None:
        """Waits for an answer on a channel, or an end."""
        deadline = time.monotonic() + ANSWER_SECONDS
        seen = len(connection.events.get(number, []))
        while True:
            came = connection.events.get(number, [])[seen:]
            if connection.ended or any(event.name.endswith(("_ok", "_empty", ".close")) for event in came):
                return
            if any(event.name == "connection.close" for event in connection.events.get(0, [])):
                return
            if time.monotonic() > deadline:
                connection.events.setdefault(number, []).append(Event("no answer", {}))
                return
            pump([connection], 0.05)

    def _confirmed(self, connection: Connection, key: str) -> None:
        """Waits until everything that was published on a channel is confirmed."""
        channel = self.channels.get(key)
        if not channel or not channel.unconfirmed:
            return
        number = int(key[1:])
        deadline = time.monotonic() + ANSWER_SECONDS
        while number in connection.open_channels and not connection.ended:
            told = set()
            for event in connection.events.get(number, []):
                if event.name in ("basic.ack", "basic.nack"):
                    told |= confirmed_by(event, channel.unconfirmed)
            if told >= channel.unconfirmed:
                return
            if time.monotonic() > deadline:
                connection.events.setdefault(number, []).append(Event("not confirmed", {}))
                return
            pump([connection], 0.05)

    def _settle(self, quiet: float, wanted: Answer | None) -> None:
        """Waits until nothing more comes."""
        self._ping_all()
        if self.barrier is not None:
            pass_barrier(self.barrier)
            self._ping_all()
        live = list(self.connections.values())
        for connection in live:
            # Whoever closes a connection goes on to end it.
            deadline = time.monotonic() + END_SECONDS
            while is_closing(connection) and time.monotonic() < deadline:
                connection.pump(0.05)
        deadline = time.monotonic() + self.pace.patience
        while wanted is not None and not self._has(wanted) and time.monotonic() < deadline:
            pump(live, 0.02)
        until = time.monotonic() + quiet
        deadline = time.monotonic() + ANSWER_SECONDS
        while (left := until - time.monotonic()) > 0 and time.monotonic() < deadline:
            if not any(not connection.ended for connection in live):
                time.sleep(left)
            elif pump(live, left):
                until = max(until, time.monotonic() + self.pace.quiet)

    def _ping_all(self) -> None:
        for name, connection in self.connections.items():
            for number in sorted(connection.open_channels):
                if number not in connection.open_channels:
                    # It was closed while another was asked.
                    continue
                connection.send(number, PING, active=True)
                self.pings[name, number] = self.pings.get((name, number), 0) + 1
                deadline = time.monotonic() + ANSWER_SECONDS
                while number in connection.open_channels and not connection.ended:
                    if any(event.name == "channel.flow_ok" for event in connection.events.get(number, [])):
                        self._drop_pings(name, connection, number)
                        if not self.pings.get((name, number)):
                            break
                    if time.monotonic() > deadline:
                        connection.events.setdefault(number, []).append(Event("no answer to a ping", {}))
                        break
                    pump([connection], 0.05)
                self.pings.pop((name, number), None)

    def _drop_pings(self, name: str, connection: Connection, number: int) -> None:
        """Takes answers to pings, which are no answers to the scenario, away: they are the last."""
        events = connection.events[number]
        own = self.step["do"] == PING and self.step["on"] == f"{name}{number}"
        answers = [index for index, event in enumerate(events) if event.name == "channel.flow_ok"]
        while self.pings.get((name, number)) and len(answers) > own:
            events.pop(answers.pop())
            self.pings[name, number] -= 1

    def _has(self, wanted: Answer) -> bool:
        """Whether at least as much has come as was expected; confirmations aside, which may come together."""
        for key, events in wanted.items():
            if not key:
                continue
            connection = self.connections.get(key[0])
            came = connection.events.get(int(key[1:]), []) if connection else []
            if sum(map(counts, came)) < sum(map(counts, events)):
                return False
        return True

    def _drain(self, connection: Connection, number: int, queue: str) -> None:
        for _ in range(DRAINED_MAX):
            if number not in connection.open_channels:
                return
            connection.send(number, "basic.get", queue=queue, no_ack=True)
            self._await(connection, number)
            came = connection.events.get(number)
            if connection.ended or not came or came[-1].name != "basic.get_ok":
                return

    def _collect(self) -> Answer:
        """What came since the last step; the client's knowledge follows it."""
        answer: Answer = {}
        for name, connection in self.connections.items():
            for number in sorted(connection.events):
                events, connection.events[number] = connection.events[number], []
                if events:
                    answer[f"{name}{number}"] = events
                    for event in events:
                        self._absorb(name, number, event)
        for key, fresh in self.fresh.items():
            channel = self.channels.get(key)
            if channel is not None:
                fresh.sort(key=lambda pair: pair[0])
                channel.mixed = channel.mixed or len({consumer for consumer, _ in fresh}) > 1
                channel.unsettled += [tag for _, tag in fresh]
        return answer

    def _absorb(self, name: str, number: int, event: Event) -> None:
        key = f"{name}{number}"
        if event.name in ("connection.close", "connection.close_ok", "end of connection"):
            self._forget(name)
            return
        channel = self.channels.get(key)
        if channel is None:
            return
        fields = event.fields
        match event.name:
            case "channel.close" | "channel.close_ok":
                del self.channels[key]
            case "basic.deliver":
                tag = fields["consumer_tag"]
                if not channel.no_ack.get(tag, channel.no_ack.get("", False)):
                    order = channel.consumers.index(tag) if tag in channel.consumers else len(channel.consumers)
                    self.fresh.setdefault(key, []).append((order, fields["delivery_tag"]))
            case "basic.get_ok" if not self.step.get("no_ack") and self.step["do"] == "basic.get":
                self.fresh.setdefault(key, []).append((-1, fields["delivery_tag"]))
            case "basic.ack" | "basic.nack":
                channel.unconfirmed -= confirmed_by(event, channel.unconfirmed)
            case "basic.consume_ok":
                tag = fields["consumer_tag"]
                channel.no_ack[tag] = bool(self.step.get("no_ack"))
                if tag not in channel.consumers:
                    channel.consumers.append(tag)
            case "basic.cancel_ok" | "basic.cancel":
                channel.consumers = [tag for tag in channel.consumers if tag != fields["consumer_tag"]]
            case "confirm.select_ok":
                channel.confirming = True
            case "tx.select_ok":
                channel.transacted = True
            case "tx.commit_ok":
                channel.held = []
            case "tx.rollback_ok":
                channel.unsettled = sorted(channel.unsettled + channel.held)
                channel.held = []
            case "queue.declare_ok" if self.step["do"] == "queue.declare" and not self.step.get("queue"):
                if not self.step.get("passive"):
                    self.made_names.append(fields["queue"])

    def _clean(self, steps: list[Step]) -> None:
        """Ends all connections and deletes what the scenario declared."""
        for connection in self.connections.values():
            if not connection.ended:
                connection.send(0, "connection.close", reply_code=200)
                self._await(connection, 0)
                connection.drop()
        connection = Connection(self.address).open()
        self.connections = {AUDITOR: connection}
        number = 0
        for method, field_name in (("queue", "queue"), ("exchange", "exchange")):
            for own in own_names(steps, f"{method}.declare", field_name):
                if number not in connection.open_channels:
                    number += 1
                    connection.send(number, "channel.open")
                    self._await(connection, number)
                connection.send(number, f"{method}.delete", **{field_name: self._named(own)})
                self._await(connection, number)
        connection.send(0, "connection.close", reply_code=200)
        self._await(connection, 0)
        connection.drop()


def is_closing(connection: Connection) -> bool:
    return not connection.ended and any(event.name == "connection.close" for event in connection.events.get(0, []))


def counts(event: Event) -> int:
    """How much an event counts for whoever waits for as many as another broker sent."""
    return event.name not in ("basic.ack", "basic.nack")


def confirmed_by(event: Event, unconfirmed: set[int]) -> set[int]:
    """Which of a channel's messages a broker's `basic.ack` or `basic.nack` tells of."""
    tag = event.fields["delivery_tag"]
    if event.fields["multiple"]:
        return {one for one in unconfirmed if one <= tag or tag == 0}
    return {tag} & unconfirmed


def open_barrier(address: tuple[str, int]) -> Connection:
    """A connection whose confirmed messages show that everything before them is carried out."""
    connection = Connection(address).open()
    connection.send(1, "channel.open")
    connection.expect(1, "channel.open_ok")
    connection.send(1, "queue.declare", exclusive=True, arguments={"x-max-length": ["l", 1]})
    connection.barrier_queue = connection.expect(1, "queue.declare_ok").fields["queue"]
    connection.send(1, "confirm.select")
    connection.expect(1, "confirm.select_ok")
    return connection


def pass_barrier(barrier: Connection) -> None:
    barrier.send(1, "basic.publish", routing_key=barrier.barrier_queue)
    barrier.expect(1, "basic.ack", ANSWER_SECONDS)
