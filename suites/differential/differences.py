"""Differences that are known, each with its cause. Whatever is not listed here fails a run, and so does what is
listed and never seen.

RabbitMQ here is 3.10.8; Weir says that it is 4.3 and does what 4.3 does where the two differ.
"""

import json
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


def _full_by_priority(difference: Difference) -> bool:
    return difference.step["do"] != "queue.declare" and any(
        "x-max-priority" in arguments and arguments.keys() & {"x-max-length", "x-max-length-bytes"}
        for step in difference.before
        if step["do"] == "queue.declare"
        for arguments in [step.get("arguments") or {}]
    )


def _by_priority_in_quorum(difference: Difference) -> bool:
    has_priority = any("priority" in (step.get("properties") or {}) for step in difference.before)
    has_quorum = any(
        (step.get("arguments") or {}).get("x-queue-type") == ["S", "quorum"] for step in difference.before
    )
    return difference.what.endswith(" body") and has_priority and has_quorum


def _lazy_expiry(difference: Difference) -> bool:
    return (
        difference.what.endswith(" message_count")
        and of_kind(difference, "quorum")
        and difference.rabbitmq > difference.weir
        and any("expiration" in (step.get("properties") or {}) for step in difference.before)
    )


def _stream_count(difference: Difference) -> bool:
    return difference.what == "queue.declare_ok message_count" and of_kind(difference, "stream")


def _stream_offset(difference: Difference) -> bool:
    return argument(difference, "x-stream-offset") and (code(difference.theirs), code(difference.ours)) == (541, 406)


def _words(side: dict) -> str:
    return " ".join(
        event["reply_text"] for events in side.values() for event in events if event["name"].endswith(".close")
    )


def _unknown_type(difference: Difference) -> bool:
    return (
        difference.step["do"] == "exchange.declare"
        and (code(difference.theirs), code(difference.ours)) == (503, 406)
        and re.search(r"(unknown|invalid) exchange type", _words(difference.theirs)) is not None
    )


def _last_death(difference: Difference) -> bool:
    return "header x-last-death-" in difference.what and difference.rabbitmq is None


def _acquired(difference: Difference) -> bool:
    return difference.what.endswith("header x-acquired-count") and difference.rabbitmq is None


def _delivery_count(difference: Difference) -> bool:
    """3.10 says 0 at first, and counts what comes back in every way."""
    if not difference.what.endswith("header x-delivery-count") or difference.rabbitmq is None:
        return False
    ours = difference.weir[1] if difference.weir else 0
    return difference.rabbitmq[1] > ours or (difference.rabbitmq[1] == 0 and difference.weir is None)


def _counted_getter(difference: Difference) -> bool:
    return (
        difference.what == "queue.declare_ok consumer_count"
        and difference.rabbitmq > difference.weir
        and of_kind(difference, "quorum")
        and any(step["do"] == "basic.get" for step in difference.before)
    )


def _counted_waiting(difference: Difference) -> bool:
    return (
        difference.what == "queue.declare_ok consumer_count"
        and difference.rabbitmq < difference.weir
        and of_kind(difference, "quorum")
        and any("x-single-active-consumer" in arguments for arguments in declared(difference))
    )


def _lost_with_connection(difference: Difference) -> bool:
    """RabbitMQ handed to one channel of a connection that ended what another of its channels had given back.

    It shows when the connection ends, by what others do not get, or when it is counted what was left behind.
    """
    if difference.what == "queue.declare_ok message_count" and difference.rabbitmq < difference.weir:
        return any(_took_and_gave_back(difference, end["on"][0]) for end in difference.before if _is_end(end))
    theirs, ours = _delivered(difference.theirs), _delivered(difference.ours)
    return (
        _is_end(difference.step)
        and difference.what == "events"
        and len(theirs) < len(ours)
        and all(theirs.count(body) <= ours.count(body) for body in theirs)
        and any(step.get("no_ack") and step["on"][0] == difference.step["on"][0] for step in difference.before)
    )


def _is_end(step: dict) -> bool:
    return step["do"] in ("connection.close", "drop")


def _took_and_gave_back(difference: Difference, connection: str) -> bool:
    """Whether one channel of a connection consumed from the queue of the step without settling, and another settled."""
    takers = [
        (bool(step.get("no_ack")), step["on"])
        for step in difference.before
        if step["do"] in ("basic.consume", "basic.get")
        and step["on"][0] == connection
        and step.get("queue") == difference.step.get("queue")
    ]
    return any(
        keeps and not other_keeps and channel != other for keeps, channel in takers for other_keeps, other in takers
    )


