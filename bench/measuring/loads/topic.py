"""A topic exchange with many bindings, of which each message meets one."""

from .. import queue_load, queues
from ..peers import Watch
from ..running import RUN_SECONDS_SPARE, Running
from .queue_load import FIRST_COUNT, STALLED_SECONDS, QueueLoads

SECOND_SECONDS = 1.5
STRETCH_MAX = 40
PATTERN, KEY = "sensor.#N.*", "sensor.#N.reading"


class Topic(QueueLoads):
    def prepare(self) -> None:
        case, peer = self.case, self.peer
        self.queues = queues.new(peer, case.queues)
        self.exchange = queues.new_exchange(peer, "topic")
        pairs = [
            (self.queues[number % case.queues], PATTERN.replace("#N", str(number))) for number in range(case.bindings)
        ]
        queues.bind(peer, self.exchange, pairs)
        self.rate = FIRST_COUNT / self._drive(FIRST_COUNT)["seconds"]
        count = min(int(self.rate * SECOND_SECONDS) + 1, FIRST_COUNT * STRETCH_MAX)
        self.rate = count / self._drive(count)["seconds"]

    def measure(self) -> dict[str, float]:
        self.pause()
        count = int(min(self.rate * self.seconds, self.scale.bytes_max / self.case.record_bytes)) + 1
        watch = Watch(self.peer)
        figures = self._drive(count, watch)
        self.rate = count / figures["seconds"]
        return figures

    def commands(self) -> list[str]:
        published = self._publish_settings("EXCHANGE") | {"count": "COUNT"}
        consumed = self.consume_settings() | {"queues": "QUEUES", "count": "COUNT"}
        return [queue_load.shown("publish", **published), queue_load.shown("consume", **consumed)]

    def _publish_settings(self, exchange: str) -> dict[str, str | int]:
        return self.publish_settings() | {"exchange": exchange, "key": KEY, "keys": self.case.bindings}

    def _drive(self, count: int, watch: Watch | None = None) -> dict[str, float]:
        peer = self.peer
        settings = self.consume_settings() | {"queues": ",".join(self.queues), "count": count}
        consume = queue_load.command(peer, "consume", **settings)
        with Running([consume]) as consumer:
            queue_load.await_consuming(consumer)
            published, sent = queue_load.run(
                peer, "publish", self.seconds, **self._publish_settings(self.exchange), count=count
            )
            (taken,) = consumer.wait(STALLED_SECONDS + RUN_SECONDS_SPARE, peer)
        consumed = queue_load.read(taken.printed, count)
        seconds = max(published["seconds"], consumed["seconds"])
        cpu = sent.cpu_seconds + taken.cpu_seconds
        spent = watch.end(self.scale.settle_seconds, cpu) if watch else {}
        queues.check_waiting(peer, self.queues, 0)
        if not spent:
            return {"seconds": seconds}
        return spent | {
            "records": count,
            "seconds": seconds,
            "records_per_second": count / seconds,
            "deliveries_per_second": count / seconds,
            "broker_cpu_s_per_million_deliveries": spent["broker_cpu_seconds"] / count * 1e6,
            "client_cpu_s_per_million": cpu / count * 1e6,
            "client_cores": cpu / seconds,
            "hottest_thread": max(sent.hottest_thread, taken.hottest_thread),
        }
