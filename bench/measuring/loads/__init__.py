"""One module for each kind of case. A load is prepared once on each broker, unmeasured, and then measured
in every round; `measure` returns named figures, and raises `Fault` where they may not count.
"""

from .connections import Connections
from .consume import Consume
from .floor import Floor
from .latency import Latency
from .memory import Memory
from .produce import Produce
from .restart import Restart

LOADS = {
    "produce": Produce,
    "consume": Consume,
    "latency": Latency,
    "restart": Restart,
    "memory": Memory,
    "floor": Floor,
    "connections": Connections,
}
