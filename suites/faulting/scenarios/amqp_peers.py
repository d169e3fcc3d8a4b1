"""AMQP clients that break the protocol, come in floods, or never read: nobody else notices, memory stays bounded.

Beside each of them a witness publishes, waits for its confirm and consumes, all the while.
"""

import random
import socket
import struct

from differential import protocol, raw_frames
from differential.client import Connection

from .. import amqp
from ..amqp import Drain, Publisher, call, closed_with, declare, dial, opened, witness
from ..scenario import Trial, scenario
from ..server import Server, within
from .connections import MIB

# What a hostile client may cost while it is there, beside what it has really sent.
MEMORY_GROWTH_MAX = 64 * MIB
# How many operations of others may pass while the witness makes one round trip.
TRIP_OPERATIONS_MAX = 400
# Under mutated bytes.
MUTATIONS = 600


def no_panic(trial: Trial, server: Server) -> None:
    trial.expect(server.running(), "the process has ended")
    trial.expect("panicked" not in server.said(), "something panicked")


def by_hand() -> list[tuple[str, bool, bytes]]:
    """What is wrong, whether it comes instead of a handshake, and the bytes."""
    found = []
    for words, steps in raw_frames.ALL.items():
        data = [bytes.fromhex(step["hex"]) for step in steps if step["do"] == "bytes"]
        first = any(step.get("first") for step in steps)
        if words not in ("a handshake", "a handshake by AMQPLAIN", "no limits asked for"):
            found.append((words, first, b"".join(data)))
    dice = random.Random(11)
    found += [
        ("a length of 4 GiB", False, struct.pack(">BHI", 1, 1, 0xFFFFFFFF) + bytes(100)),
        ("a length of 4 GiB in the handshake", True, protocol.HEADER + struct.pack(">BHI", 1, 0, 0xFFFFFFFF)),
        ("a message of 2^63 bytes", False, raw_frames.PUBLISH + raw_frames.header(1, 1 << 63)),
        ("half a header", True, b"AMQ"),
        ("noise", True, dice.randbytes(5000)),
        ("noise behind the handshake", False, dice.randbytes(5000)),
        ("TLS", True, bytes.fromhex("16030100c8010000c40303") + dice.randbytes(190)),
    ]
    return found


# What must end the connection without our closing our side, and the code that it is told.
CODES = {
    "a frame that does not end": 501,
    "a frame that is too large": 501,
    "a frame of an unknown kind": 501,
    "a length of 4 GiB": 501,
    "a header without its method": 505,
    "a body from nowhere": 505,
    "a method where a body was due": 505,
    "a second header": 505,
    "a heartbeat on a channel": 505,
    "a body on a channel that is not open": 505,
}


@scenario("amqp-malformed-frames", "that connection alone ends, with AMQP's own code; no memory for lengths that lie")
def malformed_frames(trial: Trial) -> None:
    server = trial.server().start()
    with witness(trial, server, "malformed frames") as seen:
        before = server.memory()
        for _ in range(3):
            for what, first, data in by_hand():
                connection = Connection(amqp.address(server)) if first else opened(server)
                if not first:
                    declare(connection, "q1")
                connection.send_bytes(data)
                if not connection.ended:
                    connection.socket.shutdown(socket.SHUT_WR)
                    ends = within(15, lambda: connection.ended or not connection.pump(0.05) and connection.ended)
                    trial.expect(ends, f"{what}: not closed although the peer was done")
                connection.drop()
                seen.others += 1
        told = {what: data for what, first, data in by_hand() if what in CODES}
        trial.expect(len(told) == len(CODES), f"nothing is called {set(CODES) - set(told)}")
        for what, data in told.items():
            connection = opened(server)
            connection.send_bytes(data)
            code = closed_with(connection)
            trial.expect(code and code[0] == CODES[what], f"{what}: answered {code}, not {CODES[what]}")
            connection.drop()
        grown = server.memory() - before
        trial.expect(grown < MEMORY_GROWTH_MAX, f"memory grew by {grown >> 20} MiB")
        trial.expect(seen.longest <= TRIP_OPERATIONS_MAX, f"{seen.longest} operations passed during one round trip")
    no_panic(trial, server)


