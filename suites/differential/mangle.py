"""Scenarios of one frame that is almost right: a method or a message with one thing of it changed.

Broken frames that somebody thought of are in `raw_frames`; these are drawn with dice. What they name belongs to nobody,
so that a frame which is right all the same leaves nothing behind that another scenario meets.
"""

import random
import struct

from . import protocol
from . import vocabulary as words
from .raw_frames import body, frame, method
from .scenario import Step
from .values import properties_bytes

# What a client may send on a channel that is open. Those that make something are sent so that they make nothing.
_METHODS = [
    name
    for name in protocol.BY_NAME
    if not name.startswith(("connection.", "channel."))
    and not name.endswith(("_ok", "_empty", ".return", ".deliver"))
    and name != "basic.publish"
] + ["channel.open", "channel.flow", "channel.close"]
# Properties for which nothing is refused.
_HARMLESS = {"content_type", "content_encoding", "priority", "correlation_id", "reply_to", "message_id", "timestamp"}
_NUMBERS = {"octet": 8, "short": 16, "long": 32, "long_long": 64}


def mangled(dice: random.Random) -> list[Step]:
    """One method, or one message, with something wrong."""
    made: list[Step] = [{"on": "A1", "do": "queue.declare", "queue": "q1~"}]
    if dice.random() < 0.4:
        made.append({"on": "A1", "do": "confirm.select"})
    if dice.random() < 0.2:
        made.append({"on": "A1", "do": "basic.consume", "queue": "q1~", "consumer_tag": "t"})
    nobody = f"nobody-{dice.randrange(1 << 40):x}"
    data = _message(dice, nobody) if dice.random() < 0.4 else _method(dice, nobody)
    return [*made, {"on": "A0", "do": "bytes", "mangled": True, "hex": data.hex()}]


def _method(dice: random.Random, nobody: str) -> bytes:
    name = dice.choice(_METHODS)
    fields = {field: _value(dice, kind, nobody) for field, kind in protocol.BY_NAME[name].fields}
    if name.endswith(".declare"):
        fields |= {"passive": True, "exclusive": True, "type": "none"}
    if dice.random() < 0.8:
        fields["no_wait"] = False
    return _broken(dice, method(1, name, **fields))


def _value(dice: random.Random, kind: str, nobody: str):
    if kind == "bit":
        return dice.random() < 0.5
    if kind == "table":
        return words.table(dice)
    if kind in _NUMBERS:
        return dice.choice((0, 1, 200, (1 << _NUMBERS[kind]) - 1))
    return dice.choice((nobody, nobody, ""))


def _broken(dice: random.Random, whole: bytes) -> bytes:
    """A frame with one thing of it changed, or none."""
    kind, channel, length = struct.unpack_from(">BHI", whole)
    payload = bytearray(whole[7 : 7 + length])
    match dice.randrange(9):
        case 0:
            payload = payload[: dice.randrange(len(payload))]
        case 1:
            payload += dice.randbytes(dice.randrange(1, 5))
        case 2 | 3:
            payload[dice.randrange(len(payload))] = dice.randrange(256)
        case 4:
            return frame(dice.randrange(10), channel, bytes(payload))
        case 5:
            return frame(kind, dice.choice((0, 2, 3000, 65_535)), bytes(payload))
        case 6:
            return frame(kind, channel, bytes(payload), end=dice.choice((0, 0xCD, 0xFF)))
        case 7:
            # The peer takes as much for the payload as the length says, and looks for the end behind it.
            return struct.pack(">BHI", kind, channel, max(0, length - dice.choice((1, 2, 3)))) + whole[7:]
    return frame(kind, channel, bytes(payload))


def _message(dice: random.Random, nobody: str) -> bytes:
    """A message that goes nowhere and comes back, or what is wrong with it."""
    publish = method(1, "basic.publish", exchange="", routing_key=nobody, mandatory=dice.random() < 0.7)
    data = dice.choice((b"", b"x", b"four"))
    content_class = 60 if dice.random() < 0.95 else dice.choice((0, 10, 50, 61))
    weight = 0 if dice.random() < 0.95 else 1
    size = len(data) if dice.random() < 0.9 else dice.choice((0, 1, 5, 1 << 31, (1 << 64) - 1))
    properties = properties_bytes({name: given for name, given in words.properties(dice).items() if name in _HARMLESS})
    header = frame(protocol.FRAME_HEADER, 1, struct.pack(">HHQ", content_class, weight, size) + properties)
    if dice.random() < 0.6:
        header = _broken(dice, header)
    pieces = [body(1, data)] if data or dice.random() < 0.1 else []
    if pieces and dice.random() < 0.2:
        pieces = [_broken(dice, pieces[0])] if data else pieces
    if pieces and dice.random() < 0.1:
        pieces = [body(1, data[:1]), body(1, b""), body(1, data[1:])]
    whole = [publish, header, *pieces]
    if dice.random() < 0.05:
        dice.shuffle(whole)
    return b"".join(whole)
