"""The scenarios, in the order in which docs/reliability.md lists them."""

from ..scenario import ALL
from . import sync, full_disk, damage, sweep, connections, amqp_peers, backlogs, process

__all__ = ["ALL", "amqp_peers", "backlogs", "connections", "damage", "full_disk", "process", "sweep", "sync"]
