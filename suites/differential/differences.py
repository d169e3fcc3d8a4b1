"""Differences that are known, each with its cause. Whatever is not listed here fails a run, and so does what is
listed and never seen.

RabbitMQ here is 3.10.8; Weir says that it is 4.3 and does what 4.3 does where the two differ.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from .compare import Difference
from .signs import endings, frames, queues, streams


@dataclass(frozen=True)
class Known:
    """A difference that may be: what it is called, why it is there, and how it is recognised."""

    name: str
    reason: str
    is_this: Callable[[Difference], bool]
    # Met only where somebody thought of it, or by a few seeds in a thousand: its absence says nothing.
    rare: bool = False


KNOWN = [
    Known(
        "an unknown type of exchange",
        "3.10 ends the connection with 503, 4.x the channel with 406",
        queues.unknown_type,
    ),
    Known(
        "x-last-death-*",
        "headers that RabbitMQ has set since 3.13",
        queues.last_death,
    ),
    Known(
        "x-acquired-count",
        "a header of 4.3's quorum queues",
        queues.acquired,
    ),
    Known(
        "x-delivery-count",
        "3.10's quorum queues say 0 at first and count every return; 4.3 counts rejections and lost consumers only, "
        "and has no header before the first",
        queues.delivery_count,
    ),
    Known(
        "who gets from a quorum queue is counted",
        "3.10 counts a channel that has something from basic.get, or had something when its consumer was cancelled, among "
        "the consumers of a quorum queue",
        queues.counted_getter,
        rare=True,
    ),
    Known(
        "who waits for a quorum queue is not counted",
        "3.10 counts only the active consumer of a quorum queue that has one at a time",
        queues.counted_waiting,
        rare=True,
    ),
    Known(
        "lost with the connection",
        "RabbitMQ ends a connection's channels one after another; what the first gives back may go to a consumer "
        "of the next that acknowledges nothing, and is lost with it. Weir gives it to others",
        endings.lost_with_connection,
        rare=True,
    ),
    Known(
        "handed on while the connection ends",
        "what the first of RabbitMQ's channels of a connection gives back may go to a consumer of the next before that "
        "ends too: it hears of it where the broker closes the connection, and the message was delivered once more. Weir "
        "gives it to others",
        endings.handed_on_while_ending,
        rare=True,
    ),
    Known(
        "dead letters while the connection ends",
        "a queue that refuses what is too much has no room for dead letters that RabbitMQ's still hands to a consumer of "
        "the connection that ends, and takes back from it",
        endings.dead_while_ending,
        rare=True,
    ),
    Known(
        "full while messages are settled",
        "RabbitMQ hands a consumer of a quorum queue that settles nothing as many messages as its prefetch, and more when "
        "these are settled by themselves; if the queue is full meanwhile, the first ones go",
        endings.full_while_settled,
        rare=True,
    ),
    Known(
        "the order of channels that end with their connection",
        "RabbitMQ's channels end side by side, and what they give back comes in the order in which that happens",
        endings.order_of_channels,
        rare=True,
    ),
    Known(
        "a full queue with priorities",
        "RabbitMQ lets the message go that would be delivered next, which has the highest priority; Weir the lowest",
        queues.full_by_priority,
    ),
    Known(
        "what is held keeps its queue",
        "RabbitMQ lets a queue expire that nobody consumes, whatever of it is out; with Weir what is out keeps it",
        queues.held,
        rare=True,
    ),
    Known(
        "priorities of a quorum queue",
        "3.10 knows none, 4.3 has 32 in every quorum queue",
        queues.by_priority_in_quorum,
    ),
    Known(
        "what has expired behind others in a quorum queue",
        "RabbitMQ counts it until something is done to the queue, Weir does not",
        queues.lazy_expiry,
        rare=True,
    ),
    Known(
        "how much is in a stream",
        "3.10 counts a stream's messages now and then, Weir whenever it is asked",
        streams.stream_count,
        rare=True,
    ),
    Known(
        "an offset of a stream that is none",
        "3.10 fails on it with 541 or begins with the first message, Weir refuses it with 406",
        streams.stream_offset,
        rare=True,
    ),
    Known(
        "an age of a stream that is none",
        "3.10 fails with 541 on one without digits, Weir refuses it as any other with 406",
        streams.no_age,
        rare=True,
    ),
    Known(
        "translated for a stream",
        "RabbitMQ keeps a stream's messages as those of AMQP 1.0, and what has no place there is lost: cluster_id, headers "
        "of some types, x-death; or it becomes something else, as times too far away do. With Weir all of it comes back",
        streams.translated_for_stream,
    ),
    Known(
        "a stream's chunks",
        "3.10 hands out what was written at once at once, however small the prefetch is, and the last of a stream is "
        "what was written last; with Weir both are of messages, as the prefetch is since 4.0",
        streams.by_chunks,
        rare=True,
    ),
    Known(
        "who deletes the stream that it consumes",
        "RabbitMQ's channel that deletes a stream hears as its consumer that it is gone, or is done before it does",
        streams.deleted_by_its_consumer,
        rare=True,
    ),
    Known(
        "too much for a stream",
        "3.10 fails with 541 on a header that it cannot translate into AMQP 1.0, and loses a dead letter for its x-death; "
        "Weir keeps them",
        streams.untranslatable,
    ),
    Known(
        "given back to a stream",
        "3.10 refuses basic.nack and basic.reject of a stream's message, and fails on basic.recover; since 4.0 each of "
        "them gives credit, as basic.ack does, and so with Weir",
        streams.returned_to_stream,
    ),
    Known(
        "who asks for its own direct replies",
        "3.10's channel asks itself whether its queue of replies is there, and fails with 541",
        queues.asked_for_itself,
        rare=True,
    ),
    Known(
        "the tag of direct replies",
        "3.10 does not see that a consumer of direct replies has the tag already; since 4.2 it is a consumer as any "
        "other",
        queues.tag_of_replies,
        rare=True,
    ),
    Known(
        "what was got counts for a channel's prefetch",
        "a prefetch for the whole channel counts what basic.get had taken before it was set, and never forgets it; Weir "
        "counts what was delivered to consumers",
        endings.got_before,
        rare=True,
    ),
    Known(
        "whose turn it is",
        "when several consumers become ready at once, nobody promises which of them is served first",
        endings.whose_turn,
        rare=True,
    ),
    Known(
        "L is l",
        "RabbitMQ has read the headers and writes 64 bits with the tag l; Weir gives back what came",
        queues.tag_of_64_bits,
        rare=True,
    ),
    Known(
        "the method in which a frame is broken",
        "of a name that is no text, and of a content header that is cut off, RabbitMQ does not say to which method it "
        "belongs; Weir does",
        frames.named_method,
    ),
    Known(
        "an unknown mode of a queue",
        "3.10 looks at the value of x-queue-mode, 4.x has no modes and takes any",
        queues.unknown_mode,
    ),
    Known(
        "a type of queue that is no text",
        "3.10 refuses it with 406 where the queue has a name, and fails with 541 where it makes one",
        queues.type_of_nobody,
        rare=True,
    ),
    Known(
        "how wide a whole number was",
        "Weir stores arguments without the width of their numbers, and names the width that one needs",
        queues.width,
    ),
    Known(
        "no limits asked for",
        "RabbitMQ ends the connection of a client that wants no limit of channels or frames; with Weir it has the limit "
        "that was offered",
        frames.no_limits,
        rare=True,
    ),
    Known(
        "ANONYMOUS",
        "a mechanism that RabbitMQ has since 4.0",
        frames.offers_anonymous,
        rare=True,
    ),
    Known(
        "who is nobody",
        "since 4.0 a client may log in by ANONYMOUS",
        frames.is_anonymous,
        rare=True,
    ),
    Known(
        "refused before the connection is open",
        "RabbitMQ ends such a connection after a while without a word; Weir says why at once",
        frames.refused_early,
        rare=True,
    ),
    Known(
        "bytes on which RabbitMQ's reader fails",
        "RabbitMQ ends the connection without a word, or with 541; Weir says why, or takes what it can",
        frames.reader_fails,
        rare=True,
    ),
    Known(
        "a frame with two faults",
        "that it is broken, that it is out of its turn, that its channel is not open: which of them is told first. "
        "RabbitMQ reads properties when the message is there",
        frames.two_faults,
        rare=True,
    ),
    Known(
        "the last queue of a channel that is not open",
        "RabbitMQ looks for it before it asks whether the channel is open",
        frames.unnamed_before_open,
        rare=True,
    ),
    Known(
        "what comes behind a close",
        "RabbitMQ passes over what a client sends on a channel in one piece behind its close; to Weir the channel is not "
        "open",
        frames.behind_a_close,
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
        frames.broken_bytes,
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
    (
        r"PRECONDITION_FAILED - invalid arg 'x-stream-offset' .*: \{invalid_stream_offset_arg,.*",
        r"PRECONDITION_FAILED - invalid arg 'x-stream-offset' .*",
        "RabbitMQ shows an Erlang term",
    ),
    (
        r"PRECONDITION_FAILED - Exceeded max value for x-stream-max-segment-size-bytes",
        r"PRECONDITION_FAILED - invalid arg 'x-stream-max-segment-size-bytes' .*: \{value_too_large,\d+\}",
        "Weir says it as of every other number",
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
