"""kafka-python 3, which negotiates the newest versions that a broker offers, in pure Python."""

import threading
import time

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.errors import TopicAlreadyExistsError
from kafka.structs import OffsetAndMetadata

WAIT_SECONDS = 60


def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])
    finally:
        admin.close()


def consumer(bootstrap: str, *topics: str, **settings) -> KafkaConsumer:
    return KafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        **settings,
    )


def read(client: KafkaConsumer, count: int) -> list:
    records = []
    deadline = time.monotonic() + WAIT_SECONDS
    while len(records) < count and time.monotonic() < deadline:
        for batch in client.poll(timeout_ms=300).values():
            records += batch
    assert len(records) == count
    return records


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_a_round_with_each_compression(bootstrap, name, codec):
    create(bootstrap, name, 1)
    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=codec, linger_ms=20)
    sent, waiting = [], []
    for number in range(300):
        key = None if number % 5 == 0 else b"key %d" % number
        value = None if number % 7 == 0 and key else b"value %d " % number * 10
        headers = [("n", b"%d" % number), ("n", b"again")] if number % 2 else []
        moment = 1_600_000_000_000 + number
        sent.append((key, value, tuple(headers), moment))
        waiting.append(producer.send(name, value, key=key, headers=headers, timestamp_ms=moment, partition=0))
    producer.flush(WAIT_SECONDS)
    assert [future.get(WAIT_SECONDS).offset for future in waiting] == list(range(300))
    producer.close()
    client = consumer(bootstrap)
    client.assign([TopicPartition(name, 0)])
    came = read(client, 300)
    client.close()
    assert [(r.key, r.value, tuple(map(tuple, r.headers)), r.timestamp) for r in came] == sent


def test_a_group_shares_commits_and_goes_on(bootstrap, name):
    create(bootstrap, name, 4)
    members = [consumer(bootstrap, name, group_id=name) for _ in range(2)]
    halt = threading.Event()
    values: list[list[int]] = [[], []]
    failures: list[Exception] = []

    def follow(index: int) -> None:
        try:
            while not halt.is_set():
                for batch in members[index].poll(timeout_ms=200).values():
                    values[index] += [int(r.value) for r in batch]
                members[index].commit()
        except Exception as failure:  # raised on the thread of the check
            failures.append(failure)
        finally:
            members[index].close()

    threads = [threading.Thread(target=follow, args=(index,), daemon=True) for index in range(2)]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + WAIT_SECONDS
    while [len(member.assignment()) for member in members] != [2, 2] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [len(member.assignment()) for member in members] == [2, 2]
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for number in range(400):
        producer.send(name, b"%d" % number, partition=number % 4)
    producer.flush(WAIT_SECONDS)
    while sum(map(len, values)) < 400 and not failures and time.monotonic() < deadline:
        time.sleep(0.1)
    time.sleep(0.5)
    halt.set()
    for thread in threads:
        thread.join(WAIT_SECONDS)
    assert not failures, failures[0]
    assert sorted(values[0] + values[1]) == list(range(400))
    assert len(values[0]) == len(values[1]) == 200

    producer.send(name, b"-1", partition=3)
    producer.flush(WAIT_SECONDS)
    producer.close()
    again = consumer(bootstrap, name, group_id=name)
    assert [int(r.value) for r in read(again, 1)] == [-1]
    assert again.committed(TopicPartition(name, 0)) == 100
    again.commit({TopicPartition(name, 0): OffsetAndMetadata(7, "seven", -1)})
    assert again.committed(TopicPartition(name, 0)) == 7
    again.close()


def test_positions_and_topics(bootstrap, name):
    create(bootstrap, name, 1)
    with pytest.raises(TopicAlreadyExistsError):
        create(bootstrap, name, 1)
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    moment = 1_700_000_000_000
    for number in range(50):
        producer.send(name, b"%d" % number, partition=0, timestamp_ms=moment + 1000 * number)
    producer.flush(WAIT_SECONDS)
    producer.close()
    partition = TopicPartition(name, 0)
    client = consumer(bootstrap)
    client.assign([partition])
    assert client.beginning_offsets([partition]) == {partition: 0}
    assert client.end_offsets([partition]) == {partition: 50}
    found = client.offsets_for_times({partition: moment + 20_500})
    assert (found[partition].offset, found[partition].timestamp) == (21, moment + 21_000)
    client.seek(partition, 45)
    assert [int(r.value) for r in read(client, 5)] == list(range(45, 50))
    client.close()
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    assert name in admin.list_topics()
    admin.delete_topics([name])
    deadline = time.monotonic() + WAIT_SECONDS
    while name in admin.list_topics() and time.monotonic() < deadline:
        time.sleep(0.1)
    assert name not in admin.list_topics()
    admin.close()
