"""What the loads have in common that `QueueLoad` drives."""

from .. import queue_load
from .load import Load

# In which the publisher's own code becomes warm; what it sends then counts in no percentile.
LEFT_OUT_SECONDS = 0.5
# A client that waits for a confirm of a disk that is busy with others' work is given this long.
STALLED_SECONDS = 60
FIRST_COUNT = 500


class QueueLoads(Load):
    IDLE_SECONDS_MOST = 1.0

    def generator(self) -> str:
        return f"`QueueLoad`, in `bench/peers/rabbitmq`, on RabbitMQ's Java client {queue_load.client_version()}"

    def publish(self, queue: str, count: int, seconds: float, **more: str | int):
        """Publishes through the default exchange, and returns the result and the ended client."""
        settings = self.publish_settings() | {"key": queue, "count": count} | more
        return queue_load.run(self.peer, "publish", seconds, **settings)

    def consume(self, queue: str, count: int, seconds: float, **more: str | int):
        settings = self.consume_settings() | {"queues": queue, "count": count} | more
        return queue_load.run(self.peer, "consume", seconds, **settings)

    def publish_settings(self) -> dict[str, str | int]:
        return {
            "size": self.case.record_bytes,
            "unconfirmed": self.case.unconfirmed,
            "stalled-s": STALLED_SECONDS,
        }

    def consume_settings(self) -> dict[str, str | int]:
        return {"prefetch": self.case.prefetch, "stalled-s": STALLED_SECONDS}
