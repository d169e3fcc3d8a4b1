"""Clients that sleep: a producer that gives records at an even rate, and a consumer that reads them.

    paced.py produce -b BROKER -t TOPIC -c 100000 --rate 10000 --at-once 10 -X linger.ms=0
    paced.py consume -b BROKER -t TOPIC -c 100000

Every record has a number and a time at which it is due, both known beforehand and written into its value.
Latency is counted from then, in the producer to the acknowledgement and in the consumer to the moment the
record is in its hands. So a client or a broker that was held up is not forgiven: what it should have been
given meanwhile is late from when it was due, however late it was given. All processes of a machine share
the clock, CLOCK_MONOTONIC.

It needs confluent-kafka, that is librdkafka; at its end each prints one line of JSON.
"""

import argparse
import gc
import json
import struct
import sys
import threading
import time
from array import array
from pathlib import Path

NS = 10**9
NEVER = -1
HEADER = struct.Struct(">qq")
# Nothing came for so long: the result is told as it is, and says what is missing.
STALLED_SECONDS = 30
POLL_SECONDS = 0.1
FULL_SECONDS = 0.001
CONSUMER_GROUP = "paced"


def due(number: int, rate: int, at_once: int) -> int:
    """Nanoseconds from the start at which a record is due: that of the first of those that are due at once."""
    return number // at_once * at_once * NS // rate


def percentiles(nanoseconds) -> dict[str, float]:
    """By the nearest rank, in milliseconds."""
    ordered = sorted(nanoseconds)

    def at(share: float) -> float:
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))] / 1e6

    shares = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
    return {f"{label}_ms": at(share) for label, share in shares.items()} | {"max_ms": ordered[-1] / 1e6}


class Taken:
    """The latency of each record by its number, and what was wrong."""

    def __init__(self, count: int):
        self.latencies = array("q", [NEVER]) * count
        self.failed = self.double = 0
        self.last = 0

    def note(self, value: bytes, now: int) -> None:
        number, due_at = HEADER.unpack_from(value)
        if self.latencies[number] != NEVER:
            self.double += 1
        self.latencies[number] = now - due_at
        self.last = now

    def told(self, left_out: int, began: int, cpu: float) -> dict[str, float]:
        """The result; `cpu` is what the process took since `began`."""
        found = [latency for latency in self.latencies[left_out:] if latency != NEVER]
        seconds = max(self.last - began, 1) / NS
        return {
            "records": len(self.latencies) - self.latencies.count(NEVER),
            "failed": self.failed,
            "double": self.double,
            "seconds": seconds,
            "cores": cpu / seconds,
        } | (percentiles(found) if found else {})


def settings(given: argparse.Namespace) -> dict[str, str]:
    return {"bootstrap.servers": given.broker} | dict(pair.split("=", 1) for pair in given.settings)


def produce(given: argparse.Namespace) -> dict[str, float]:
    from confluent_kafka import Producer

    # By default the kernel may wake a sleeper 50 µs late. The client's own threads inherit this.
    Path("/proc/self/timerslack_ns").write_text("1")
    producer = Producer(settings(given))
    taken, clock, padding = Taken(given.count), time.monotonic_ns, b"x" * (given.bytes - HEADER.size)
    ending = threading.Event()

    def done(error, message) -> None:
        now = clock()
        if error:
            taken.failed += 1
        else:
            taken.note(message.value(), now)

    def poll() -> None:
        while not ending.is_set():
            producer.poll(POLL_SECONDS)

    # A thread of its own, so that an acknowledgement does not wait until the next records are due.
    poller = threading.Thread(target=poll, daemon=True)
    poller.start()
    began, cpu = clock(), time.process_time()
    for first in range(0, given.count, given.at_once):
        due_at = began + due(first, given.rate, given.at_once)
        wait = due_at - clock()
        if wait > 0:
            time.sleep(wait / NS)
        for number in range(first, min(first + given.at_once, given.count)):
            value = HEADER.pack(number, due_at) + padding
            while True:
                try:
                    producer.produce(given.topic, value, partition=given.partition, on_delivery=done)
                    break
                except BufferError:
                    time.sleep(FULL_SECONDS)
    ending.set()
    poller.join()
    producer.flush(STALLED_SECONDS)
    return taken.told(given.left_out, began, time.process_time() - cpu)


def consume(given: argparse.Namespace) -> dict[str, float]:
    from confluent_kafka import Consumer, TopicPartition

    # It has to be in a group, and does not take part in it.
    consumer = Consumer(settings(given) | {"group.id": CONSUMER_GROUP, "enable.auto.commit": False})
    consumer.assign([TopicPartition(given.topic, given.partition, 0)])
    taken, clock, began, cpu = Taken(given.count), time.monotonic_ns, 0, 0.0
    for _ in range(given.count):
        # One by one: asked for several, the client would wait until it has them all.
        message = consumer.poll(STALLED_SECONDS)
        now = clock()
        if message is None:
            break
        if message.error():
            sys.exit(f"while reading: {message.error()}")
        if not began:
            began, cpu = now, time.process_time()
        taken.note(message.value(), now)
    spent = time.process_time() - cpu
    consumer.close()
    return taken.told(given.left_out, began, spent)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("produce", "consume"))
    parser.add_argument("-b", dest="broker", required=True, help="HOST:PORT")
    parser.add_argument("-t", dest="topic", required=True)
    parser.add_argument("-p", dest="partition", type=int, default=0)
    parser.add_argument("-c", dest="count", type=int, required=True, help="records; read from the beginning")
    parser.add_argument("-s", dest="bytes", type=int, default=1024, help="bytes of a record's value")
    parser.add_argument("-X", dest="settings", action="append", default=[], metavar="NAME=VALUE", help="of the client")
    parser.add_argument("--rate", type=int, default=10_000, help="records a second")
    parser.add_argument("--at-once", type=int, default=10, help="records that are due at one moment")
    parser.add_argument("--left-out", type=int, default=0, help="first records that count in no percentile")
    return parser


def main() -> None:
    given = arguments().parse_args()
    # A collection stops everything; what is made here for each record is gone without one.
    gc.disable()
    gc.freeze()
    print(json.dumps((produce if given.what == "produce" else consume)(given)), flush=True)


if __name__ == "__main__":
    main()
