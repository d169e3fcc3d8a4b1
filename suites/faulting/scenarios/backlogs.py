"""Messages that wait, that are stuck, that nobody acknowledges or that everybody gives back: bounded, and all there."""

import threading
import time
from pathlib import Path

from .. import amqp
from ..amqp import Drain, Publisher, call, declare, opened, witness
from ..scenario import Trial, scenario
from ..server import Server, within
from .connections import MIB

# How much more may be resident while more messages wait, however many.
WAITING_GROWTH_MAX = 8 * MIB
# A queue's segment, and what one that passes its messages on may keep of them: that which is written, that which is
# read, and some that are being rewritten or dropped.
SEGMENT_BYTES = 64 * MIB
SEGMENTS_KEPT_MAX = 4
# What a lease costs: a record that is with somebody.
LEASE_BYTES_MAX = 400
MEMORY_GROWTH_MAX = 64 * MIB
# The allocator keeps what is freed for a while, some 20 MiB of it by chance. Told to give it back at once, what is
# resident is what is in use.
GIVES_BACK = ["env", "MIMALLOC_PURGE_DELAY=0"]


def disk_bytes(place: Path, *, journal: bool = False) -> int:
    """What the files of a directory take, without the journal, which has a bound of its own."""
    total = 0
    for path in place.rglob("*"):
        try:
            if path.is_file() and (path.suffix == ".journal") <= journal:
                total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def journal_bytes(place: Path) -> int:
    return disk_bytes(place, journal=True) - disk_bytes(place)


def settled_memory(server: Server) -> int:
    """What is resident once nothing moves any more: the least of several looks."""
    least = server.memory()
    for _ in range(10):
        time.sleep(0.1)
        least = min(least, server.memory())
    return least


def waiting_messages(trial: Trial, steps: tuple[int, ...]) -> None:
    server = trial.server().start(GIVES_BACK)
    publisher = Publisher(server)
    declare(publisher.connection, "pool")
    # What a loaded process has anyway, it has by then.
    declare(publisher.connection, "before")
    publisher.publish("before", 300_000)
    resident: list[int] = []
    published = 0
    for count in steps:
        publisher.publish("pool", count - published, begin=published)
        published = count
        trial.expect(amqp.waiting(publisher.connection, "pool") == count, "the count of those that wait is wrong")
        resident.append(settled_memory(server))
        trial.note(f"{count} messages wait: {resident[-1] >> 10} KiB resident")
    grown = max(resident) - resident[0]
    trial.expect(grown <= WAITING_GROWTH_MAX, f"memory grew by {grown >> 10} KiB from {steps[0]} waiting to {steps[-1]}")
    publisher.close()
    server.kill()
    began = time.monotonic()
    server.start(GIVES_BACK)
    took = time.monotonic() - began
    reader = opened(server)
    found = amqp.waiting(reader, "pool")
    trial.expect(found == published, f"{found} of {published} wait after kill -9")
    reader.drop()
    # The first ones are what they were.
    drain = Drain(server, "pool", prefetch=2000)
    trial.expect(drain.take(50_000), "the first 50,000 did not come")
    trial.expect(drain.numbers[:50_000] == list(range(50_000)), "they came in another order")
    trial.note(f"ready {took:.1f} s after kill -9; {settled_memory(server) >> 10} KiB resident when it is read again")
    drain.close()


@scenario("waiting-messages", "a million that wait take no more memory than a hundred thousand")
def a_million_wait(trial: Trial) -> None:
    waiting_messages(trial, (100_000, 1_000_000))


@scenario("ten-million-waiting-messages", "nor do ten million", slow=True)
def ten_million_wait(trial: Trial) -> None:
    waiting_messages(trial, (100_000, 1_000_000, 10_000_000))


def passing(trial: Trial, *, stuck: bool, rounds: int, count: int, length: int) -> None:
    """Messages come and go in a queue; one may stay with a consumer that never says what became of it."""
    # What is settled goes when it is looked for, which is every five minutes where nothing else is set.
    server = trial.server(log__retention__check__interval__ms=1000).start()
    publisher = Publisher(server)
    declare(publisher.connection, "passing")
    holder = opened(server)
    if stuck:
        publisher.publish("passing", 1, length=length)
        call(holder, 1, "basic.get", queue="passing")
    bound = SEGMENTS_KEPT_MAX * SEGMENT_BYTES
    drain = Drain(server, "passing", prefetch=2000)
    most = 0
    for _ in range(rounds):
        publisher.publish("passing", count, length=length, begin=1)
        if not trial.expect(drain.take(count), "not everything that passes came"):
            return
        trial.expect(drain.numbers == list(range(1, count + 1)), "it came in another order")
        drain.numbers.clear()
        most = max(most, disk_bytes(server.data_dir))
    drain.close()
    # What is done in the background may take its time.
    small = within(60, lambda: disk_bytes(server.data_dir) <= bound)
    left = disk_bytes(server.data_dir)
    passed = rounds * count
    trial.expect(small, f"{passed} messages of {length} bytes passed, and {left >> 20} MiB stay, more than {bound >> 20}")
    trial.note(f"{passed} messages of {length} bytes passed: at most {most >> 20} MiB on disk, {left >> 20} MiB stay")
    if stuck:
        holder.drop()
        came = Drain(server, "passing")
        trial.expect(came.take(1) and came.redelivered == [True], "the one that was stuck did not come again")
        came.close()


