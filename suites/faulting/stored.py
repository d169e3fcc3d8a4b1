"""Data directories with known records, to be harmed: made once, copied for every scenario.

`STOPPED` was stopped in good order, so that a checkpoint covers everything; `KILLED` went on from there and
was killed when its journal had been idle, so that its last records are in the journal alone.
"""

import hashlib
import os
import shutil
import struct
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import crc32c
from harness.wire import connect, fetch

from . import wire
from .records import Place, Records, create, parsed
from .scenario import Trial
from .server import Server, run_weir

TOPIC, PARTITIONS = "orders", 3
SETTINGS = {"checkpoint_bytes": "1MiB"}
STOPPED, KILLED = "stopped", "killed"
# Longer than the journal waits before it seals its last group.
IDLE_SECONDS = 0.3

_made: dict[str, tuple[Path, Records]] = {}
_making = threading.Lock()


def template(kind: str) -> tuple[Path, Records]:
    with _making:
        if not _made:
            _make()
        directory, records = _made[kind]
        return directory, deepcopy_of(records)


def deepcopy_of(records: Records) -> Records:
    copy = Records()
    copy.ledgers = deepcopy(records.ledgers)
    copy.sequences = deepcopy(records.sequences)
    copy.whole = set(records.whole)
    return copy


def _make() -> None:
    place = Path(tempfile.mkdtemp(prefix="weir-faults-"))
    import atexit

    atexit.register(shutil.rmtree, place, ignore_errors=True)
    server = Server(place / STOPPED, SETTINGS)
    records = Records()
    server.start()
    create(server.bootstrap, TOPIC, PARTITIONS, segment_bytes=40_000)
    send(server, records, 150)
    server.stop()
    _made[STOPPED] = (place / STOPPED, deepcopy_of(records))
    shutil.copytree(place / STOPPED, place / KILLED)
    server = Server(place / KILLED, SETTINGS)
    server.start()
    send(server, records, 60)
    time.sleep(IDLE_SECONDS)
    server.kill()
    _made[KILLED] = (place / KILLED, records)


def send(server: Server, records: Records, count: int) -> None:
    # Small batches: harm to one of them should concern few records.
    errors = records.send(server.bootstrap, TOPIC, count, partitions=PARTITIONS, length=1000, batch_size=4000)
    if errors:
        raise OSError(f"records were refused: {errors[:2]}")


def copied(trial: Trial, kind: str, name: str = "data") -> tuple[Server, Records]:
    """A server, not started, on a copy of a template, and the records in it."""
    directory, records = template(kind)
    copy = trial.place / name
    # Most of a journal is zeroes that nothing was written over yet.
    subprocess.run(["cp", "-a", "--sparse=always", str(directory), str(copy)], check=True)
    return trial.server(copy, **SETTINGS), records


def segments(server: Server, partition: int = 0) -> list[Path]:
    """Segment files of a partition of a server that does not run: the last one is open."""
    rows = [path.parent for path in server.data_dir.glob("shards/*/*/*.log")]
    # Ids are given out in the order of the partitions.
    directory = sorted(set(rows), key=lambda path: int(path.name))[partition]
    return sorted(directory.glob("*.log"))


@dataclass(frozen=True)
class StoredBatch:
    position: int
    base: int
    last: int
    bytes: int


def batches_in(file: Path) -> list[StoredBatch]:
    content = file.read_bytes()
    found, at = [], 0
    while at + 61 <= len(content):
        base, length = struct.unpack_from(">qi", content, at)
        (delta,) = struct.unpack_from(">i", content, at + 23)
        if length < 49 or at + 12 + length > len(content):
            break
        found.append(StoredBatch(at, base, base + delta, 12 + length))
        at += 12 + length
    return found


def flip(file: Path, position: int, bit: int = 0x10) -> None:
    with file.open("r+b") as opened:
        opened.seek(position)
        (byte,) = opened.read(1)
        opened.seek(position)
        opened.write(bytes([byte ^ bit]))


def zeroes(file: Path) -> None:
    file.write_bytes(bytes(file.stat().st_size))


