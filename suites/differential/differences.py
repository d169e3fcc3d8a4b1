"""Differences that are known, each with its cause. Whatever is not listed here fails a run, and so does what is
listed and never seen.

RabbitMQ here is 3.10.8; Weir says that it is 4.3 and does what 4.3 does where the two differ.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from .compare import Difference


@dataclass(frozen=True)
class Known:
    """A difference that may be: what it is called, why it is there, and how it is recognised."""

    name: str
    reason: str
    is_this: Callable[[Difference], bool]
    # Met only where somebody thought of it, or by a few seeds in a thousand: its absence says nothing.
    rare: bool = False


def code(side: dict) -> int | None:
    """The code with which a channel or the connection was closed."""
    codes = [event["reply_code"] for events in side.values() for event in events if event["name"].endswith(".close")]
    return codes[0] if codes else None


def argument(difference: Difference, *names: str) -> bool:
    """Whether the step had one of these arguments."""
    return any(name in (difference.step.get("arguments") or {}) for name in names)


NOT_YET_ARGUMENTS = ("x-max-length-bytes", "x-overflow", "x-max-priority", "x-message-deduplication")


def _not_yet(difference: Difference) -> bool:
    return (
        difference.step["do"] == "queue.declare"
        and code(difference.ours) == 540
        and argument(difference, *NOT_YET_ARGUMENTS)
    )


KNOWN = [
    Known(
        "arguments that are not served yet",
        "declaring with " + ", ".join(NOT_YET_ARGUMENTS) + " is refused with 540",
        _not_yet,
    ),
]

# Words of a close that differ though they say the same: a pattern for RabbitMQ's, one for Weir's, and why.
WORDS: list[tuple[str, str, str]] = []


def known(difference: Difference) -> Known | None:
    """The entry of the table that this difference is, if it is listed."""
    for entry in KNOWN:
        if entry.is_this(difference):
            return entry
    if difference.what.endswith("reply_text"):
        for theirs, ours, reason in WORDS:
            if re.fullmatch(theirs, str(difference.rabbitmq)) and re.fullmatch(ours, str(difference.weir)):
                return Known(f"words: {reason}", reason, lambda _: True, rare=True)
    return None