@scenario("amqp-mutated-frames", "valid frames with bytes changed, cut and repeated end one connection at most")
def mutated_frames(trial: Trial) -> None:
    server = trial.server().start()
    dice = random.Random(23)
    table = [["a", ["S", "text"]], ["n", ["F", [["x", ["I", 5]], ["l", ["A", [["t", True], ["V", None]]]]]]]]
    valid = b"".join(
        [
            raw_frames.method(1, "queue.declare", queue="mutated", arguments=table),
            raw_frames.method(1, "confirm.select"),
            amqp.publish_frames("mutated", b"x" * 300, {"headers": table, "content_type": "text/plain", "priority": 3}),
            raw_frames.method(1, "basic.consume", queue="mutated", consumer_tag="c"),
            raw_frames.method(1, "basic.ack", delivery_tag=1),
            raw_frames.method(1, "basic.qos", prefetch_count=5),
            raw_frames.method(1, "exchange.declare", exchange="mutated", type="topic", arguments=table),
            raw_frames.method(1, "queue.bind", queue="mutated", exchange="mutated", routing_key="a.#", arguments=table),
            raw_frames.method(1, "basic.recover", requeue=True),
            raw_frames.method(1, "queue.purge", queue="mutated"),
        ]
    )
    with witness(trial, server, "mutated frames") as seen:
        before = server.memory()
        for _ in range(MUTATIONS):
            data = bytearray(valid)
            for _ in range(dice.choice((0, 1, 1, 2, 5, 20))):
                data[dice.randrange(len(data))] = dice.choice((0, 1, 0x7F, 0x80, 0xCE, 0xFF, dice.randrange(256)))
            if dice.random() < 0.5:
                del data[dice.randrange(len(data)) :]
            if dice.random() < 0.2:
                at = dice.randrange(len(data) + 1)
                data[at:at] = data[: dice.randrange(len(data) + 1)]
            connection = opened(server)
            connection.send_bytes(bytes(data))
            connection.pump(0.001)
            connection.drop()
            seen.others += 1
        grown = server.memory() - before
        trial.expect(grown < MEMORY_GROWTH_MAX, f"memory grew by {grown >> 20} MiB")
        trial.expect(seen.longest <= TRIP_OPERATIONS_MAX, f"{seen.longest} operations passed during one round trip")
    no_panic(trial, server)


def nested(depth: int, kind: str = "F") -> bytes:
    """A table in a table in a table, as bytes with their length."""
    inner = b""
    for _ in range(depth):
        entry = b"\x01k" if kind == "F" else b""
        inner = entry + kind.encode() + struct.pack(">I", len(inner)) + inner
    if kind == "A":
        inner = b"\x01k" + inner
    return struct.pack(">I", len(inner)) + inner


def random_value(dice: random.Random, depth: int) -> list:
    tag = dice.choice("tbBsuIilfdSTVx" + "FA" * (2 if depth else 0))
    bits = {"b": 8, "B": 8, "s": 16, "u": 16, "I": 32, "i": 32, "l": 64, "T": 63}
    if tag in bits:
        least = 0 if tag in "BuiT" else -(1 << (bits[tag] - 1))
        return [tag, dice.randrange(least, least + (1 << bits[tag]))]
    if tag in "Sx":
        return [tag, dice.randbytes(dice.choice((0, 1, 30, 300))).decode("utf-8", "surrogateescape")]
    if tag == "F":
        return [tag, random_table(dice, depth - 1)]
    if tag == "A":
        return [tag, [random_value(dice, depth - 1) for _ in range(dice.randrange(5))]]
    return [tag, {"t": dice.random() < 0.5, "V": None, "f": 0.5, "d": dice.random()}[tag]]


def random_table(dice: random.Random, depth: int) -> list:
    return [[f"{number} {dice.randrange(99)}", random_value(dice, depth)] for number in range(dice.randrange(6))]


