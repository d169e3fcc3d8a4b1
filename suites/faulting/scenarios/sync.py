"""Disks that fail to sync, write or read, and disks that are slow."""

import socket
import time

from harness.wire import connect, fetch

from .. import wire
from ..injection import inject
from ..records import Records, create
from ..scenario import Trial, scenario
from ..server import within

IO_ERROR = "Input/output error"
DISK_STATUS = 74


def ends_with_74(trial: Trial, server, words: str) -> None:
    """The process ended by itself, with the status for a disk that refuses, and said why."""
    ended = server.wait_for_end()
    if trial.expect(ended, "the process goes on"):
        trial.expect(ended.status == DISK_STATUS, f"it ended with status {ended.status}, not {DISK_STATUS}")
        trial.expect(words in ended.last_line, f"its last line does not say '{words}': {ended.last_line}")
        trial.expect(IO_ERROR in ended.last_line, f"its last line does not have the system's words: {ended.last_line}")
        trial.note(f"said: {ended.last_line}")


def under_load(trial: Trial, under: list[str], words: str, **settings) -> Records:
    """Two producers that never give up, a fault that ends the process, a start without it: nothing is missing."""
    server = trial.server(**settings)
    server.start()
    create(server.bootstrap, "orders", 2)
    server.stop()
    server.start(under)
    records = Records()
    senders = [
        records_sender(records, server.bootstrap, "orders", name, partitions=2, length=1000) for name in ("one", "two")
    ]
    ends_with_74(trial, server, words)
    acknowledged_before = records.acknowledged()
    trial.expect(acknowledged_before > 0, "nothing was acknowledged before the fault")
    server.start()
    trial.expect(
        within(20, lambda: records.acknowledged() > acknowledged_before + 50), "producers did not go on after the restart"
    )
    for sender in senders:
        trial.expect(not sender.finish(), f"{sender.name} was told of errors: {sender.errors[:2]}{sender.fatal[:2]}")
    trial.expect(server.ready()[0], f"not ready after the restart: {server.ready()[1]}")
    trial.all_there(server, records)
    trial.all_there(server, records, client="kafka-python")
    trial.note(f"{acknowledged_before} records acknowledged before the fault, {records.acknowledged()} in all")
    return records


def records_sender(records: Records, bootstrap: str, topic: str, name: str, **how):
    from ..records import Sender

    return Sender(records, bootstrap, topic, name=name, **how).start()


@scenario(
    "journal-sync-error",
    "the process exits at once with 74 and says why; nothing acknowledged is missing after the restart",
)
def journal_sync_error(trial: Trial) -> None:
    fault = inject(trial.place, "fdatasync", "error=EIO:when=60+")
    under_load(trial, fault.command, "the journal failed")
    trial.expect(fault.done() == 1, f"{fault.done()} syncs failed: it went on after the first")


@scenario(
    "journal-write-error",
    "the process exits at once with 74 and says why; nothing acknowledged is missing after the restart",
)
def journal_write_error(trial: Trial) -> None:
    # The only calls of this kind on the journal's files are the journal's own.
    journal = [trial.place / "data-0" / "journal" / f"{number:020}.journal" for number in range(1, 9)]
    fault = inject(trial.place, "pwritev,pwrite64", "error=EIO:when=60+", journal)
    under_load(trial, fault.command, "the journal failed")
    trial.expect(fault.done() == 1, f"{fault.done()} writes failed: it went on after the first")


@scenario(
    "segment-write-error",
    "the process exits with 74: records are written anew from the journal by the next start",
)
def segment_write_error(trial: Trial) -> None:
    segments = [trial.place / "data-0" / "shards" / f"{s}" / f"{p}" / f"{0:020}.log" for s in (1, 2) for p in range(9)]
    fault = inject(trial.place, "pwritev", "error=EIO:when=20+", segments)
    under_load(trial, fault.command, "a segment file could not be written")
    trial.expect(fault.done() == 1, f"{fault.done()} writes failed: it went on after the first")


@scenario(
    "segment-sync-error",
    "a checkpoint that cannot sync a segment ends the process with 74; the journal still has everything",
)
def segment_sync_error(trial: Trial) -> None:
    segments = [trial.place / "data-0" / "shards" / f"{s}" / f"{p}" / f"{0:020}.log" for s in (1, 2) for p in range(9)]
    fault = inject(trial.place, "fdatasync", "error=EIO:when=1+", segments)
    server = trial.server(checkpoint_bytes="1MiB").start()
    create(server.bootstrap, "orders", 1)
    server.stop()
    server.start(fault.command)
    records = Records()
    # Then nothing more comes: it must not need another write to notice.
    trial.expect(not records.send(server.bootstrap, "orders", 1500, length=1000), "records were refused")
    ends_with_74(trial, server, "segment")
    server.start()
    trial.all_there(server, records)


@scenario(
    "checkpoint-error",
    "a checkpoint that fails is made again; the one before stays good, and clients notice nothing",
)
def checkpoint_error(trial: Trial) -> None:
    manifests = [trial.place / "data-0" / "shards" / f"{s}" / "checkpoint" / "manifest.new" for s in range(3)]
    fault = inject(trial.place, "rename", "error=EIO:when=1..4", manifests)
    server = trial.server(checkpoint_bytes="1MiB").start()
    create(server.bootstrap, "orders", 1)
    server.stop()
    server.start(fault.command)
    records = Records()
    trial.expect(not records.send(server.bootstrap, "orders", 4000, length=1000), "records were refused")
    trial.expect(within(10, lambda: fault.done() > 0), "no checkpoint was made, so nothing was shown")
    trial.expect(server.says("a checkpoint was not made; it will be tried again"), "the log does not say so")
    trial.expect(server.ready()[0], "it is not ready")
    trial.all_there(server, records)
    server.kill()
    server.start()
    trial.all_there(server, records)


