"""Produce requests of one record each, made by hand: for what no client library does by itself.

Two cases need it: the first acknowledgement after a restart to the millisecond, and ten thousand
connections that one process holds and uses in turn.
"""

import struct
import time

PRODUCE_KEY, PRODUCE_VERSION = 0, 7
CASTAGNOLI_REVERSED = 0x82F63B78
TIMEOUT_MS = 30_000
HEADER = struct.Struct(">hhih")
CLIENT = b"bench"


def crc32c(content: bytes) -> int:
    """Bit by bit: it is asked for a hundred bytes, once."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (CASTAGNOLI_REVERSED if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append((zigzag & 0x7F) | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def batch(value: bytes) -> bytes:
    """A record batch (magic 2) of one record without a key."""
    record = b"\0" + _varint(0) + _varint(0) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    record = _varint(len(record)) + record
    now = int(time.time() * 1000)
    checked = struct.pack(">hiqqqhii", 0, 0, now, now, -1, -1, -1, 1) + record
    return struct.pack(">qiibI", 0, 9 + len(checked), -1, 2, crc32c(checked)) + checked


def request(topic: str, partition: int, records: bytes) -> bytes:
    """A whole frame with acks=all; the correlation id is always the same, as one request is under way at a time."""
    name = topic.encode()
    body = struct.pack(">hhi", -1, -1, TIMEOUT_MS) + struct.pack(">ih", 1, len(name)) + name
    body += struct.pack(">iii", 1, partition, len(records)) + records
    frame = HEADER.pack(PRODUCE_KEY, PRODUCE_VERSION, 1, len(CLIENT)) + CLIENT + body
    return struct.pack(">i", len(frame)) + frame


def error_of(answer: bytes, topic: str) -> int:
    """The error code in an answer's frame, the length before it not included."""
    # Correlation id, topics, name, partitions, index.
    return struct.unpack_from(">h", answer, 4 + 4 + 2 + len(topic.encode()) + 4 + 4)[0]
