"""Scenarios that somebody thought of: each of RabbitMQ's errors, and each thing that it does in its own way.

They are played before those of the seeds. Each is a list of steps by its name; see `scenario` for what a step is.
"""

from .. import raw_frames
from ..scenario import Step
from .delivery import DELIVERY
from .errors import ERRORS
from .kinds import KINDS
from .queues import QUEUES

# In which RabbitMQ is the same every time, so that changed answers stand out.
STEADY: dict[str, list[Step]] = {**DELIVERY, **QUEUES, **ERRORS}

ALL: dict[str, list[Step]] = {**ERRORS, **DELIVERY, **QUEUES, **KINDS, **raw_frames.ALL}
