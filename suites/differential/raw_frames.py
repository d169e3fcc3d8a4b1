"""Scenarios in bytes: frames that are broken, out of order or in the wrong place, and handshakes that go wrong.

A connection that speaks its own handshake is opened by the step itself: see `first` in `play`.
"""

import struct

from . import protocol
from .client import CAPABILITIES
from .scenario import Step
from .values import fields_bytes, properties_bytes


def frame(kind: int, channel: int, payload: bytes, end: int = protocol.FRAME_END) -> bytes:
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + bytes([end])


def method(channel: int, name: str, **fields) -> bytes:
    found = protocol.BY_NAME[name]
    payload = struct.pack(">HH", found.class_id, found.method_id) + fields_bytes(found.fields, fields)
    return frame(protocol.FRAME_METHOD, channel, payload)


def header(channel: int, size: int, class_id: int = 60, weight: int = 0, properties: dict | None = None) -> bytes:
    payload = struct.pack(">HHQ", class_id, weight, size) + properties_bytes(properties or {})
    return frame(protocol.FRAME_HEADER, channel, payload)


def body(channel: int, data: bytes) -> bytes:
    return frame(protocol.FRAME_BODY, channel, data)


def after_opening(*data: bytes) -> list[Step]:
    """Bytes on a connection with channel 1 open."""
    opened = {"on": "A1", "do": "queue.declare", "queue": "q1~"}
    return [opened, {"on": "A0", "do": "bytes", "hex": b"".join(data).hex()}]


def on_two_channels(*data: bytes) -> list[Step]:
    """Bytes on a connection with channels 1 and 2 open."""
    opened = [{"on": f"A{number}", "do": "queue.declare", "queue": "q1~"} for number in (1, 2)]
    return [*opened, {"on": "A0", "do": "bytes", "hex": b"".join(data).hex()}]


def handshake(*data: bytes) -> list[Step]:
    """Bytes on a connection that has said nothing yet; each piece after the answer to the one before."""
    return [{"on": "A0", "do": "bytes", "first": True, "hex": piece.hex()} for piece in data]


def start_ok(mechanism: str = "PLAIN", response: str = "\0guest\0guest", refusal: bool = True) -> bytes:
    told = [[name, ["t", True]] for name in CAPABILITIES if refusal or name != "authentication_failure_close"]
    properties = [["capabilities", ["F", told]]]
    return method(
        0, "connection.start_ok", client_properties=properties, mechanism=mechanism, response=response, locale="en_US"
    )


# As long as a broker may keep a client in the dark that has failed to say who it is.
LATER: Step = {"on": "A0", "do": "wait", "ms": 4000}
PUBLISH = method(1, "basic.publish", routing_key="nowhere")
# Messages that come back, so that it shows what became of them.
BACK = [method(number, "basic.publish", routing_key="nowhere", mandatory=True) for number in (0, 1, 2)]
CLOSE = method(1, "channel.close", reply_code=200)
HELLO = protocol.HEADER
TUNE = method(0, "connection.tune_ok", channel_max=2047, frame_max=131_072)
OPEN = method(0, "connection.open", virtual_host="/")
LOGIN = "\x05LOGINS\x00\x00\x00\x05guest\x08PASSWORDS\x00\x00\x00\x05guest"

