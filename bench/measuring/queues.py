"""Queues of the benchmark: declared, bound, counted and removed through AMQP 0-9-1, by pika."""

import contextlib
import time
from collections.abc import Iterator

from . import Fault
from .peers import Peer

ANSWER_SECONDS = 60
# Messages of connections that have just ended go back to their queue.
COUNTED_SECONDS = 30
COUNTED_POLL_SECONDS = 0.1
FIRST_SECONDS = 5.0
GUEST = "guest:guest"


def address(peer: Peer) -> str:
    return peer.broker.addresses["amqp"]


def uri(peer: Peer) -> str:
    return f"amqp://{GUEST}@{address(peer)}/%2f"


@contextlib.contextmanager
def opened(peer: Peer) -> Iterator:
    """A channel on a connection of its own."""
    import pika

    parameters = pika.URLParameters(uri(peer))
    parameters.heartbeat = 0
    parameters.blocked_connection_timeout = ANSWER_SECONDS
    parameters.socket_timeout = ANSWER_SECONDS
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection.channel()
    finally:
        with contextlib.suppress(pika.exceptions.AMQPError):
            connection.close()


def new(peer: Peer, count: int = 1) -> list[str]:
    """Durable, empty queues of the kind that the row says."""
    names = [peer.new_name() for _ in range(count)]
    with opened(peer) as channel:
        for name in names:
            channel.queue_declare(name, durable=True, arguments=peer.kind.queue_arguments)
    return names


def new_exchange(peer: Peer, kind: str, arguments: dict | None = None) -> str:
    name = peer.new_name()
    with opened(peer) as channel:
        channel.exchange_declare(name, kind, durable=True, arguments=arguments)
    return name


def bind(peer: Peer, exchange: str, pairs: list[tuple[str, str]]) -> None:
    """Queues with the keys by which they are bound."""
    with opened(peer) as channel:
        for queue, key in pairs:
            channel.queue_bind(queue, exchange, key)


def delete(peer: Peer, queues: list[str], exchange: str | None = None) -> None:
    with opened(peer) as channel:
        for queue in queues:
            channel.queue_delete(queue)
        if exchange:
            channel.exchange_delete(exchange)


def _waiting(peer: Peer, queues: list[str]) -> tuple[int, int]:
    with opened(peer) as channel:
        told = [channel.queue_declare(queue, passive=True).method for queue in queues]
    return sum(one.message_count for one in told), sum(one.consumer_count for one in told)


def waiting(peer: Peer, queues: list[str]) -> int:
    """Messages in queues that nobody consumes from any more."""
    deadline = time.monotonic() + COUNTED_SECONDS
    while True:
        messages, consumers = _waiting(peer, queues)
        if not consumers:
            return messages
        if time.monotonic() > deadline:
            raise Fault(f"{peer.kind.title}: {consumers} consumers are still there {COUNTED_SECONDS} s after their end")
        time.sleep(COUNTED_POLL_SECONDS)


def check_waiting(peer: Peer, queues: list[str], expected: int) -> None:
    """Nothing may be left that was consumed, nor missing that was not.

    A count may lag behind what it counts, so it is asked for again before it is believed."""
    deadline = time.monotonic() + COUNTED_SECONDS
    while (found := waiting(peer, queues)) != expected:
        if time.monotonic() > deadline:
            raise Fault(f"{peer.kind.title}: {found} messages wait, and {expected} should")
        time.sleep(COUNTED_POLL_SECONDS)


def first_delivery(peer: Peer, queue: str) -> bool:
    """Whether a new consumer is given a message; it goes back unsettled. A broker that is not there yet says no."""
    import pika

    try:
        with opened(peer) as channel:
            channel.basic_qos(prefetch_count=1)
            for method, _, _ in channel.consume(queue, inactivity_timeout=FIRST_SECONDS):
                return method is not None
    except (pika.exceptions.AMQPError, OSError):
        return False
    return False
