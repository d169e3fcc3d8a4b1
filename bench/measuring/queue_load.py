"""`QueueLoad`, the benchmark's own publisher and consumer over RabbitMQ's Java client, as commands."""

import re
import shlex
import time

from harness import install

from . import Fault, queues
from .peers import Peer
from .running import OUTPUT_TAIL, RUN_SECONDS_SPARE, Ended, Running, read_result

MAIN = "QueueLoad"
READY_SECONDS = 60.0
READY_POLL_SECONDS = 0.02
CONSUMING = "consuming\n"


def client_version() -> str:
    (jar,) = re.findall(r"amqp-client-([\d.]+)\.jar", install.rabbitmq_load())
    return jar


def shown(what: str, **settings: str | int) -> str:
    return shlex.join(["java", "-cp", "CLASSPATH", MAIN, what, "uri=URI", *_words(settings)])


def _words(settings: dict[str, str | int]) -> list[str]:
    return [f"{name.replace('_', '-')}={value}" for name, value in settings.items()]


def command(peer: Peer, what: str, **settings: str | int) -> list[str]:
    return ["java", "-cp", install.rabbitmq_load(), MAIN, what, f"uri={queues.uri(peer)}", *_words(settings)]


def read(printed: str, count: int) -> dict[str, float]:
    """What one of them said of `count` messages; one that came before it was due is a fault as well."""
    told = read_result(printed, count)
    if told["early"]:
        raise Fault(f"{told['early']} of {count} messages came before they were due")
    return told


def await_consuming(client: Running) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while CONSUMING not in client.printed(0):
        client.check_alive()
        if time.monotonic() > deadline:
            raise Fault(f"a consumer did not begin within {READY_SECONDS:.0f} s:\n{client.printed(0)[-OUTPUT_TAIL:]}")
        time.sleep(READY_POLL_SECONDS)


def run(peer: Peer, what: str, seconds: float, **settings: str | int) -> tuple[dict[str, float], Ended]:
    """One publisher or consumer, until it has `count` messages behind it."""
    with Running([command(peer, what, **settings)]) as client:
        (ended,) = client.wait(seconds * 4 + RUN_SECONDS_SPARE, peer)
    return read(ended.printed, int(settings["count"])), ended
