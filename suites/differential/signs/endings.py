"""Differences in who is handed what, above all while channels and connections end."""

from ..compare import Difference
from .common import code, declared, delivered


def lost_with_connection(difference: Difference) -> bool:
    """RabbitMQ handed to one channel of a connection that ended what another of its channels had given back.

    It shows when the connection ends, by what others do not get, or when it is counted what was left behind.
    """
    if difference.what == "queue.declare_ok message_count" and difference.rabbitmq < difference.weir:
        return any(_took_and_gave_back(difference, end["on"][0]) for end in difference.before if _is_end(end))
    theirs, ours = delivered(difference.theirs), delivered(difference.ours)
    return (
        _is_end(difference.step)
        and difference.what == "events"
        and len(theirs) < len(ours)
        and all(theirs.count(body) <= ours.count(body) for body in theirs)
        and any(step.get("no_ack") and step["on"][0] == difference.step["on"][0] for step in difference.before)
    )


def handed_on_while_ending(difference: Difference) -> bool:
    """What a channel gave back went to another channel of a connection that ended."""
    if difference.what.endswith(" redelivered"):
        return difference.rabbitmq and any(
            len(_users(difference, end["on"][0])) > 1 for end in difference.before if _is_end(end)
        )
    ended = f"{difference.step['on'][0]}0"
    if difference.what != "events" or code({ended: difference.ours.get(ended, [])}) is None:
        return False
    others = {
        channel: [event for event in events if event["name"] != "basic.deliver" or channel[0] != ended[0]]
        for channel, events in difference.theirs.items()
    }
    others = {channel: events for channel, events in others.items() if events}
    delivered = [
        event["redelivered"]
        for channel, events in difference.theirs.items()
        for event in events
        if channel[0] == ended[0] and event["name"] == "basic.deliver"
    ]
    return bool(delivered) and all(delivered) and others == difference.ours


def _users(difference: Difference, connection: str) -> set[str]:
    """Channels of a connection that consumed from the queue of the step, or got from it."""
    return {
        step["on"]
        for step in difference.before
        if step["do"] in ("basic.consume", "basic.get")
        and step["on"][0] == connection
        and step.get("queue") == difference.step.get("queue")
    }


def dead_while_ending(difference: Difference) -> bool:
    """Dead letters found a consumer of a connection that ended, or did not, and then no room."""
    refuses = any(
        str((arguments.get("x-overflow") or ["S", ""])[1]).startswith("reject") for arguments in declared(difference)
    )
    return (
        difference.what == "queue.declare_ok message_count"
        and difference.rabbitmq > difference.weir
        and refuses
        and any(_is_end(step) and _users(difference, step["on"][0]) for step in difference.before)
        and any("x-dead-letter-exchange" in (step.get("arguments") or {}) for step in difference.before)
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


def order_of_channels(difference: Difference) -> bool:
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
        and delivered(difference.theirs) == delivered(difference.ours)
    )


def full_while_settled(difference: Difference) -> bool:
    """A full quorum queue let messages go while a consumer that settles nothing had as many as its prefetch."""
    theirs, ours = delivered(difference.theirs), delivered(difference.ours)
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


def got_before(difference: Difference) -> bool:
    """Less was handed to a channel with a prefetch of its own that had something from `basic.get` before."""
    theirs, ours = delivered(difference.theirs), delivered(difference.ours)
    limited = {
        step["on"]: index
        for index, step in enumerate(difference.before)
        if step["do"] == "basic.qos" and step.get("global") and step.get("prefetch_count")
    }
    return (
        difference.what == "events"
        and len(theirs) < len(ours)
        and all(theirs.count(body) <= ours.count(body) for body in theirs)
        and any(
            step["do"] == "basic.get" and not step.get("no_ack") and index < limited.get(step["on"], -1)
            for index, step in enumerate(difference.before)
        )
    )


def whose_turn(difference: Difference) -> bool:
    """The same messages went out, to others of several consumers, when more than one became ready at once."""
    bodies = delivered(difference.theirs)
    return (
        len(bodies) > 0
        and bodies == delivered(difference.ours)
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
