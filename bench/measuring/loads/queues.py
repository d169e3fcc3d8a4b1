"""Producers and consumers at full speed through queues, by PerfTest: messages a second, and what each costs."""

from .. import perf_test, queues
from ..peers import Watch
from ..perf_test import Done
from .load import Load

FIRST_COUNT = 2000
SECOND_SECONDS = 1.5
STRETCH_MAX = 40
# Shorter runs may end between two flushes.
SYNCED_SECONDS_LEAST = 1.0


class Queues(Load):
    IDLE_SECONDS_MOST = 1.0

    def prepare(self) -> None:
        """Two runs, the second with the code warm on the broker's side, tell how many messages fill a round."""
        first = max(FIRST_COUNT // self.case.producers, 1)
        rate = self._rate(self._drive(first))
        self.rate = self._rate(self._drive(min(self._count(rate, SECOND_SECONDS), first * STRETCH_MAX)))

    def measure(self) -> dict[str, float]:
        self.pause()
        watch = Watch(self.peer)
        done = self._drive(self._count(self.rate, self.seconds), watch)
        self.rate = self._rate(done)
        return self.figures

    def commands(self) -> list[str]:
        return [perf_test.shown(self.case, self.peer.kind.queue_arguments)]

    def generator(self) -> str:
        return f"RabbitMQ's PerfTest {perf_test.version()}"

    def _count(self, rate: float, seconds: float) -> int:
        """Messages of each producer."""
        most = self.scale.bytes_max / self.case.record_bytes / self.case.queues
        return max(1, int(min(rate * seconds, most) / self.case.producers))

    def _rate(self, done: Done) -> float:
        return done.published / done.seconds

    def _drive(self, count: int, watch: Watch | None = None) -> Done:
        case, peer = self.case, self.peer
        self.await_space(0)
        name = peer.new_name()
        names = perf_test.queues_of(case, name)
        done = perf_test.drive(peer, case, name, count)
        if watch:
            self.figures = self._figures(done, watch)
        # Everything was delivered as often as it had to be; nothing is left that would come again.
        queues.check_waiting(peer, names, 0)
        queues.delete(peer, names, name)
        return done

    def _figures(self, done: Done, watch: Watch) -> dict[str, float]:
        spent = watch.end(self.scale.settle_seconds, done.cpu_seconds_in_all)
        if done.seconds >= SYNCED_SECONDS_LEAST:
            watch.check_synced(spent)
        by_delivery = {
            "deliveries_per_second": done.delivered / done.seconds,
            "broker_cpu_s_per_million_deliveries": spent["broker_cpu_seconds"] / done.delivered * 1e6,
        }
        figures = {
            "records": done.published,
            "seconds": done.seconds,
            "records_per_second": done.published / done.seconds,
            "megabytes_per_second": done.published * self.case.record_bytes / done.seconds / 1e6,
            "broker_cpu_s_per_million": spent["broker_cpu_seconds"] / done.published * 1e6,
            "client_cpu_s_per_million": done.cpu_seconds / done.published * 1e6,
            "client_cores": done.cpu_seconds / done.seconds,
            "hottest_thread": done.hottest_thread,
        }
        return spent | figures | (by_delivery if self.case.queues > 1 else {})
