"""Numbered records, who acknowledged them, and whether they are all there.

A record's value follows from its producer's name, its number and its length, so that whoever reads it
knows what it should be. What a producer was told goes into the same ledgers as in `suites/kills`, and
the same judge looks at them.
"""

import threading
import time
from collections import defaultdict

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from killing.ledger import COMPLAINTS_SHOWN_PER_CHECK, UNKNOWN_OFFSET, Held, Ledgers, judge

Place = tuple[str, int]

READ_SECONDS = 60.0
# What a client does by itself while a broker is away: come back soon.
PATIENT = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    "socket.connection.setup.timeout.ms": 2000,
    "log_level": 0,
}
PATTERN = bytes(range(33, 127)) * 1200


def value(name: str, number: int, length: int) -> bytes:
    head = f"{name} {number} {length} ".encode()
    start = (number * 31) % 94
    return head + PATTERN[start : start + max(0, length - len(head))]


def parsed(content: bytes) -> tuple[str, int] | None:
    """Whose record it is and which, if its content is what was sent."""
    try:
        name, number, length, _ = content[:64].split(b" ", 3)
        whose = (name.decode(), int(number))
        return whose if content == value(*whose, int(length)) else None
    except ValueError:
        return None


def create(bootstrap: str, topic: str, partitions: int = 1, **config) -> None:
    """A topic; `segment_bytes=1` is `segment.bytes=1`."""
    settings = {name.replace("_", "."): str(setting) for name, setting in config.items()}
    admin = AdminClient({**PATIENT, "bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1, config=settings)], request_timeout=20)[topic].result(30)


class Records:
    """All records of a scenario: what was acknowledged, and by whom it was sent."""

    def __init__(self):
        self.ledgers = Ledgers()
        self.sequences: dict[tuple[str, Place], int] = defaultdict(int)
        # Their every record was acknowledged, so that each must be there exactly once.
        self.whole: set[str] = set()
        self.refused: list[tuple[str, KafkaError]] = []
        self.lock = threading.Lock()

    def acknowledged(self, place: Place | None = None) -> int:
        with self.lock:
            acks = self.ledgers.acks
            return len(acks[place]) if place else sum(map(len, acks.values()))

    def next_number(self, name: str, place: Place) -> int:
        with self.lock:
            number = self.sequences[name, place]
            self.sequences[name, place] += 1
            return number

    def note(self, name: str, place: Place, number: int, offset: int | None) -> None:
        with self.lock:
            self.ledgers.acks[place].append((UNKNOWN_OFFSET if offset is None else offset, name, number))

    def send(
        self, bootstrap: str, topic: str, count: int, *, partitions: int = 1, length: int = 300, name: str = "one", **how
    ) -> list[KafkaError]:
        """Sends so many records to each partition and waits for all answers; the errors among them."""
        sender = Sender(self, bootstrap, topic, partitions=partitions, length=length, name=name, **how)
        for _ in range(count):
            sender.one_each()
        return sender.finish()

    def complaints(self, bootstrap: str, *, client: str = "confluent", only: set[Place] | None = None) -> list[str]:
        """What is not there, or not as it was sent and acknowledged."""
        reader = {"confluent": read_with_confluent, "kafka-python": read_with_kafka_python}[client]
        places = sorted(place for place, acks in self.ledgers.acks.items() if acks and (only is None or place in only))
        found, wrong = reader(bootstrap, places)
        with self.lock:
            ledgers = Ledgers()
            ledgers.acks.update({place: list(self.ledgers.acks[place]) for place in places})
        verdicts = judge(ledgers, Held(found, {}, set(), []), self.whole)
        for name, complaints in verdicts.items():
            wrong += [f"{client}: not so: {name}: {words}" for words in complaints[:COMPLAINTS_SHOWN_PER_CHECK]]
        return wrong


class Sender:
    """One producer. Use it by hand, or let it send from a thread until it is told to finish."""

    def __init__(
        self,
        records: Records,
        bootstrap: str,
        topic: str,
        *,
        partitions: int = 1,
        length: int = 300,
        name: str = "one",
        timeout_seconds: float = 120,
        in_flight: int = 500,
        **settings,
    ):
        self.records, self.topic, self.partitions = records, topic, partitions
        self.name, self.length, self.in_flight = name, length, in_flight
        self.timeout_seconds = timeout_seconds
        self.errors: list[KafkaError] = []
        self.fatal: list[KafkaError] = []
        self.stopping = threading.Event()
        self.thread: threading.Thread | None = None
        self.producer = Producer(
            {
                **PATIENT,
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 1,
                "message.timeout.ms": int(timeout_seconds * 1000),
                "error_cb": lambda error: self.fatal.append(error) if error.fatal() else None,
                **{name.replace("_", "."): setting for name, setting in settings.items()},
            }
        )

    def one(self, partition: int) -> None:
        place = (self.topic, partition)
        number = self.records.next_number(self.name, place)

        def told(error, message) -> None:
            if error:
                self.errors.append(error)
                self.records.refused.append((self.name, error))
            else:
                self.records.note(self.name, place, number, message.offset())

        while len(self.producer) >= self.in_flight:
            self.producer.poll(0.02)
        self.producer.produce(self.topic, value(self.name, number, self.length), partition=partition, on_delivery=told)
        self.producer.poll(0)

    def one_each(self) -> None:
        for partition in range(self.partitions):
            self.one(partition)

    def start(self, pause_seconds: float = 0.001) -> "Sender":
        """Sends from a thread until `finish`."""

        def run() -> None:
            while not (self.stopping.is_set() or self.fatal):
                self.one_each()
                if pause_seconds:
                    self.producer.poll(pause_seconds)

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()
        return self

    def finish(self) -> list[KafkaError]:
        """Sends nothing more, and waits for every answer. Returns the errors among them."""
        self.stopping.set()
        if self.thread:
            self.thread.join()
        left = self.producer.flush(self.timeout_seconds + 10)
        if left:
            raise TimeoutError(f"{self.name}: {left} records were never answered")
        if not self.errors and not self.fatal:
            self.records.whole.add(self.name)
        else:
            self.records.whole.discard(self.name)
        return self.errors + self.fatal


Found = tuple[dict[Place, list[tuple[int, str, int]]], list[str]]


def read_with_confluent(bootstrap: str, places: list[Place], seconds: float = READ_SECONDS) -> Found:
    """Everything in these partitions, and what was wrong with it."""
    client = Consumer(
        {
            **PATIENT,
            "bootstrap.servers": bootstrap,
            "group.id": "reader-of-everything",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
            "fetch.wait.max.ms": 50,
        }
    )
    found: dict[Place, list] = {place: [] for place in places}
    wrong: list[str] = []
    try:
        bounds = {place: client.get_watermark_offsets(TopicPartition(*place), timeout=20) for place in places}
        open_places = {place for place, (low, high) in bounds.items() if low < high}
        client.assign([TopicPartition(*place, bounds[place][0]) for place in open_places])
        deadline = time.monotonic() + seconds
        while open_places and time.monotonic() < deadline:
            for message in client.consume(num_messages=2000, timeout=0.2):
                place = (message.topic(), message.partition())
                if message.error():
                    wrong.append(f"confluent: {place[0]}-{place[1]}: {message.error().str()}")
                    open_places.discard(place)
                    continue
                if message.offset() < bounds[place][1]:
                    take(found, wrong, place, message.offset(), message.value())
                if message.offset() + 1 >= bounds[place][1]:
                    open_places.discard(place)
        wrong += [f"confluent: {topic}-{partition} could not be read to its end" for topic, partition in open_places]
    finally:
        client.close()
    return found, wrong


def read_with_kafka_python(bootstrap: str, places: list[Place], seconds: float = READ_SECONDS) -> Found:
    """The same by an implementation of its own, which checks every batch's CRC."""
    import kafka
    from kafka.errors import KafkaError as Failed

    client = kafka.KafkaConsumer(bootstrap_servers=bootstrap, enable_auto_commit=False, group_id=None, check_crcs=True)
    found: dict[Place, list] = {place: [] for place in places}
    wrong: list[str] = []
    try:
        partitions = [kafka.TopicPartition(*place) for place in places]
        lows, highs = client.beginning_offsets(partitions), client.end_offsets(partitions)
        left = {partition for partition in partitions if lows[partition] < highs[partition]}
        client.assign(sorted(left))
        client.seek_to_beginning()
        deadline = time.monotonic() + seconds
        while left and time.monotonic() < deadline:
            try:
                polled = client.poll(timeout_ms=200, max_records=2000)
            except Failed as error:
                wrong.append(f"kafka-python: {error}")
                break
            for partition, messages in polled.items():
                place = (partition.topic, partition.partition)
                for message in messages:
                    if message.offset < highs[partition]:
                        take(found, wrong, place, message.offset, message.value)
                if messages and messages[-1].offset + 1 >= highs[partition]:
                    left.discard(partition)
        wrong += [f"kafka-python: {p.topic}-{p.partition} could not be read to its end" for p in left]
    finally:
        client.close()
    return found, wrong


def take(found: dict, wrong: list[str], place: Place, offset: int, content: bytes) -> None:
    whose = parsed(content or b"")
    if whose is None:
        wrong.append(f"{place[0]}-{place[1]}@{offset} holds something that nobody sent")
    else:
        found[place].append((offset, *whose))
