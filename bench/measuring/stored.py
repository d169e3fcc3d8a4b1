"""Counts what a broker holds, batch by batch, by fetching it: how many batches a load came to is nowhere else.

Only the headers of the batches are looked at.
"""

import socket
import struct

from harness.wire import BATCH_HEADER, FETCH_KEY, FETCH_VERSION, call

from . import Fault

FETCH_BYTES = 32 << 20


def batches_and_records(bootstrap: str, topic: str, partitions: int) -> tuple[int, int]:
    host, port = bootstrap.rsplit(":", 1)
    batches = records = 0
    with socket.create_connection((host, int(port)), timeout=60) as connection:
        for partition in range(partitions):
            offset = end = 0
            while True:
                found, offset, end = _fetch(connection, topic, partition, offset)
                batches += len(found)
                records += sum(found)
                if offset >= end:
                    break
                if not found:
                    raise Fault(f"{topic}-{partition}: nothing at {offset}, though it ends at {end}")
    return batches, records


def _fetch(connection: socket.socket, topic: str, partition: int, offset: int) -> tuple[list[int], int, int]:
    """The records of each whole batch from an offset on, the next offset, and the partition's end."""
    name = topic.encode()
    # No session (id 0, epoch -1), no leader epoch, no start offset of a follower, no rack.
    body = struct.pack(">iiiibii", -1, 0, 1, FETCH_BYTES, 0, 0, -1)
    body += struct.pack(">ih", 1, len(name)) + name
    body += struct.pack(">iiiqqi", 1, partition, -1, offset, -1, FETCH_BYTES)
    body += struct.pack(">ih", 0, 0)
    answer = call(connection, FETCH_KEY, FETCH_VERSION, body)
    at = 4 + 2 + 4 + 4 + 2 + len(name) + 4
    _, error, end, _, _, aborted = struct.unpack_from(">ihqqqi", answer, at)
    if error:
        raise Fault(f"fetching {topic}-{partition} at {offset} answered error {error}")
    # The preferred replica lies between the aborted transactions and the records.
    at += 34 + 16 * max(aborted, 0) + 4
    (size,) = struct.unpack_from(">i", answer, at)
    at, stop = at + 4, at + 4 + max(size, 0)
    found = []
    while stop - at >= BATCH_HEADER.size:
        base, length, _, _, _, _, last_delta, *_, count = BATCH_HEADER.unpack_from(answer, at)
        if stop - at < length + 12:
            break
        found.append(count)
        offset = base + last_delta + 1
        at += length + 12
    return found, offset, end
