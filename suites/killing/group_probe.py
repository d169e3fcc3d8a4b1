"""A group with one member that speaks the protocol by hand, to see what client libraries hide.

Libraries join again in silence when a broker has forgotten them. This member says what it was told before
the crash: its heartbeat must be known, its generation must have survived, its commits must be there.
"""

import socket
import struct
import time

from harness.wire import call

FIND_COORDINATOR, JOIN_GROUP, HEARTBEAT, SYNC_GROUP, OFFSET_COMMIT, OFFSET_FETCH = 10, 11, 12, 14, 8, 9
COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 27, 79
RETRIABLE = (COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR)
# Version 0 of the consumer protocol: no partition, and no data of the user's.
ASSIGNMENT = struct.pack(">hii", 0, 0, -1)
SESSION_MS = 60_000
RETRY_SECONDS = 20.0


def _string(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack(">h", len(encoded)) + encoded


def _bytes(content: bytes) -> bytes:
    return struct.pack(">i", len(content)) + content


class GroupProbe:
    """Joins once for each restart, and notes every complaint on the way."""

    def __init__(self, bootstrap: str, group: str, topic: str):
        host, port = bootstrap.rsplit(":", 1)
        self.address = (host, int(port))
        self.group = group
        self.topic = topic
        self.member = ""
        self.generation = -1
        self.committed = -1
        self.generations: list[int] = []
        self.complaints: list[str] = []

    def _retrying(self, step) -> int:
        """Runs a step that returns an error code until it is not one that asks for patience."""
        deadline = time.monotonic() + RETRY_SECONDS
        while True:
            error = step()
            if error not in RETRIABLE or time.monotonic() > deadline:
                return error
            time.sleep(0.05)

    def after_start(self) -> None:
        """Called once the broker is ready again: what was promised before must hold; then join anew."""
        with socket.create_connection(self.address, timeout=RETRY_SECONDS) as connection:
            self.connection = connection
            if error := self._retrying(self._find_coordinator):
                self.complaints.append(f"FindCoordinator answered error {error}")
                return
            if self.generation >= 0:
                error = self._retrying(self._heartbeat)
                if error not in (0, REBALANCE_IN_PROGRESS):
                    self.complaints.append(
                        f"a heartbeat of generation {self.generation} after a restart answered error {error}"
                    )
                if error := self._retrying(self._fetch_offset):
                    self.complaints.append(f"OffsetFetch answered error {error}")
            if error := self._retrying(self._join):
                self.complaints.append(f"JoinGroup answered error {error}")
                return
            if error := self._retrying(self._sync):
                self.complaints.append(f"SyncGroup answered error {error}")
                return
            if error := self._retrying(self._commit):
                self.complaints.append(f"OffsetCommit answered error {error}")

    def _subscription(self) -> bytes:
        """Version 0 of the consumer protocol: the topics, and no data of the user's."""
        return struct.pack(">hi", 0, 1) + _string(self.topic) + struct.pack(">i", -1)

    def _find_coordinator(self) -> int:
        # Version 1: throttle time, then the error.
        answer = call(self.connection, FIND_COORDINATOR, 1, _string(self.group) + b"\0")
        return struct.unpack_from(">h", answer, 4)[0]

    def _heartbeat(self) -> int:
        body = _string(self.group) + struct.pack(">i", self.generation) + _string(self.member)
        return struct.unpack_from(">h", call(self.connection, HEARTBEAT, 1, body), 4)[0]

    def _join(self) -> int:
        body = _string(self.group) + struct.pack(">ii", SESSION_MS, SESSION_MS) + _string(self.member)
        body += _string("consumer") + struct.pack(">i", 1) + _string("probe") + _bytes(self._subscription())
        # Version 4: throttle time, error, generation, protocol, leader, member.
        answer = call(self.connection, JOIN_GROUP, 4, body)
        error, generation = struct.unpack_from(">hi", answer, 4)
        at = 10
        words = []
        for _ in range(3):
            (length,) = struct.unpack_from(">h", answer, at)
            words.append(answer[at + 2 : at + 2 + max(length, 0)].decode())
            at += 2 + max(length, 0)
        if error == MEMBER_ID_REQUIRED:
            self.member = words[2]
            return self._join()
        if error == 0:
            if self.member not in ("", words[2]):
                self.complaints.append(f"the member was given another id: {words[2]} after {self.member}")
            self.member = words[2]
            self.generation = generation
            self.generations.append(generation)
        return error

    def _sync(self) -> int:
        body = _string(self.group) + struct.pack(">i", self.generation) + _string(self.member)
        body += struct.pack(">i", 1) + _string(self.member) + _bytes(ASSIGNMENT)
        return struct.unpack_from(">h", call(self.connection, SYNC_GROUP, 1, body), 4)[0]

    def _commit(self) -> int:
        offset = self.committed + 1
        body = _string(self.group) + struct.pack(">i", self.generation) + _string(self.member)
        body += struct.pack(">q", -1) + struct.pack(">i", 1) + _string(self.topic)
        body += struct.pack(">i", 1) + struct.pack(">iq", 0, offset) + _string(f"offset {offset}")
        # Version 2 with a retention time of -1; the error is the last field.
        answer = call(self.connection, OFFSET_COMMIT, 2, body)
        error = struct.unpack_from(">h", answer, len(answer) - 2)[0]
        if error == 0:
            self.committed = offset
        return error

    def _fetch_offset(self) -> int:
        body = _string(self.group) + struct.pack(">i", 1) + _string(self.topic) + struct.pack(">ii", 1, 0)
        # Version 2: topics with partitions (offset, metadata, error), then the error of the whole.
        answer = call(self.connection, OFFSET_FETCH, 2, body)
        (whole,) = struct.unpack_from(">h", answer, len(answer) - 2)
        if whole:
            return whole
        at = 4 + 2 + len(self.topic.encode()) + 4
        _, offset, length = struct.unpack_from(">iqh", answer, at)
        metadata = answer[at + 14 : at + 14 + max(length, 0)].decode()
        (error,) = struct.unpack_from(">h", answer, at + 14 + max(length, 0))
        if error == 0 and (offset, metadata) != (self.committed, f"offset {self.committed}"):
            self.complaints.append(
                f"committed {self.committed} with its words before the restart, found {offset} {metadata!r} after it"
            )
        return error
