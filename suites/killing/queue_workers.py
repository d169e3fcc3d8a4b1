"""The clients that load AMQP's queues while the broker is killed. Two processes, a thread and a ledger for each client.

Publishers have many messages on their way and send again, under another attempt, what was not confirmed. Consumers are
pika's: they acknowledge most, reject and give back some, make certain by rounds what was settled, and come and go.
"""

import random
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pika
from differential.client import Connection, Event
from pika.adapters.utils.connection_workflow import AMQPConnectorException
from pika.exceptions import AMQPError

from killing.queues import Expected
from killing.workers import Stopping

# A connection that ends, is refused, or to which nobody says anything: the last is none of pika's own errors.
GONE = (AMQPError, AMQPConnectorException, OSError)

Address = tuple[str, int]

PRIORITIES = 3
DELAY_MS = 100
DYING, LATER = "kills-dying", "kills-later-exchange"
UNCONFIRMED_MAX = 60
TRANSACTION = 5
FLUSH_SECONDS = 60.0
# A consumer makes certain what it has said after so many acknowledgements.
ROUND_AFTER = 40
BACK_CHANCE = 0.05


@dataclass(frozen=True)
class Publishing:
    """A publisher, the queue in which its messages end up, and where it sends them."""

    name: str
    queue: str
    exchange: str = ""
    key: str = ""
    transactions: bool = False

    def properties(self, number: int) -> dict:
        if self.exchange == LATER:
            return {"headers": [["x-delay", ["I", DELAY_MS]]], "delivery_mode": 2}
        return {"delivery_mode": 2, **priority(self.queue, number)}


def priority(queue: str, number: int) -> dict:
    return {"priority": number % PRIORITIES} if queue == "kills-priority" else {}


@dataclass(frozen=True)
class Consuming:
    """A consumer."""

    name: str
    queue: str
    transactions: bool = False


PUBLISHERS = (
    Publishing("to-classic", "kills-classic"),
    Publishing("to-quorum", "kills-quorum"),
    Publishing("to-priority", "kills-priority"),
    Publishing("to-dead", "kills-dead", key=DYING),
    Publishing("to-later", "kills-later", exchange=LATER, key="kills-later"),
    Publishing("to-tx", "kills-tx", transactions=True),
)
CONSUMERS = (
    Consuming("classic-a", "kills-classic"),
    Consuming("classic-b", "kills-classic"),
    Consuming("quorum-a", "kills-quorum"),
    Consuming("quorum-b", "kills-quorum"),
    Consuming("priority", "kills-priority"),
    Consuming("dead", "kills-dead"),
    Consuming("later", "kills-later"),
    Consuming("tx", "kills-tx", transactions=True),
)
QUEUES = sorted({consumer.queue for consumer in CONSUMERS})


def marks_of(consumer: Consuming) -> str:
    """The name under which a consumer publishes in its rounds."""
    return f"marks-of-{consumer.name}"


# The order in which letters die is nobody's promise: they are published side by side. A kill while one is published
# may bring it twice.
EXPECTED = Expected(
    queue_of={publisher.name: publisher.queue for publisher in PUBLISHERS}
    | {marks_of(consumer): consumer.queue for consumer in CONSUMERS},
    ordered=set(QUEUES) - {"kills-dead"},
    counted={"kills-quorum"},
    doubled={"kills-dead"},
    deaths={"to-dead": 1},
    priorities={"kills-priority": PRIORITIES},
)


def parameters(address: Address) -> pika.ConnectionParameters:
    host, port = address
    return pika.ConnectionParameters(host, port, heartbeat=0, socket_timeout=10, stack_timeout=15)


