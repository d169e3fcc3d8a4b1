"""Every fault that the nemesis knows: how it is done to a running cluster, and how it is undone.

A fault takes nodes that nothing else is being done to, and says which of them cannot take part in a majority until it is
undone, so that faults that come together leave one. Those that leave none on purpose come alone.
"""

from collections.abc import Callable
from dataclasses import dataclass

from chaotic.faults import machine, network, processes
from chaotic.faults.ground import RESTART_SECONDS, Active, Ground, start
from chaotic.faults.machine import prepare

__all__ = ["KINDS", "RESTART_SECONDS", "Active", "Ground", "Kind", "prepare", "start"]


@dataclass(frozen=True)
class Kind:
    """A fault by its name, and under which circumstances it may come."""

    name: str
    begin: Callable[[Ground], Active | None]
    weight: int
    nodes_min: int = 3
    # Nothing else is done meanwhile: it leaves no majority, or needs every node.
    alone: bool = False
    # One at a time, as links follow one rule.
    network: bool = False
    # The longest that it lasts.
    seconds_max: float = 10.0


KINDS = (
    Kind("kill-leader", processes.kill_leader, 6, nodes_min=1),
    Kind("kill-node", processes.kill_node, 3, nodes_min=1),
    Kind("kill-minority", processes.kill_minority, 2, nodes_min=5),
    Kind("kill-majority", processes.kill_majority, 2, alone=True, seconds_max=5),
    Kind("kill-all", processes.kill_all, 2, nodes_min=1, alone=True, seconds_max=3),
    Kind("kill-while-starting", processes.kill_while_starting, 2, nodes_min=1),
    Kind("lose-directory", processes.lose_directory, 2),
    Kind("replace-node", processes.replace_node, 2),
    Kind("stop-node", processes.stop_node, 2, nodes_min=1),
    Kind("rolling-restart", processes.rolling_restart, 1, nodes_min=1, alone=True, seconds_max=1),
    Kind("pause-node", processes.pause_node, 2, nodes_min=1, seconds_max=15),
    Kind("pause-leader", processes.pause_leader, 3, nodes_min=1, seconds_max=15),
    Kind("pause-minority", processes.pause_minority, 2, nodes_min=5, seconds_max=15),
    Kind("pause-all", processes.pause_all, 1, alone=True),
    Kind("pause-majority", processes.pause_majority, 1, alone=True),
    Kind("isolate-node", network.isolate_node, 2, network=True, seconds_max=30),
    Kind("isolate-leader", network.isolate_leader, 4, network=True, seconds_max=30),
    Kind("halves", network.halves, 3, network=True, seconds_max=30),
    Kind("bridge", network.bridge, 3, alone=True, network=True, seconds_max=20),
    Kind("ring", network.ring, 3, alone=True, network=True, seconds_max=20),
    Kind("deaf", network.deaf, 2, network=True, seconds_max=20),
    Kind("mute", network.mute, 2, network=True, seconds_max=20),
    Kind("one-way", network.one_way, 2, network=True, alone=True, seconds_max=20),
    Kind("shatter", network.shatter, 1, alone=True, network=True),
    Kind("flap", network.flap, 2, network=True, seconds_max=20),
    Kind("delay", network.delay, 2, network=True, seconds_max=15),
    Kind("loss", network.loss, 2, network=True, seconds_max=15),
    Kind("throttle", network.throttle, 1, network=True, seconds_max=10),
    Kind("reset", network.reset_connections, 2, network=True, seconds_max=0.5),
    Kind("slow-sync", machine.slow_sync, 2, nodes_min=1, seconds_max=15),
    Kind("failing-sync", machine.failing_sync, 2, nodes_min=1, seconds_max=10),
    Kind("full-disk", machine.full_disk, 2, nodes_min=1, seconds_max=15),
    Kind("flip", machine.flipped_bytes, 1, nodes_min=1),
    Kind("clock", machine.clock_step, 2, nodes_min=1, seconds_max=20),
    Kind("drain", processes.drain, 2, seconds_max=10),
)
