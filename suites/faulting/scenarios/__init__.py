"""The scenarios, in the order in which docs/reliability.md lists them."""

from ..scenario import ALL
from . import sync, full_disk, damage, sweep, connections, amqp_peers, amqp_unread, backlogs, many, process

__all__ = [
    "ALL", "amqp_peers", "amqp_unread", "backlogs", "connections", "damage", "full_disk", "many", "process", "sweep", "sync"
]  # fmt: skip