def noise(file: Path) -> None:
    file.write_bytes(os.urandom(max(64, file.stat().st_size)))


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def halved(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def removed(file: Path) -> None:
    file.unlink()


def made_a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()


def made_a_dead_link(file: Path) -> None:
    file.unlink()
    file.symlink_to("nowhere")


def flipped(file: Path) -> None:
    flip(file, file.stat().st_size // 2)


HARMS: tuple[Callable[[Path], None], ...] = (
    flipped, noise, zeroes, emptied, halved, removed, made_a_directory, made_a_dead_link,
)  # fmt: skip


def fingerprint(directory: Path) -> dict[str, str]:
    """Every file's content, but for the lock, which says whose it was last."""
    found = {}
    for path in sorted(directory.rglob("*")):
        name = str(path.relative_to(directory))
        if path.is_symlink() or name == "lock":
            continue
        found[name] = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "directory"
    return found


def verify(server: Server):
    return run_weir("log", "verify", server.data_dir)


@dataclass
class Reading:
    """One partition read batch by batch, CRCs checked, every offset tried."""

    found: list[tuple[int, str, int]]
    # Offsets that are answered with an error, and with which.
    errors: dict[int, int]
    # Batches that came with a CRC that does not fit, by base offset.
    damaged: list[int]
    # Records that nobody sent, in batches whose CRC fits.
    strange: list[int]


def read_by_hand(bootstrap: str, place: Place) -> Reading:
    reading = Reading([], {}, [], [])
    with connect(bootstrap) as connection:
        offset = 0
        while len(reading.errors) < 5000:
            fetched = fetch(connection, *place, offset, 64 << 10)
            if fetched.error == wire.OFFSET_OUT_OF_RANGE or not (fetched.error or fetched.records):
                return reading
            if fetched.error:
                reading.errors[offset] = fetched.error
                offset += 1
            else:
                offset = max(offset + 1, _take(reading, fetched.records, offset))
    raise OSError(f"{place} is answered with nothing but errors")


def _take(reading: Reading, content: bytes, wanted: int) -> int:
    at, next_offset = 0, wanted
    while at + 61 <= len(content):
        base, length, _, _, crc = struct.unpack_from(">qiibI", content, at)
        end = at + 12 + length
        if length < 49 or end > len(content):
            break
        delta, count = struct.unpack_from(">i30xi", content, at + 23)
        if crc32c.crc32c(content[at + 21 : end]) != crc:
            reading.damaged.append(base)
            next_offset = base + max(delta, 0) + 1
            at = end
            continue
        place = at + 61
        for _ in range(count):
            size, place = _varint(content, place)
            after = place + size
            _, place = _varint(content, place + 1)
            number, place = _varint(content, place)
            key, place = _varint(content, place)
            size, place = _varint(content, place + max(key, 0))
            whose = parsed(content[place : place + size])
            if base + number >= wanted:
                if whose:
                    reading.found.append((base + number, *whose))
                else:
                    reading.strange.append(base + number)
            place = after
        next_offset = base + delta + 1
        at = end
    return next_offset


def _varint(content: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = content[at]
        at += 1
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at


def timestamps(bootstrap: str, topic: str, partition: int, seconds: float = 20) -> list[int]:
    """The timestamps of all records, in the order of their offsets."""
    import kafka

    client = kafka.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None)
    try:
        place = kafka.TopicPartition(topic, partition)
        end = client.end_offsets([place])[place]
        client.assign([place])
        client.seek_to_beginning()
        found: list[int] = []
        deadline = time.monotonic() + seconds
        while len(found) < end and time.monotonic() < deadline:
            for messages in client.poll(timeout_ms=200).values():
                found += [message.timestamp for message in messages]
        return found
    finally:
        client.close()


def wrong_by_time(bootstrap: str, topic: str, partition: int) -> list[str]:
    """Searches for the times of some records, and compares with what a reading of all says."""
    import kafka

    times = timestamps(bootstrap, topic, partition)
    client = kafka.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None)
    try:
        place = kafka.TopicPartition(topic, partition)
        wrong = [] if times else [f"{topic}-{partition} has no records"]
        some = sorted(set(times))
        for wanted in some[:: max(1, len(some) // 5)]:
            first = next(offset for offset, stamp in enumerate(times) if stamp >= wanted)
            found = client.offsets_for_times({place: wanted})[place]
            if found is None or found.offset != first:
                wrong.append(f"the first record from {wanted} on is {first}, not {found and found.offset}")
        return wrong
    finally:
        client.close()
