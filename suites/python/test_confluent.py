"""confluent-kafka, which is today's librdkafka: records intact, groups, offsets, idempotence, admin."""

import threading
import time
from collections import defaultdict

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from harness import wire

WAIT_SECONDS = 60
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(WAIT_SECONDS)


def consumer(bootstrap: str, group: str, **settings) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
            "heartbeat.interval.ms": 500,
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
    )


def produce_all(producer: Producer, topic: str, values, **settings) -> list:
    """Sends all values and returns the delivered messages; an error of any of them is raised."""
    delivered, errors = [], []

    def on_delivery(error, message):
        (errors if error else delivered).append(error or message)

    for value in values:
        while True:
            try:
                producer.produce(topic, value=value, on_delivery=on_delivery, **settings)
                break
            except BufferError:
                producer.poll(0.1)
        producer.poll(0)
    assert producer.flush(WAIT_SECONDS) == 0, "not everything was acknowledged in time"
    assert not errors, errors[0]
    return delivered


def read(client: Consumer, count: int) -> list:
    """Polls until `count` records came; fewer within the time is a failure."""
    records = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(records) < count and time.monotonic() < deadline:
        message = client.poll(0.2)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        records.append(message)
    assert len(records) == count
    return records


def read_partition(bootstrap: str, topic: str, partition: int, count: int, start: int = OFFSET_BEGINNING) -> list:
    client = consumer(bootstrap, f"{topic}-reader")
    client.assign([TopicPartition(topic, partition, start)])
    try:
        return read(client, count)
    finally:
        client.close()


class Member(threading.Thread):
    """A member of a group that polls until told to leave; remembers its assignment and what it read."""

    def __init__(self, bootstrap: str, group: str, topic: str, **settings):
        super().__init__(daemon=True)
        self.client = consumer(bootstrap, group, **settings)
        self.topic = topic
        self.cooperative = settings.get("partition_assignment_strategy", "").startswith("cooperative")
        self.assigned: set[int] = set()
        self.revoked_in_all = 0
        self.read: list = []
        self.leaving = threading.Event()
        self.failure: Exception | None = None

    def run(self):
        try:
            self.client.subscribe([self.topic], on_assign=self.on_assign, on_revoke=self.on_revoke)
            while not self.leaving.is_set():
                message = self.client.poll(0.1)
                if message is not None and not message.error():
                    self.read.append(message)
                    self.client.commit(message=message, asynchronous=False)
        except Exception as failure:  # reported by `leave`, on the thread of the check
            self.failure = failure
        finally:
            self.client.close()

    def on_assign(self, _, partitions):
        numbers = {partition.partition for partition in partitions}
        self.assigned = self.assigned | numbers if self.cooperative else numbers

    def on_revoke(self, _, partitions):
        numbers = {partition.partition for partition in partitions}
        self.revoked_in_all += len(numbers)
        self.assigned = self.assigned - numbers

    def leave(self):
        self.leaving.set()
        self.join(WAIT_SECONDS)
        assert not self.is_alive(), "a member did not leave in time"
        if self.failure:
            raise self.failure


