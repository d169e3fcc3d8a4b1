"""One module for each kind of case. A load is prepared once on each broker, unmeasured, and then measured
in every round; `measure` returns named figures, and raises `Fault` where they may not count.
"""

from .backlog import Backlog
from .backlog_restart import BacklogRestart
from .confirms import Confirms
from .connections import Connections
from .consume import Consume
from .delays import Delays
from .floor import Floor
from .latency import Latency
from .memory import Memory
from .produce import Produce
from .queues import Queues
from .restart import Restart
from .topic import Topic

LOADS = {
    "produce": Produce,
    "consume": Consume,
    "latency": Latency,
    "restart": Restart,
    "memory": Memory,
    "floor": Floor,
    "connections": Connections,
    "queues": Queues,
    "confirms": Confirms,
    "topic": Topic,
    "backlog": Backlog,
    "backlog-restart": BacklogRestart,
    "delays": Delays,
}
