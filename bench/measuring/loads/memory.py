"""Resident memory of a broker that was just installed, that is loaded, and that rests again."""

import time

from .. import client, running, topics
from .load import Load

REST_SECONDS = 5.0
CONSUMERS = 3


class Memory(Load):
    def commands(self) -> list[str]:
        return [client.shown(self._words()), client.shown(client.consume_words(self.case.partitions, {}))]

    def _words(self) -> list[str]:
        return client.produce_words(dict(self.case.client_settings), self.case.record_bytes, None)

    def measure(self) -> dict[str, float]:
        """A fresh broker each time: memory that was once taken may never come back."""
        case, peer = self.case, self.peer
        peer.fresh()
        time.sleep(REST_SECONDS)
        rest = peer.memory()
        topic = topics.new(peer, case.partitions)
        count = self._count(topic)
        there = topics.records(peer.bootstrap, topic, case.partitions)
        produce = client.command(peer.bootstrap, topic, self._words(), count)
        client.produced(running.run([produce] * case.producers, self.scale.seconds, peer), [count] * case.producers)
        there += count * case.producers
        words = client.consume_words(case.partitions, {})
        consume = client.command(peer.bootstrap, topic, words, there)
        for one in running.run([consume] * CONSUMERS, self.scale.seconds, peer):
            client.read_consumed(one.printed, there, case.record_bytes)
        loaded, heap = peer.memory(), peer.heap_used_mib()
        time.sleep(REST_SECONDS)
        after = peer.memory()
        figures = {
            "rest_mib": rest.resident_mib,
            "load_mib": loaded.highest_mib,
            "load_anonymous_mib": loaded.anonymous_mib,
            "after_mib": after.resident_mib,
        }
        return figures | ({"heap_mib": heap} if heap is not None else {})

    def _count(self, topic: str) -> int:
        """Records of each producer that take about as long as the round."""
        case, peer = self.case, self.peer
        count = 20_000
        command = client.command(peer.bootstrap, topic, self._words(), count)
        ended = running.run([command] * case.producers, self.scale.seconds, peer)
        first = client.produced(ended, [count] * case.producers)
        most = self.scale.bytes_max / case.record_bytes
        return int(min(first.records / first.seconds * self.scale.seconds, most) / case.producers) + 1