def _full_while_settled(difference: Difference) -> bool:
    """A full quorum queue let messages go while a consumer that settles nothing had as many as its prefetch."""
    theirs, ours = _delivered(difference.theirs), _delivered(difference.ours)
    bounded = {step["on"] for step in difference.before if step["do"] == "basic.qos" and step.get("prefetch_count")}
    full = {
        step.get("queue")
        for step in difference.before
        if step["do"] == "queue.declare"
        for arguments in [step.get("arguments") or {}]
        if arguments.get("x-queue-type") == ["S", "quorum"] and arguments.keys() & {"x-max-length", "x-max-length-bytes"}
    }
    return (
        difference.what == "events"
        and len(theirs) < len(ours)
        and all(theirs.count(body) <= ours.count(body) for body in theirs)
        and any(
            step["do"] == "basic.consume"
            and step.get("no_ack")
            and step["on"] in bounded
            and step.get("queue") in full
            for step in difference.before
        )
    )


def _order_of_channels(difference: Difference) -> bool:
    """The same messages came back from several channels of a connection that ended, in another order."""
    name = difference.step["on"][0]
    ended = {
        step["on"]
        for step in difference.before
        if step["do"] in ("basic.consume", "basic.get") and step["on"][0] == name
    }
    return (
        _is_end(difference.step)
        and difference.what == "basic.deliver body"
        and len(ended) > 1
        and _delivered(difference.theirs) == _delivered(difference.ours)
    )


def _delivered(side: dict) -> list[str]:
    return sorted(
        event["body"] for events in side.values() for event in events if event["name"] == "basic.deliver"
    )


def _whose_turn(difference: Difference) -> bool:
    """The same messages went out, to others of several consumers, when more than one became ready at once."""
    bodies = _delivered(difference.theirs)
    return (
        len(bodies) > 0
        and bodies == _delivered(difference.ours)
        and (difference.step["do"] != "basic.publish" or "times" in difference.step)
        and (difference.what == "events" or difference.what in ("basic.deliver consumer_tag", "basic.deliver body"))
        and len(_consumers(difference.theirs) | _consumers(difference.ours)) > 1
    )


def _consumers(side: dict) -> set[tuple[str, str]]:
    return {
        (channel, event["consumer_tag"])
        for channel, events in side.items()
        for event in events
        if event["name"] == "basic.deliver"
    }


def _broken_bytes(difference: Difference) -> bool:
    """What a client sent that no client sends: the code is the same, the words are Erlang terms or ours."""
    return difference.step["do"] == "bytes" and difference.what.endswith("reply_text")


def _named_method(difference: Difference) -> bool:
    return (
        difference.what in ("connection.close failing_class", "connection.close failing_method")
        and difference.rabbitmq == 0
        and code(difference.theirs) == code(difference.ours) == 501
    )


def _unknown_mode(difference: Difference) -> bool:
    return (
        argument(difference, "x-queue-mode")
        and code(difference.theirs) == 406
        and "invalid arg 'x-queue-mode'" in _words(difference.theirs)
        and "of queue type" not in _words(difference.theirs)
        and _names(difference.ours) == ["queue.declare_ok"]
    )


def _without_width(words: object) -> str:
    return re.sub(r"\b(unsigned)?(byte|short|signedint|int|long)\b", "a whole number", str(words))


def _width(difference: Difference) -> bool:
    return difference.what.endswith("reply_text") and _without_width(difference.rabbitmq) == _without_width(
        difference.weir
    )


def _no_limits(difference: Difference) -> bool:
    return (
        difference.step.get("hex", "").startswith(TUNED_WITHOUT_LIMITS)
        and _names(difference.theirs) == ["end of connection"]
        and _names(difference.ours) == ["connection.open_ok"]
    )


def _tag_of_64_bits(difference: Difference) -> bool:
    told = json.dumps(difference.weir).replace('["L", ', '["l", ')
    return " header " in difference.what and json.dumps(difference.rabbitmq) == told


def _names(side: dict) -> list[str]:
    return [event["name"] for events in side.values() for event in events]


def _refused_early(difference: Difference) -> bool:
    return (
        bool(difference.step.get("first"))
        and _names(difference.theirs) == ["end of connection"]
        and "connection.close" in _names(difference.ours)
    )


def _reader_fails(difference: Difference) -> bool:
    if difference.step["do"] != "bytes" or difference.step.get("first"):
        return False
    return _names(difference.theirs) == ["end of connection"] or code(difference.theirs) == 541


# `connection.tune_ok` with neither a number of channels nor a size of frames.
TUNED_WITHOUT_LIMITS = "0100000000000c000a001f" + "00" * 8 + "ce"