@scenario(
    "segment-read-error",
    "who reads there gets the retriable storage error; everything else goes on, and it clears with the disk",
)
def segment_read_error(trial: Trial) -> None:
    server = trial.server().start()
    create(server.bootstrap, "orders", 2, segment_bytes=50_000)
    records = Records()
    sent = records.send(server.bootstrap, "orders", 400, partitions=2, length=1000, batch_size=5000)
    trial.expect(not sent, "records were refused")
    directory = server.partition_dir("orders", 0)
    closed = sorted(directory.glob("*.log"))[1]
    first_there = int(closed.stem)
    server.stop()
    fault = inject(trial.place, "pread64,preadv2", "error=EIO", [closed])
    server.start(fault.command)
    with connect(server.bootstrap) as connection:
        for round_ in range(2):
            there = fetch(connection, "orders", 0, first_there)
            trial.expect(
                there.error == wire.KAFKA_STORAGE_ERROR, f"a read of the bad file was answered {there.error} ({round_})"
            )
        before = fetch(connection, "orders", 0, 0)
        trial.expect(not before.error and before.records, f"the file before it was answered {before.error}")
    trial.expect(fault.done() > 0, "no read failed, so nothing was shown")
    trial.expect(server.says(IO_ERROR), "the log does not say that a read failed")
    trial.expect(server.ready()[0], "it is not ready")
    # Everything else goes on: the other partition, and writing to this one.
    trial.all_there(server, records, only={("orders", 1)})
    trial.expect(not records.send(server.bootstrap, "orders", 20, partitions=2, length=1000), "records were refused")
    server.stop()
    server.start()
    trial.all_there(server, records)
    trial.all_there(server, records, client="kafka-python")


@scenario(
    "slow-sync",
    "while a sync takes seconds, reads and other connections go on, and answers come when it is over",
)
def slow_sync(trial: Trial) -> None:
    server = trial.server().start()
    create(server.bootstrap, "orders", 1)
    records = Records()
    trial.expect(not records.send(server.bootstrap, "orders", 100), "records were refused")
    server.stop()
    fault = inject(trial.place, "fdatasync", "delay_enter=1500000:when=1+3")
    server.start(fault.command)
    with connect(server.bootstrap) as writing, connect(server.bootstrap) as reading:
        # What is shown is an order of events: a read is asked for and answered while the write waits.
        answered_before = 0
        for _ in range(3):
            content = wire.frame(
                wire.PRODUCE_KEY, wire.PRODUCE_VERSION, wire.produce_body("orders", 0, wire.batch(b"by hand"))
            )
            writing.sendall(content)
            read = fetch(reading, "orders", 0, 0)
            trial.expect(not read.error and read.records, f"a read was answered {read.error}")
            writing.setblocking(False)
            try:
                waiting = not writing.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                waiting = True
            writing.settimeout(30)
            answered_before += waiting
            (length,) = wire.struct.unpack(">i", receive(writing, 4))
            receive(writing, length)
        trial.expect(answered_before > 0, "no read was answered while a write waited for its sync")
    trial.expect(fault.delayed() > 0, "no sync was slow, so nothing was shown")


def receive(connection: socket.socket, length: int) -> bytes:
    content = b""
    while len(content) < length:
        part = connection.recv(length - len(content))
        if not part:
            raise ConnectionError("closed")
        content += part
    return content


MIB = 1 << 20


@scenario(
    "faster-than-the-disk",
    "producers that are faster than the disk wait; memory stays under its bound, nothing is lost",
    slow=True,
)
def faster_than_the_disk(trial: Trial) -> None:
    # Bound: what a shard admits (two of records, one of the catalog), each byte at most once as a request
    # and once on its way to a segment, and what a process is without load.
    admission = 8 * MIB
    server = trial.server(admission_bytes=admission, journal_file_bytes="16MiB", journal_bytes="64MiB").start()
    create(server.bootstrap, "orders", 4, segment_bytes=8 * MIB, retention_bytes=16 * MIB)
    server.stop()
    fault = inject(trial.place, "fdatasync", "delay_enter=150000")
    server.start(fault.command)
    idle = server.memory()
    records = Records()
    senders = [
        records_sender(
            records, server.bootstrap, "orders", f"p{number}", partitions=4, length=100_000, in_flight=400,
            batch_size=1_000_000,
        )
        for number in range(4)
    ]  # fmt: skip
    most = 0
    until = time.monotonic() + 20
    while time.monotonic() < until:
        most = max(most, server.memory())
        time.sleep(0.05)
    for sender in senders:
        trial.expect(not sender.finish(), f"{sender.name} was told of errors: {sender.errors[:2]}{sender.fatal[:2]}")
    # 4 connections: 16 MiB of requests each, of which each may be one larger.
    bound = idle + 4 * 2 * 16 * MIB + 3 * 2 * admission + 64 * MIB
    trial.expect(most < bound, f"resident memory rose to {most >> 20} MiB, the bound is {bound >> 20} MiB")
    trial.note(f"resident memory: {idle >> 20} MiB idle, at most {most >> 20} MiB, bound {bound >> 20} MiB")
    trial.note(f"{records.acknowledged()} records of 100 kB acknowledged, {fault.delayed()} slow syncs")
    trial.all_there(server, records)
