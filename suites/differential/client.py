"""A client that hides nothing: every method that arrives is noted, with its message, in the order of arrival.

It answers what the protocol wants answered at once (a close) and does nothing else by itself. Every wait has a bound.
"""

import select
import socket
import struct
import time
from dataclasses import dataclass

from . import protocol
from .values import Malformed, Reader, fields_bytes, properties_bytes, to_bytes

CONNECT_SECONDS = 10.0
FRAME_MAX = 131_072
# What the peers' clients say that they can do; without it a broker keeps notices and refusals to itself.
CAPABILITIES = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "authentication_failure_close",
)


@dataclass
class Event:
    """Something that came: a method with its fields and, where it carries one, its message; or an end."""

    name: str
    fields: dict
    properties: dict | None = None
    body: str | None = None


class Connection:
    """One connection; `events` has what came by channel, and is emptied by whoever reads it."""

    def __init__(self, address: tuple[str, int]):
        self.socket = socket.create_connection(address, timeout=CONNECT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.incoming = bytearray()
        self.events: dict[int, list[Event]] = {}
        self.partial: dict[int, tuple[Event, int, bytearray] | Event] = {}
        self.open_channels: set[int] = set()
        self.ended = False
        self.frame_max = FRAME_MAX
        # Of a connection that only shows how far its broker has come; see `play`.
        self.barrier_queue = ""

    def open(self, virtual_host: str = "/", user: str = "guest", password: str = "guest") -> "Connection":
        """The usual handshake, without heartbeats."""
        self.send_bytes(protocol.HEADER)
        self.expect(0, "connection.start")
        capabilities = ["F", [[name, ["t", True]] for name in CAPABILITIES]]
        self.send(
            0,
            "connection.start_ok",
            client_properties={"product": ["S", "differential"], "capabilities": capabilities},
            mechanism="PLAIN",
            response=f"\0{user}\0{password}",
            locale="en_US",
        )
        tune = self.expect(0, "connection.tune").fields
        self.frame_max = tune["frame_max"]
        self.send(0, "connection.tune_ok", channel_max=tune["channel_max"], frame_max=self.frame_max, heartbeat=0)
        self.send(0, "connection.open", virtual_host=virtual_host)
        self.expect(0, "connection.open_ok")
        return self

    def expect(self, channel: int, name: str, seconds: float = CONNECT_SECONDS) -> Event:
        """The next event of a channel, which must be this method."""
        deadline = time.monotonic() + seconds
        while not self.events.get(channel):
            if self.ended or time.monotonic() > deadline:
                raise ConnectionError(f"no {name} came on channel {channel}")
            self.pump(0.1)
        event = self.events[channel].pop(0)
        if event.name != name:
            raise ConnectionError(f"{event.name} {event.fields} came instead of {name} on channel {channel}")
        return event

    def send_bytes(self, data: bytes) -> None:
        if self.ended:
            return
        try:
            self.socket.settimeout(CONNECT_SECONDS)
            self.socket.sendall(data)
        except OSError:
            self._drain_and_end()

    def frame(self, kind: int, channel: int, payload: bytes) -> bytes:
        return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([protocol.FRAME_END])

    def method_frame(self, channel: int, name: str, fields: dict) -> bytes:
        method = protocol.BY_NAME[name]
        payload = struct.pack(">HH", method.class_id, method.method_id) + fields_bytes(method.fields, fields)
        return self.frame(protocol.FRAME_METHOD, channel, payload)

    def content_frames(self, channel: int, properties: dict, body: str | bytes) -> bytes:
        data = to_bytes(body)
        header = struct.pack(">HHQ", 60, 0, len(data)) + properties_bytes(properties)
        frames = self.frame(protocol.FRAME_HEADER, channel, header)
        most = self.frame_max - 8
        for at in range(0, len(data), most):
            frames += self.frame(protocol.FRAME_BODY, channel, data[at : at + most])
        return frames

    def send(self, channel: int, name: str, properties: dict | None = None, body: str | bytes = "", **fields) -> None:
        """A method, and its message if it carries one. A field that is not given is zero, empty or false."""
        frames = self.method_frame(channel, name, fields)
        if name in protocol.WITH_CONTENT:
            frames += self.content_frames(channel, properties or {}, body)
        self.send_bytes(frames)

    def pump(self, seconds: float) -> bool:
        """Takes what has come, after at most so long a wait; whether anything had."""
        return pump([self], seconds)

    def receive(self) -> None:
        """Takes what lies ready in the socket."""
        try:
            self.socket.settimeout(0)
            data = self.socket.recv(1 << 18)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._end()
            return
        self.incoming += data
        self._parse()

    def _parse(self) -> None:
        while len(self.incoming) >= 7:
            if self.incoming.startswith(b"AMQP"):
                if len(self.incoming) < 8:
                    return
                header = bytes(self.incoming[:8])
                del self.incoming[:8]
                self._note(0, Event("protocol header", {"bytes": header.hex()}))
                continue
            kind, channel, length = struct.unpack_from(">BHI", self.incoming)
            if length + 8 > self.frame_max:
                self._note(channel, Event("a frame that is larger than agreed", {"length": length}))
            if len(self.incoming) < length + 8:
                return
            payload = bytes(self.incoming[7 : 7 + length])
            end = self.incoming[7 + length]
            del self.incoming[: length + 8]
            try:
                if end != protocol.FRAME_END:
                    raise Malformed(f"a frame ends with {end:#x}")
                self._frame(kind, channel, payload)
            except (Malformed, KeyError) as broken:
                self._note(channel, Event("malformed", {"why": str(broken), "payload": payload.hex()}))

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == protocol.FRAME_HEARTBEAT:
            return
        reader = Reader(payload)
        if kind == protocol.FRAME_METHOD:
            method = protocol.BY_NUMBERS[reader.number(">H"), reader.number(">H")]
            event = Event(method.name, reader.fields(method.fields))
            if reader.at != len(payload):
                raise Malformed(f"{method.name} has {len(payload) - reader.at} bytes more")
            if method.name in protocol.WITH_CONTENT:
                self.partial[channel] = event
            else:
                self._note(channel, event)
        elif kind == protocol.FRAME_HEADER:
            event = self.partial.pop(channel)
            reader.take(4)
            size = reader.number(">Q")
            event.properties = reader.properties()
            self._body(channel, event, size, bytearray())
        elif kind == protocol.FRAME_BODY:
            event, size, body = self.partial.pop(channel)
            self._body(channel, event, size, body + payload)
        else:
            raise Malformed(f"a frame is of kind {kind}")

    def _body(self, channel: int, event: Event, size: int, body: bytearray) -> None:
        if len(body) < size:
            self.partial[channel] = (event, size, body)
            return
        event.body = bytes(body).decode("utf-8", "surrogateescape")
        self._note(channel, event)

    def _note(self, channel: int, event: Event) -> None:
        self.events.setdefault(channel, []).append(event)
        if event.name == "channel.close":
            self.open_channels.discard(channel)
            self.send(channel, "channel.close_ok")
        elif event.name == "channel.close_ok":
            self.open_channels.discard(channel)
        elif event.name == "channel.open_ok":
            self.open_channels.add(channel)
        elif event.name == "connection.close":
            self.open_channels.clear()
            self.send(0, "connection.close_ok")
        elif event.name == "connection.close_ok":
            self.drop()

    def _drain_and_end(self) -> None:
        """The peer takes nothing more; what it said before is read all the same."""
        deadline = time.monotonic() + 1.0
        while not self.ended and time.monotonic() < deadline:
            self.pump(0.1)
        self._end()

    def _end(self) -> None:
        if not self.ended:
            self.ended = True
            self.open_channels.clear()
            self.events.setdefault(0, []).append(Event("end of connection", {}))
            self.socket.close()

    def drop(self) -> None:
        """The connection is gone without a word."""
        if not self.ended:
            self.ended = True
            self.open_channels.clear()
            self.socket.close()


def pump(connections: list[Connection], seconds: float) -> bool:
    """Takes what has come on any of them, after at most so long a wait; whether anything had."""
    waiting = {connection.socket.fileno(): connection for connection in connections if not connection.ended}
    if not waiting:
        return False
    poll = select.poll()
    for number in waiting:
        poll.register(number, select.POLLIN)
    ready = poll.poll(seconds * 1000)
    for number, _ in ready:
        waiting[number].receive()
    return bool(ready)
