"""Differences that have to do with streams."""

import json

from ..compare import Difference
from .common import argument, argument_of, code, delivered, names, of_kind, words

# Seconds that in milliseconds do not fit into 64 bits.
MILLISECONDS_TOO_MANY = (1 << 63) // 1000


def stream_count(difference: Difference) -> bool:
    return difference.what == "queue.declare_ok message_count" and of_kind(difference, "stream")


def stream_offset(difference: Difference) -> bool:
    value = (argument_of(difference.step, "x-stream-offset") or ["S", ""])[1]
    if isinstance(value, int) and value < 0:
        return "basic.consume_ok" in names(difference.theirs) and code(difference.ours) == 406
    return argument(difference, "x-stream-offset") and (code(difference.theirs), code(difference.ours)) == (541, 406)


def no_age(difference: Difference) -> bool:
    codes = code(difference.theirs), code(difference.ours)
    return argument(difference, "x-max-age") and codes == (541, 406)


def _from_stream(side: dict) -> bool:
    return any(
        header == "x-stream-offset"
        for events in side.values()
        for event in events
        for header, _ in event.get("properties.headers") or ()
    )


def translated_for_stream(difference: Difference) -> bool:
    """A property or a header that was lost on its way through a stream, or a time that was changed."""
    if not difference.what.startswith("basic.deliver ") or not _from_stream(difference.ours):
        return False
    if difference.what == "basic.deliver properties.cluster_id":
        return difference.rabbitmq is None
    if difference.what == "basic.deliver properties.timestamp":
        return difference.weir >= MILLISECONDS_TOO_MANY
    is_header = " header " in difference.what and not difference.what.endswith("x-stream-offset")
    return is_header and difference.rabbitmq is None


def by_chunks(difference: Difference) -> bool:
    """More of a stream than was asked for, where several messages were written at once."""
    theirs, ours = delivered(difference.theirs), delivered(difference.ours)
    return (
        difference.what == "events"
        and _from_stream(difference.theirs)
        and any("times" in step for step in difference.before)
        and len(theirs) > len(ours)
        and all(theirs.count(body) >= ours.count(body) for body in ours)
    )


def deleted_by_its_consumer(difference: Difference) -> bool:
    """Whether the channel that deletes a stream hears as its consumer that it is gone."""
    if difference.step["do"] != "queue.delete" or difference.what != "events" or not of_kind(difference, "stream"):
        return False
    others = [
        {
            channel: [event for event in events if channel != difference.step["on"] or event["name"] != "basic.cancel"]
            for channel, events in side.items()
        }
        for side in (difference.theirs, difference.ours)
    ]
    return others[0] == others[1]


def untranslatable(difference: Difference) -> bool:
    """A header of a type that has no translation, on its way to a stream: a decimal, or the list of a dead letter."""
    if difference.what == "events" and code(difference.theirs) is None:
        theirs = delivered(difference.theirs)
        more = [
            {header for header, _ in event.get("properties.headers") or ()}
            for events in difference.ours.values()
            for event in events
            if event["name"] == "basic.deliver" and event["body"] not in theirs
        ]
        return bool(more) and all({"x-death", "x-stream-offset"} <= headers for headers in more)
    has_stream = any(argument_of(step, "x-queue-type") == ["S", "stream"] for step in difference.before)
    return has_stream and code(difference.theirs) == 541 and '["D", ' in json.dumps(difference.before)


def returned_to_stream(difference: Difference) -> bool:
    """A stream's message that is not acknowledged but given back."""
    if difference.step["do"] in ("basic.nack", "basic.reject"):
        return "not supported by stream queues" in words(difference.theirs) and code(difference.ours) is None
    return (
        difference.step["do"] in ("basic.recover", "basic.recover_async")
        and code(difference.theirs) == 541
        and code(difference.ours) is None
        and any(argument_of(step, "x-queue-type") == ["S", "stream"] for step in difference.before)
    )