@scenario("amqp-tables", "headers of any types come back as they were sent; tables without a bottom end one connection")
def tables(trial: Trial) -> None:
    server = trial.server().start()
    dice = random.Random(5)
    with witness(trial, server, "tables") as seen:
        connection = opened(server)
        declare(connection, "tables")
        for number in range(300):
            headers = random_table(dice, 4)
            connection.send(1, "basic.publish", {"headers": headers}, f"{number}", routing_key="tables")
            came = call(connection, 1, "basic.get", queue="tables", no_ack=True)
            # Nothing else is in the queue; a redelivery would be seen as another body.
            if not trial.expect(came.body == f"{number}", f"message {number} came back as {came.name} {came.body}"):
                break
            same = came.properties["headers"] == headers
            if not trial.expect(same, f"headers {headers} came back as {came.properties['headers']}"):
                break
            seen.others += 1
        before = server.memory()
        for kind in "FA":
            # A frame has room for some 18,000 of them.
            for depth in (60, 65, 1000, 18_000):
                # A field table of a content header, of a method's arguments, and of a handshake.
                flags = struct.pack(">HHQH", 60, 0, 0, 1 << 13)
                content = raw_frames.frame(2, 1, flags + nested(depth, kind))
                arguments = struct.pack(">HHH", 50, 10, 0) + b"\x04deep\x02" + nested(depth, kind)
                start = struct.pack(">HH", 10, 11) + nested(min(depth, 1000), kind) + b"\x05PLAIN" + bytes(8) + b"\x05en_US"
                for what, first, data in (
                    ("headers", False, raw_frames.PUBLISH + content),
                    ("arguments", False, raw_frames.frame(1, 1, arguments)),
                    ("properties of a client", True, protocol.HEADER + raw_frames.frame(1, 0, start)),
                ):
                    hostile = Connection(amqp.address(server)) if first else opened(server)
                    hostile.send_bytes(data)
                    if depth > 64 and not first:
                        code = closed_with(hostile)
                        told = code and code[0] in (501, 502, 505, 506)
                        trial.expect(told, f"{what} {depth} deep in {kind}: answered {code}")
                    hostile.drop()
                    seen.others += 1
        grown = server.memory() - before
        trial.expect(grown < MEMORY_GROWTH_MAX, f"memory grew by {grown >> 20} MiB")
        connection.drop()
    no_panic(trial, server)


@scenario("amqp-channel-flood", "channels up to the agreed number, over and over; one more is refused with 530")
def channel_flood(trial: Trial) -> None:
    channels, connections = 2047, 5
    # A channel with a consumer and a queue of its own name in the owner's tables.
    channel_bytes_max = 16 << 10
    server = trial.server().start()
    with witness(trial, server, "a flood of channels") as seen:
        before = server.memory()
        held = []
        for _ in range(connections):
            connection = opened(server)
            held.append(connection)
            declare(connection, "flooded")
            opens = b"".join(raw_frames.method(number, "channel.open") for number in range(2, channels + 1))
            consumes = b"".join(
                raw_frames.method(number, "basic.consume", queue="flooded", consumer_tag="c")
                for number in range(1, channels + 1)
            )
            connection.send_bytes(opens + consumes)
            there = within(
                60,
                lambda: not connection.pump(0.1)
                and sum(event.name == "basic.consume_ok" for events in connection.events.values() for event in events)
                == channels,
            )
            trial.expect(there, "not every channel was opened and given its consumer")
            connection.events.clear()
            seen.others += channels
        grown = server.memory() - before
        bound = MEMORY_GROWTH_MAX + channels * connections * channel_bytes_max
        trial.expect(grown < bound, f"memory grew by {grown >> 20} MiB, the bound is {bound >> 20} MiB")
        trial.note(f"{channels * connections} channels with a consumer: {grown // (channels * connections)} bytes each")
        one_more = held[0]
        one_more.send(channels + 1, "channel.open")
        code = closed_with(one_more)
        trial.expect(code and code[0] == 530, f"one channel more than agreed was answered {code}")
        # Opened and closed without anybody reading the answers until the end.
        churn = raw_frames.method(7, "channel.open") + raw_frames.method(7, "channel.close", reply_code=200)
        other = opened(server)
        other.send_bytes(churn * 5000)
        told = within(60, lambda: not other.pump(0.1) and len(other.events.get(7, [])) == 10_000)
        trial.expect(told, f"{len(other.events.get(7, []))} answers of 10,000 to channels opened and closed")
        seen.others += 10_000
        for connection in [*held, other]:
            connection.drop()
        published = Publisher(server)
        trial.expect(published.publish("flooded", 100) == 100, "the flooded queue takes nothing any more")
        drain = Drain(server, "flooded")
        trial.expect(drain.take(100), "the flooded queue gives nothing any more")
        published.close()
        drain.close()
    no_panic(trial, server)