@scenario("passing-messages", "what was settled does not stay on the disk")
def passing_messages(trial: Trial) -> None:
    passing(trial, stuck=False, rounds=7, count=25_000, length=2000)


@scenario("stuck-message", "one message that nobody settles does not keep those that pass it on the disk")
def stuck_message(trial: Trial) -> None:
    passing(trial, stuck=True, rounds=10, count=50_000, length=1000)


@scenario("stuck-message-long", "nor when ten million pass it", slow=True)
def stuck_message_long(trial: Trial) -> None:
    passing(trial, stuck=True, rounds=50, count=200_000, length=50)


def never_acks(trial: Trial, server: Server, kind: str, prefetch: int, backlog: int) -> None:
    """A consumer reads and acknowledges nothing, while others work; then it dies."""
    queue = f"{kind}-{prefetch}"
    what = f"{kind}, prefetch {prefetch}, {backlog} waiting"
    publisher = Publisher(server)
    declare(publisher.connection, queue, x_queue_type=kind)
    publisher.publish(queue, backlog)
    before = server.memory()
    greedy = Drain(server, queue, prefetch=prefetch)
    held = prefetch or backlog
    came = greedy.take(held, settle=False)
    trial.expect(came, f"{what}: {len(greedy.numbers)} of {held} came to the consumer that acknowledges nothing")
    grown = server.memory() - before
    bound = MEMORY_GROWTH_MAX + held * LEASE_BYTES_MAX
    trial.expect(grown < bound, f"{what}: memory grew by {grown >> 20} MiB, the bound is {bound >> 20} MiB")
    trial.note(f"{what}: {held} are with one consumer: memory grew by {grown >> 10} KiB")
    trial.expect(greedy.numbers == list(range(held)), f"{what}: it was given them in another order")
    trial.expect(not any(greedy.redelivered), f"{what}: first deliveries are marked as redelivered")
    # Another one gets what is left, and its part of what is new.
    other = Drain(server, queue, prefetch=500)
    trial.expect(other.take(backlog - held), f"{what}: {len(other.numbers)} of {backlog - held} came to the other consumer")
    trial.expect(other.numbers == list(range(held, backlog)), f"{what}: the other's are out of order")
    publisher.publish(queue, 1000, begin=backlog)
    if prefetch == 0:
        trial.expect(other.take(1), f"{what}: of a thousand new ones the other consumer was given none")
        greedy.take(backlog + 1, settle=False)
    else:
        trial.expect(other.take(backlog + 1000 - held), f"{what}: of a thousand new ones only {len(other.numbers)} came")
    trial.expect(not any(other.redelivered), f"{what}: the other was told of redeliveries")
    other.close()
    # What came to it while it closed was not acknowledged any more.
    left = set(range(backlog + 1000)) - set(other.numbers[: other.acknowledged])
    greedy.drop()
    again = Drain(server, queue, prefetch=500)
    trial.expect(again.take(len(left), seconds=600), f"{what}: {len(again.numbers)} of {len(left)} came again")
    trial.expect(again.numbers == sorted(left), f"{what}: they came again in another order, or others did")
    unmarked = sum(not mark for number, mark in zip(again.numbers, again.redelivered, strict=True) if number < held)
    trial.expect(not unmarked, f"{what}: {unmarked} came again without a mark")
    again.close()
    trial.expect(amqp.waiting(publisher.connection, queue) == 0, f"{what}: something is left")
    publisher.close()


@scenario("never-acknowledged", "a consumer that acknowledges nothing holds what it has; it dies, and all comes again in order")
def never_acknowledged(trial: Trial) -> None:
    server = trial.server().start()
    with witness(trial, server, "a consumer that acknowledges nothing"):
        never_acks(trial, server, "classic", 0, 5_000)
        never_acks(trial, server, "classic", 100, 200_000)
        never_acks(trial, server, "quorum", 100, 50_000)


@scenario("never-acknowledged-long", "nor do three hundred thousand with one consumer, which all come again", slow=True)
def never_acknowledged_long(trial: Trial) -> None:
    server = trial.server().start()
    with witness(trial, server, "a consumer that acknowledges nothing"):
        never_acks(trial, server, "classic", 0, 300_000)
        never_acks(trial, server, "quorum", 0, 100_000)


