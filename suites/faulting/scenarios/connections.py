"""Peers that break the protocol, come in floods, or never read: nobody else notices, memory stays bounded."""

import os
import random
import socket
import struct
import time

from harness.wire import FETCH_KEY, FETCH_VERSION, connect, fetch

from .. import wire
from ..records import Records, Sender, create
from ..scenario import Trial, scenario
from ..server import Server, within

MIB = 1 << 20


class Neighbours:
    """Clients that do nothing wrong, while others do: one that sends without pause, one that reads all."""

    def __init__(self, trial: Trial, server: Server):
        self.trial, self.server = trial, server
        create(server.bootstrap, "neighbours", 1)
        self.records = Records()
        self.sender = Sender(self.records, server.bootstrap, "neighbours").start()
        trial.expect(within(20, lambda: self.records.acknowledged() > 20), "no load")

    def go_on(self, when: str) -> None:
        before = self.records.acknowledged()
        moved = within(20, lambda: self.records.acknowledged() > before + 20)
        self.trial.expect(moved, f"{when}: the other producer was not answered any more")

    def finish(self) -> None:
        errors = self.sender.finish()
        self.trial.expect(not errors, f"the other producer was told of errors: {errors[:2]}")
        self.trial.expect(self.server.ready()[0], "it is not ready")
        self.trial.all_there(self.server, self.records)


