"""Killed with `kill -9` at full produce rate over much stored data: from exec to the first acknowledgement.

A probe connects, produces one record and tries again at once until it is acknowledged; clients have a
pause between two tries, which would be measured instead.
"""

import socket
import struct
import threading
import time

from .. import Fault, client, produce_probe, topics
from .load import Load

BETWEEN_TRIES_SECONDS = 0.002
ANSWER_SECONDS = 5.0
FIRST_ACKNOWLEDGEMENT_SECONDS = 120
FILLERS = 4
# By then the producers have long been at full rate; longer would only fill the disk.
LOADED_SECONDS_MOST = 5.0
# After a fresh start a broker may still create the topic's leaders: these are asked again.
RETRIABLE = {3, 5, 6, 7, 14, 15, 16, 19, 20, 56}


class Restart(Load):
    def prepare(self) -> None:
        case, peer = self.case, self.peer
        self.await_space(self.scale.restart_bytes)
        self.topic = peer.new_topic(case.partitions)
        self.probed = peer.new_topic(1)
        count = self.scale.restart_bytes // case.record_bytes // FILLERS
        command = client.command(peer.bootstrap, self.topic, self._words(), count)
        client.produced(client.run([command] * FILLERS, self.scale.restart_bytes / 20e6, peer), [count] * FILLERS)
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
        with client.Running([command] * case.producers) as load:
            time.sleep(min(self.scale.seconds, LOADED_SECONDS_MOST))
            load.check_alive()
            before = self._records()
            time.sleep(0.2)
            load.check_alive()
            if self._records() <= before or before < self.stored:
                raise Fault("nothing arrived at the moment of the kill")
            peer.kill()
            load.interrupt()
        seconds_ready, seconds_first = self._start()
        after = self._records()
        if after < before:
            raise Fault(f"{before} records were there before the kill, {after} are after it")
        self.stored = after
        return {
            "first_acknowledged_s": seconds_first,
            "ready_s": seconds_ready,
            "stored_gb": before * case.record_bytes / 1e9,
        }

    def _start(self) -> tuple[float, float]:
        """Starts the broker, and returns when it said `ready` and when it first acknowledged."""
        frame = produce_probe.request(self.probed, 0, produce_probe.batch(b"the first after a restart"))
        told: list[float | Exception] = []
        stopping = threading.Event()
        began = time.monotonic()
        # The broker is started by this thread, as it is tied to the life of the thread that starts it.
        probing = threading.Thread(target=self._probe, args=(frame, began, told, stopping))
        probing.start()
        try:
            ready = self.peer.broker.start()
            probing.join(FIRST_ACKNOWLEDGEMENT_SECONDS)
        finally:
            stopping.set()
            probing.join()
        if not told:
            raise Fault(f"nothing was acknowledged within {FIRST_ACKNOWLEDGEMENT_SECONDS} s of `ready`")
        if isinstance(told[0], Exception):
            raise told[0]
        return ready, told[0]

    def _probe(self, frame: bytes, began: float, told: list[float | Exception], stopping: threading.Event) -> None:
        while not stopping.wait(BETWEEN_TRIES_SECONDS):
            try:
                if self._acknowledged(frame):
                    told.append(time.monotonic() - began)
                    return
            except Exception as failure:  # raised again by the thread that measures
                told.append(failure)
                return

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
