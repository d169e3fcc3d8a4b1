"""Many connections that each produce now and then: what a connection costs, at one and the same total rate.

One process holds them all and uses them in turn, which no client library does; so this curve alone is
driven by hand-made requests of one record (`produce_probe`).
"""

import contextlib
import resource
import socket
import struct
import time

from harness.wire import receive

from .. import Fault, produce_probe, topics
from ..peers import Watch
from .load import Load

ANSWER_SECONDS = 30.0
FILES_SPARE = 500
# Closing with a reset leaves no connection waiting in the kernel, of which there is a limited number.
RESET = struct.pack("ii", 1, 0)


class Connections(Load):
    def prepare(self) -> None:
        self.topic = topics.new(self.peer, self.case.partitions)
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if most < self.case.connections + FILES_SPARE:
            raise Fault(f"this process may open {most} files, too few for {self.case.connections} connections")
        self._run(self.scale.warm_seconds)

    def commands(self) -> list[str]:
        return []

    def measure(self) -> dict[str, float]:
        self.pause()
        return self._run(self.scale.seconds)

    def _run(self, seconds: float) -> dict[str, float]:
        case, peer = self.case, self.peer
        before = topics.records(peer.bootstrap, self.topic, case.partitions)
        count = max(int(case.rate * seconds), case.connections)
        value = b"x" * case.record_bytes
        frames = [
            produce_probe.request(self.topic, number, produce_probe.batch(value)) for number in range(case.partitions)
        ]
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(self._connected()) for _ in range(case.connections)]
            watch = Watch(peer)
            cpu, began = time.process_time(), time.monotonic()
            for number in range(count + case.connections):
                connection = sockets[number % case.connections]
                if number >= case.connections:
                    self._check_answer(connection)
                if number < count:
                    connection.sendall(frames[number % case.partitions])
                    wait = began + number / case.rate - time.monotonic()
                    if wait > 0:
                        time.sleep(wait)
            took = time.monotonic() - began
            spent = watch.end(self.scale.settle_seconds, time.process_time() - cpu)
        there = topics.records(peer.bootstrap, self.topic, case.partitions) - before
        if there != count:
            raise Fault(f"{count} records were acknowledged, {there} are there")
        watch.check_synced(spent)
        return spent | {
            "records": count,
            "seconds": took,
            "records_per_second": count / took,
            "broker_cpu_us_per_request": spent["broker_cpu_seconds"] / count * 1e6,
        }

    def _connected(self) -> socket.socket:
        host, port = self.peer.bootstrap.rsplit(":", 1)
        connection = socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        return connection

    def _check_answer(self, connection: socket.socket) -> None:
        (length,) = struct.unpack(">i", receive(connection, 4))
        error = produce_probe.error_of(receive(connection, length), self.topic)
        if error:
            raise Fault(f"a produce was answered with error {error}")
