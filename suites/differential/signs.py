"""By what each difference that is known is recognised; see `differences`."""

import json
import re

from .compare import Difference
from .vocabulary import REPLIES

# Seconds that in milliseconds do not fit into 64 bits.
MILLISECONDS_TOO_MANY = (1 << 63) // 1000
# `channel.close` with the code 200 and no words, up to its end.
CLOSED_IN_BYTES = "0014002800c80000000000ce"
# `connection.tune_ok` with neither a number of channels nor a size of frames.
TUNED_WITHOUT_LIMITS = "0100000000000c000a001f" + "00" * 8 + "ce"


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


def stream_count(difference: Difference) -> bool:
    return difference.what == "queue.declare_ok message_count" and of_kind(difference, "stream")


def stream_offset(difference: Difference) -> bool:
    value = (argument_of(difference.step, "x-stream-offset") or ["S", ""])[1]
    if isinstance(value, int) and value < 0:
        return "basic.consume_ok" in _names(difference.theirs) and code(difference.ours) == 406
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
    """A property or a header that was not what it had been when it came back from a stream."""
    if not difference.what.startswith("basic.deliver ") or not _from_stream(difference.ours):
        return False
    if difference.what == "basic.deliver properties.cluster_id":
        return difference.rabbitmq is None
    if difference.what == "basic.deliver properties.timestamp":
        return difference.weir >= MILLISECONDS_TOO_MANY
    return " header " in difference.what


def by_chunks(difference: Difference) -> bool:
    """More of a stream than was asked for, where several messages were written at once."""
    theirs, ours = _delivered(difference.theirs), _delivered(difference.ours)
    return (
        difference.what == "events"
        and _from_stream(difference.theirs)
        and any("times" in step for step in difference.before)
        and len(theirs) > len(ours)
        and all(theirs.count(body) >= ours.count(body) for body in ours)
    )


def untranslatable(difference: Difference) -> bool:
    """A header of a type that has no translation, on its way to a stream."""
    has_stream = any(argument_of(step, "x-queue-type") == ["S", "stream"] for step in difference.before)
    return has_stream and code(difference.theirs) == 541 and '["D", ' in json.dumps(difference.before)


def returned_to_stream(difference: Difference) -> bool:
    """A stream's message that is not acknowledged but given back."""
    if difference.step["do"] in ("basic.nack", "basic.reject"):
        return "not supported by stream queues" in _words(difference.theirs) and code(difference.ours) is None
    return (
        difference.step["do"] in ("basic.recover", "basic.recover_async")
        and code(difference.theirs) == 541
        and code(difference.ours) is None
        and any(argument_of(step, "x-queue-type") == ["S", "stream"] for step in difference.before)
    )


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


def _words(side: dict) -> str:
    return " ".join(
        event["reply_text"] for events in side.values() for event in events if event["name"].endswith(".close")
    )


def unknown_type(difference: Difference) -> bool:
    return (
        difference.step["do"] == "exchange.declare"
        and (code(difference.theirs), code(difference.ours)) == (503, 406)
        and re.search(r"(unknown|invalid) exchange type", _words(difference.theirs)) is not None
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
        and any(step["do"] == "basic.get" for step in difference.before)
    )


def counted_waiting(difference: Difference) -> bool:
    return (
        difference.what == "queue.declare_ok consumer_count"
        and difference.rabbitmq < difference.weir
        and of_kind(difference, "quorum")
        and any("x-single-active-consumer" in arguments for arguments in declared(difference))
    )


def lost_with_connection(difference: Difference) -> bool:
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


def full_while_settled(difference: Difference) -> bool:
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
        and _delivered(difference.theirs) == _delivered(difference.ours)
    )


def _delivered(side: dict) -> list[str]:
    return sorted(
        event["body"] for events in side.values() for event in events if event["name"] == "basic.deliver"
    )


def whose_turn(difference: Difference) -> bool:
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


def broken_bytes(difference: Difference) -> bool:
    """What a client sent that no client sends: the code is the same, the words are Erlang terms or ours."""
    return difference.step["do"] == "bytes" and difference.what.endswith("reply_text")


def named_method(difference: Difference) -> bool:
    return (
        difference.what in ("connection.close failing_class", "connection.close failing_method")
        and difference.rabbitmq == 0
        and code(difference.theirs) == code(difference.ours) == 501
    )


def unknown_mode(difference: Difference) -> bool:
    return (
        argument(difference, "x-queue-mode")
        and code(difference.theirs) == 406
        and "invalid arg 'x-queue-mode'" in _words(difference.theirs)
        and "of queue type" not in _words(difference.theirs)
        and _names(difference.ours) == ([] if difference.step.get("no_wait") else ["queue.declare_ok"])
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


def no_limits(difference: Difference) -> bool:
    return (
        difference.step.get("hex", "").startswith(TUNED_WITHOUT_LIMITS)
        and _names(difference.theirs) == ["end of connection"]
        and _names(difference.ours) == ["connection.open_ok"]
    )


def tag_of_64_bits(difference: Difference) -> bool:
    told = json.dumps(difference.weir).replace('["L", ', '["l", ')
    return " header " in difference.what and json.dumps(difference.rabbitmq) == told


def _names(side: dict) -> list[str]:
    return [event["name"] for events in side.values() for event in events]


def refused_early(difference: Difference) -> bool:
    return (
        bool(difference.step.get("first"))
        and _names(difference.theirs) == ["end of connection"]
        and "connection.close" in _names(difference.ours)
    )


def reader_fails(difference: Difference) -> bool:
    if difference.step["do"] != "bytes" or difference.step.get("first"):
        return False
    return _names(difference.theirs) == ["end of connection"] or code(difference.theirs) == 541


def two_faults(difference: Difference) -> bool:
    codes = {code(difference.theirs), code(difference.ours)}
    return bool(difference.step.get("mangled")) and len(codes) == 2 and codes < {501, 504, 505}


def unnamed_before_open(difference: Difference) -> bool:
    return (
        bool(difference.step.get("mangled"))
        and (code(difference.theirs), code(difference.ours)) == (404, 504)
        and "no previously declared queue" in _words(difference.theirs)
    )


def asked_for_itself(difference: Difference) -> bool:
    """Whether a channel's own queue of direct replies is there, asked by this channel."""
    return (
        difference.step["do"] == "queue.declare"
        and difference.step.get("queue") == "@reply"
        and code(difference.theirs) == 541
        and "queue.declare_ok" in _names(difference.ours)
    )


def behind_a_close(difference: Difference) -> bool:
    return (
        difference.step["do"] == "bytes"
        and CLOSED_IN_BYTES in difference.step["hex"]
        and _names(difference.theirs) == ["channel.close_ok"]
        and code(difference.ours) == 504
    )
