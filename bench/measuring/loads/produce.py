"""Producers at full speed: records a second, and what each record, gigabyte or batch costs the broker.

An idempotent librdkafka producer waits half a second for its id before it sends anything. So the time of
a single record, measured beforehand, is taken off every measurement.
"""

from dataclasses import replace

from .. import Fault, client, running, stored, topics
from ..client import Done
from ..peers import Watch
from .load import Load

FIRST_COUNT = 1000
# What a record takes beside its value, at the most: a batch of its own.
RECORD_OVERHEAD_BYTES = 100
# A guess from a shorter run is a little low or high; never stretch it without bound.
STRETCH_MAX = 40
STARTS = 3
# A rate that still rises by more than this is of a broker that is not warm yet.
STEADY = 1.15
SECONDS_LEAST = 0.001
# Shorter runs may end between two flushes.
SYNCED_SECONDS_LEAST = 1.0


class Produce(Load):
    def prepare(self) -> None:
        """Runs until the rate no longer rises: a JVM compiles what it runs often."""
        case = self.case
        topic = self._new_topic(0)
        self.start_seconds = 0.0
        self.start_seconds = min(self._drive(topic, 1).seconds for _ in range(STARTS))
        count, sent, before = FIRST_COUNT, STARTS * case.producers, 0.0
        for _ in range(self.scale.warm_runs_most):
            done = self._drive(topic, count)
            sent += done.records
            self._check_there(topic, sent)
            self.rate = done.records / done.seconds
            if done.seconds >= self.scale.warm_seconds * 0.6 and self.rate < before * STEADY:
                break
            before = self.rate
            count = min(int(self.rate * self.scale.warm_seconds / case.producers) + 1, count * STRETCH_MAX)
        topics.delete(self.peer.bootstrap, topic)

    def measure(self) -> dict[str, float]:
        case, peer = self.case, self.peer
        count = self._count()
        topic = self._new_topic(count * case.producers * (case.record_bytes + RECORD_OVERHEAD_BYTES))
        self.pause()
        watch = Watch(peer)
        done = self._drive(topic, count)
        spent = watch.end(self.scale.settle_seconds, done.cpu_seconds)
        if done.seconds >= SYNCED_SECONDS_LEAST:
            watch.check_synced(spent)
        there = self._check_there(topic, done.records)
        figures = self._figures(done, spent)
        if case.batches_counted:
            figures |= self._of_batches(topic, there, spent["broker_cpu_seconds"])
        topics.delete(peer.bootstrap, topic)
        self.rate = done.records / done.seconds
        return figures

    def commands(self) -> list[str]:
        return [client.shown(self._words())]

    def _words(self) -> list[str]:
        return client.produce_words(dict(self.case.client_settings), self.case.record_bytes, self.case.partition)

    def _count(self) -> int:
        """Records of each producer."""
        most = self.scale.bytes_max / self.case.record_bytes
        return max(FIRST_COUNT, int(min(self.rate * self.scale.seconds, most) / self.case.producers))

    def _new_topic(self, needed_bytes: int) -> str:
        self.await_space(needed_bytes)
        topics.await_deleted(self.peer, self.case.partitions)
        return topics.new(self.peer, self.case.partitions)

    def _drive(self, topic: str, count: int) -> Done:
        command = client.command(self.peer.bootstrap, topic, self._words(), count)
        ended = running.run([command] * self.case.producers, self.scale.seconds, self.peer)
        done = client.produced(ended, [count] * self.case.producers)
        return replace(done, seconds=max(done.seconds - self.start_seconds, SECONDS_LEAST))

    def _check_there(self, topic: str, acknowledged: int) -> int:
        there = topics.records(self.peer.bootstrap, topic, self.case.partitions)
        # Without idempotence a retry may double a record; with it, nothing may.
        if there < acknowledged or (there > acknowledged and self.case.idempotent):
            raise Fault(f"{acknowledged} records were acknowledged, {there} are there")
        return there

    def _of_batches(self, topic: str, there: int, broker_cpu_seconds: float) -> dict[str, float]:
        batches, records = stored.batches_and_records(self.peer.bootstrap, topic, self.case.partitions)
        if records != there:
            raise Fault(f"{records} records in batches, the partitions' ends say {there}")
        return {
            "records_per_batch": records / batches,
            "broker_cpu_us_per_batch": broker_cpu_seconds / batches * 1e6,
        }

    def _figures(self, done: Done, spent: dict[str, float]) -> dict[str, float]:
        gigabytes = done.records * self.case.record_bytes / 1e9
        return spent | {
            "records": done.records,
            "seconds": done.seconds,
            "start_seconds": self.start_seconds,
            "records_per_second": done.records / done.seconds,
            "megabytes_per_second": gigabytes * 1000 / done.seconds,
            "broker_cpu_s_per_million": spent["broker_cpu_seconds"] / done.records * 1e6,
            "broker_cpu_s_per_gb": spent["broker_cpu_seconds"] / gigabytes,
            "client_cpu_s_per_million": done.cpu_seconds / done.records * 1e6,
            "written_per_byte": spent["broker_written_bytes"] / (gigabytes * 1e9),
            "hottest_thread": done.hottest_thread,
        }