def wait_until_shared(members: list[Member], partitions: int) -> None:
    """Until every partition has exactly one owner and every member has its fair share."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        shares = [set(member.assigned) for member in members]
        fair = all(partitions // len(members) <= len(share) <= -(-partitions // len(members)) for share in shares)
        if fair and sum(map(len, shares)) == partitions and len(set().union(*shares)) == partitions:
            return
        time.sleep(0.05)
    pytest.fail(f"never shared fairly: {[sorted(member.assigned) for member in members]}")


@pytest.mark.parametrize("codec", CODECS)
def test_every_part_of_a_record_comes_back(bootstrap, name, codec):
    create(bootstrap, name, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20})
    moment = 1_600_000_000_000
    sent = []
    for number in range(500):
        key = None if number % 5 == 0 else f"key-{number}".encode()
        value = None if number % 7 == 0 else b"" if number % 11 == 0 else f"value {number} ".encode() * 20
        headers = [("count", str(number).encode()), ("twice", b"1"), ("twice", b"2"), ("null", None), ("empty", b"")]
        headers = headers if number % 3 == 0 else None
        sent.append((key, value, headers, moment + number))
        producer.produce(name, key=key, value=value, headers=headers, timestamp=moment + number)
    assert producer.flush(WAIT_SECONDS) == 0
    came = read_partition(bootstrap, name, 0, len(sent))
    assert [(m.key(), m.value(), m.headers(), m.timestamp()[1]) for m in came] == sent
    assert {m.timestamp()[0] for m in came} == {TIMESTAMP_CREATE_TIME}
    assert [m.offset() for m in came] == list(range(len(sent)))
    stored = {batch.codec for batch in wire.batches(bootstrap, name, 0)}
    assert stored == {codec}, "the broker was sent, or stored, another compression than was asked for"


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_each_kind_of_acknowledgement(bootstrap, name, acks):
    create(bootstrap, name, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks})
    produce_all(producer, name, [f"{acks} {number}".encode() for number in range(200)], partition=0)
    came = read_partition(bootstrap, name, 0, 200)
    assert [m.value() for m in came] == [f"{acks} {number}".encode() for number in range(200)]


def test_offsets_of_deliveries_are_where_the_records_lie(bootstrap, name):
    create(bootstrap, name, 3)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    values = [f"{number}".encode() for number in range(300)]
    delivered = {}
    for partition in range(3):
        for message in produce_all(producer, name, values[partition::3], partition=partition):
            delivered[(partition, message.offset())] = message.value()
    for partition in range(3):
        for message in read_partition(bootstrap, name, partition, 100):
            assert delivered.pop((partition, message.offset())) == message.value()
    assert not delivered


def test_records_of_almost_a_mebibyte_pass_and_larger_ones_are_refused(bootstrap, name):
    create(bootstrap, name, 1)
    producer = Producer({"bootstrap.servers": bootstrap, "message.max.bytes": 4 << 20})
    large = bytes(range(256)) * 4 * 900
    produce_all(producer, name, [large], partition=0)
    assert read_partition(bootstrap, name, 0, 1)[0].value() == large
    errors = []
    producer.produce(name, value=b"x" * (3 << 20), partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT_SECONDS)
    assert [error.code() for error in errors] == [KafkaError.MSG_SIZE_TOO_LARGE]
    produce_all(producer, name, [b"after"], partition=0)
    assert read_partition(bootstrap, name, 0, 2)[1].value() == b"after"


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_group_of_two_then_three_then_two(bootstrap, name, strategy):
    partitions = 6
    create(bootstrap, name, partitions)
    settings = {"partition_assignment_strategy": strategy}
    members = [Member(bootstrap, name, name, **settings) for _ in range(2)]
    for member in members:
        member.start()
    producer = Producer({"bootstrap.servers": bootstrap})
    wait_until_shared(members, partitions)
    expected = set()

    def produce_round(label: str) -> None:
        for partition in range(partitions):
            values = [f"{label} {partition} {number}".encode() for number in range(20)]
            produce_all(producer, name, values, partition=partition)
            expected.update(values)

    def wait_until_read(of: list[Member]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            if {m.value() for member in of for m in list(member.read)} == expected:
                return
            time.sleep(0.05)
        pytest.fail("the group did not read everything")

    produce_round("two")
    wait_until_read(members)
    members.append(Member(bootstrap, name, name, **settings))
    members[2].start()
    wait_until_shared(members, partitions)
    produce_round("three")
    wait_until_read(members)
    members[0].leave()
    wait_until_shared(members[1:], partitions)
    produce_round("two again")
    wait_until_read(members)
    if strategy == "cooperative-sticky":
        assert sum(member.revoked_in_all for member in members[1:]) < partitions, "it stopped the world"
    for member in members[1:]:
        member.leave()
    counts = defaultdict(int)
    for member in members:
        for message in member.read:
            counts[message.value()] += 1
    assert set(counts.values()) == {1}, "committed one by one, yet read twice"
    leftover = consumer(bootstrap, name)
    committed = leftover.committed([TopicPartition(name, partition) for partition in range(partitions)], WAIT_SECONDS)
    assert [entry.offset for entry in committed] == [60] * partitions
    leftover.close()


def test_a_group_goes_on_where_it_committed(bootstrap, name):
    create(bootstrap, name, 1)
    produce_all(Producer({"bootstrap.servers": bootstrap}), name, [b"%d" % n for n in range(100)], partition=0)
    first = consumer(bootstrap, name)
    first.subscribe([name])
    read(first, 40)
    first.commit(offsets=[TopicPartition(name, 0, 40, metadata="forty")], asynchronous=False)
    first.close()
    second = consumer(bootstrap, name)
    (stored,) = second.committed([TopicPartition(name, 0)], WAIT_SECONDS)
    assert (stored.offset, stored.metadata) == (40, "forty")
    second.subscribe([name])
    assert [m.offset() for m in read(second, 60)] == list(range(40, 100))
    second.close()
    unknown = consumer(bootstrap, f"{name}-other")
    (nothing,) = unknown.committed([TopicPartition(name, 0)], WAIT_SECONDS)
    assert nothing.offset < 0, "a group that never committed has an offset"
    unknown.close()


def test_a_member_that_dies_gives_up_its_partitions(bootstrap, name):
    create(bootstrap, name, 4)
    silent = consumer(bootstrap, name, **{"max_poll_interval_ms": 6000})
    silent.subscribe([name])
    deadline = time.monotonic() + WAIT_SECONDS
    while not silent.assignment() and time.monotonic() < deadline:
        silent.poll(0.1)
    assert len(silent.assignment()) == 4
    # From here on it never polls again, so the client itself leaves the group after its interval.
    other = Member(bootstrap, name, name)
    other.start()
    deadline = time.monotonic() + WAIT_SECONDS
    while other.assigned != {0, 1, 2, 3} and time.monotonic() < deadline:
        time.sleep(0.1)
    assert other.assigned == {0, 1, 2, 3}
    other.leave()
    # It hears that it is out and gives its partitions up. Closed before that it may wait for itself for ever: librdkafka
    # then asks its own thread, which has ended the group already, to take the assignment back.
    deadline = time.monotonic() + WAIT_SECONDS
    while silent.assignment() and time.monotonic() < deadline:
        silent.poll(0.1)
    silent.close()


def test_an_idempotent_producer_over_a_crash(bootstrap, name, crash):
    partitions, each = 3, 4000
    create(bootstrap, name, partitions)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 2,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 50,
        }
    )
    failures, acknowledged = [], [0]

    def on_delivery(error, _):
        if error:
            failures.append(error)
        acknowledged[0] += 1

    crashed = threading.Thread(target=crash)
    for number in range(each):
        for partition in range(partitions):
            producer.produce(name, value=b"%d" % number, partition=partition, on_delivery=on_delivery)
        producer.poll(0)
        if number == each // 3:
            crashed.start()
        if number % 20 == 0:
            time.sleep(0.005)
    assert producer.flush(WAIT_SECONDS) == 0
    crashed.join()
    assert not failures, failures[0]
    assert acknowledged[0] == partitions * each
    for partition in range(partitions):
        came = read_partition(bootstrap, name, partition, each)
        assert [int(m.value()) for m in came] == list(range(each)), f"partition {partition} is not exactly once, in order"
        assert [m.offset() for m in came] == list(range(each))


def test_commits_and_records_survive_a_crash(bootstrap, name, crash):
    create(bootstrap, name, 2)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in range(2):
        produce_all(producer, name, [b"%d" % n for n in range(50)], partition=partition)
    member = consumer(bootstrap, name, **{"session_timeout_ms": 45_000})
    member.subscribe([name])
    read(member, 100)
    positions = [TopicPartition(name, 0, 30), TopicPartition(name, 1, 20)]
    member.commit(offsets=positions, asynchronous=False)
    crash()
    # The same member goes on: its session outlives the broker's process.
    produce_all(producer, name, [b"after"], partition=0)
    assert [m.value() for m in read(member, 1)] == [b"after"]
    member.close()
    again = consumer(bootstrap, name)
    stored = again.committed([TopicPartition(name, partition) for partition in range(2)], WAIT_SECONDS)
    assert [entry.offset for entry in stored] == [30, 20]
    again.close()
    assert [m.offset() for m in read_partition(bootstrap, name, 0, 51)] == list(range(51))


def test_offsets_by_time(bootstrap, name):
    create(bootstrap, name, 1)
    producer = Producer({"bootstrap.servers": bootstrap})
    start = 1_700_000_000_000
    for number in range(100):
        producer.produce(name, value=b"%d" % number, timestamp=start + number * 1000, partition=0)
        if number % 10 == 9:
            assert producer.flush(WAIT_SECONDS) == 0
    client = consumer(bootstrap, name)

    def at(moment: int) -> int:
        (found,) = client.offsets_for_times([TopicPartition(name, 0, moment)], WAIT_SECONDS)
        return found.offset

    assert at(0) == 0
    assert at(start) == 0
    assert at(start + 37_000) == 37
    assert at(start + 37_001) == 38
    assert at(start + 99_000) == 99
    assert at(start + 99_001) in (-1, 100), "later than the last record"
    assert client.get_watermark_offsets(TopicPartition(name, 0), WAIT_SECONDS) == (0, 100)
    client.close()


def test_seek(bootstrap, name):
    create(bootstrap, name, 1)
    produce_all(Producer({"bootstrap.servers": bootstrap}), name, [b"%d" % n for n in range(200)], partition=0)
    client = consumer(bootstrap, name)
    client.assign([TopicPartition(name, 0, 150)])
    assert read(client, 1)[0].offset() == 150
    client.seek(TopicPartition(name, 0, 7))
    assert [m.offset() for m in read(client, 193)] == list(range(7, 200))
    client.seek(TopicPartition(name, 0, 199))
    assert read(client, 1)[0].value() == b"199"
    client.close()


def test_an_offset_out_of_range_is_told(bootstrap, name):
    create(bootstrap, name, 1)
    produce_all(Producer({"bootstrap.servers": bootstrap}), name, [b"only"], partition=0)
    client = consumer(bootstrap, name, **{"auto_offset_reset": "error"})
    client.assign([TopicPartition(name, 0, 1000)])
    deadline = time.monotonic() + WAIT_SECONDS
    error = None
    while error is None and time.monotonic() < deadline:
        message = client.poll(0.2)
        error = message.error() if message is not None else None
    assert error is not None and error.code() == KafkaError._AUTO_OFFSET_RESET
    client.close()
    returning = consumer(bootstrap, name)
    returning.assign([TopicPartition(name, 0, 1000)])
    assert read(returning, 1)[0].value() == b"only"
    returning.close()


def test_a_waiting_fetch_is_woken_by_a_record(bootstrap, name):
    create(bootstrap, name, 1)
    client = consumer(bootstrap, name, **{"fetch_wait_max_ms": 10_000})
    client.assign([TopicPartition(name, 0, 0)])
    assert client.poll(1.0) is None
    began = time.monotonic()
    produce_all(Producer({"bootstrap.servers": bootstrap, "linger.ms": 0}), name, [b"wake"], partition=0)
    assert read(client, 1)[0].value() == b"wake"
    assert time.monotonic() - began < 5, "the fetch slept its whole wait"
    client.close()


def code_of(future) -> int:
    with pytest.raises(KafkaException) as raised:
        future.result(WAIT_SECONDS)
    return raised.value.args[0].code()


def test_topics_are_created_listed_and_deleted(bootstrap, name):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    create(bootstrap, name, 5)
    assert set(admin.list_topics(timeout=WAIT_SECONDS).topics[name].partitions) == {0, 1, 2, 3, 4}
    assert code_of(admin.create_topics([NewTopic(name, 5, 1)])[name]) == KafkaError.TOPIC_ALREADY_EXISTS
    assert code_of(admin.create_topics([NewTopic("no/slashes", 1, 1)])["no/slashes"]) == KafkaError.TOPIC_EXCEPTION
    many = f"{name}-copies"
    assert code_of(admin.create_topics([NewTopic(many, 1, 3)])[many]) == KafkaError.INVALID_REPLICATION_FACTOR
    checked = f"{name}-checked"
    admin.create_topics([NewTopic(checked, 1, 1)], validate_only=True)[checked].result(WAIT_SECONDS)
    assert checked not in admin.list_topics(timeout=WAIT_SECONDS).topics
    admin.delete_topics([name])[name].result(WAIT_SECONDS)
    deadline = time.monotonic() + WAIT_SECONDS
    while name in admin.list_topics(timeout=WAIT_SECONDS).topics and time.monotonic() < deadline:
        time.sleep(0.1)
    assert name not in admin.list_topics(timeout=WAIT_SECONDS).topics
    assert code_of(admin.delete_topics([name])[name]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_a_topic_made_again_is_empty(bootstrap, name):
    create(bootstrap, name, 1)
    produce_all(Producer({"bootstrap.servers": bootstrap}), name, [b"old"] * 10, partition=0)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(WAIT_SECONDS)
    deadline = time.monotonic() + WAIT_SECONDS
    while name in admin.list_topics(timeout=WAIT_SECONDS).topics and time.monotonic() < deadline:
        time.sleep(0.1)
    create(bootstrap, name, 1)
    (delivered,) = produce_all(Producer({"bootstrap.servers": bootstrap}), name, [b"new"], partition=0)
    assert delivered.offset() == 0
    assert [m.value() for m in read_partition(bootstrap, name, 0, 1)] == [b"new"]


def test_a_topic_appears_when_it_is_first_written_to(bootstrap, name):
    produce_all(Producer({"bootstrap.servers": bootstrap}), name, [b"first"], key=b"k")
    client = consumer(bootstrap, name)
    client.subscribe([name])
    assert [m.value() for m in read(client, 1)] == [b"first"]
    client.close()


def test_an_unknown_topic_is_told_to_a_consumer(bootstrap, name):
    client = consumer(bootstrap, name, **{"allow_auto_create_topics": False, "topic_metadata_propagation_max_ms": 500})
    client.subscribe([name])
    deadline = time.monotonic() + WAIT_SECONDS
    error = None
    while error is None and time.monotonic() < deadline:
        message = client.poll(0.2)
        error = message.error() if message is not None else None
    assert error is not None and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART
    client.close()
