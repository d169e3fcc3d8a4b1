"""Topics of the benchmark: made, waited for, checked and removed through the Kafka protocol."""

import time

from . import Fault
from .peers import Peer

ANSWER_SECONDS = 180
# Apache Kafka refuses to make more than some 10,000 records of its metadata in one request.
PARTITIONS_AT_ONCE = 5000
LEADERS_SECONDS = 180
DELETED_SECONDS = 180
# Each takes two of the 65,530 mappings that Linux allows a process.
PARTITIONS_OPEN_MOST = 25_000
PATIENCE = {"NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PART"}


class NotYet(Fault):
    """An answer that asks for patience."""


def _admin(bootstrap: str):
    """A client that its caller has to keep until it has its answers."""
    from confluent_kafka.admin import AdminClient

    # What it logs while a broker is down or it is closed itself is no concern of a measurement.
    settings = {"bootstrap.servers": bootstrap, "socket.timeout.ms": ANSWER_SECONDS * 1000, "log_level": 0}
    return AdminClient(settings)


def _answer(future):
    from confluent_kafka import KafkaException

    try:
        return future.result(ANSWER_SECONDS)
    except KafkaException as failure:
        kind = NotYet if failure.args[0].name() in PATIENCE else Fault
        raise kind(f"the broker answered: {failure}") from failure


def new(peer: Peer, partitions: int) -> str:
    """A topic whose durability is the one that the row says."""
    name = peer.new_name()
    create(peer.bootstrap, name, partitions)
    named, wanted = peer.kind.durability
    found = setting(peer.bootstrap, name, named)
    if found != wanted:
        raise Fault(f"{peer.kind.title}: {named} of {name} is {found}, not {wanted}")
    return name


def await_deleted(peer: Peer, partitions: int) -> None:
    """Apache Kafka keeps the files of deleted partitions open and mapped for another minute."""
    deadline = time.monotonic() + DELETED_SECONDS
    while len(list((peer.place / "data").glob("log/*-delete"))) + partitions > PARTITIONS_OPEN_MOST:
        if time.monotonic() > deadline:
            raise Fault(f"{peer.kind.title} still has files of deleted topics after {DELETED_SECONDS} s")
        time.sleep(0.5)


def create(bootstrap: str, topic: str, partitions: int) -> None:
    """Returns when every partition has a leader."""
    from confluent_kafka.admin import NewPartitions, NewTopic

    admin = _admin(bootstrap)
    made = min(partitions, PARTITIONS_AT_ONCE)
    _answer(admin.create_topics([NewTopic(topic, made, 1)], request_timeout=ANSWER_SECONDS)[topic])
    while made < partitions:
        made = min(partitions, made + PARTITIONS_AT_ONCE)
        grown = admin.create_partitions([NewPartitions(topic, made)], request_timeout=ANSWER_SECONDS)
        _answer(grown[topic])
    deadline = time.monotonic() + LEADERS_SECONDS
    while True:
        found = admin.list_topics(topic, timeout=ANSWER_SECONDS).topics[topic].partitions
        if len(found) == partitions and all(part.leader >= 0 and part.error is None for part in found.values()):
            return
        if time.monotonic() > deadline:
            raise Fault(f"{topic}: not every one of {partitions} partitions has a leader after {LEADERS_SECONDS} s")
        time.sleep(0.1)


def delete(bootstrap: str, topic: str) -> None:
    admin = _admin(bootstrap)
    _answer(admin.delete_topics([topic], request_timeout=ANSWER_SECONDS)[topic])


def setting(bootstrap: str, topic: str, name: str) -> str | None:
    from confluent_kafka.admin import ConfigResource

    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    admin = _admin(bootstrap)
    found = _answer(admin.describe_configs([resource])[resource])
    return found[name].value if name in found else None


def records(bootstrap: str, topic: str, partitions: int) -> int:
    """How many records were appended to a topic since it was made: the sum of its partitions' ends."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    admin = _admin(bootstrap)
    asked = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(partitions)}
    deadline = time.monotonic() + LEADERS_SECONDS
    while True:
        told = admin.list_offsets(asked, request_timeout=ANSWER_SECONDS)
        try:
            return sum(_answer(answer).offset for answer in told.values())
        except NotYet:
            # A leader that is named in the metadata may still have to learn of it.
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