KNOWN = [
    Known(
        "an unknown type of exchange",
        "3.10 ends the connection with 503, 4.x the channel with 406",
        _unknown_type,
    ),
    Known(
        "x-last-death-*",
        "headers that RabbitMQ has set since 3.13",
        _last_death,
    ),
    Known(
        "x-acquired-count",
        "a header of 4.3's quorum queues",
        _acquired,
    ),
    Known(
        "x-delivery-count",
        "3.10's quorum queues say 0 at first and count every return; 4.3 counts rejections and lost consumers only, "
        "and has no header before the first",
        _delivery_count,
    ),
    Known(
        "who gets from a quorum queue is counted",
        "3.10 counts a channel that has something from basic.get among the consumers of a quorum queue",
        _counted_getter,
        rare=True,
    ),
    Known(
        "who waits for a quorum queue is not counted",
        "3.10 counts only the active consumer of a quorum queue that has one at a time",
        _counted_waiting,
        rare=True,
    ),
    Known(
        "lost with the connection",
        "RabbitMQ ends a connection's channels one after another; what the first gives back may go to a consumer "
        "of the next that acknowledges nothing, and is lost with it. Weir gives it to others",
        _lost_with_connection,
        rare=True,
    ),
    Known(
        "full while messages are settled",
        "RabbitMQ hands a consumer of a quorum queue that settles nothing as many messages as its prefetch, and more when "
        "these are settled by themselves; if the queue is full meanwhile, the first ones go",
        _full_while_settled,
        rare=True,
    ),
    Known(
        "the order of channels that end with their connection",
        "RabbitMQ's channels end side by side, and what they give back comes in the order in which that happens",
        _order_of_channels,
        rare=True,
    ),
    Known(
        "a full queue with priorities",
        "RabbitMQ lets the message go that would be delivered next, which has the highest priority; Weir the lowest",
        _full_by_priority,
    ),
    Known(
        "priorities of a quorum queue",
        "3.10 knows none, 4.3 has 32 in every quorum queue",
        _by_priority_in_quorum,
    ),
    Known(
        "what has expired behind others in a quorum queue",
        "RabbitMQ counts it until something is done to the queue, Weir does not",
        _lazy_expiry,
        rare=True,
    ),
    Known(
        "how much is in a stream",
        "3.10 counts a stream's messages now and then, Weir whenever it is asked",
        _stream_count,
        rare=True,
    ),
    Known(
        "an offset of a stream that is none",
        "3.10 fails on it with 541, Weir refuses it with 406",
        _stream_offset,
        rare=True,
    ),
    Known(
        "whose turn it is",
        "when several consumers become ready at once, nobody promises which of them is served first",
        _whose_turn,
        rare=True,
    ),
    Known(
        "L is l",
        "RabbitMQ has read the headers and writes 64 bits with the tag l; Weir gives back what came",
        _tag_of_64_bits,
        rare=True,
    ),
    Known(
        "the method in which a frame is broken",
        "of a name that is no text, and of a content header that is cut off, RabbitMQ does not say to which method it "
        "belongs; Weir does",
        _named_method,
    ),
    Known(
        "an unknown mode of a queue",
        "3.10 looks at the value of x-queue-mode, 4.x has no modes and takes any",
        _unknown_mode,
    ),
    Known(
        "how wide a whole number was",
        "Weir stores arguments without the width of their numbers, and names the width that one needs",
        _width,
    ),
    Known(
        "no limits asked for",
        "RabbitMQ ends the connection of a client that wants no limit of channels or frames; with Weir it has the limit "
        "that was offered",
        _no_limits,
        rare=True,
    ),
    Known(
        "refused before the connection is open",
        "RabbitMQ ends such a connection after a while without a word; Weir says why at once",
        _refused_early,
        rare=True,
    ),
    Known(
        "bytes on which RabbitMQ's reader fails",
        "RabbitMQ ends the connection without a word, or with 541; Weir says why, or takes what it can",
        _reader_fails,
        rare=True,
    ),
    Known(
        "0-8",
        "RabbitMQ also greets clients of AMQP 0-8",
        lambda difference: difference.step["do"] == "bytes" and difference.step["hex"] == "414d515001010800",
        rare=True,
    ),
    Known(
        "words about broken frames",
        "the code is the same; RabbitMQ shows Erlang terms, and names the class where it got so far",
        _broken_bytes,
        rare=True,
    ),
]

# Words of a close that differ though they say the same: a pattern for RabbitMQ's, one for Weir's, and why.
WORDS: list[tuple[str, str, str]] = [
    (
        r"PRECONDITION_FAILED - Invalid x-match field .*",
        r"PRECONDITION_FAILED - the exchange '.*' does not take the binding: x-match must be .*",
        "RabbitMQ shows an Erlang binary",
    ),
    (
        r"FRAME_ERROR - Malformed UTF-8 in shortstr",
        r"FRAME_ERROR - [\w.]+ at byte \d+: the name is not UTF-8",
        "where it is",
    ),
]


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
