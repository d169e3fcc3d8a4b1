"""Messages that are delayed by random times: how late each comes, and how fast they are published."""

from .. import queue_load, queues
from ..peers import Watch
from ..running import RUN_SECONDS_SPARE, Running
from .queue_load import FIRST_COUNT, STALLED_SECONDS, QueueLoads

# A delay is in whole milliseconds, and so is the clock by which it is told.
EARLY_US = 1000
UNDELAYED_SECONDS = 10.0
SEED = 10


class Delays(QueueLoads):
    def prepare(self) -> None:
        (self.queue,) = queues.new(self.peer)
        self.exchange = queues.new_exchange(self.peer, "x-delayed-message", {"x-delayed-type": "direct"})
        queues.bind(self.peer, self.exchange, [(self.queue, self.queue)])
        self.rate = self._undelayed(self._undelayed(FIRST_COUNT))

    def measure(self) -> dict[str, float]:
        peer = self.peer
        self.pause()
        undelayed = self._undelayed(min(self.scale.delayed, int(self.rate * UNDELAYED_SECONDS) + 1))
        count = self.scale.delayed
        settings = self.consume_settings() | {"queues": self.queue, "count": count, "early-us": EARLY_US}
        stalled = int(max(STALLED_SECONDS, self.scale.delay_seconds / 2))
        watch = Watch(peer)
        with Running([queue_load.command(peer, "consume", **settings | {"stalled-s": stalled})]) as consumer:
            queue_load.await_consuming(consumer)
            given = self._publish_settings() | {"exchange": self.exchange, "key": self.queue, "count": count}
            published, sent = queue_load.run(peer, "publish", count / 1000, **given)
            (taken,) = consumer.wait(self.scale.delay_seconds + stalled + RUN_SECONDS_SPARE, peer)
        came = queue_load.read(taken.printed, count)
        spent = watch.end(self.scale.settle_seconds, sent.cpu_seconds + taken.cpu_seconds)
        queues.check_waiting(peer, [self.queue], 0)
        rate = count / published["seconds"]
        return spent | {
            "delayed_million": count / 1e6,
            "delay_seconds": self.scale.delay_seconds,
            "records_per_second": rate,
            "undelayed_per_second": undelayed,
            "published_of_undelayed": rate / undelayed,
            "confirmed_p99_ms": published["p99_ms"],
            **{f"late_{name}": value for name, value in came.items() if name.endswith("_ms")},
            "broker_cpu_s_per_million": spent["broker_cpu_seconds"] / count * 1e6,
            "hottest_thread": sent.hottest_thread,
        }

    def commands(self) -> list[str]:
        published = self._publish_settings() | {"exchange": "EXCHANGE", "key": "QUEUE", "count": "COUNT"}
        consumed = self.consume_settings() | {"queues": "QUEUE", "count": "COUNT", "early-us": EARLY_US}
        return [queue_load.shown("publish", **published), queue_load.shown("consume", **consumed)]

    def _publish_settings(self) -> dict[str, str | int]:
        return self.publish_settings() | {"delay-ms-most": int(self.scale.delay_seconds * 1000), "seed": SEED}

    def _undelayed(self, count: float) -> float:
        """Messages a second, without any delay and without a consumer meanwhile; all are taken afterwards."""
        count = int(count)
        (queue,) = queues.new(self.peer)
        exchange = queues.new_exchange(self.peer, "direct")
        queues.bind(self.peer, exchange, [(queue, queue)])
        told, _ = self.publish(queue, count, count / 1000, exchange=exchange)
        self.consume(queue, count, count / 1000)
        queues.check_waiting(self.peer, [queue], 0)
        queues.delete(self.peer, [queue], exchange)
        return count / told["seconds"]
