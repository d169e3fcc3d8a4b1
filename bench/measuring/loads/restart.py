"""Killed with `kill -9` at full produce rate over much stored data: from exec to the first acknowledgement.

A probe connects, produces one record and tries again at once until it is acknowledged; clients have a
pause between two tries, which would be measured instead.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable

from .. import Fault, client, produce_probe, running, topics
from ..peers import Peer
from .load import Load

BETWEEN_TRIES_SECONDS = 0.002
ANSWER_SECONDS = 5.0
FIRST_ANSWER_SECONDS = 120
FILLERS = 4
# By then the producers have long been at full rate; longer would only fill the disk.
LOADED_SECONDS_MOST = 5.0
# After a fresh start a broker may still create the topic's leaders: these are asked again.
RETRIABLE = {3, 5, 6, 7, 14, 15, 16, 19, 20, 56}


class Restart(Load):
    def prepare(self) -> None:
        case, peer = self.case, self.peer
        self.await_space(self.scale.restart_bytes)
        self.topic = topics.new(peer, case.partitions)
        self.probed = topics.new(peer, 1)
        count = self.scale.restart_bytes // case.record_bytes // FILLERS
        command = client.command(peer.bootstrap, self.topic, self._words(), count)
        client.produced(running.run([command] * FILLERS, self.scale.restart_bytes / 20e6, peer), [count] * FILLERS)
        self.stored = self._records()
        if self.stored != count * FILLERS:
            raise Fault(f"{count * FILLERS} records were acknowledged, {self.stored} are there")

    def commands(self) -> list[str]:
        return [client.shown(self._words())]

    def _words(self) -> list[str]:
        return client.produce_words(dict(self.case.client_settings), self.case.record_bytes, None)

    def _records(self) -> int:
        return topics.records(self.peer.bootstrap, self.topic, self.case.partitions)

    def measure(self) -> dict[str, float]:
        peer, case = self.peer, self.case
        self.await_space(0)
        self.pause()
        count = self.scale.bytes_max // case.record_bytes
        command = client.command(peer.bootstrap, self.topic, self._words(), count)
        with running.Running([command] * case.producers) as load:
            time.sleep(min(self.scale.seconds, LOADED_SECONDS_MOST))
            load.check_alive()
            before = self._records()
            time.sleep(0.2)
            load.check_alive()
            if self._records() <= before or before < self.stored:
                raise Fault("nothing arrived at the moment of the kill")
            peer.kill()
            load.interrupt()
        frame = produce_probe.request(self.probed, 0, produce_probe.batch(b"the first after a restart"))
        seconds_ready, seconds_first = start_and_probe(peer, lambda: self._acknowledged(frame))
        after = self._records()
        if after < before:
            raise Fault(f"{before} records were there before the kill, {after} are after it")
        self.stored = after
        return {
            "first_acknowledged_s": seconds_first,
            "ready_s": seconds_ready,
            "stored_gb": before * case.record_bytes / 1e9,
        }

    def _acknowledged(self, frame: bytes) -> bool:
        host, port = self.peer.bootstrap.rsplit(":", 1)
        try:
            with socket.create_connection((host, int(port)), timeout=ANSWER_SECONDS) as connection:
                connection.sendall(frame)
                answer = b""
                while len(answer) < 4 or len(answer) < 4 + struct.unpack_from(">i", answer)[0]:
                    part = connection.recv(1 << 16)
                    if not part:
                        return False
                    answer += part
        except OSError:
            return False
        error = produce_probe.error_of(answer[4:], self.probed)
        if error and error not in RETRIABLE:
            raise Fault(f"the first produce after a restart was answered with error {error}")
        return error == 0


def start_and_probe(peer: Peer, attempt: Callable[[], bool]) -> tuple[float, float]:
    """Starts a broker, and returns the seconds until it said `ready` and until an attempt first succeeded.

    An attempt that fails is made again at once; what it raises is raised here."""
    told: list[float | Exception] = []
    stopping = threading.Event()
    began = time.monotonic()

    def probe() -> None:
        while not stopping.wait(BETWEEN_TRIES_SECONDS):
            try:
                if attempt():
                    told.append(time.monotonic() - began)
                    return
            except Exception as failure:  # raised again by the thread that measures
                told.append(failure)
                return

    # The broker is started by this thread, as it is tied to the life of the thread that starts it.
    probing = threading.Thread(target=probe)
    probing.start()
    try:
        ready = peer.broker.start()
        probing.join(FIRST_ANSWER_SECONDS)
    finally:
        stopping.set()
        probing.join()
    if not told:
        raise Fault(f"no success within {FIRST_ANSWER_SECONDS} s of `ready`")
    if isinstance(told[0], Exception):
        raise told[0]
    return ready, told[0]
