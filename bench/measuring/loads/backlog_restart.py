"""Killed with `kill -9` while messages wait by the million: from exec to the first delivery to a new consumer."""

from .. import queues
from .backlog import Backlogs
from .restart import start_and_probe


class BacklogRestart(Backlogs):
    def measure(self) -> dict[str, float]:
        peer, backlog = self.peer, self.backlog
        self.pause()
        queues.check_waiting(peer, [backlog.queue], backlog.messages)
        peer.kill()
        ready, first = start_and_probe(peer, lambda: queues.first_delivery(peer, backlog.queue))
        # What was confirmed is there, all of it, and the probe settled nothing.
        queues.check_waiting(peer, [backlog.queue], backlog.messages)
        return {
            "waiting_million": backlog.messages / 1e6,
            "ready_s": ready,
            "first_delivered_s": first,
        }

    def commands(self) -> list[str]:
        return []
