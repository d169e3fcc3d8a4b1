"""End to end at an even rate: from when a record was due until a consumer has it, and until it is acknowledged.

Both clients are `paced`, each in a process of its own; neither of these programs polls without a pause.
"""

import shlex
import time
from pathlib import Path

from harness import install
from harness.paths import ROOT

from .. import Fault, client, paced, running, topics
from ..peers import Watch
from ..running import read_result
from .load import Load

PROGRAM = Path(paced.__file__)
CONSUMER_READY_SECONDS = 1.5
# Sent before the measurement: an idempotent producer waits half a second for its id, and then catches up.
LEFT_OUT_SECONDS = 1.5
RATE_TOLERANCE = 0.1
# A millisecond's records are due together: a client that wakes for each would take much of a core for that alone.
WAKES_PER_SECOND = 1000
# With which a consumer could wait by itself. They are the client's defaults, spelled out to be seen.
READ_SETTINGS = {
    "fetch.min.bytes": 1,
    "fetch.wait.max.ms": 500,
    "fetch.queue.backoff.ms": 1000,
    "fetch.error.backoff.ms": 500,
    "queued.min.messages": 100_000,
}


class Latency(Load):
    def prepare(self) -> None:
        self._run(self.scale.warm_seconds)

    def measure(self) -> dict[str, float]:
        self.pause()
        figures = self._run(self.scale.seconds)
        if abs(figures["records_per_second"] / self.case.rate - 1) > RATE_TOLERANCE:
            rate, others = figures["records_per_second"], figures["other_cores"]
            raise Fault(
                f"{self.case.name}: {self.peer.kind.title} took {rate:.0f} records/s, not {self.case.rate}, while "
                f"everything else on the machine took {others:.2f} cores"
            )
        return figures

    def generator(self) -> str:
        import confluent_kafka

        return f"confluent-kafka {confluent_kafka.version()} with librdkafka {confluent_kafka.libversion()[0]}"

    def commands(self) -> list[str]:
        # As it is run from the root of the repository.
        start = [".build/python/bin/python", str(PROGRAM.relative_to(ROOT))]
        what = ["-b", "BROKER", "-t", "TOPIC", "-c", "COUNT"]
        return [shlex.join([*start, *words, *what]) for words in (self._produce_words(), self._consume_words())]

    def _produce_words(self) -> list[str]:
        case = self.case
        pace = ["--rate", str(case.rate), "--at-once", str(max(case.rate // WAKES_PER_SECOND, 1))]
        settings = client.properties(dict(case.client_settings))
        return ["produce", "-p", str(case.partition), "-s", str(case.record_bytes), *pace, *settings]

    def _consume_words(self) -> list[str]:
        return ["consume", "-p", str(self.case.partition), *client.properties(READ_SETTINGS)]

    def _run(self, seconds: float) -> dict[str, float]:
        case, peer = self.case, self.peer
        left_out = int(case.rate * LEFT_OUT_SECONDS)
        count = int(case.rate * seconds) + left_out
        topic = topics.new(peer, case.partitions)
        start = [str(install.python()), str(PROGRAM)]
        what = ["-b", peer.bootstrap, "-t", topic, "-c", str(count), "--left-out", str(left_out)]
        watch = Watch(peer)
        with running.Running([[*start, *self._consume_words(), *what]]) as consumer:
            time.sleep(CONSUMER_READY_SECONDS)
            consumer.check_alive()
            (produced,) = running.run([[*start, *self._produce_words(), *what]], seconds, peer)
            (consumed,) = consumer.wait(running.RUN_SECONDS_SPARE, peer)
        acknowledged, read = read_result(produced.printed, count), read_result(consumed.printed, count)
        spent = watch.end(self.scale.settle_seconds, produced.cpu_seconds + consumed.cpu_seconds)
        watch.check_synced(spent)
        # A record that came twice at the very end was not read.
        there = topics.records(peer.bootstrap, topic, case.partitions)
        if there != count:
            raise Fault(f"{count} records were acknowledged, {there} are there")
        topics.delete(peer.bootstrap, topic)
        figures = spent | {
            "records": count,
            "seconds": acknowledged["seconds"],
            "records_per_second": count / acknowledged["seconds"],
            "broker_cpu_s_per_million": spent["broker_cpu_seconds"] / count * 1e6,
            "producer_cores": acknowledged["cores"],
            "consumer_cores": read["cores"],
            "hottest_thread": max(produced.hottest_thread, consumed.hottest_thread),
        }
        for name, told in (("read", read), ("acknowledged", acknowledged)):
            figures |= {f"{name}_{figure}": value for figure, value in told.items() if figure.endswith("_ms")}
        return figures
