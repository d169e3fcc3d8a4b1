"""Just enough of Kafka's protocol to look at stored batches as they are.

Clients hide how a broker stored what they sent. A client that believes it speaks to an ancient broker
silently sends uncompressed batches; only the batch's own header tells.
"""

import socket
import struct
from dataclasses import dataclass

CODECS = {0: "none", 1: "gzip", 2: "snappy", 3: "lz4", 4: "zstd"}
# Version 10 is the first that may be answered with zstd; 11 is the last before flexible fields and topic ids.
FETCH_KEY, FETCH_VERSION = 1, 11
BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
FRAME_BYTES_MAX = 128 * 1024 * 1024


@dataclass(frozen=True)
class Batch:
    """The header of a stored record batch (magic 2)."""

    base_offset: int
    records: int
    codec: str
    producer_id: int
    producer_epoch: int
    base_sequence: int
    leader_epoch: int


def receive(connection: socket.socket, length: int) -> bytes:
    parts = []
    while length:
        part = connection.recv(min(length, 1 << 20))
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def call(connection: socket.socket, key: int, version: int, body: bytes) -> bytes:
    """One request with header version 1, and the body of its answer."""
    header = struct.pack(">hhih", key, version, 1, 5) + b"suite"
    connection.sendall(struct.pack(">i", len(header) + len(body)) + header + body)
    (length,) = struct.unpack(">i", receive(connection, 4))
    if not 4 <= length <= FRAME_BYTES_MAX:
        raise ValueError(f"an answer of {length} bytes")
    return receive(connection, length)[4:]


def connect(bootstrap: str, seconds: float = 30) -> socket.socket:
    host, port = bootstrap.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=seconds)


@dataclass(frozen=True)
class Fetched:
    """What a fetch answered for one partition: Kafka's error code, and record batches as they are stored."""

    error: int
    high_watermark: int
    records: bytes


def fetch(connection: socket.socket, topic: str, partition: int, offset: int, bytes_max: int = 50 << 20) -> Fetched:
    """What is stored from an offset on, without waiting for more."""
    name = topic.encode()
    # No session (id 0, epoch -1), no leader epoch, no start offset of a follower, no rack.
    body = struct.pack(">iiiibii", -1, 0, 1, bytes_max, 0, 0, -1)
    body += struct.pack(">ih", 1, len(name)) + name
    body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, bytes_max)
    body += struct.pack(">ih", 0, 0)
    answer = call(connection, FETCH_KEY, FETCH_VERSION, body)
    (whole,) = struct.unpack_from(">h", answer, 4)
    if whole:
        raise ValueError(f"Fetch answered error {whole}")
    at = 4 + 2 + 4 + 4 + 2 + len(name) + 4
    _, error, high_watermark, _, _, aborted = struct.unpack_from(">ihqqqi", answer, at)
    # The preferred replica lies between the aborted transactions and the records.
    at += 34 + 16 * max(aborted, 0) + 4
    (size,) = struct.unpack_from(">i", answer, at)
    return Fetched(error, high_watermark, answer[at + 4 : at + 4 + max(size, 0)])


def batches(bootstrap: str, topic: str, partition: int) -> list[Batch]:
    """All batches of a partition, from its first offset to its end."""
    found: list[Batch] = []
    offset = 0
    with connect(bootstrap) as connection:
        while True:
            fetched = fetch(connection, topic, partition, offset)
            if fetched.error:
                raise ValueError(f"Fetch of {topic}-{partition} at {offset} answered error {fetched.error}")
            records = fetched.records
            nothing = not records
            while len(records) >= BATCH_HEADER.size:
                (base, length, leader_epoch, _, _, attributes, last_delta, _, _, producer, epoch, sequence, count) = (
                    BATCH_HEADER.unpack_from(records)
                )
                if len(records) < length + 12:
                    break
                found.append(Batch(base, count, CODECS[attributes & 7], producer, epoch, sequence, leader_epoch))
                offset = base + last_delta + 1
                records = records[length + 12 :]
            if offset >= fetched.high_watermark or nothing:
                return found