def closed_by_the_broker(connection: socket.socket, seconds: float = 10) -> bool:
    connection.settimeout(seconds)
    try:
        while connection.recv(1 << 16):
            pass
        return True
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def malformed() -> list[tuple[str, bytes]]:
    """Bytes that no client sends, by what is wrong with them."""
    api_versions, produce, metadata = 18, 0, 3
    whole = wire.frame(wire.PRODUCE_KEY, wire.PRODUCE_VERSION, wire.produce_body("neighbours", 0, wire.batch(b"x")))
    dice = random.Random(7)
    return [
        ("a negative length", struct.pack(">i", -1)),
        ("a length of 2 GiB", struct.pack(">i", 0x7FFFFFFF) + bytes(64)),
        ("one byte more than a request may have", struct.pack(">i", 100 * MIB + 1) + bytes(64)),
        ("an empty request", struct.pack(">i", 0)),
        ("half a header", struct.pack(">i", 3) + b"\0\0\0"),
        ("an API that does not exist", wire.frame(9999, 0, b"")),
        ("a version that does not exist", wire.frame(produce, 999, b"")),
        ("a body that is cut short", whole[:4] + whole[4:20]),
        ("a topic list of 2^31 - 1", wire.frame(metadata, 1, struct.pack(">i", 0x7FFFFFFF))),
        ("a record set of 2 GiB", wire.frame(produce, 3, wire.produce_body("neighbours", 0, b"")[:-4] + b"\x7f\xff\xff\xff")),
        ("an array length in five bytes", wire.frame(api_versions, 3, b"\xff\xff\xff\xff\x0f")),
        ("a string that is no text", wire.frame(metadata, 1, struct.pack(">ih", 1, 4) + b"\xff\xfe\xfd\xfc")),
        ("another protocol", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        ("TLS", bytes.fromhex("16030100c8010000c40303") + dice.randbytes(190)),
        ("noise", dice.randbytes(5000)),
    ]


@scenario("malformed-frames", "that connection alone is closed or answered with an error; no memory for lengths that lie")
def malformed_frames(trial: Trial) -> None:
    server = trial.server().start()
    neighbours = Neighbours(trial, server)
    before = server.memory()
    unclosed = []
    for _ in range(10):
        for what, content in malformed():
            with connect(server.bootstrap) as connection:
                connection.sendall(content)
                connection.shutdown(socket.SHUT_WR)
                if not closed_by_the_broker(connection):
                    unclosed.append(what)
    trial.expect(not unclosed, f"not closed although the peer was done: {set(unclosed)}")
    # Without our closing our side, what cannot be read must still end the connection.
    for what, content in malformed()[:5]:
        with connect(server.bootstrap) as connection:
            connection.sendall(content)
            if what not in ("half a header", "an empty request"):
                trial.expect(closed_by_the_broker(connection), f"{what}: the connection stays open")
    neighbours.go_on("after malformed frames")
    grown = server.memory() - before
    trial.expect(grown < 64 * MIB, f"memory grew by {grown >> 20} MiB")
    trial.expect("panicked" not in server.said(), "something panicked")
    trial.expect(server.says("connection closed"), "the log does not say that a connection was closed")
    neighbours.finish()


@scenario("unfinished-requests", "requests that are announced and never finished hold what has arrived and no more")
def unfinished_requests(trial: Trial) -> None:
    server = trial.server().start()
    neighbours = Neighbours(trial, server)
    before = server.memory()
    held = []
    try:
        for _ in range(200):
            connection = connect(server.bootstrap)
            held.append(connection)
            connection.sendall(struct.pack(">i", 90 * MIB) + bytes(10_000))
        neighbours.go_on("with 200 requests of 90 MiB announced")
        grown = server.memory() - before
        trial.expect(grown < 100 * MIB, f"memory grew by {grown >> 20} MiB for 2 MB that were sent")
        trial.note(f"200 announced requests of 90 MiB, 10 kB sent of each: memory grew by {grown >> 10} KiB")
    finally:
        for connection in held:
            connection.close()
    neighbours.finish()


@scenario("connection-flood", "beyond max.connections they are closed at once; those who are there go on")
def connection_flood(trial: Trial) -> None:
    server = trial.server(max__connections=100).start()
    neighbours = Neighbours(trial, server)
    files = server.open_files()
    before = server.memory()
    held, refused = [], 0
    try:
        for _ in range(1000):
            held.append(connect(server.bootstrap))
        for connection in held[500:]:
            refused += closed_by_the_broker(connection, 5)
        trial.expect(refused == 500, f"{500 - refused} of the last 500 connections were not closed")
        neighbours.go_on("with 1,000 connections made")
        grown = server.memory() - before
        trial.expect(grown < 64 * MIB, f"memory grew by {grown >> 20} MiB")
    finally:
        for connection in held:
            connection.close()
    back = within(10, lambda: server.open_files() <= files + 2)
    trial.expect(back, f"{server.open_files()} files are open, {files} were before the flood")
    trial.expect(server.says("max.connections"), "the log does not say that connections are refused")
    neighbours.finish()


@scenario("slow-consumers", "readers that ask and never take their answers cost a bounded part of memory; others read on")
def slow_consumers(trial: Trial) -> None:
    server = trial.server().start()
    create(server.bootstrap, "backlog", 1)
    backlog = Records()
    trial.expect(not backlog.send(server.bootstrap, "backlog", 600, length=100_000, in_flight=50), "records were refused")
    neighbours = Neighbours(trial, server)
    before = server.memory()
    name = b"backlog"
    ask = struct.pack(">iiiibii", -1, 0, 1, 50 << 20, 0, 0, -1) + struct.pack(">ih", 1, len(name)) + name
    ask += struct.pack(">iiiqqi", 1, 0, -1, 0, -1, 50 << 20) + struct.pack(">ih", 0, 0)
    held = []
    most = 0
    try:
        for _ in range(40):
            connection = socket.socket()
            # A small window, so that what is not read stays with the broker.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            host, port = server.bootstrap.rsplit(":", 1)
            connection.connect((host, int(port)))
            connection.setblocking(False)
            try:
                connection.sendall(wire.frame(FETCH_KEY, FETCH_VERSION, ask) * 20)
            except BlockingIOError:
                pass
            held.append(connection)
            most = max(most, server.memory())
        for _ in range(20):
            time.sleep(0.05)
            most = max(most, server.memory())
        neighbours.go_on("with 40 readers that do not read")
        # All answers together have 512 MiB, every reader at least a little, and a part of the allocator.
        bound = before + (512 + 40 * 4 + 128) * MIB
        trial.expect(most < bound, f"memory rose to {most >> 20} MiB, the bound is {bound >> 20} MiB")
        trial.note(f"40 readers ask for 40 GB and read nothing: {before >> 20} MiB before, at most {most >> 20} MiB")
        with connect(server.bootstrap) as connection:
            read = fetch(connection, "backlog", 0, 0, MIB)
            trial.expect(not read.error and read.records, f"a reader that reads was answered {read.error}")
    finally:
        for connection in held:
            connection.close()
    trial.all_there(server, backlog)
    neighbours.finish()


@scenario("never-reads-answers", "a client that sends and never reads its answers is not read from any more; its records stand")
def never_reads_answers(trial: Trial) -> None:
    server = trial.server().start()
    create(server.bootstrap, "orders", 1)
    neighbours = Neighbours(trial, server)
    before = server.memory()
    most = 0
    # Metadata answers are much longer than their requests.
    request = wire.frame(3, 1, struct.pack(">i", -1))
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        host, port = server.bootstrap.rsplit(":", 1)
        connection.connect((host, int(port)))
        connection.setblocking(False)
        sent, until = 0, time.monotonic() + 3
        while time.monotonic() < until:
            try:
                sent += connection.send(request * 500)
            except BlockingIOError:
                time.sleep(0.02)
            most = max(most, server.memory())
        neighbours.go_on("while a client does not read")
    trial.expect(most - before < 64 * MIB, f"memory grew by {(most - before) >> 20} MiB")
    trial.note(f"{sent} bytes of requests were taken before the broker stopped reading")
    neighbours.finish()


@scenario("admin-flood", "the admin API refuses what is too much, in HTTP's own words")
def admin_flood(trial: Trial) -> None:
    server = trial.server().start()
    neighbours = Neighbours(trial, server)
    before = server.memory()
    status, _ = server.http("/api/v1/topics", "POST", {"name": "x" * (2 * MIB)})
    trial.expect(status in (400, 413), f"a body of 2 MiB is answered {status}")
    host, port = server.broker.addresses["http"].rsplit(":", 1)
    held = []
    try:
        for _ in range(600):
            connection = socket.create_connection((host, int(port)), timeout=5)
            connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\nX-Long: " + b"a" * 500)
            held.append(connection)
        noise = socket.create_connection((host, int(port)), timeout=5)
        held.append(noise)
        noise.sendall(os.urandom(100_000))
        neighbours.go_on("with 600 unfinished requests to the admin API")
        grown = server.memory() - before
        trial.expect(grown < 64 * MIB, f"memory grew by {grown >> 20} MiB")
    finally:
        for connection in held:
            connection.close()
    trial.expect(within(10, lambda: server.ready()[0]), "the admin API does not answer any more")
    neighbours.finish()
