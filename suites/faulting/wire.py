"""Requests by hand, where a client would try again and hide the broker's own answer.

What Kafka's codes mean to clients is written beside them: a retriable one is tried again until the
client's own time is up.
"""

import socket
import struct

import crc32c
from harness.wire import call, connect

PRODUCE_KEY, PRODUCE_VERSION = 0, 3
NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
NOT_LEADER_OR_FOLLOWER = 6
REQUEST_TIMED_OUT = 7
# Clients try again after both, and ask for new metadata.
KAFKA_STORAGE_ERROR = 56

BATCH = struct.Struct(">hiqqqhii")


def batch(content: bytes, count: int = 1) -> bytes:
    """A record batch of `count` records of this value, without key, headers and idempotence."""
    records = b"".join(_record(delta, content) for delta in range(count))
    body = BATCH.pack(0, count - 1, 0, 0, -1, -1, -1, count) + records
    head = struct.pack(">qii", 0, len(body) + 9, 0) + b"\x02"
    return head + struct.pack(">I", crc32c.crc32c(body)) + body


def _varint(number: int) -> bytes:
    number = (number << 1) ^ (number >> 63)
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _record(delta: int, content: bytes) -> bytes:
    body = b"\0" + _varint(0) + _varint(delta) + _varint(-1) + _varint(len(content)) + content + _varint(0)
    return _varint(len(body)) + body


def produce_body(topic: str, partition: int, records: bytes, timeout_ms: int = 30_000) -> bytes:
    name = topic.encode()
    return (
        struct.pack(">hhi", -1, -1, timeout_ms)
        + struct.pack(">ih", 1, len(name))
        + name
        + struct.pack(">iii", 1, partition, len(records))
        + records
    )


def produce(
    connection: socket.socket, topic: str, partition: int, records: bytes, timeout_ms: int = 30_000
) -> tuple[int, int]:
    """Kafka's error code and the base offset."""
    answer = call(connection, PRODUCE_KEY, PRODUCE_VERSION, produce_body(topic, partition, records, timeout_ms))
    at = 4 + 2 + len(topic.encode()) + 4 + 4
    return struct.unpack_from(">hq", answer, at)


def frame(key: int, version: int, body: bytes) -> bytes:
    """A request's bytes as they go over the wire."""
    header = struct.pack(">hhih", key, version, 1, 5) + b"suite"
    return struct.pack(">i", len(header) + len(body)) + header + body


def produce_once(
    bootstrap: str, topic: str, partition: int, records: bytes, seconds: float = 30, timeout_ms: int = 30_000
) -> tuple[int, int]:
    with connect(bootstrap, seconds) as connection:
        return produce(connection, topic, partition, records, timeout_ms)
