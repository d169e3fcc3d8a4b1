"""Gives a scenario to one broker, step by step, and notes everything that comes, by step and channel.

After each step everything that it causes has to arrive before the next begins, or the comparison of two brokers
would be one of their speeds. So a step ends when its answer is there (or the answer to a question behind it on the
same channel), what was published on a channel in confirm mode is confirmed, every open channel has answered a ping
(`channel.flow`, which changes nothing), and nothing has come for a moment. The second broker is given as much time as
it needs to send as much as the first did, up to a bound; what does not come by then is a difference.
"""

import time
from dataclasses import dataclass

from .client import Connection, Event, pump
from .knowledge import Channel, Knowledge, confirmed_by
from .scenario import AUDITOR, DRAINED_MAX, Step, channel_of, connection_of, is_answered, own_names

ANSWER_SECONDS = 10.0
# What bytes cause is not known beforehand; what goes wrong in a handshake may be told late.
BYTES_SECONDS, HANDSHAKE_SECONDS = 0.5, 6.0
# Behind a frame that cannot be read RabbitMQ says why, and ends the connection 3 seconds later.
END_SECONDS = 10.0
PING = "channel.flow"

# What came after one step, by connection and channel.
Answer = dict[str, list[Event]]


@dataclass(frozen=True)
class Pace:
    """How long silence has to last after a step, and how long more is waited for if more is expected; seconds."""

    quiet: float
    patience: float


BRISK = Pace(quiet=0.006, patience=1.0)
# RabbitMQ hands out what is new in a stream a moment after it is confirmed, and a quorum queue's dead letters go later.
UNHURRIED = Pace(quiet=0.03, patience=1.0)
# For whatever was seen to differ: slow enough that speed is no reason.
CALM = Pace(quiet=0.05, patience=4.0)


class Play:
    """One scenario on one broker."""

    def __init__(self, address: tuple[str, int], token: str, pace: Pace, barrier: Connection | None = None):
        self.address = address
        self.client = Knowledge(f"~{token}")
        self.pace = pace
        self.barrier = barrier
        self.connections: dict[str, Connection] = {}
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
        self.step = step
        if step["do"] == "wait":
            self._settle(step["ms"] / 1000, None)
            return self._collect()
        name = connection_of(step)
        if step["do"] == "drop":
            if name in self.connections:
                self.connections.pop(name).drop()
                self.client.forget(name)
            self._settle(self.pace.quiet, wanted)
            return self._collect()
        if step.get("first") and name not in self.connections:
            # It speaks its own handshake.
            self.connections[name] = Connection(self.address)
        connection = self.connections[name] if step.get("first") else self._connection(name)
        if step["do"] == "bytes":
            connection.frame_max = step.get("agreed", connection.frame_max)
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
            self._drain(connection, number, self.client.named(step["queue"]))
            return self._collect()
        fields = self.client.fields(step)
        if fields is None:
            return {"": [Event("skipped", {})]}
        properties = self.client.named(step.get("properties") or {})
        self.client.before_sending(step)
        if "times" in step:
            self._send_many(connection, number, fields, properties)
        else:
            connection.send(number, step["do"], properties, step.get("body", ""), **fields)
        if is_answered(step):
            self._await(connection, number)
        self._confirmed(connection, f"{name}{number}")
        self._settle(self.pace.quiet, wanted)
        return self._collect()

    def _send_many(self, connection: Connection, number: int, fields: dict, properties: dict) -> None:
        """Messages of one kind in one piece, as a publisher that does not wait sends them."""
        frames = b""
        for count in range(self.step["times"]):
            body = f"{self.step.get('body', '')}.{count}"
            frames += connection.method_frame(number, self.step["do"], fields)
            frames += connection.content_frames(number, properties, body)
        connection.send_bytes(frames)

    def _connection(self, name: str) -> Connection:
        connection = self.connections.get(name)
        if connection is None or connection.ended:
            self.client.forget(name)
            connection = self.connections[name] = Connection(self.address).open()
        return connection

    def _open_channel(self, name: str, connection: Connection, number: int) -> bool:
        key = f"{name}{number}"
        self.client.channels[key] = Channel()
        connection.send(number, "channel.open")
        self._await(connection, number)
        events = connection.events.get(number, [])
        if events and events[-1].name == "channel.open_ok":
            events.pop()
            return True
        return False

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
        channel = self.client.channels.get(key)
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
                if self.step["do"] != PING:
                    # A ping's answer that came as its connection was closed.
                    events = [event for event in events if event.name != "channel.flow_ok"]
                if events:
                    answer[f"{name}{number}"] = events
                    for event in events:
                        self.client.absorb(self.step, f"{name}{number}", event)
        self.client.end_step()
        return answer

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
                connection.send(number, f"{method}.delete", **{field_name: self.client.named(own)})
                self._await(connection, number)
        connection.send(0, "connection.close", reply_code=200)
        self._await(connection, 0)
        connection.drop()


def is_closing(connection: Connection) -> bool:
    return not connection.ended and any(event.name == "connection.close" for event in connection.events.get(0, []))


def counts(event: Event) -> int:
    """How much an event counts for whoever waits for as many as another broker sent."""
    return event.name not in ("basic.ack", "basic.nack")


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
