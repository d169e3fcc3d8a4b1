"""File systems without space: filled by us, filled by somebody else, full when the server starts, read-only."""

import shutil
import time
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from .. import filesystems, wire
from ..records import PATIENT, Records, Sender, create
from ..scenario import Trial, scenario
from ..server import Server, within

MIB = 1 << 20
SETTINGS = {"disk_reserve_bytes": "16MiB", "checkpoint_bytes": "1MiB"}


def begun(trial: Trial, mount: Path, **settings) -> Server:
    """A server whose data, but not whose log, is on a file system of its own."""
    server = trial.server(mount / "data", **{**SETTINGS, **settings})
    server.broker.log = trial.place / "server.log"
    return server


def topics(server: Server) -> None:
    """One for records that must stay, one for records that are sent to see whether they are taken."""
    create(server.bootstrap, "kept", 1)
    create(server.bootstrap, "filler", 1, segment_bytes=4 * MIB)


def answer_to_a_write(server: Server) -> int:
    """Kafka's error code for a record of 100 kB. One that was let in just before the disk was full is
    written when there is space again, and answered with a time-out if that takes longer than it may."""
    return wire.produce_once(server.bootstrap, "filler", 0, wire.batch(bytes(100_000)), timeout_ms=2000)[0]


def refused(server: Server) -> bool:
    return within(15, lambda: answer_to_a_write(server) == wire.KAFKA_STORAGE_ERROR)


def taken(server: Server) -> bool:
    return within(20, lambda: answer_to_a_write(server) == wire.NONE)


def commits(server: Server, offsets: range) -> list[str]:
    """Commits these offsets one after another; what went wrong."""
    wrong = []
    client = Consumer({**PATIENT, "bootstrap.servers": server.bootstrap, "group.id": "readers", "enable.auto.commit": False})
    try:
        for offset in offsets:
            told = client.commit(offsets=[TopicPartition("kept", 0, offset)], asynchronous=False)
            wrong += [str(entry.error) for entry in told if entry.error]
        (found,) = client.committed([TopicPartition("kept", 0)], timeout=10)
        if found.offset != offsets[-1]:
            wrong.append(f"{found.offset} is committed instead of {offsets[-1]}")
    except Exception as error:
        wrong.append(str(error))
    finally:
        client.close()
    return wrong


def delete_topic(server: Server, topic: str) -> None:
    admin = AdminClient({**PATIENT, "bootstrap.servers": server.bootstrap})
    admin.delete_topics([topic], request_timeout=20)[topic].result(30)


def everything_else_goes_on(trial: Trial, server: Server, records: Records) -> None:
    trial.all_there(server, records)
    for words in commits(server, range(1, 40)):
        trial.expect(False, f"committing on a full disk: {words}")
    trial.expect(server.running(), "the process has ended")


@scenario(
    "disk-filled-by-weir",
    "records are refused with the retriable storage error; reading, committing, deleting go on; it clears by itself",
)
def filled_by_weir(trial: Trial) -> None:
    mount = filesystems.ext4(trial, 96)
    server = begun(trial, mount).start()
    topics(server)
    records = Records()
    trial.expect(not records.send(server.bootstrap, "kept", 300, length=1000), "records were refused")
    sent = 0
    while answer_to_a_write(server) == wire.NONE and sent < 2000:
        sent += 1
    trial.expect(10 < sent < 2000, f"{sent} records of 100 kB were taken by a disk of 96 MiB")
    trial.expect(refused(server), "records are not refused with the storage error")
    trial.expect(filesystems.free_bytes(mount) > 0, "not even the reserve is left")
    trial.expect(server.says("records are refused"), "the log does not say that records are refused")
    everything_else_goes_on(trial, server, records)
    delete_topic(server, "filler")
    create(server.bootstrap, "filler", 1)
    trial.expect(taken(server), "records are still refused although a topic was deleted")
    trial.expect(server.says("records are taken again"), "the log does not say that records are taken again")
    trial.expect(not records.send(server.bootstrap, "kept", 100), "records were refused")
    server.kill()
    server.start()
    trial.all_there(server, records)
    trial.note(f"{sent} records of 100 kB taken before the first refusal")


@scenario(
    "disk-filled-by-others",
    "the same when somebody else takes the last byte: what must be written has its place already",
)
def filled_by_others(trial: Trial) -> None:
    mount = filesystems.ext4(trial, 96)
    server = begun(trial, mount).start()
    topics(server)
    records = Records()
    trial.expect(not records.send(server.bootstrap, "kept", 300, length=1000), "records were refused")
    somebody = filesystems.fill(mount)
    trial.expect(filesystems.free_bytes(mount) < 8192, "the disk is not full")
    trial.expect(refused(server), "records are not refused with the storage error")
    everything_else_goes_on(trial, server, records)
    somebody.unlink()
    trial.expect(taken(server), "records are still refused although there is space again")
    trial.expect(not records.send(server.bootstrap, "kept", 100), "records were refused")
    server.kill()
    server.start()
    trial.all_there(server, records)


