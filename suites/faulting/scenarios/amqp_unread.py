"""AMQP clients that take nothing of what they are sent, or do not finish what they begin: memory stays bounded."""

import socket
import time
from collections.abc import Callable

from differential import raw_frames
from differential.client import Connection

from .. import amqp
from ..amqp import Publisher, call, closed_with, declare, opened, witness
from ..scenario import Trial, scenario
from ..server import Server, within
from .amqp_peers import MEMORY_GROWTH_MAX, no_panic
from .connections import MIB

# What a consumer that takes nothing may cost: 4 MiB that are unsent, and as much again on both sides of that.
UNREAD_BYTES_MAX = 16 * MIB


def most_memory(server: Server, moves: Callable[[], object], seconds: float = 60) -> int:
    """The most that was resident until something that is counted has not moved for a second and a half."""
    most, until = 0, time.monotonic() + seconds
    last, since = moves(), time.monotonic()
    while time.monotonic() < until and time.monotonic() < since + 1.5:
        most = max(most, server.memory())
        time.sleep(0.02)
        if (now := moves()) != last:
            last, since = now, time.monotonic()
    return most


def slow(server: Server, *frames: bytes) -> socket.socket:
    """A connection with a small window, open, with a channel; what is sent then is never read."""
    connection = Connection(amqp.address(server))
    connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.open()
    call(connection, 1, "channel.open")
    connection.socket.setblocking(False)
    for content in frames:
        try:
            connection.socket.sendall(content)
        except BlockingIOError:
            break
    return connection.socket


def consumers_never_read(trial: Trial, many: int, count: int, length: int) -> None:
    """Consumers without a prefetch count on a queue that has far more than they may hold."""
    server = trial.server().start()
    publisher = Publisher(server)
    declare(publisher.connection, "backlog")
    publisher.publish("backlog", count, length=length)
    with witness(trial, server, "consumers that never read") as seen:
        before = server.memory()
        consume = raw_frames.method(1, "basic.consume", queue="backlog", consumer_tag="slow")
        held = [slow(server, consume) for _ in range(many)]
        most = most_memory(server, lambda: amqp.waiting(publisher.connection, "backlog"))
        trial.expect(seen.goes_on(20), "the witness was not served")
        bound = before + many * UNREAD_BYTES_MAX + MEMORY_GROWTH_MAX
        trial.expect(most < bound, f"memory rose from {before >> 20} to {most >> 20} MiB, the bound is {bound >> 20} MiB")
        trial.note(f"{many} consumers, messages of {length} bytes: {before >> 20} MiB before, at most {most >> 20} MiB")
        # One of them goes; the others do not keep the process when it is to end.
        held.pop().close()
    no_panic(trial, server)
    publisher.close()
    server.stop()
    server.start()
    reader = opened(server)
    back = within(30, lambda: amqp.waiting(reader, "backlog") == count)
    trial.expect(back, f"{amqp.waiting(reader, 'backlog')} of {count} are there again")
    reader.drop()
    for connection in held:
        connection.close()


@scenario("amqp-slow-consumers", "consumers that never read hold a bounded number of messages; others do not notice")
def slow_consumers(trial: Trial) -> None:
    consumers_never_read(trial, 10, 60_000, 1000)


@scenario("amqp-slow-consumers-large", "and a bounded number of bytes, however large messages are", slow=True)
def slow_consumers_large(trial: Trial) -> None:
    consumers_never_read(trial, 3, 1500, 200_000)


@scenario(
    "amqp-silent-readers",
    "a consumer that neither reads nor is heard of any more is let go of, however much is unsent",
    slow=True,
)
def silent_readers(trial: Trial) -> None:
    count = 60_000
    server = trial.server().start()
    publisher = Publisher(server)
    declare(publisher.connection, "backlog")
    publisher.publish("backlog", count, length=1000)
    with witness(trial, server, "a silent consumer") as seen:
        silent = Connection(amqp.address(server))
        silent.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        amqp.open_with_heartbeats(silent, seconds=1)
        silent.send(1, "basic.consume", queue="backlog", consumer_tag="silent", no_wait=True)
        had = within(20, lambda: amqp.waiting(publisher.connection, "backlog") < count)
        trial.expect(had, "the consumer was given nothing")
        back = within(60, lambda: amqp.waiting(publisher.connection, "backlog") == count)
        trial.expect(back, f"{amqp.waiting(publisher.connection, 'backlog')} of {count} are for others, the rest is with it")
        trial.expect(seen.goes_on(20), "the witness was not served")
        silent.drop()
    publisher.close()
    no_panic(trial, server)