def declare(address: Address) -> None:
    """Everything that the clients use."""
    arguments = {
        "kills-quorum": {"x-queue-type": "quorum"},
        "kills-priority": {"x-max-priority": PRIORITIES},
        DYING: {"x-message-ttl": 150, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "kills-dead"},
    }
    with pika.BlockingConnection(parameters(address)) as connection:
        channel = connection.channel()
        for queue in [*QUEUES, DYING]:
            channel.queue_declare(queue, durable=True, arguments=arguments.get(queue))
        channel.exchange_declare(LATER, "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
        channel.queue_bind("kills-later", LATER, "kills-later")


def publish_all(address: Address, rate: int, seed: int, place: Path) -> None:
    """Every publisher, until SIGTERM and until all that they sent was confirmed."""
    stopping = Stopping()
    run_all([Publisher(role, address, rate, seed, stopping, place / f"{role.name}.queue-ledger") for role in PUBLISHERS])


def consume_all(address: Address, seed: int, place: Path) -> None:
    """Every consumer, until SIGTERM."""
    stopping = Stopping()
    run_all([Consumer(role, address, seed, stopping, place / f"{role.name}.queue-ledger") for role in CONSUMERS])


def ledgers(place: Path) -> tuple[list[Path], list[Path]]:
    """The ledgers of publishers and of consumers."""
    return [place / f"{role.name}.queue-ledger" for role in PUBLISHERS], [
        place / f"{role.name}.queue-ledger" for role in CONSUMERS
    ]


def run_all(clients: list) -> None:
    failures: list[str] = []

    def guarded(run: Callable[[], None], name: str) -> None:
        try:
            run()
        except Exception as failure:  # whatever it is, the runner is to hear of it
            failures.append(f"{name}: {type(failure).__name__}: {failure}")

    threads = [threading.Thread(target=guarded, args=(client.run, client.role.name), daemon=True) for client in clients]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and not failures:
        time.sleep(0.05)
    if failures:
        sys.exit(failures[0])


class Publisher:
    """Sends numbered messages until it is told to stop, and each of them until it is confirmed."""

    def __init__(self, role: Publishing, address: Address, rate: int, seed: int, stopping: Stopping, path: Path):
        self.role, self.address, self.rate, self.stopping = role, address, rate, stopping
        self.dice = random.Random(f"{seed} {role.name}")
        self.ledger = path.open("w", buffering=1)
        self.next_number = self.next_attempt = 0
        # What is not confirmed, in order.
        self.pending: dict[int, None] = {}

    def run(self) -> None:
        deadline = None
        while not (self.stopping.asked and not self.pending):
            if self.stopping.asked and deadline is None:
                deadline = time.monotonic() + FLUSH_SECONDS
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"{len(self.pending)} messages were never confirmed")
            try:
                connection = self._connect()
            except (ConnectionError, OSError):
                time.sleep(0.02)
                continue
            try:
                self._open(connection)
                if self.role.transactions:
                    self._in_transactions(connection)
                else:
                    self._confirmed(connection)
            except (ConnectionError, OSError):
                pass
            connection.drop()
        self.ledger.close()

    def _connect(self) -> Connection:
        return Connection(self.address).open()

    def _open(self, connection: Connection) -> None:
        connection.send(1, "channel.open")
        connection.expect(1, "channel.open_ok")
        mode = "tx" if self.role.transactions else "confirm"
        connection.send(1, f"{mode}.select")
        connection.expect(1, f"{mode}.select_ok")

    def _send(self, connection: Connection, number: int) -> None:
        attempt, self.next_attempt = self.next_attempt, self.next_attempt + 1
        self.ledger.write(f"sent {self.role.name} {number} {attempt}\n")
        body = f"{self.role.name} {number} {attempt} " + "." * self.dice.choice((0, 20, 200, 2000))
        role = self.role
        key = role.key or role.queue
        connection.send(1, "basic.publish", role.properties(number), body, exchange=role.exchange, routing_key=key)

    def _numbers(self, count: int) -> list[int]:
        numbers = list(range(self.next_number, self.next_number + count))
        self.next_number += count
        self.pending.update(dict.fromkeys(numbers))
        return numbers

    def _kept(self, number: int) -> None:
        self.ledger.write(f"kept {self.role.name} {number}\n")
        self.pending.pop(number, None)

    def _confirmed(self, connection: Connection) -> None:
        waiting: dict[int, int] = {}
        tag = 0
        again = list(self.pending)
        while again or not (self.stopping.asked and not self.pending):
            self._look(connection, waiting)
            room = UNCONFIRMED_MAX - len(waiting)
            if again:
                numbers, again = again[:room], again[room:]
            else:
                numbers = [] if self.stopping.asked else self._numbers(min(room, self.dice.randrange(1, 12)))
            for number in numbers:
                self._send(connection, number)
                tag += 1
                waiting[tag] = number
            pause = 6 / self.rate
            connection.pump(pause)
            for event in connection.events.pop(1, []):
                if event.name != "basic.ack":
                    self._refused(event)
                last = event.fields["delivery_tag"]
                told = [one for one in waiting if one <= last] if event.fields["multiple"] else [last]
                for one in told:
                    self._kept(waiting.pop(one))
            if not again:
                time.sleep(pause)

    def _look(self, connection: Connection, waiting: dict[int, int]) -> None:
        """Whether it is worth to go on with a connection on which these wait for their confirms."""
        if connection.ended:
            raise ConnectionError("it is gone")

    def _refused(self, event: Event) -> None:
        raise RuntimeError(f"a publisher was told {event.name} {event.fields}")

    def _in_transactions(self, connection: Connection) -> None:
        while not (self.stopping.asked and not self.pending):
            # Some are rolled back, and nobody may ever see them: their attempts are not noted as sent.
            if self.dice.random() < 0.2:
                for _ in range(3):
                    connection.send(1, "basic.publish", {}, "rolled-back 0 0 .", routing_key=self.role.queue)
                connection.send(1, "tx.rollback")
                connection.expect(1, "tx.rollback_ok")
            numbers = list(self.pending) or self._numbers(TRANSACTION)
            for number in numbers:
                self._send(connection, number)
            connection.send(1, "tx.commit")
            connection.expect(1, "tx.commit_ok")
            for number in numbers:
                self._kept(number)
            time.sleep(TRANSACTION / self.rate)


