"""Differences in what is declared, counted and written into headers."""

import json
import re

from ..compare import Difference
from ..vocabulary import REPLIES
from .common import argument, argument_of, code, declared, names, of_kind, words


def full_by_priority(difference: Difference) -> bool:
    return difference.step["do"] != "queue.declare" and any(
        "x-max-priority" in arguments and arguments.keys() & {"x-max-length", "x-max-length-bytes"}
        for step in difference.before
        if step["do"] == "queue.declare"
        for arguments in [step.get("arguments") or {}]
    )


def by_priority_in_quorum(difference: Difference) -> bool:
    has_priority = any("priority" in (step.get("properties") or {}) for step in difference.before)
    has_quorum = any(
        (step.get("arguments") or {}).get("x-queue-type") == ["S", "quorum"] for step in difference.before
    )
    return difference.what.endswith(" body") and has_priority and has_quorum


def lazy_expiry(difference: Difference) -> bool:
    return (
        difference.what.endswith(" message_count")
        and of_kind(difference, "quorum")
        and difference.rabbitmq > difference.weir
        and any("expiration" in (step.get("properties") or {}) for step in difference.before)
    )


def held(difference: Difference) -> bool:
    """A queue that expires, of which a message is out."""
    return (
        difference.what == "events"
        and code(difference.theirs) == 404
        and code(difference.ours) is None
        and any("x-expires" in arguments for arguments in declared(difference))
        and difference.before[-2]["do"] == "wait"
        and any(step["do"] == "basic.get" and not step.get("no_ack") for step in difference.before)
        and not any(step["do"] in ("basic.ack", "basic.nack") for step in difference.before)
    )


def unknown_type(difference: Difference) -> bool:
    return (
        difference.step["do"] == "exchange.declare"
        and (code(difference.theirs), code(difference.ours)) == (503, 406)
        and re.search(r"(unknown|invalid) exchange type", words(difference.theirs)) is not None
    )


def last_death(difference: Difference) -> bool:
    return "header x-last-death-" in difference.what and difference.rabbitmq is None


def acquired(difference: Difference) -> bool:
    return difference.what.endswith("header x-acquired-count") and difference.rabbitmq is None


def delivery_count(difference: Difference) -> bool:
    """3.10 says 0 at first, and counts what comes back in every way."""
    if not difference.what.endswith("header x-delivery-count") or difference.rabbitmq is None:
        return False
    ours = difference.weir[1] if difference.weir else 0
    return difference.rabbitmq[1] > ours or (difference.rabbitmq[1] == 0 and difference.weir is None)


def counted_getter(difference: Difference) -> bool:
    return (
        difference.what == "queue.declare_ok consumer_count"
        and difference.rabbitmq > difference.weir
        and of_kind(difference, "quorum")
        and any(step["do"] in ("basic.get", "basic.cancel") for step in difference.before)
    )


def counted_waiting(difference: Difference) -> bool:
    return (
        difference.what == "queue.declare_ok consumer_count"
        and difference.rabbitmq < difference.weir
        and of_kind(difference, "quorum")
        and any("x-single-active-consumer" in arguments for arguments in declared(difference))
    )


def unknown_mode(difference: Difference) -> bool:
    return (
        argument(difference, "x-queue-mode")
        and code(difference.theirs) == 406
        and "invalid arg 'x-queue-mode'" in words(difference.theirs)
        and "of queue type" not in words(difference.theirs)
        and names(difference.ours) == ([] if difference.step.get("no_wait") else ["queue.declare_ok"])
    )


def type_of_nobody(difference: Difference) -> bool:
    """Only where the broker makes the name."""
    kind = argument_of(difference.step, "x-queue-type") or ["S", ""]
    return (
        difference.step["do"] == "queue.declare"
        and not difference.step.get("queue")
        and kind[0] not in "Sx"
        and (code(difference.theirs), code(difference.ours)) == (541, 406)
    )


def _without_width(words: object) -> str:
    return re.sub(r"\b(unsigned)?(byte|short|signedint|int|long)\b", "a whole number", str(words))


def width(difference: Difference) -> bool:
    return difference.what.endswith("reply_text") and _without_width(difference.rabbitmq) == _without_width(
        difference.weir
    )


def tag_of_64_bits(difference: Difference) -> bool:
    told = json.dumps(difference.weir).replace('["L", ', '["l", ')
    return " header " in difference.what and json.dumps(difference.rabbitmq) == told


def tag_of_replies(difference: Difference) -> bool:
    """The tag of a consumer of direct replies, used by another consumer of its channel."""
    tag = difference.step.get("consumer_tag")
    return (
        difference.step["do"] == "basic.consume"
        and code(difference.ours) == 530 != code(difference.theirs)
        and any(
            step["do"] == "basic.consume" and step.get("queue") == REPLIES and step.get("consumer_tag") == tag
            for step in difference.before[:-1]
        )
    )


def asked_for_itself(difference: Difference) -> bool:
    """Whether a channel's own queue of direct replies is there, asked by this channel."""
    return (
        difference.step["do"] == "queue.declare"
        and difference.step.get("queue") == "@reply"
        and code(difference.theirs) == 541
        and "queue.declare_ok" in names(difference.ours)
    )
