"""What the recognisers of differences share: what a side of a difference has, and what was declared before it."""

from ..compare import Difference


def code(side: dict) -> int | None:
    """The code with which a channel or the connection was closed."""
    codes = [event["reply_code"] for events in side.values() for event in events if event["name"].endswith(".close")]
    return codes[0] if codes else None


def argument(difference: Difference, *names: str) -> bool:
    """Whether the step had one of these arguments."""
    return any(name in (difference.step.get("arguments") or {}) for name in names)


def argument_of(step: dict, name: str) -> list | None:
    return (step.get("arguments") or {}).get(name)


def declared(difference: Difference) -> list[dict]:
    """With which arguments the queue of the step was declared so far."""
    name = difference.step.get("queue")
    return [
        step.get("arguments") or {}
        for step in difference.before
        if step["do"] == "queue.declare" and step.get("queue") == name
    ]


def of_kind(difference: Difference, kind: str) -> bool:
    """Whether the queue of the step was declared as one of this type."""
    return any(arguments.get("x-queue-type") == ["S", kind] for arguments in declared(difference))


def words(side: dict) -> str:
    return " ".join(
        event["reply_text"] for events in side.values() for event in events if event["name"].endswith(".close")
    )


def names(side: dict) -> list[str]:
    return [event["name"] for events in side.values() for event in events]


def delivered(side: dict) -> list[str]:
    return sorted(
        event["body"] for events in side.values() for event in events if event["name"] == "basic.deliver"
    )
