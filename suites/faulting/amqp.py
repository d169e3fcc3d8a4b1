"""AMQP by hand: hostile bytes, and many messages in little time.

One method at a time goes through `differential.client`, which hides nothing. What is sent or read a hundred thousand
times goes through `Publisher` and `Drain`, which know the few frames that come then.
"""

import socket
import struct
import threading
import time
from contextlib import contextmanager

from differential import protocol
from differential.client import Connection, Event
from differential.raw_frames import header, method, start_ok

from .server import Server

WAIT_SECONDS = 60.0
READ_BYTES = 1 << 18
# An acknowledgement of the broker's: type, channel, length, class, method, tag, flag, end.
ACK = struct.Struct(">BHIHHQBB")
HEAD = struct.Struct(">BHI")
BODY_BYTES_MAX = 131_072 - 8


def address(server: Server) -> tuple[str, int]:
    host, port = server.broker.addresses["amqp"].rsplit(":", 1)
    return host, int(port)


def dial(server: Server, receive_bytes: int = 0) -> socket.socket:
    """A socket to the AMQP listener, with a small window if its receiver is to be slow."""
    plain = socket.socket()
    plain.settimeout(WAIT_SECONDS)
    if receive_bytes:
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    plain.connect(address(server))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain


def opened(server: Server, channels: int = 1) -> Connection:
    """A connection after its handshake, with channels from 1 on."""
    connection = Connection(address(server)).open()
    for number in range(1, channels + 1):
        call(connection, number, "channel.open")
    return connection


def call(connection: Connection, channel: int, name: str, **fields) -> Event:
    """A method and its answer; anything else that comes instead is an error."""
    connection.send(channel, name, **fields)
    answer = "basic.get" if name == "basic.get" else f"{name}_ok"
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        events = connection.events.setdefault(channel, [])
        for index, event in enumerate(events):
            if event.name.startswith(answer):
                del events[index]
                return event
            if event.name in ("channel.close", "connection.close", "end of connection"):
                raise ConnectionError(f"{name} was answered {event.name} {event.fields}")
        if connection.ended:
            break
        connection.pump(0.5)
    raise ConnectionError(f"{name} was not answered: {connection.events.get(0)}")


def open_with_heartbeats(connection: Connection, seconds: int) -> None:
    """A handshake that agrees on heartbeats, and channel 1. None will be sent."""
    connection.send_bytes(protocol.HEADER)
    connection.expect(0, "connection.start")
    connection.send_bytes(start_ok())
    connection.expect(0, "connection.tune")
    connection.send(0, "connection.tune_ok", channel_max=10, frame_max=131_072, heartbeat=seconds)
    connection.send(0, "connection.open", virtual_host="/")
    connection.expect(0, "connection.open_ok")
    call(connection, 1, "channel.open")


def declare(connection: Connection, queue: str, channel: int = 1, **arguments) -> Event:
    """A durable queue; `x_message_ttl=5` is the argument `x-message-ttl`."""
    table = [[name.replace("_", "-"), tagged(value)] for name, value in arguments.items()]
    return call(connection, channel, "queue.declare", queue=queue, durable=True, arguments=table)


def tagged(value) -> list:
    if isinstance(value, bool):
        return ["t", value]
    return ["l", value] if isinstance(value, int) else ["S", value]


def waiting(connection: Connection, queue: str, channel: int = 1) -> int:
    """Messages that are ready, as the broker counts them."""
    return call(connection, channel, "queue.declare", queue=queue, passive=True).fields["message_count"]