@scenario(
    "amqp-gets-never-read",
    "a client that asks for messages and never reads them is not read from any more",
)
def gets_never_read(trial: Trial) -> None:
    server = trial.server().start()
    publisher = Publisher(server)
    declare(publisher.connection, "large")
    publisher.publish("large", 1500, length=200_000)
    with witness(trial, server, "unread answers") as seen:
        before = server.memory()
        ask = raw_frames.method(1, "basic.get", queue="large") * 1500
        held = [slow(server, ask)]
        most = most_memory(server, lambda: amqp.waiting(publisher.connection, "large"))
        trial.expect(seen.goes_on(20), "the witness was not served")
        bound = before + UNREAD_BYTES_MAX + MEMORY_GROWTH_MAX
        trial.expect(most < bound, f"memory rose from {before >> 20} to {most >> 20} MiB, the bound is {bound >> 20} MiB")
        trial.note(f"1,500 messages of 200 kB asked for and not read: {before >> 20} MiB before, at most {most >> 20} MiB")
        for connection in held:
            connection.close()
    publisher.close()
    no_panic(trial, server)


@scenario(
    "amqp-replies-never-read",
    "direct replies to a client that does not read are dropped beyond a bound in bytes",
)
def replies_never_read(trial: Trial) -> None:
    server = trial.server().start()
    with witness(trial, server, "unread replies") as seen:
        asker = opened(server)
        asker.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        declare(asker, "asked")
        call(asker, 1, "basic.consume", queue="amq.rabbitmq.reply-to", no_ack=True, consumer_tag="r")
        asker.send(1, "basic.publish", {"reply_to": "amq.rabbitmq.reply-to"}, "?", routing_key="asked")
        other = opened(server)
        came = None
        asked = within(20, lambda: amqp.waiting(other, "asked") == 1)
        if trial.expect(asked, "the request did not arrive"):
            came = call(other, 1, "basic.get", queue="asked", no_ack=True)
            before = server.memory()
            reply = amqp.publish_frames(came.properties["reply_to"], b"r" * 500_000)
            for _ in range(800):
                other.send_bytes(reply)
                seen.others += 1
            # An answer on that channel says that all of them were carried out.
            amqp.waiting(other, "asked")
            most = max(server.memory(), most_memory(server, lambda: None))
            bound = before + UNREAD_BYTES_MAX + MEMORY_GROWTH_MAX
            trial.expect(most < bound, f"memory rose from {before >> 20} to {most >> 20} MiB, the bound is {bound >> 20} MiB")
            trial.note(f"800 replies of 500 kB that nobody reads: {before >> 20} MiB before, at most {most >> 20} MiB")
        asker.drop()
        other.drop()
    no_panic(trial, server)


@scenario("amqp-unfinished-messages", "messages announced and not finished, on many channels, cost what was sent of them")
def unfinished_messages(trial: Trial) -> None:
    server = trial.server().start()
    sent = 0
    with witness(trial, server, "unfinished messages") as seen:
        before = server.memory()
        held = []
        for _ in range(4):
            connection = opened(server, 100)
            held.append(connection)
            for channel in range(1, 101):
                begun = raw_frames.method(channel, "basic.publish", routing_key="nowhere")
                begun += raw_frames.header(channel, 7 * MIB) + raw_frames.body(channel, bytes(20_000))
                connection.send_bytes(begun)
                sent += 20_000
            seen.others += 100
        trial.expect(seen.goes_on(20), "the witness was not served")
        grown = server.memory() - before
        trial.expect(grown < sent * 2 + MEMORY_GROWTH_MAX, f"memory grew by {grown >> 20} MiB for {sent >> 20} MiB sent")
        trial.note(f"400 messages of 7 MiB announced, {sent >> 20} MiB sent of them: memory grew by {grown >> 20} MiB")
        for connection in held:
            connection.drop()
    no_panic(trial, server)


@scenario(
    "amqp-held-transactions",
    "transactions that are never committed are bounded: by channel and for a connection",
)
def held_transactions(trial: Trial) -> None:
    # What one connection may hold back in all its channels. A channel alone may have 64 MiB.
    connection_bytes_max = 256 * MIB
    server = trial.server().start()
    with witness(trial, server, "transactions") as seen:
        before = server.memory()
        connection = opened(server)
        declare(connection, "held")
        frames = amqp.publish_frames("held", bytes(1 * MIB))
        channels = 12
        for number in range(1, channels + 1):
            if number > 1:
                call(connection, number, "channel.open")
            call(connection, number, "tx.select")
            content = amqp.publish_frames("held", bytes(MIB), channel=number)
            for _ in range(60):
                connection.send_bytes(content)
                seen.others += 1
            if connection.ended or connection.events.get(number):
                break
        connection.pump(0.5)
        most = max(server.memory(), most_memory(server, lambda: None))
        trial.expect(seen.goes_on(20), "the witness was not served")
        # The allocator keeps some of what was read on the way.
        bound = before + connection_bytes_max * 3 // 2 + MEMORY_GROWTH_MAX
        trial.expect(most < bound, f"memory rose from {before >> 20} to {most >> 20} MiB, the bound is {bound >> 20} MiB")
        trial.note(f"720 MiB in 12 open transactions: {before >> 20} MiB before, at most {most >> 20} MiB")
        one = opened(server)
        call(one, 1, "tx.select")
        for _ in range(70):
            one.send_bytes(frames)
        code = closed_with(one)
        trial.expect(code and code[0] == 406, f"70 MiB in one transaction were answered {code}")
        connection.drop()
        one.drop()
    no_panic(trial, server)