ALL: dict[str, list[Step]] = {
    "a frame that does not end": after_opening(frame(1, 1, b"\0" * 4, end=0)),
    "a frame of an unknown kind": after_opening(frame(7, 1, b"\0" * 4)),
    "a frame that is too large": after_opening(struct.pack(">BHI", 1, 1, 200_000) + b"\0" * 300),
    "a method that does not exist": after_opening(frame(1, 1, struct.pack(">HH", 60, 99))),
    "a class that does not exist": after_opening(frame(1, 1, struct.pack(">HH", 99, 10))),
    "a method that is cut off": after_opening(frame(1, 1, struct.pack(">HH", 50, 10) + b"\0")),
    "a method frame of two bytes": after_opening(frame(1, 1, b"\0\x3c")),
    "a method frame of nothing": after_opening(frame(1, 1, b"")),
    "a method with bytes left over": after_opening(frame(1, 1, struct.pack(">HH", 85, 10) + b"\0\0\0")),
    "a table that is broken": after_opening(
        frame(1, 1, struct.pack(">HHH", 50, 10, 0) + b"\x02q1\0" + struct.pack(">I", 5) + b"\x01aZ\0\0")
    ),
    "a header without its method": after_opening(header(1, 0)),
    "a body without its header": after_opening(PUBLISH, body(1, b"x")),
    "a body from nowhere": after_opening(body(1, b"x")),
    "a method where a header was due": after_opening(PUBLISH, method(1, "channel.flow", active=True)),
    "a method where a body was due": after_opening(PUBLISH, header(1, 5), method(1, "channel.flow", active=True)),
    "a second header": after_opening(PUBLISH, header(1, 5), header(1, 5)),
    "a body that is too long": after_opening(PUBLISH, header(1, 3), body(1, b"12345")),
    "a body in empty and small pieces": after_opening(
        method(1, "basic.publish", routing_key="nowhere", mandatory=True),
        header(1, 3),
        body(1, b""),
        body(1, b"1"),
        body(1, b"23"),
    ),
    "a header of another class": after_opening(PUBLISH, header(1, 0, class_id=50)),
    "a header with a weight": after_opening(PUBLISH, header(1, 0, weight=1)),
    "a header that is cut off": after_opening(PUBLISH, frame(2, 1, b"\0\x3c\0\0\0")),
    "a header with flags of a second word": after_opening(
        method(1, "basic.publish", routing_key="nowhere", mandatory=True),
        frame(2, 1, struct.pack(">HHQHH", 60, 0, 0, 1, 0)),
    ),
    "a message that is too large": after_opening(PUBLISH, header(1, 1 << 40)),
    "a heartbeat on a channel": after_opening(frame(8, 1, b"")),
    "a heartbeat with content": after_opening(frame(8, 0, b"x")),
    "a header on channel 0": after_opening(header(0, 0)),
    "a body on channel 0": after_opening(body(0, b"x")),
    "a channel's method on channel 0": after_opening(method(0, "basic.qos")),
    "a connection's method on a channel": after_opening(method(1, "connection.open", virtual_host="/")),
    "a connection's close on a channel": after_opening(method(1, "connection.close", reply_code=200)),
    "a server's method": after_opening(method(1, "basic.deliver"), header(1, 0)),
    "an answer that nobody asked for": after_opening(method(1, "queue.declare_ok", queue="q")),
    "opened twice": after_opening(OPEN),
    "a secret that is renewed": after_opening(method(0, "connection.update_secret", new_secret="s", reason="r")),
    "a channel beyond the most": after_opening(method(3000, "channel.open")),
    "a body on a channel that is not open": after_opening(body(5, b"x")),
    "a close of a channel that is not open": after_opening(method(5, "channel.close", reply_code=200)),
    "messages of two channels, piece by piece": on_two_channels(
        BACK[1], BACK[2], header(2, 3), header(1, 2), body(1, b"1"), body(2, b"12"), body(1, b"2"), body(2, b"3")
    ),
    "a method of another channel in the midst of a message": on_two_channels(
        BACK[1], header(1, 1), method(2, "basic.qos", prefetch_count=3), body(1, b"x")
    ),
    "a heartbeat in the midst of a message": after_opening(
        BACK[1], frame(8, 0, b""), header(1, 1), frame(8, 0, b""), body(1, b"x")
    ),
    "a channel is closed in the midst of a message": after_opening(BACK[1], header(1, 5), CLOSE),
    "another channel is closed in the midst of a message": on_two_channels(
        BACK[1], header(1, 1), method(2, "channel.close", reply_code=200), body(1, b"x")
    ),
    "a connection is closed in the midst of a message": after_opening(
        BACK[1], header(1, 5), method(0, "connection.close", reply_code=200)
    ),
    "the largest frame": after_opening(BACK[1], header(1, 131_064), body(1, b"x" * 131_064)),
    "a frame that is one byte too large": after_opening(BACK[1], header(1, 131_065), body(1, b"x" * 131_065)),
    "several methods in one piece": after_opening(
        method(1, "basic.qos", prefetch_count=1),
        method(1, "queue.declare", passive=True),
        method(1, "basic.get", no_ack=True),
        method(1, "confirm.select"),
        BACK[1],
        header(1, 0),
    ),
    "what comes behind a close": after_opening(CLOSE, method(1, "basic.qos")),
    "what comes behind an error": after_opening(
        method(1, "queue.declare", queue="nowhere", passive=True), method(1, "basic.qos"), BACK[1], header(1, 0)
    ),
    "a response to nothing": after_opening(method(0, "connection.secure_ok", response="x")),
    "a connection that is closed before anybody closed it": after_opening(method(0, "connection.close_ok")),
    "an answer to no challenge": handshake(HELLO, method(0, "connection.secure_ok", response="x")),
    "a handshake": handshake(HELLO, start_ok(), TUNE + OPEN),
    "a handshake by AMQPLAIN": handshake(HELLO, start_ok("AMQPLAIN", LOGIN), TUNE + OPEN),
    "another protocol": handshake(b"GET / HTTP/1.1\r\n\r\n"),
    "another version": handshake(b"AMQP\x00\x00\x0a\x00"),
    "the version before": handshake(b"AMQP\x01\x01\x08\x00"),
    "0-9 for 0-9-1": handshake(b"AMQP\x01\x01\x00\x09"),
    "a wrong password": [*handshake(HELLO, start_ok(response="\0guest\0wrong")), LATER],
    "a wrong password of a client that is not told": [
        *handshake(HELLO, start_ok(response="\0guest\0wrong", refusal=False)),
        LATER,
    ],
    "an unknown mechanism": handshake(HELLO, start_ok("NONSENSE")),
    "a malformed response": handshake(HELLO, start_ok(response="guest")),
    "a malformed response by AMQPLAIN": handshake(HELLO, start_ok("AMQPLAIN", "\udcff")),
    "nobody": handshake(HELLO, start_ok("ANONYMOUS", "")),
    "a frame that is larger than offered": handshake(
        HELLO, start_ok(), method(0, "connection.tune_ok", channel_max=2047, frame_max=200_000)
    ),
    "a frame that is too small": handshake(
        HELLO, start_ok(), method(0, "connection.tune_ok", channel_max=2047, frame_max=100)
    ),
    "more channels than offered": handshake(
        HELLO, start_ok(), method(0, "connection.tune_ok", channel_max=3000, frame_max=131_072)
    ),
    "no limits asked for": handshake(HELLO, start_ok(), method(0, "connection.tune_ok") + OPEN),
    "small frames": [
        *handshake(HELLO, start_ok()),
        {**handshake(method(0, "connection.tune_ok", channel_max=10, frame_max=4096) + OPEN)[0], "agreed": 4096},
        {"on": "A1", "do": "queue.declare", "queue": "q1~"},
        {"on": "A1", "do": "basic.publish", "routing_key": "q1~", "body": "x" * 10_000},
        {"on": "A1", "do": "basic.get", "queue": "q1~", "no_ack": True},
        {"on": "B1", "do": "basic.publish", "routing_key": "q1~", "body": "y" * 4_088},
        {"on": "B1", "do": "basic.publish", "routing_key": "q1~", "body": "y" * 4_089},
        {"on": "A1", "do": "basic.consume", "queue": "q1~", "consumer_tag": "t", "no_ack": True},
    ],
    "a client that falls silent": [
        *handshake(HELLO, start_ok(), method(0, "connection.tune_ok", channel_max=10, frame_max=4096, heartbeat=1) + OPEN),
        {"on": "A0", "do": "wait", "ms": 5000},
    ],
    "a virtual host that is not there": handshake(
        HELLO, start_ok(), TUNE + method(0, "connection.open", virtual_host="nowhere")
    ),
    "opened before it is tuned": handshake(HELLO, start_ok(), OPEN),
    "a channel before the connection is open": handshake(HELLO, start_ok(), TUNE + method(1, "channel.open")),
    "tuned before it is started": handshake(HELLO, TUNE),
    "a broken frame in the handshake": handshake(HELLO, frame(1, 0, b"\0\x0a\0\x0b", end=0)),
}