def storm(server: Server, queue: str, stop: threading.Event, counts: list[int], wrong: list[str]) -> threading.Thread:
    """A consumer that gives everything back at once."""

    def run() -> None:
        try:
            drain = Drain(server, queue, prefetch=200)
            given_back = 0
            while not stop.is_set():
                drain._more(0.1)
                if drain.last_tag > given_back:
                    drain.connection.send(1, "basic.nack", delivery_tag=drain.last_tag, multiple=True, requeue=True)
                    given_back = drain.last_tag
            counts.append(given_back)
            drain.close()
        except (OSError, ValueError) as failure:
            wrong.append(str(failure))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


@scenario("requeue-storm", "consumers that give everything back starve nobody; disk, journal and memory stay bounded")
def requeue_storm(trial: Trial) -> None:
    server = trial.server().start()
    with witness(trial, server, "a storm of requeues") as seen:
        for kind in ("classic", "quorum"):
            publisher = Publisher(server)
            declare(publisher.connection, kind, x_queue_type=kind)
            publisher.publish(kind, 500)
            before = server.memory()
            stop, counts, wrong = threading.Event(), [], []
            threads = [storm(server, kind, stop, counts, wrong) for _ in range(4)]
            most, until, sent = 0, time.monotonic() + 2, 500
            while time.monotonic() < until:
                publisher.publish(kind, 10, begin=sent)
                sent += 10
                most = max(most, server.memory())
                time.sleep(0.02)
            trial.expect(seen.goes_on(), f"{kind}: the witness was not served")
            # Somebody who works takes all of it while the others still give back.
            worker = Drain(server, kind, prefetch=50)
            took = worker.take(sent)
            trial.expect(took, f"{kind}: {len(worker.numbers)} of {sent} came to the one who acknowledges")
            stop.set()
            for thread in threads:
                thread.join(30)
            worker.close()
            trial.expect(not wrong, f"{kind}: a consumer of the storm ended: {wrong}")
            lost = set(range(sent)) - set(worker.numbers)
            trial.expect(not lost, f"{kind}: {sorted(lost)[:5]} never came")
            trial.expect(len(worker.numbers) == len(set(worker.numbers)), f"{kind}: something settled came again")
            trial.expect(sum(counts) > 1000, f"{kind}: {sum(counts)} were given back, so nothing was shown")
            trial.expect(most - before < MEMORY_GROWTH_MAX, f"{kind}: memory grew by {(most - before) >> 20} MiB")
            trial.note(f"{kind}: {sum(counts)} given back: memory grew by {(most - before) >> 20} MiB")
            left = within(20, lambda: amqp.waiting(publisher.connection, kind) == 0)
            trial.expect(left, f"{kind}: {amqp.waiting(publisher.connection, kind)} are left")
            publisher.close()
    journal, bound = journal_bytes(server.data_dir), (64 + 16) * MIB
    trial.expect(journal <= bound, f"the journal takes {journal >> 20} MiB, its bound is {bound >> 20} MiB")
    rest = disk_bytes(server.data_dir)
    trial.expect(rest < SEGMENT_BYTES, f"{rest >> 20} MiB stay on disk of some thousand small messages")
    trial.note(f"afterwards: {journal >> 20} MiB of journal, {rest >> 10} KiB of everything else")
    server.kill()
    server.start()
    reader = opened(server)
    for kind in ("classic", "quorum"):
        trial.expect(amqp.waiting(reader, kind) == 0, f"{kind}: {amqp.waiting(reader, kind)} are there again after a kill")
    reader.drop()


@scenario(
    "dead-letters-without-room",
    "dead letters that find no room are tried again once a second, and arrive when there is some",
)
def dead_letters_without_room(trial: Trial) -> None:
    count, seconds = 10, 3
    server = trial.server().start()
    with witness(trial, server, "dead letters that find no room"):
        publisher = Publisher(server)
        declare(publisher.connection, "full", x_max_length=1, x_overflow="reject-publish")
        declare(
            publisher.connection,
            "dying",
            x_queue_type="quorum",
            x_message_ttl=50,
            x_overflow="reject-publish",
            x_dead_letter_exchange="",
            x_dead_letter_routing_key="full",
            x_dead_letter_strategy="at-least-once",
        )
        publisher.publish("dying", count)
        time.sleep(seconds)
        tries = server.said().count("could not be published; it tries again")
        # One more second for a machine that is slow to begin, and a line more for each.
        bound = count * (seconds + 2)
        trial.expect(tries > 0, "none was tried twice, so nothing was shown")
        trial.expect(tries <= bound, f"{tries} tries in {seconds} s for {count} dead letters, at most {bound} are due")
        trial.note(f"{tries} tries in {seconds} s for {count} dead letters")
        came: set[int] = set()

        def take() -> bool:
            got = call(publisher.connection, 1, "basic.get", queue="full", no_ack=True)
            if got.name == "basic.get_ok":
                came.add(int(got.body))
            return len(came) == count

        trial.expect(within(60, take), f"{len(came)} of {count} arrived when there was room")
        publisher.close()