@scenario(
    "disk-filled-under-load",
    "producers under way when the disk fills wait and go on by themselves; nothing acknowledged is missing",
)
def filled_under_load(trial: Trial) -> None:
    mount = filesystems.tmpfs(trial, 96)
    server = begun(trial, mount).start()
    topics(server)
    create(server.bootstrap, "orders", 2, segment_bytes=100_000)
    records = Records()
    senders = [
        Sender(records, server.bootstrap, "orders", partitions=2, name=name, length=2000).start(0.002)
        for name in ("one", "two")
    ]
    within(20, lambda: records.acknowledged() > 200)
    for _ in range(3):
        somebody = filesystems.fill(mount)
        trial.expect(refused(server), "records are not refused with the storage error")
        somebody.unlink()
        before = records.acknowledged()
        trial.expect(within(20, lambda: records.acknowledged() > before + 50), "producers did not go on")
    for sender in senders:
        trial.expect(not sender.finish(), f"{sender.name} was told of errors: {sender.errors[:2]}{sender.fatal[:2]}")
    trial.all_there(server, records)
    server.kill()
    server.start()
    trial.all_there(server, records, client="kafka-python")


@scenario(
    "deleting-on-a-full-disk",
    "deleting a topic gives its space back even where not a byte is left",
)
def deleting_makes_room(trial: Trial) -> None:
    mount = filesystems.ext4(trial, 128)
    server = begun(trial, mount).start()
    topics(server)
    records = Records()
    trial.expect(not records.send(server.bootstrap, "kept", 300, length=1000), "records were refused")
    for _ in range(300):
        answer_to_a_write(server)
    # What was accepted is written, and the journal has made its next file.
    time.sleep(1)
    filesystems.fill(mount)
    trial.expect(refused(server), "records are not refused with the storage error")
    delete_topic(server, "filler")
    came_back = within(20, lambda: filesystems.free_bytes(mount) > 20 * MIB)
    trial.expect(came_back, f"{filesystems.free_bytes(mount)} bytes are free 20 s after a topic of 30 MB was deleted")
    create(server.bootstrap, "filler", 1)
    trial.expect(taken(server), "records are still refused")
    trial.all_there(server, records)


@scenario(
    "start-on-a-full-disk",
    "it starts, serves what it has, and takes records when there is space",
)
def start_on_a_full_disk(trial: Trial) -> None:
    mount = filesystems.ext4(trial, 96)
    server = begun(trial, mount).start()
    topics(server)
    records = Records()
    trial.expect(not records.send(server.bootstrap, "kept", 2000, length=1000), "records were refused")
    for how in ("killed", "stopped"):
        server.kill() if how == "killed" else server.stop()
        somebody = filesystems.fill(mount)
        ended = server.refusal()
        words = f"{how}, then started on a full disk: status {ended and ended.status}: {ended and ended.last_line}"
        if trial.expect(not ended, words):
            trial.all_there(server, records)
        somebody.unlink()
        if ended:
            server.start()
    trial.expect(taken(server), "records are still refused")


@scenario(
    "new-directory-on-a-full-disk",
    "a data directory that cannot be made is refused with 74 and a sentence; with space again it is made",
)
def new_on_a_full_disk(trial: Trial) -> None:
    mount = filesystems.ext4(trial, 64)
    for leave in (0, 5 * MIB):
        somebody = filesystems.fill(mount, leave)
        server = begun(trial, mount, disk_reserve_bytes="1MiB")
        ended = server.refusal()
        if trial.expect(ended, f"{leave} bytes free: it started"):
            trial.expect(ended.status == 74, f"{leave} bytes free: status {ended.status}: {ended.last_line}")
            trial.expect("No space left" in ended.last_line, f"{leave} bytes free: it does not say why: {ended.last_line}")
        somebody.unlink()
        ended = server.refusal()
        trial.expect(not ended, f"with space again: status {ended and ended.status}: {ended and ended.last_line}")
        server.kill()
        shutil.rmtree(server.data_dir, ignore_errors=True)


@scenario(
    "read-only-file-system",
    "a start is refused with a sentence; writable again, everything is there",
)
def read_only(trial: Trial) -> None:
    mount = filesystems.tmpfs(trial, 96)
    server = begun(trial, mount).start()
    topics(server)
    records = Records()
    trial.expect(not records.send(server.bootstrap, "kept", 300), "records were refused")
    server.stop()
    filesystems.remount(mount, "ro")
    ended = server.refusal()
    if trial.expect(ended, "it started on a read-only file system"):
        trial.expect(ended.status in (64, 74), f"status {ended.status}")
        trial.expect("Read-only" in ended.last_line, f"its last line does not say why: {ended.last_line}")
    filesystems.remount(mount, "rw")
    server.start()
    trial.all_there(server, records)