@scenario("amqp-connection-churn", "a thousand connections opened and dropped in every state leave nothing behind")
def connection_churn(trial: Trial) -> None:
    server = trial.server().start()
    declared = opened(server)
    declare(declared, "churned")
    publisher = Publisher(server)
    publisher.publish("churned", 50)
    with witness(trial, server, "connections that come and go") as seen:
        files = server.open_files()
        for number in range(1000):
            match number % 5:
                case 0:
                    dial(server).close()
                case 1:
                    half = dial(server)
                    half.sendall(protocol.HEADER[: number % 8])
                    half.close()
                case 2:
                    connection = opened(server)
                    connection.drop()
                case 3:
                    # With messages that it has, and a message of which half was sent.
                    drain = Drain(server, "churned", prefetch=10)
                    drain.connection.send_bytes(raw_frames.PUBLISH + raw_frames.header(1, 1000))
                    drain.drop()
                case 4:
                    connection = opened(server)
                    connection.send(1, "queue.declare", exclusive=True, auto_delete=True)
                    connection.drop()
            seen.others += 1
            if number == 200:
                before = server.memory()
        grown = server.memory() - before
        trial.expect(grown < MEMORY_GROWTH_MAX, f"memory grew by {grown >> 20} MiB after the first 200")
        trial.expect(seen.longest <= TRIP_OPERATIONS_MAX, f"{seen.longest} connections came during one round trip")
        trial.note(f"at most {seen.longest} connections came and went during one of {seen.trips} round trips")
        back = within(30, lambda: server.open_files() <= files + 8)
        trial.expect(back, f"{server.open_files()} files are open, {files} were before")
        trial.expect(within(20, lambda: amqp.waiting(declared, "churned") == 50), "what they had did not come back")
    drain = Drain(server, "churned")
    trial.expect(drain.take(50) and drain.numbers == list(range(50)), f"it came back as {drain.numbers}")
    drain.close()
    no_panic(trial, server)


@scenario("amqp-half-open", "peers that fall silent in any state are let go of; what they had goes to others")
def half_open(trial: Trial) -> None:
    server = trial.server().start()
    with witness(trial, server, "silent peers") as seen:
        files, before = server.open_files(), server.memory()
        held = []
        for number in range(300):
            connection = dial(server)
            connection.sendall((protocol.HEADER + raw_frames.start_ok() + raw_frames.TUNE)[: number * 2])
            held.append(connection)
            seen.others += 1
        trial.expect(seen.goes_on(20), "with 300 handshakes that do not go on the witness was not served")
        grown = server.memory() - before
        trial.expect(grown < MEMORY_GROWTH_MAX, f"memory grew by {grown >> 20} MiB")
        # One that agreed on heartbeats has messages, and is not heard of again.
        publisher = Publisher(server)
        declare(publisher.connection, "silent")
        publisher.publish("silent", 20)
        mute = Connection(amqp.address(server))
        amqp.open_with_heartbeats(mute, seconds=1)
        call(mute, 1, "basic.qos", prefetch_count=20)
        call(mute, 1, "basic.consume", queue="silent", consumer_tag="mute")
        trial.expect(amqp.waiting(publisher.connection, "silent") == 0, "the consumer was given nothing")
        drain = Drain(server, "silent", prefetch=5)
        trial.expect(drain.take(20, seconds=60), "what a silent peer had never came to another consumer")
        trial.expect(drain.numbers == list(range(20)), f"it came as {drain.numbers}")
        trial.expect(all(drain.redelivered), "it came without being marked as redelivered")
        drain.close()
        publisher.close()
        # A handshake has ten seconds.
        let_go = within(40, lambda: server.open_files() <= files + 8)
        trial.expect(let_go, f"{server.open_files()} files are open, {files} were before the silent peers")
        for connection in held:
            connection.close()
    no_panic(trial, server)
