"""Very many queues, connections and things that come and go."""

import contextlib
import os
import resource
import socket
import struct
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from differential import protocol, raw_frames
from differential.client import Connection

from .. import amqp
from ..amqp import Publisher, call, declare, opened, witness
from ..scenario import CannotDo, Trial, scenario
from ..server import Server, within
from .backlogs import GIVES_BACK, settled_memory
from .connections import MIB, closed_by_the_broker

# What a queue with a message may take of memory, its name, its partition and its subscription included.
QUEUE_BYTES_MAX = 32 << 10
# A connection with a channel and a consumer.
CONNECTION_BYTES_MAX = 256 << 10
# What may stay of thousands of queues that are gone, in memory and in files. After some 6,000 nothing more is seen to grow.
GONE_BYTES_MAX = 24 * MIB
GONE_FILES_MAX = 100
# Connections over the bound that are told so at a time; more are closed without a word.
TOLD_AT_A_TIME = 32
# Methods that are sent before their answers are read.
PIPELINED = 500
# Each declaration waits for the disk; those of several connections wait together.
CONNECTIONS = 16


def side_by_side(server: Server, count: int, work: Callable[[Connection, range], object]) -> list:
    """Gives each of some connections its part of so many numbers, and returns what came of them."""
    parts = [range(count * at // CONNECTIONS, count * (at + 1) // CONNECTIONS) for at in range(CONNECTIONS)]

    def run(part: range):
        connection = opened(server)
        try:
            return work(connection, part)
        finally:
            connection.drop()

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return list(pool.map(run, parts))


def pipelined(connection: Connection, frames: list[bytes], answer: str, seconds: float = 120) -> list:
    """Sends methods on channel 1, some at a time, and returns their answers in order."""
    answers: list = []
    for at in range(0, len(frames), PIPELINED):
        connection.send_bytes(b"".join(frames[at : at + PIPELINED]))
        wanted = min(at + PIPELINED, len(frames))
        deadline = time.monotonic() + seconds
        while len(answers) < wanted:
            for event in connection.events.pop(1, []):
                if event.name != answer:
                    raise ConnectionError(f"{event.name} {event.fields} came instead of {answer}")
                answers.append(event)
            if len(answers) < wanted and (connection.ended or time.monotonic() > deadline):
                raise ConnectionError(f"{len(answers)} answers of {len(frames)}: {connection.events.get(0)}")
            if len(answers) < wanted:
                connection.pump(0.5)
    return answers


def many_queues(trial: Trial, count: int) -> None:
    server = trial.server().start(GIVES_BACK)
    first = opened(server)
    # The limit of all topics is a hundred thousand, so that this one must not stay.
    declare(first, "one-before")
    call(first, 1, "queue.delete", queue="one-before")
    before = settled_memory(server)

    def name(number: int) -> str:
        return f"one-of-many-{number}"

    def declared(connection: Connection, part: range) -> None:
        declares = [raw_frames.method(1, "queue.declare", queue=name(number), durable=True) for number in part]
        pipelined(connection, declares, "queue.declare_ok")

    def published(connection: Connection, part: range) -> None:
        # The answer to what follows a commit says that it was carried out.
        call(connection, 1, "tx.select")
        for at in range(0, len(part), PIPELINED):
            messages = [amqp.publish_frames(name(number), b"%d" % number) for number in part[at : at + PIPELINED]]
            connection.send_bytes(b"".join(messages))
            call(connection, 1, "tx.commit")

    def counted(connection: Connection, part: range) -> list[tuple[str, int]]:
        passive = [raw_frames.method(1, "queue.declare", queue=name(number), passive=True) for number in part]
        counts = [event.fields["message_count"] for event in pipelined(connection, passive, "queue.declare_ok")]
        return [(name(number), found) for number, found in zip(part, counts, strict=True) if found != 1]

    def taken(connection: Connection, part: range) -> list[tuple[str, str]]:
        gets = [raw_frames.method(1, "basic.get", queue=name(number), no_ack=True) for number in part]
        bodies = [event.body for event in pipelined(connection, gets, "basic.get_ok")]
        return [(name(number), body) for number, body in zip(part, bodies, strict=True) if body != f"{number}"]

    began = time.monotonic()
    side_by_side(server, count, declared)
    took = time.monotonic() - began
    bare = (settled_memory(server) - before) / count
    side_by_side(server, count, published)
    each = (settled_memory(server) - before) / count
    trial.note(f"{count} queues declared in {took:.1f} s; memory of one: {bare:.0f} bytes, {each:.0f} with a message")
    trial.expect(each < QUEUE_BYTES_MAX, f"a queue with a message takes {each:.0f} bytes, the bound is {QUEUE_BYTES_MAX}")
    first.drop()
    server.kill()
    began = time.monotonic()
    server.start(GIVES_BACK)
    trial.note(f"ready {time.monotonic() - began:.1f} s after kill -9, {server.memory() >> 20} MiB resident")
    wrong = [row for rows in side_by_side(server, count, counted) for row in rows]
    trial.expect(not wrong, f"{len(wrong)} queues do not have their one message: {wrong[:3]}")
    wrong = [row for rows in side_by_side(server, count, taken) for row in rows]
    trial.expect(not wrong, f"{len(wrong)} queues have another one's message: {wrong[:3]}")
    trial.note(f"every queue in use: {server.memory() >> 20} MiB resident")


@scenario("five-thousand-queues", "queues with a message each are there after kill -9, and take a bounded part of memory")
def five_thousand_queues(trial: Trial) -> None:
    many_queues(trial, 5_000)


@scenario("a-hundred-thousand-queues", "the same of a hundred thousand", slow=True)
def a_hundred_thousand_queues(trial: Trial) -> None:
    many_queues(trial, 100_000)


def many_connections(trial: Trial, server: Server, most: int) -> None:
    """Each has a channel and a consumer on the same queue; those over the bound are refused."""
    with witness(trial, server, "many connections") as seen:
        publisher = Publisher(server)
        declare(publisher.connection, "shared")
        before = settled_memory(server)
        held: list[Connection] = []
        refused = None
        while refused is None and len(held) <= most:
            try:
                connection = opened(server)
            except (ConnectionError, OSError) as refusal:
                refused = refusal
                break
            held.append(connection)
            call(connection, 1, "basic.qos", prefetch_count=1)
            connection.send(1, "basic.consume", queue="shared", consumer_tag="c", no_wait=True)
            seen.others += 1
        trial.expect(refused is not None, f"{len(held)} connections were made and none was refused")
        # The witness and the publisher have one each.
        there = len(held) + 2
        trial.expect(there == most, f"{there} connections were taken, not {most}")
        each = (settled_memory(server) - before) / len(held)
        trial.note(f"{there} connections with a channel and a consumer: {each:.0f} bytes of memory each")
        trial.expect(each < CONNECTION_BYTES_MAX, f"a connection takes {each:.0f} bytes, the bound is {CONNECTION_BYTES_MAX}")
        trial.expect("530" in str(refused), f"who is refused is told {refused}, not 530")
        unclosed = 0
        with contextlib.ExitStack() as stack:
            over = [stack.enter_context(amqp.dial(server)) for _ in range(TOLD_AT_A_TIME + 10)]
            for one in over:
                one.sendall(protocol.HEADER)
            for one in over[TOLD_AT_A_TIME:]:
                unclosed += not closed_by_the_broker(one)
        trial.expect(not unclosed, f"{unclosed} of 10 connections far over the bound were left hanging")
        trial.expect(server.says("as many as allowed"), "the log does not say that connections are refused")
        trial.expect(seen.goes_on(20), "the witness was not served while others were refused")
        consumers = call(publisher.connection, 1, "queue.declare", queue="shared", passive=True).fields["consumer_count"]
        trial.expect(consumers == len(held), f"{consumers} consumers of {len(held)}")
        publisher.publish("shared", len(held))
        fed = 0
        until = time.monotonic() + 60
        for connection in held:
            while not connection.events.get(1) and not connection.ended and time.monotonic() < until:
                connection.pump(0.1)
            fed += bool(connection.events.get(1))
        trial.expect(fed == len(held), f"{fed} of {len(held)} consumers were given the one message that was for them")
        held.pop().drop()
        back = within(20, lambda: takes_one_more(server))
        trial.expect(back, "a connection that went made no room for another")
        for connection in held:
            connection.drop()
        gone = within(30, lambda: amqp.waiting(publisher.connection, "shared") == len(held) + 1)
        trial.expect(gone, "what they had did not come back when they were gone")


def takes_one_more(server: Server) -> bool:
    try:
        opened(server).drop()
        return True
    except (ConnectionError, OSError):
        return False


@scenario("a-thousand-amqp-connections", "each is served; one beyond max.connections is told so with 530, far more are closed at once, others do not notice")
def a_thousand_connections(trial: Trial) -> None:
    many_connections(trial, trial.server(max__connections=1000).start(), 1000)


@scenario("as-many-connections-as-descriptors", "the same at the bound that the process's descriptors set", slow=True)
def as_many_as_descriptors(trial: Trial) -> None:
    descriptors, listeners = 20_000, 4
    if resource.getrlimit(resource.RLIMIT_NOFILE)[1] < descriptors:
        raise CannotDo(f"{descriptors} file descriptors are needed for one process")
    server = trial.server().start(["prlimit", f"--nofile={descriptors}:{descriptors}"])
    # Half of them is for connections, and each listener has its part of that.
    many_connections(trial, server, descriptors // 2 // listeners)


def files(server: Server) -> int:
    """Files and directories; some of them are going."""
    return sum(len(directories) + len(names) for _, directories, names in os.walk(server.data_dir))


def exclusive_round(connection: Connection, number: int, each: int) -> None:
    """Queues of one connection, bound, some of them consumed from."""
    names = [f"gone-{number}-{index}" for index in range(each)]
    durable = {name: index % 2 == 0 for index, name in enumerate(names)}
    declares = [
        raw_frames.method(1, "queue.declare", queue=name, exclusive=True, auto_delete=True, durable=durable[name])
        for name in names
    ]
    pipelined(connection, declares, "queue.declare_ok")
    binds = [raw_frames.method(1, "queue.bind", queue=name, exchange="all") for name in names]
    pipelined(connection, binds, "queue.bind_ok")
    for name in names[:5]:
        connection.send_bytes(amqp.publish_frames(name, b"x"))
    if number % 3 == 0:
        consumes = [raw_frames.method(1, "basic.consume", queue=name, consumer_tag=name, no_wait=True) for name in names]
        connection.send_bytes(b"".join(consumes))


def ended_well_or_badly(connection: Connection, number: int) -> None:
    if number % 2:
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.drop()
        return
    connection.send(0, "connection.close", reply_code=200)
    if not within(60, lambda: not connection.pump(0.1) and connection.ended):
        raise ConnectionError("a close is not answered")


def queues_go(trial: Trial, rounds: int, each: int) -> None:
    """Connections come with exclusive queues and go, one after the other or side by side."""
    server = trial.server().start(GIVES_BACK)
    keeper = Publisher(server)
    call(keeper.connection, 1, "exchange.declare", exchange="all", type="fanout", durable=True)
    declare(keeper.connection, "kept")
    call(keeper.connection, 1, "queue.bind", queue="kept", exchange="all")
    with witness(trial, server, "queues that come and go") as seen:

        def one(number: int) -> None:
            connection = opened(server)
            exclusive_round(connection, number, each)
            ended_well_or_badly(connection, number)
            seen.others += each

        sizes = []
        for begin, end in ((0, rounds * 2 // 5), (rounds * 2 // 5, rounds)):
            with ThreadPoolExecutor(CONNECTIONS) as pool:
                list(pool.map(one, range(begin, end)))
            # One message for every queue that is bound by now.
            keeper.publish("", 1, begin=end, exchange="all")
            gone = within(60, lambda: not left_of(server))
            trial.expect(gone, f"queues that are there although their connection is gone: {left_of(server)[:3]}")
            sizes.append((settled_memory(server), files(server)))
        (memory_then, files_then), (memory_now, files_now) = sizes
        late = (rounds - rounds * 2 // 5) * each
        grown = memory_now - memory_then
        trial.note(f"memory grew by {grown >> 10} KiB and the directory by {files_now - files_then} files over {late} queues")
        trial.expect(grown < GONE_BYTES_MAX, f"memory grew by {grown >> 20} MiB over {late} queues that are gone")
        trial.expect(
            within(60, lambda: files(server) < files_then + GONE_FILES_MAX),
            f"{files(server)} files and directories, {files_then} were after the first two fifths",
        )
    status, body = server.http_management("/api/exchanges/%2F/all/bindings/source")
    bound = [row["destination"] for row in body] if status == 200 else []
    trial.expect(bound == ["kept"], f"the exchange is bound to {bound[:5]}")
    trial.expect(amqp.waiting(keeper.connection, "kept") == 2, "the queue that stays does not have every message")
    server.kill()
    server.start()
    trial.expect(not left_of(server), f"after a kill these are there again: {left_of(server)[:3]}")
    reader = opened(server)
    trial.expect(amqp.waiting(reader, "kept") == 2, "after a kill the queue that stays lost messages")
    # One that is exclusive goes with the process, too.
    reader.drop()
    exclusive = opened(server)
    pipelined(
        exclusive,
        [raw_frames.method(1, "queue.declare", queue=f"gone-{index}", exclusive=True, durable=True) for index in range(50)],
        "queue.declare_ok",
    )
    server.kill()
    server.start()
    trial.expect(within(20, lambda: not left_of(server)), f"exclusive queues outlived the process: {left_of(server)[:3]}")


@scenario("queues-that-go", "exclusive queues that went with their connection leave nothing behind, bindings included")
def queues_that_go(trial: Trial) -> None:
    queues_go(trial, 50, 100)


@scenario("twenty-thousand-queues-that-go", "the same of twenty thousand", slow=True)
def twenty_thousand_queues_that_go(trial: Trial) -> None:
    queues_go(trial, 200, 100)


def left_of(server: Server) -> list[str]:
    """Queues that should be gone, as the management API names them."""
    status, body = server.http_management("/api/queues?page=1&page_size=100&name=gone&use_regex=false")
    if status != 200:
        raise ConnectionError(f"the management API answered {status} {body}")
    return [row["name"] for row in body["items"]]
