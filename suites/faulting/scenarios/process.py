"""What befalls a process: it is stopped, its clock is set, its descriptors, address or rights are taken."""

import os
import shutil
import signal
import socket
import subprocess
import time

from harness.wire import connect

from .. import clock, stored
from ..amqp import Publisher, declare, waiting
from ..records import Records, Sender, create
from ..scenario import CannotDo, Trial, scenario
from ..server import within


def stopped_for(trial: Trial, seconds: float) -> None:
    """SIGSTOP under load, SIGCONT after a while: clients go on, nothing is missing."""
    server = trial.server().start()
    create(server.bootstrap, "orders", 2)
    records = Records()
    senders = [
        Sender(records, server.bootstrap, "orders", partitions=2, name=name).start() for name in ("one", "two")
    ]
    trial.expect(within(20, lambda: records.acknowledged() > 100), "no load")
    os.kill(server.pid, signal.SIGSTOP)
    time.sleep(seconds)
    before = records.acknowledged()
    os.kill(server.pid, signal.SIGCONT)
    trial.expect(within(30, lambda: records.acknowledged() > before + 100), "producers did not go on")
    for sender in senders:
        trial.expect(not sender.finish(), f"{sender.name} was told of errors: {sender.errors[:2]}{sender.fatal[:2]}")
    trial.expect(server.ready()[0], "it is not ready")
    trial.all_there(server, records)
    server.kill()
    server.start()
    trial.all_there(server, records, client="kafka-python")


@scenario("paused-briefly", "a process that is stopped and continued goes on; producers see nothing but a wait")
def paused_briefly(trial: Trial) -> None:
    stopped_for(trial, 3)


@scenario("paused-for-30-s", "the same after 30 s, longer than sessions and elections", slow=True)
def paused_long(trial: Trial) -> None:
    stopped_for(trial, 30)


@scenario("clock-steps", "the wall clock may jump both ways: nothing is lost, and searches by time still find what they should")
def clock_steps(trial: Trial) -> None:
    clock_of = clock.settable(trial.place)
    server = trial.server()
    server.start(clock_of.command)
    create(server.bootstrap, "orders", 1)
    create(server.bootstrap, "stamped", 1, message_timestamp_type="LogAppendTime")
    records = Records()
    hour = 3600
    for step in (0, hour, -hour, 0, -24 * hour, 2 * hour):
        clock_of.set(step)
        time.sleep(0.05)
        trial.expect(not records.send(server.bootstrap, "orders", 50), f"records were refused at {step} s")
        trial.expect(not records.send(server.bootstrap, "stamped", 50, name="two"), f"records were refused at {step} s")
        trial.expect(server.ready()[0], f"it is not ready at {step} s")
    trial.all_there(server, records)
    stamps = stored.timestamps(server.bootstrap, "stamped", 0)
    now = time.time() * 1000
    trial.expect(len(stamps) == 300, f"{len(stamps)} records of 300")
    trial.expect(max(stamps) > now + 1800 * 1000 > min(stamps), "the server's clock was never set, so nothing was shown")
    server.kill()
    clock_of.set(-hour)
    server.start(clock_of.command)
    trial.all_there(server, records)
    trial.expect(not records.send(server.bootstrap, "stamped", 50, name="two"), "records were refused")
    for words in stored.wrong_by_time(server.bootstrap, "stamped", 0):
        trial.expect(False, words)


@scenario(
    "out-of-descriptors",
    "a flood of connections takes no descriptor from the storage; who is connected goes on, the rest waits",
)
def out_of_descriptors(trial: Trial) -> None:
    server = trial.server(checkpoint_bytes="1MiB")
    # Enough for a hundred connections beside what two shards need; the flood wants three hundred.
    server.start(["prlimit", "--nofile=192:192"])
    create(server.bootstrap, "orders", 4, segment_bytes=50_000)
    records = Records()
    sender = Sender(records, server.bootstrap, "orders", partitions=4, length=1000).start()
    trial.expect(within(20, lambda: records.acknowledged() > 200), "no load")
    flood = []
    try:
        for _ in range(300):
            try:
                flood.append(connect(server.bootstrap, 2))
            except OSError:
                pass
        time.sleep(1)
        # Segments roll and checkpoints are made meanwhile.
        before = records.acknowledged()
        trial.expect(
            within(20, lambda: records.acknowledged() > before + 3000 or not server.running()), "producers did not go on"
        )
        trial.expect(server.running(), f"the flood ended the process: {server.said().strip().splitlines()[-1:]}")
    finally:
        for connection in flood:
            connection.close()
    trial.note(f"{len(flood)} connections were made, the process may have 192 descriptors")
    if not server.running():
        server.kill()
        server.start()
    trial.expect(not sender.finish(), f"the producer was told of errors: {sender.errors[:2]}{sender.fatal[:2]}")
    trial.all_there(server, records)


