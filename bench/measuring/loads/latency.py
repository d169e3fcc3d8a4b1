"""End to end at an even rate: from the moment before a record is given to the producer until a consumer has it.

Both are `rdkafka_performance` in its latency mode, whose records carry the wall clock's microseconds; each
writes the time of every record to a file, and the percentiles are of these files. Between two records the
producer polls without a pause, so that it takes a core for itself, whichever broker it drives.
"""

import time
from pathlib import Path
from tempfile import TemporaryDirectory

from .. import Fault, client, topics
from ..peers import Watch
from .load import Load

CONSUMER_READY_SECONDS = 1.5
# Sent before the measurement: an idempotent producer waits half a second for its id, and then catches up.
LEFT_OUT_SECONDS = 1.5
RATE_TOLERANCE = 0.1
# The program reads the clock twice to find how long it may wait. Where it is held up between the two, it waits
# for an event without end; its report of statistics is one.
WOKEN_MS = 50
# What giving a record takes, beside the program's pause, on a machine that does nothing else.
GIVING_US = 8


def percentiles(microseconds: list[int], name: str) -> dict[str, float]:
    """By the nearest rank, in milliseconds."""
    ordered = sorted(microseconds)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1000

    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    return {f"{name}_{label}_ms": at(share) for label, share in shares.items()} | {f"{name}_max_ms": ordered[-1] / 1000}


class Latency(Load):
    def prepare(self) -> None:
        self._run(self.scale.warm_seconds)

    def measure(self) -> dict[str, float]:
        self.pause()
        figures = self._run(self.scale.seconds)
        if abs(figures["records_per_second"] / self.case.rate - 1) > RATE_TOLERANCE:
            rate, others = figures["records_per_second"], figures["other_cores"]
            raise Fault(
                f"{self.case.name}: {self.peer.kind.title} was given {rate:.0f} records/s, not {self.case.rate}; its "
                f"producer needs a core for itself, and everything else on the machine took {others:.2f}"
            )
        return figures

    def commands(self) -> list[str]:
        return [client.shown(self._produce_words()), client.shown(self._consume_words())]

    def _produce_words(self) -> list[str]:
        case, pace = self.case, ("-l", "-r", str(self._pace()))
        words = client.produce_words(dict(case.client_settings), case.record_bytes, case.partition, pace)
        # The last of two intervals counts.
        return [*words, "-i", str(WOKEN_MS)]

    def _pace(self) -> int:
        """The rate to ask for: the program pauses so long after each record, however long that took."""
        return round(1e6 / (1e6 / self.case.rate - GIVING_US))

    def _consume_words(self) -> list[str]:
        return client.consume_words(self.case.partitions, {}, ("-l",))

    def _run(self, seconds: float) -> dict[str, float]:
        case, peer = self.case, self.peer
        left_out = int(case.rate * LEFT_OUT_SECONDS)
        count = int(case.rate * seconds) + left_out
        topic = peer.new_topic(case.partitions)
        with TemporaryDirectory(prefix="latency-", dir=peer.place) as place:
            read, acknowledged = Path(place) / "read", Path(place) / "acknowledged"
            consume = client.command(peer.bootstrap, topic, [*self._consume_words(), "-A", str(read)], count)
            produce = client.command(peer.bootstrap, topic, [*self._produce_words(), "-A", str(acknowledged)], count)
            watch = Watch(peer)
            with client.Running([consume]) as consumer:
                time.sleep(CONSUMER_READY_SECONDS)
                consumer.check_alive()
                (produced,) = client.run([produce], seconds, peer)
                (consumed,) = consumer.wait(client.RUN_SECONDS_SPARE, peer)
            took = client.read_produced(produced.printed, count)
            client.read_consumed(consumed.printed, count, case.record_bytes)
            spent = watch.end(self.scale.settle_seconds, produced.cpu_seconds + consumed.cpu_seconds)
            watch.check_synced(spent)
            taken = {"read": self._samples(read, count), "acknowledged": self._samples(acknowledged, count)}
        topics.delete(peer.bootstrap, topic)
        figures = spent | {
            "records": count,
            "seconds": took,
            "records_per_second": count / took,
            "broker_cpu_s_per_million": spent["broker_cpu_seconds"] / count * 1e6,
            "hottest_thread": max(produced.hottest_thread, consumed.hottest_thread),
        }
        for name, samples in taken.items():
            figures |= percentiles(samples[left_out:], name)
        return figures

    def _samples(self, path: Path, count: int) -> list[int]:
        samples = [int(line) for line in path.read_text().split()]
        if len(samples) != count:
            raise Fault(f"{len(samples)} latencies of {count} records in {path.name}")
        return samples
