"""Consumers that each read a whole stored topic, from the page cache or, after it was emptied, from the disk."""

import statistics
import time

from .. import Fault, client, machine, running, topics
from ..peers import Watch
from .load import Load

FILLERS = 4
FILL_SETTINGS = {"enable.idempotence": "true", "linger.ms": 5, "batch.size": 1_000_000, "batch.num.messages": 1_000_000}
# Shares of what is stored that may at most, and must at least, come from the disk.
HOT_READ_MOST = 0.05
COLD_READ_LEAST = 0.8


class Consume(Load):
    def prepare(self) -> None:
        self.count = int(self.scale.consume_bytes * self.case.stored_share) // self.case.record_bytes
        self.topic = self._filled()
        self._pass()
        self.drops_seen = machine.drops

    def _filled(self) -> str:
        """The stored topic, which all cases of the group with the same records and partitions share."""
        case, peer = self.case, self.peer
        key = (case.record_bytes, case.partitions, self.count)
        if key not in peer.filled:
            self.await_space(self.scale.consume_bytes)
            topic = topics.new(peer, case.partitions)
            counts = [self.count // FILLERS + (number < self.count % FILLERS) for number in range(FILLERS)]
            words = client.produce_words(FILL_SETTINGS, case.record_bytes, None)
            commands = [client.command(peer.bootstrap, topic, words, count) for count in counts]
            client.produced(running.run(commands, self.scale.consume_bytes / 20e6, peer), counts)
            there = topics.records(peer.bootstrap, topic, case.partitions)
            if there != self.count:
                raise Fault(f"{self.count} records were stored, {there} are there")
            peer.filled[key] = topic
        return peer.filled[key]

    def commands(self) -> list[str]:
        return [client.shown(self._words())]

    def _words(self) -> list[str]:
        return client.consume_words(self.case.partitions, dict(self.case.client_settings))

    def _pass(self) -> tuple[float, float, float]:
        """All consumers read everything once: seconds of the slowest, CPU seconds, share of the hottest thread."""
        command = client.command(self.peer.bootstrap, self.topic, self._words(), self.count)
        ended = running.run([command] * self.case.consumers, self.scale.seconds, self.peer)
        seconds = max(client.read_consumed(one.printed, self.count, self.case.record_bytes) for one in ended)
        return seconds, sum(one.cpu_seconds for one in ended), max(one.hottest_thread for one in ended)

    def measure(self) -> dict[str, float]:
        seconds = client_cpu = hottest = 0.0
        passes: list[dict[str, float]] = []
        means = ""
        if not self.case.cold and self.drops_seen != machine.drops:
            # A case that reads from the disk came in between.
            self._pass()
        self.drops_seen = machine.drops
        self.pause()
        ends = time.monotonic() + self.scale.seconds
        while not passes or time.monotonic() < ends:
            if self.case.cold:
                means = machine.drop_page_cache(self.peer.place)
            watch = Watch(self.peer)
            took, cpu, share = self._pass()
            spent = watch.end(self.scale.settle_seconds, cpu)
            self._check_source(spent)
            passes.append(spent)
            seconds, client_cpu, hottest = seconds + took, client_cpu + cpu, max(hottest, share)
        records = len(passes) * self.case.consumers * self.count
        gigabytes = records * self.case.record_bytes / 1e9
        broker_cpu = sum(spent["broker_cpu_seconds"] for spent in passes)
        from_disk = sum(spent["broker_read_bytes"] for spent in passes)
        figures = {
            "records": records,
            "seconds": seconds,
            "passes": len(passes),
            "records_per_second": records / seconds,
            "megabytes_per_second": gigabytes * 1000 / seconds,
            "broker_cpu_seconds": broker_cpu,
            "broker_cpu_s_per_million": broker_cpu / records * 1e6,
            "broker_cpu_s_per_gb": broker_cpu / gigabytes,
            "client_cpu_s_per_million": client_cpu / records * 1e6,
            "read_from_disk": from_disk / (len(passes) * self.count * self.case.record_bytes),
            "hottest_thread": hottest,
            "highest_mib": max(spent["highest_mib"] for spent in passes),
            "other_cores": statistics.mean(spent["other_cores"] for spent in passes),
            "stolen_cores": statistics.mean(spent["stolen_cores"] for spent in passes),
        }
        return figures | ({"dropped_by": means} if means else {})

    def _check_source(self, spent: dict[str, float]) -> None:
        share = spent["broker_read_bytes"] / (self.count * self.case.record_bytes)
        if self.case.cold and share < COLD_READ_LEAST:
            raise Fault(f"{self.case.name}: only {share:.0%} of the records came from the disk")
        if not self.case.cold and share > HOT_READ_MOST:
            raise Fault(f"{self.case.name}: {share:.0%} of the records came from the disk")
