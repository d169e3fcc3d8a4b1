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


def batches(bootstrap: str, topic: str, partition: int) -> list[Batch]:
    """All batches of a partition, from its first offset to its end."""
    host, port = bootstrap.rsplit(":", 1)
    found: list[Batch] = []
    offset = 0
    name = topic.encode()
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        while True:
            # No session (id 0, epoch -1), no leader epoch, no start offset of a follower, no rack.
            body = struct.pack(">iiiibii", -1, 0, 1, 50 << 20, 0, 0, -1)
            body += struct.pack(">ih", 1, len(name)) + name
            body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, 50 << 20)
            body += struct.pack(">ih", 0, 0)
            answer = call(connection, FETCH_KEY, FETCH_VERSION, body)
            (whole,) = struct.unpack_from(">h", answer, 4)
            if whole:
                raise ValueError(f"Fetch answered error {whole}")
            at = 4 + 2 + 4 + 4 + 2 + len(name) + 4
            _, error, high_watermark, _, _, aborted = struct.unpack_from(">ihqqqi", answer, at)
            if error:
                raise ValueError(f"Fetch of {topic}-{partition} at {offset} answered error {error}")
            # The preferred replica lies between the aborted transactions and the records.
            at += 34 + 16 * max(aborted, 0) + 4
            (size,) = struct.unpack_from(">i", answer, at)
            records = answer[at + 4 : at + 4 + max(size, 0)]
            while len(records) >= BATCH_HEADER.size:
                (base, length, leader_epoch, _, _, attributes, last_delta, _, _, producer, epoch, sequence, count) = (
                    BATCH_HEADER.unpack_from(records)
                )
                if len(records) < length + 12:
                    break
                found.append(Batch(base, count, CODECS[attributes & 7], producer, epoch, sequence, leader_epoch))
                offset = base + last_delta + 1
                records = records[length + 12 :]
            if offset >= high_watermark or size <= 0:
                return found