@scenario("address-taken", "a start on an address that is taken is refused with 64 and a sentence that names it")
def address_taken(trial: Trial) -> None:
    server = trial.server().start()
    other = trial.server()
    other.broker.addresses["kafka"] = server.bootstrap
    ended = other.refusal()
    if trial.expect(ended, "both serve"):
        trial.expect(ended.status == 64, f"status {ended.status}")
        trial.expect(server.bootstrap in ended.last_line, f"its last line does not name the address: {ended.last_line}")
    trial.expect(server.ready()[0], "the first is not ready any more")


@scenario("directory-taken", "a second server on the same directory is refused with 64; the first goes on")
def directory_taken(trial: Trial) -> None:
    server = trial.server().start()
    create(server.bootstrap, "orders", 1)
    records = Records()
    other = trial.server(server.data_dir)
    ended = other.refusal()
    if trial.expect(ended, "both serve"):
        trial.expect(ended.status == 64, f"status {ended.status}")
        trial.expect("in use by process" in ended.last_line, f"its last line does not say who: {ended.last_line}")
    trial.expect(not records.send(server.bootstrap, "orders", 100), "records were refused")
    trial.all_there(server, records)


@scenario("not-writable", "a data directory that may not be written is refused with a sentence that names it")
def not_writable(trial: Trial) -> None:
    if os.geteuid() != 0:
        raise CannotDo("another user's directory is needed, so this must be started by root")
    nobody = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    if subprocess.run([*nobody, "true"], capture_output=True).returncode != 0:
        raise CannotDo("setpriv cannot take on another user here")
    trial.place.chmod(0o755)
    # Nobody's binary must be reachable for nobody.
    server = trial.server()
    server.start()
    create(server.bootstrap, "orders", 1)
    records = Records()
    trial.expect(not records.send(server.bootstrap, "orders", 100), "records were refused")
    server.stop()
    binary = trial.place / "weir"
    shutil.copy2(server.plain[0], binary)
    server.plain[0] = str(binary)
    ended = server.refusal(nobody)
    if trial.expect(ended, "it started"):
        trial.expect(ended.status in (64, 74), f"status {ended.status}")
        said = ended.last_line
        trial.expect("Permission denied" in said and str(server.data_dir) in said, f"its last line does not say so: {said}")
    server.start()
    trial.all_there(server, records)


@scenario(
    "address-taken-with-work",
    "the same while dead letters wait to be published: nothing that is to be done keeps the process",
    slow=True,
)
def address_taken_with_work(trial: Trial) -> None:
    server = trial.server().start()
    publisher = Publisher(server)
    declare(publisher.connection, "there")
    declare(
        publisher.connection,
        "dying",
        x_message_ttl=1000,
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="there",
    )
    publisher.publish("dying", 20_000)
    server.kill()
    # All of them have died by the time it starts.
    time.sleep(1.2)
    host, port = server.bootstrap.rsplit(":", 1)
    with socket.create_server((host, int(port))):
        ended = server.refusal()
        if trial.expect(ended, "it serves on an address that is taken"):
            trial.expect(ended.status == 64, f"status {ended.status}: {ended.last_line}")
    server.start()
    reader = Publisher(server)
    there = within(30, lambda: waiting(reader.connection, "there") >= 20_000)
    trial.expect(there, f"{waiting(reader.connection, 'there')} of 20,000 dead letters are there")
    trial.expect(waiting(reader.connection, "dying") == 0, "some have not died")
