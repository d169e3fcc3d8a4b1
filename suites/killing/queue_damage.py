"""Shows that the judge of queues finds damage, as `damage` does for topics."""

from collections.abc import Callable
from copy import deepcopy

from .queues import Event, Expected, Got, QueueLedgers, judge_queues

EXPECTED = Expected({"p": "q", "m": "q", "d": "dead"}, {"q"}, {"q"}, {"dead"}, {"d": 1})
STARTS = [0.0, 10.0]
FIRST, SECOND = "c/1", "c/2"


def sound() -> QueueLedgers:
    """Two lives of the broker, a consumer with a session in each. Message 3 was sent twice, as its confirm got lost."""
    ledgers = QueueLedgers()
    ledgers.sent = {("p", number, number) for number in range(6)} | {("p", 3, 6), ("m", 0, 0)}
    ledgers.kept = {("p", number) for number in range(6)} | {("m", 0)}
    ledgers.opened = {FIRST: 1.0, SECOND: 11.0}
    ledgers.got = [
        Got("q", ("p", 0, 0), FIRST, 2.0),
        Got("q", ("p", 1, 1), FIRST, 2.1),
        # It was rejected.
        Got("q", ("p", 1, 1), FIRST, 2.2, True, 1),
        Got("q", ("p", 2, 2), FIRST, 5.0),
        Got("q", ("p", 3, 3), FIRST, 5.1),
        Got("q", ("p", 2, 2), SECOND, 12.0, True),
        # Nothing says that the process which was killed had noted that it came.
        Got("q", ("p", 3, 3), SECOND, 12.1),
        Got("q", ("p", 4, 4), SECOND, 12.2),
        Got("q", ("m", 0, 0), SECOND, 12.3),
    ]
    ledgers.back = [Event("q", ("p", 1, 1), FIRST, 2.15)]
    ledgers.acked = [
        Event("q", ("p", 0, 0), FIRST, 2.05),
        Event("q", ("p", 1, 1), FIRST, 2.3),
        Event("q", ("p", 2, 2), FIRST, 5.05),
        Event("q", ("p", 2, 2), SECOND, 12.05),
        Event("q", ("p", 4, 4), SECOND, 12.25),
    ]
    ledgers.settled[FIRST] = [(2.4, 2.5)]
    ledgers.settled[SECOND] = [(13.0, 13.1)]
    # A kill brought it twice, and it was settled twice.
    ledgers.sent.add(("d", 0, 0))
    ledgers.got += [Got("dead", ("d", 0, 0), at[0], at[1], False, 1) for at in ((FIRST, 3.0), (SECOND, 12.5))]
    ledgers.acked += [Event("dead", ("d", 0, 0), FIRST, 3.1), Event("dead", ("d", 0, 0), SECOND, 12.6)]
    ledgers.settled[FIRST].append((3.2, 3.3))
    ledgers.left = [("q", ("p", 5, 5)), ("q", ("p", 3, 6)), ("q", ("p", 3, 3))]
    return ledgers


def _lose(ledgers: QueueLedgers) -> None:
    ledgers.left.remove(("q", ("p", 5, 5)))


def _make_up(ledgers: QueueLedgers) -> None:
    ledgers.left.append(("q", ("p", 99, 99)))


def _put_into_another_queue(ledgers: QueueLedgers) -> None:
    ledgers.left.append(("another", ("p", 3, 6)))


def _give_again_what_was_settled_before_a_kill(ledgers: QueueLedgers) -> None:
    ledgers.got.append(Got("q", ("p", 0, 0), SECOND, 12.5, True))


def _give_again_what_was_settled_in_the_same_life(ledgers: QueueLedgers) -> None:
    ledgers.got.append(Got("q", ("p", 0, 0), FIRST, 6.0, True))


def _keep_what_was_settled(ledgers: QueueLedgers) -> None:
    ledgers.left.append(("q", ("p", 4, 4)))


def _forget_a_mark_without_a_kill(ledgers: QueueLedgers) -> None:
    ledgers.got[2] = Got("q", ("p", 1, 1), FIRST, 2.2, False, 1)


def _forget_a_mark_that_was_certain(ledgers: QueueLedgers) -> None:
    ledgers.settled[FIRST].append((6.0, 6.1))
    ledgers.acked = [event for event in ledgers.acked if event.at != 5.05]
    ledgers.got[5] = Got("q", ("p", 2, 2), SECOND, 12.0)


def _swap(ledgers: QueueLedgers) -> None:
    ledgers.got[0], ledgers.got[3] = (
        Got("q", ("p", 2, 2), FIRST, 2.0),
        Got("q", ("p", 0, 0), FIRST, 5.0),
    )
    ledgers.acked.clear()
    ledgers.got[5] = Got("q", ("p", 2, 2), SECOND, 12.0, True)


def _bring_more_than_a_kill_can(ledgers: QueueLedgers) -> None:
    ledgers.got += [Got("dead", ("d", 0, 0), SECOND, 12.6 + at, False, 1) for at in (0.1, 0.2)]


def _count_a_death_twice(ledgers: QueueLedgers) -> None:
    ledgers.got.append(Got("dead", ("d", 0, 0), SECOND, 12.6, True, 2))


def _give_the_dead_among_the_living(ledgers: QueueLedgers) -> None:
    ledgers.got.append(Got("dead", ("d", 0, 0), SECOND, 12.6, True))


def _forget_a_count(ledgers: QueueLedgers) -> None:
    ledgers.got[2] = Got("q", ("p", 1, 1), FIRST, 2.2, True, 0)


def _count_what_nobody_rejected(ledgers: QueueLedgers) -> None:
    ledgers.got[5] = Got("q", ("p", 2, 2), SECOND, 12.0, True, 7)


DAMAGES: tuple[tuple[Callable[[QueueLedgers], None], str], ...] = (
    (_lose, "every confirmed message"),
    (_make_up, "not sent to it"),
    (_put_into_another_queue, "not sent to it"),
    (_give_again_what_was_settled_before_a_kill, "settled for good"),
    (_give_again_what_was_settled_in_the_same_life, "settled for good"),
    (_keep_what_was_settled, "settled for good"),
    (_forget_a_mark_without_a_kill, "says so"),
    (_forget_a_mark_that_was_certain, "says so"),
    (_count_a_death_twice, "counted once"),
    (_give_the_dead_among_the_living, "counted once"),
    (_bring_more_than_a_kill_can, "says so"),
    (_swap, "in their order"),
    (_forget_a_count, "counted"),
    (_count_what_nobody_rejected, "counted"),
)


def self_test() -> tuple[int, int]:
    """Returns how many damages (and the sound ledgers) were judged rightly, and how many wrongly."""
    passed = failed = 0
    wrongly = {name: found for name, found in judge_queues(sound(), STARTS, EXPECTED).items() if found}
    if wrongly:
        print(f"sound ledgers of queues were found damaged: {wrongly}")
        failed += 1
    else:
        print("sound ledgers of queues: nothing found")
        passed += 1
    for damage, expected in DAMAGES:
        ledgers = deepcopy(sound())
        damage(ledgers)
        found = {name: complaints for name, complaints in judge_queues(ledgers, STARTS, EXPECTED).items() if complaints}
        words = damage.__name__.strip("_").replace("_", " ")
        hits = [complaints[0] for name, complaints in found.items() if expected in name]
        if hits:
            print(f"{words}: found ({hits[0]})")
            passed += 1
        else:
            print(f"{words}: NOT FOUND; complaints were {found}")
            failed += 1
    return passed, failed