class Consumer:
    """Takes messages, settles them in every way, and comes and goes."""

    def __init__(self, role: Consuming, address: Address, seed: int, stopping: Stopping, path: Path):
        self.role, self.address, self.stopping = role, address, stopping
        self.dice = random.Random(f"{seed} {role.name}")
        self.ledger = path.open("w", buffering=1)
        self.marks = self.sessions = 0

    def run(self) -> None:
        while not self.stopping.asked:
            self.sessions += 1
            try:
                session, connection = self._connect()
            except GONE:
                time.sleep(0.02)
                continue
            self.ledger.write(f"opened {session} {time.monotonic()}\n")
            try:
                self._stay(connection, session, self.dice.uniform(1, 5))
                self.ledger.write(f"freed {self.role.queue} {session} {time.monotonic()}\n")
                connection.close()
            except GONE:
                pass
        self.ledger.close()

    def _connect(self) -> tuple[str, pika.BlockingConnection]:
        """A session's name, and its connection."""
        return f"{self.role.name}/{self.sessions}", pika.BlockingConnection(parameters(self.address))

    def _deliveries(self, channel):
        """What comes; something at least ten times a second, if only that nothing has."""
        return channel.consume(self.role.queue, inactivity_timeout=0.1)

    def _stay(self, connection: pika.BlockingConnection, session: str, seconds: float) -> None:
        queue = self.role.queue
        channel, marking = connection.channel(), connection.channel()
        if self.role.transactions:
            channel.tx_select()
        else:
            marking.confirm_delivery()
        channel.basic_qos(prefetch_count=30)
        leave_at = time.monotonic() + seconds
        unsure = 0
        for method, properties, body in self._deliveries(channel):
            if method is not None:
                name, number, attempt = body[:64].decode().split(" ", 3)[:3]
                message = f"{name} {number} {attempt}"
                headers = properties.headers or {}
                count = headers.get("x-delivery-count", 0) + sum(death["count"] for death in headers.get("x-death", ()))
                place = f"{queue} {message}"
                now = time.monotonic()
                self.ledger.write(f"got {place} {int(method.redelivered)} {count} {session} {now}\n")
                if self.dice.random() < BACK_CHANCE and not self.role.transactions:
                    # Of which only a rejection is a failure that is counted.
                    if self.dice.random() < 0.5:
                        channel.basic_nack(method.delivery_tag, requeue=True)
                    else:
                        self.ledger.write(f"back {place} {session} {now}\n")
                        channel.basic_reject(method.delivery_tag, requeue=True)
                else:
                    self.ledger.write(f"acked {place} {session} {now}\n")
                    channel.basic_ack(method.delivery_tag)
                unsure += 1
            is_over = self.stopping.asked or time.monotonic() > leave_at
            if unsure >= ROUND_AFTER or (is_over and unsure):
                self._round(channel, marking, session)
                unsure = 0
            if is_over:
                return

    def _round(self, channel, marking, session: str) -> None:
        asked = time.monotonic()
        if self.role.transactions:
            mark = self._mark(channel)
            asked = time.monotonic()
            channel.tx_commit()
            self.ledger.write(f"kept {mark}\n")
        else:
            for _ in range(2):
                channel.queue_declare(self.role.queue, passive=True)
                mark = self._mark(marking)
                self.ledger.write(f"kept {mark}\n")
        self.ledger.write(f"settled {session} {asked} {time.monotonic()}\n")

    def _mark(self, channel) -> str:
        number, self.marks = self.marks, self.marks + 1
        mark = f"{marks_of(self.role)} {number}"
        self.ledger.write(f"sent {mark} {number}\n")
        properties = pika.BasicProperties(delivery_mode=2, **priority(self.role.queue, number))
        channel.basic_publish("", self.role.queue, f"{mark} {number} ".encode(), properties)
        return mark


def take_what_is_left(
    address: Address,
    known: set[tuple[str, int]],
    path: Path,
    seconds: float = 60,
    *,
    queues: list[str] = QUEUES,
    dying_queue: str = DYING,
) -> None:
    """Empties every queue into a ledger, until nothing comes any more and all that is `known` to be missing has come.

    Some may still be waiting for their time.
    """
    deadline = time.monotonic() + seconds
    with path.open("w") as ledger, pika.BlockingConnection(parameters(address)) as connection:
        channel = connection.channel()
        came = True
        while time.monotonic() < deadline and (came or known):
            came = False
            for queue in queues:
                while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
                    name, number, attempt = got[2][:64].decode().split(" ", 3)[:3]
                    ledger.write(f"left {queue} {name} {number} {attempt}\n")
                    known.discard((name, int(number)))
                    came = True
            if not came:
                dying = channel.queue_declare(dying_queue, passive=True).method.message_count
                came = dying > 0
                time.sleep(0.05)