def closed_with(connection: Connection, seconds: float = 10) -> tuple[int, str] | None:
    """Code and words with which the broker closes a connection or a channel; none if it does not."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for events in connection.events.values():
            for event in events:
                if event.name in ("channel.close", "connection.close"):
                    return event.fields["reply_code"], event.fields["reply_text"]
        if connection.ended:
            return None
        connection.pump(0.1)
    return None


def publish_frames(queue: str, body: bytes, properties: dict | None = None, channel: int = 1, exchange: str = "") -> bytes:
    frames = method(channel, "basic.publish", exchange=exchange, routing_key=queue)
    frames += header(channel, len(body), properties=properties or {})
    return frames + body_frames(body, channel)


def body_frames(body: bytes, channel: int = 1) -> bytes:
    pieces = (body[at : at + BODY_BYTES_MAX] for at in range(0, len(body), BODY_BYTES_MAX))
    end = bytes([protocol.FRAME_END])
    return b"".join(HEAD.pack(protocol.FRAME_BODY, channel, len(piece)) + piece + end for piece in pieces)


class Publisher:
    """Publishes on channel 1 of a connection of its own, with confirms. Bodies are numbers, padded to a length."""

    # So many unconfirmed bytes and messages may be on their way.
    UNCONFIRMED_MAX = 4_000
    PIECE_BYTES = 1 << 16

    def __init__(self, server: Server):
        self.connection = opened(server)
        call(self.connection, 1, "confirm.select")
        self.sent = self.confirmed = 0
        self.refused = 0
        self.out_of_order: set[int] = set()
        self.incoming = bytearray()

    def publish(self, queue: str, count: int, *, length: int = 16, begin: int = 0, exchange: str = "", properties=None) -> int:
        """Publishes so many and waits for all confirms; how many were confirmed in all."""
        start = method(1, "basic.publish", exchange=exchange, routing_key=queue) + header(
            1, length, properties=properties or {}
        )
        # A body that is larger than a frame has a tail of spaces in further ones.
        first = min(length, BODY_BYTES_MAX)
        start += HEAD.pack(protocol.FRAME_BODY, 1, first)
        end = bytes([protocol.FRAME_END]) + body_frames(b" " * (length - first))
        number, last = begin, begin + count
        window = max(8, min(self.UNCONFIRMED_MAX, (32 << 20) // max(length, 1)))
        step = max(1, min(500, self.PIECE_BYTES // (length + 64)))
        while number < last:
            piece = range(number, min(number + step, last))
            content = b"".join(start + (b"%-*d" % (first, one)) + end for one in piece)
            self.connection.socket.settimeout(WAIT_SECONDS)
            self.connection.socket.sendall(content)
            self.sent += len(piece)
            number = piece.stop
            while self.sent - self.confirmed > window:
                self._take()
        while self.confirmed < self.sent:
            self._take()
        return self.confirmed

    def _take(self) -> None:
        self.connection.socket.settimeout(WAIT_SECONDS)
        data = self.connection.socket.recv(READ_BYTES)
        if not data:
            raise ConnectionError("the broker closed the connection of a publisher")
        self.incoming += data
        whole = len(self.incoming) // ACK.size * ACK.size
        for kind, channel, length, class_id, method_id, tag, multiple, _ in ACK.iter_unpack(self.incoming[:whole]):
            if (kind, channel, length, class_id) != (1, 1, 13, 60) or method_id not in (80, 120):
                raise ConnectionError(f"a publisher was sent method {class_id}.{method_id} in {length} bytes")
            if method_id == 120:
                self.refused += 1
            if multiple:
                self.confirmed = max(self.confirmed, tag)
            else:
                self.out_of_order.add(tag)
            while self.confirmed + 1 in self.out_of_order:
                self.confirmed += 1
                self.out_of_order.discard(self.confirmed)
        self.out_of_order = {tag for tag in self.out_of_order if tag > self.confirmed}
        del self.incoming[:whole]

    def close(self) -> None:
        self.connection.drop()


class Drain:
    """Consumes on channel 1 of a connection of its own. Bodies are numbers."""

    def __init__(self, server: Server, queue: str, *, prefetch: int = 0, no_ack: bool = False):
        self.connection = opened(server)
        self.no_ack = no_ack
        self.prefetch = prefetch
        call(self.connection, 1, "basic.qos", prefetch_count=prefetch)
        # Without an answer: all that comes from here on is deliveries.
        self.connection.send(1, "basic.consume", queue=queue, consumer_tag="drain", no_ack=no_ack, no_wait=True)
        self.incoming = bytearray()
        self.numbers: list[int] = []
        self.redelivered: list[bool] = []
        self.last_tag = 0
        self.acknowledged = 0

    def _note(self, tag: int, redelivered: bool, number: int) -> None:
        self.last_tag = tag
        self.redelivered.append(redelivered)
        self.numbers.append(number)

    def take(self, count: int, *, settle: bool = True, seconds: float = WAIT_SECONDS) -> bool:
        """Until so many came in all; settles up to the last every now and then. Whether they came."""
        every = max(1, min(2000, self.prefetch // 2)) if self.prefetch else 2000
        deadline = time.monotonic() + seconds
        while len(self.numbers) < count:
            if time.monotonic() > deadline or not self._more(0.5):
                if time.monotonic() > deadline or self.connection.ended:
                    return False
            if settle and self.last_tag - self.acknowledged >= every:
                self.settle()
        if settle:
            self.settle()
        return True

    def settle(self) -> None:
        if not self.no_ack and self.last_tag > self.acknowledged:
            self.connection.send(1, "basic.ack", delivery_tag=self.last_tag, multiple=True)
            self.acknowledged = self.last_tag

    def _more(self, seconds: float) -> bool:
        self.connection.socket.settimeout(seconds)
        try:
            data = self.connection.socket.recv(READ_BYTES)
        except TimeoutError:
            return False
        if not data:
            self.connection.drop()
            return False
        self.incoming += data
        self._parse()
        return True

    def _parse(self) -> None:
        """Whole messages: a method, a header and one body frame each."""
        incoming, at, size = self.incoming, 0, len(self.incoming)
        unpack = HEAD.unpack_from
        while size - at >= 8:
            kind, _, length = unpack(incoming, at)
            if kind == protocol.FRAME_HEARTBEAT:
                at += length + 8
                continue
            method_at, at_header = at + 7, at + length + 8
            if size - at_header < 8:
                break
            if incoming[method_at : method_at + 4] != b"\0\x3c\0\x3c":
                # Something else than a delivery; its answer is nobody's here.
                at = at_header
                continue
            _, _, header_length = unpack(incoming, at_header)
            at_body = at_header + header_length + 8
            if size - at_body < 8:
                break
            _, _, body_length = unpack(incoming, at_body)
            if size - at_body < body_length + 8:
                break
            tag_at = method_at + 5 + incoming[method_at + 4]
            (tag,) = struct.unpack_from(">Q", incoming, tag_at)
            body = incoming[at_body + 7 : at_body + 7 + body_length]
            self._note(tag, bool(incoming[tag_at + 8]), int(body))
            at = at_body + body_length + 8
        del incoming[:at]

    def close(self) -> None:
        """In good order: what was settled is settled."""
        if not self.connection.ended:
            self.connection.send(0, "connection.close", reply_code=200)
            while not self.connection.ended and self._more(WAIT_SECONDS):
                pass
        self.connection.drop()

    def drop(self) -> None:
        """Without a word, the port and all."""
        self.connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.drop()


class Witness:
    """A client that does nothing wrong while others do: publishes, waits for the confirm, consumes, acknowledges.

    One round trip after the other. `others` counts what the others do, so that how long a round trip takes is told
    in their operations and not in seconds, which would say something about the machine.
    """

    def __init__(self, server: Server, queue: str = "witness"):
        self.server, self.queue = server, queue
        self.connection = opened(server, 2)
        declare(self.connection, queue)
        call(self.connection, 1, "confirm.select")
        call(self.connection, 2, "basic.qos", prefetch_count=1)
        call(self.connection, 2, "basic.consume", queue=queue, consumer_tag="witness")
        self.trips = 0
        self.others = 0
        self.longest = 0
        self.broken: str | None = None
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            while not self.stopping.is_set():
                began = self.others
                body = f"{self.trips}"
                self.connection.send(1, "basic.publish", routing_key=self.queue, body=body)
                delivered = self._expect(2, "basic.deliver")
                if delivered.body != body:
                    raise ConnectionError(f"the witness was given {delivered.body!r} instead of {body!r}")
                self.connection.send(2, "basic.ack", delivery_tag=delivered.fields["delivery_tag"])
                if self._expect(1, "basic.ack").name != "basic.ack":
                    raise ConnectionError("the witness was not confirmed")
                self.trips += 1
                self.longest = max(self.longest, self.others - began)
        except (ConnectionError, OSError) as failure:
            self.broken = str(failure)

    def _expect(self, channel: int, name: str) -> Event:
        return self.connection.expect(channel, name, WAIT_SECONDS)

    def goes_on(self, trips: int = 3, seconds: float = 60) -> bool:
        """Whether it makes further round trips."""
        before, deadline = self.trips, time.monotonic() + seconds
        while self.trips < before + trips:
            if self.broken or time.monotonic() > deadline:
                return False
            time.sleep(0.002)
        return True

    def finish(self) -> str | None:
        """Ends it; what was wrong."""
        self.stopping.set()
        self.thread.join(WAIT_SECONDS)
        self.connection.drop()
        return self.broken


@contextmanager
def witness(trial, server: Server, what: str):
    """A witness for as long as the block lasts; whatever it noticed is a complaint."""
    seen = Witness(server)
    trial.expect(seen.goes_on(), f"{what}: the witness does not even begin: {seen.broken}")
    try:
        yield seen
    finally:
        went_on = seen.goes_on()
        trial.expect(went_on, f"{what}: the witness was not served any more: {seen.broken}")
        broken = seen.finish()
        trial.expect(not broken, f"{what}: the witness says: {broken}")
