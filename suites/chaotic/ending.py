"""What is there in the end: everything in the topics, and whether every node has all of it."""

import json
import time

from confluent_kafka import Consumer, TopicPartition
from harness.broker import BrokerFailed
from harness.cluster import Cluster
from killing.ledger import Held
from killing.workers import GROUP, PATIENT

from chaotic.records import PARTITIONS, TOPICS

PLACES = [(topic, partition) for topic in TOPICS for partition in range(PARTITIONS)]


def read_everything(bootstrap: str, seconds: float) -> Held:
    client = Consumer(
        {
            **PATIENT,
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "check.crcs": True,
        }
    )
    try:
        ends = {}
        records = {place: [] for place in PLACES}
        for place in PLACES:
            low, high = client.get_watermark_offsets(TopicPartition(*place), timeout=60)
            if low != 0:
                raise BrokerFailed(f"{place[0]}-{place[1]} begins at {low}, though nothing was ever trimmed")
            ends[place] = high
        client.assign([TopicPartition(*place, 0) for place in PLACES if ends[place]])
        missing = sum(ends.values())
        deadline = time.monotonic() + seconds
        while missing > 0:
            if time.monotonic() > deadline:
                raise BrokerFailed(f"{missing} records below the high watermarks could not be read")
            for message in client.consume(num_messages=5000, timeout=0.5):
                if message.error():
                    raise BrokerFailed(f"reading failed: {message.error()}")
                producer, sequence = message.value()[:64].split(b" ", 2)[:2]
                place = (message.topic(), message.partition())
                if message.offset() < ends[place]:
                    records[place].append((message.offset(), producer.decode(), int(sequence)))
                    missing -= 1
        found = client.committed([TopicPartition(*place) for place in PLACES], timeout=60)
        committed = {(entry.topic, entry.partition): entry.offset for entry in found if entry.offset >= 0}
        return Held(records, committed, set(), [])
    finally:
        client.close()


def ends(cluster: Cluster, number: int) -> dict[str, int]:
    """Where each partition's log ends on one node, as its admin API tells."""
    code, body = cluster.nodes[number].http("/api/v1/log")
    if code != 200:
        raise BrokerFailed(f"node {number} answers {code} when asked for its logs: {body[:200]}")
    return {row["directory"]: row["next_offset"] for row in json.loads(body)}


def await_same_ends(cluster: Cluster, seconds: float) -> None:
    """Until every node has applied what the others have: nothing is written any more, and logs end alike."""
    deadline = time.monotonic() + seconds
    while True:
        views = [ends(cluster, number) for number in cluster.numbers]
        known = [{name: end for name, end in view.items() if end is not None} for view in views]
        names = set().union(*known)
        differing = {name: [view.get(name) for view in known] for name in names}
        differing = {name: found for name, found in differing.items() if len({end for end in found if end is not None}) > 1}
        if not differing:
            return
        if time.monotonic() > deadline:
            raise BrokerFailed(f"logs end differently on nodes {cluster.numbers} after {seconds:.0f} s: {differing}")
        time.sleep(0.2)
