"""The time until a message is confirmed, one at a time: nobody consumes, so all of it has to be made durable."""

from .. import queue_load, queues
from ..peers import Watch
from .queue_load import LEFT_OUT_SECONDS, QueueLoads

FIRST_COUNT = 100


class Confirms(QueueLoads):
    def prepare(self) -> None:
        (self.queue,) = queues.new(self.peer)
        told, _ = self.publish(self.queue, FIRST_COUNT, self.seconds)
        self.rate = FIRST_COUNT / told["seconds"]
        self._empty(FIRST_COUNT)

    def measure(self) -> dict[str, float]:
        self.pause()
        left_out = int(self.rate * LEFT_OUT_SECONDS)
        count = int(self.rate * self.seconds) + left_out + 1
        watch = Watch(self.peer)
        told, ended = self.publish(self.queue, count, self.seconds, **{"left-out": left_out})
        spent = watch.end(self.scale.settle_seconds, ended.cpu_seconds)
        watch.check_synced(spent)
        self.rate = (count - left_out) / told["seconds"]
        self._empty(count)
        return spent | {
            "records": count,
            "records_per_second": self.rate,
            "broker_cpu_s_per_million": spent["broker_cpu_seconds"] / count * 1e6,
            "hottest_thread": ended.hottest_thread,
            **{f"confirmed_{name}": value for name, value in told.items() if name.endswith("_ms")},
        }

    def commands(self) -> list[str]:
        return [queue_load.shown("publish", **self.publish_settings(), key="QUEUE", count="COUNT")]

    def _empty(self, count: int) -> None:
        """Consumes what was confirmed: all of it, and all once."""
        self.consume(self.queue, count, self.seconds)
        queues.check_waiting(self.peer, [self.queue], 0)
