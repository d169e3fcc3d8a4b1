"""Shows that the judge of a cluster finds damage, and that it does not take the traces of a fault for damage.

Each way in which a cluster may break its promises is played once on made-up ledgers. What only a fault excuses is played
with the fault and without it.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

from killing.ledger import Held
from killing.queues import Event, Got

from chaotic.judgement import Fault, History, Kill, judge_queues, judge_topics, outages
from chaotic.ledgers import Told, attempt_number
from chaotic.replicas import Replica, judge_replicas

PLACE = ("orders", 0)
FIRST, SECOND = "quorum-a/1@1", "quorum-b/1@2"
QUEUE = "chaos-quorum"


@dataclass
class Scene:
    """All that is judged."""

    told: Told
    held: Held
    history: History
    replicas: dict[int, Replica]

    def verdicts(self) -> dict[str, list[str]]:
        _, dead = outages(self.told, self.history)
        return {
            **judge_topics(self.told, self.held, {"once.k0"}),
            **judge_queues(self.told, self.history),
            **judge_replicas(self.replicas),
            "writes go on after a leader's end": dead,
        }


def message(number: int, connection: int = 1, publisher: str = "to-quorum") -> tuple[str, int, int]:
    return publisher, number, attempt_number(connection, number)


def sound() -> Scene:
    """A leader is killed at 10 and back at 12; nodes 1 and 2 are cut off from each other from 30 to 40."""
    told = Told()
    records = [(0, "once.k0", 0), (1, "once.k0", 1), (2, "once.k0", 2)]
    told.topics.acks[PLACE] = [*records[:2], (-1, "once.k0", 2)]
    told.topics.reads[PLACE] = list(records)
    told.topics.commits[PLACE] = [(3, 20.0, 20.1)]
    told.acknowledged_at[PLACE] = [9.9, 10.01, 12.5, 50.0]
    queues = told.queues
    queues.sent = {message(number) for number in range(8)} | {message(3, 2)}
    queues.kept = {("to-quorum", number) for number in range(8)}
    queues.opened = {FIRST: 1.0, SECOND: 1.0}
    queues.got = [
        Got(QUEUE, message(0), FIRST, 2.0),
        Got(QUEUE, message(1), FIRST, 2.1),
        # Rejected, and counted.
        Got(QUEUE, message(1), SECOND, 5.0, True, 1),
        # Handed out when its leader was killed, and not marked by the next one; and one before it, again.
        Got(QUEUE, message(3), FIRST, 9.9),
        Got(QUEUE, message(2), FIRST, 12.9),
        Got(QUEUE, message(3), FIRST, 13.0),
        # It was settled while its second copy was held by the cut.
        Got(QUEUE, message(4), FIRST, 30.5),
        Got(QUEUE, message(4), SECOND, 40.5, True),
        Got(QUEUE, message(5), FIRST, 70.0),
        Got(QUEUE, message(6), FIRST, 70.1),
        # What was sent again over another connection comes as it may.
        Got(QUEUE, message(3, 2), FIRST, 70.2),
    ]
    queues.back = [Event(QUEUE, message(1), FIRST, 2.2)]
    queues.acked = [
        Event(QUEUE, message(0), FIRST, 2.05),
        Event(QUEUE, message(1), SECOND, 5.1),
        Event(QUEUE, message(2), FIRST, 12.95),
        Event(QUEUE, message(3), FIRST, 13.1),
        Event(QUEUE, message(4), FIRST, 30.6),
        Event(QUEUE, message(5), FIRST, 70.05),
    ]
    queues.settled[FIRST] = [(2.5, 2.6), (14.0, 14.1), (30.7, 30.9), (75.0, 75.1)]
    queues.left = [(QUEUE, message(7))]
    history = History(
        [Fault("kill", (1,), 10.0, 12.0), Fault("cut", (1, 2), 30.0, 40.0)],
        [Kill(10.0, 1, (PLACE,))],
        [12.3],
    )
    files = {"shards/1/7/00000000000000000000.log": (300, "abc")}
    replica = Replica(dict(files), {7}, 0, "")
    return Scene(told, Held({PLACE: records}, {PLACE: 3}, set(), []), history, {n: deepcopy(replica) for n in (1, 2, 3)})


def _lose(scene: Scene) -> None:
    scene.held.records[PLACE].pop()


def _double(scene: Scene) -> None:
    scene.held.records[PLACE].append((3, "once.k0", 2))


def _swap_a_key(scene: Scene) -> None:
    scene.held.records[PLACE][1:] = [(1, "once.k0", 2), (2, "once.k0", 1)]


def _acknowledge_at_another_offset(scene: Scene) -> None:
    scene.told.topics.acks[PLACE][1] = (2, "once.k0", 1)


def _give_an_offset_twice(scene: Scene) -> None:
    scene.told.topics.acks[PLACE].append((1, "once.k1", 0))


def _show_what_was_never_committed(scene: Scene) -> None:
    scene.told.topics.reads[PLACE].append((3, "once.k0", 3))


def _show_two_records_at_one_offset(scene: Scene) -> None:
    scene.told.topics.reads[PLACE].append((1, "once.k0", 7))


def _forget_a_commit(scene: Scene) -> None:
    scene.held.committed[PLACE] = 1


def _lose_a_message(scene: Scene) -> None:
    scene.told.queues.left.clear()


def _make_up_a_message(scene: Scene) -> None:
    scene.told.queues.left.append((QUEUE, message(99)))


def _settled_again_in_calm(scene: Scene) -> None:
    scene.told.queues.got.append(Got(QUEUE, message(0), SECOND, 80.0, True))


def _settled_again_long_after_a_kill(scene: Scene) -> None:
    scene.told.queues.got.append(Got(QUEUE, message(0), SECOND, 13.0, True))


def _settled_again_in_the_middle_of_a_cut(scene: Scene) -> None:
    scene.told.queues.got.append(Got(QUEUE, message(4), SECOND, 36.0, True))


def _settled_again_long_after_a_cut(scene: Scene) -> None:
    scene.told.queues.got[7] = Got(QUEUE, message(4), SECOND, 60.0, True)


def _settled_before_the_cut_and_back_after_it(scene: Scene) -> None:
    scene.told.queues.got.append(Got(QUEUE, message(0), SECOND, 40.5, True))


def _settled_and_there_in_the_end(scene: Scene) -> None:
    scene.told.queues.left.append((QUEUE, message(5)))


def _no_mark_in_calm(scene: Scene) -> None:
    scene.told.queues.got.append(Got(QUEUE, message(6), SECOND, 72.0))


def _no_mark_by_a_leader_that_must_know(scene: Scene) -> None:
    queues = scene.told.queues
    queues.got = [got for got in queues.got if got.message != message(6)]
    queues.acked = [event for event in queues.acked if event.message != message(5)]
    scene.history.faults.append(Fault("kill", (1,), 95.0, 96.0))
    queues.got.append(Got(QUEUE, message(5), SECOND, 97.0))


def _swapped_in_calm(scene: Scene) -> None:
    scene.told.queues.got.append(Got(QUEUE, message(2), FIRST, 70.3))


def _forget_a_rejection(scene: Scene) -> None:
    scene.told.queues.got[2] = Got(QUEUE, message(1), SECOND, 5.0, True, 0)


def _count_a_death_twice(scene: Scene) -> None:
    queues = scene.told.queues
    queues.sent.add(("to-dead", 0, 0))
    queues.got.append(Got("chaos-dead", ("to-dead", 0, 0), FIRST, 50.0, False, 2))


def _never_write_again(scene: Scene) -> None:
    scene.told.acknowledged_at[PLACE] = [9.9]


def _write_again_much_later(scene: Scene) -> None:
    scene.told.acknowledged_at[PLACE] = [9.9, 10.01, 55.0]
    # Nothing else was done that could be the reason.
    del scene.history.faults[1:]


def _differ(scene: Scene) -> None:
    scene.replicas[2].files["shards/1/7/00000000000000000000.log"] = (300, "abd")


def _lag(scene: Scene) -> None:
    scene.replicas[3].files["shards/1/7/00000000000000000000.log"] = (200, "ab")


def _miss_a_file(scene: Scene) -> None:
    scene.replicas[3].files.clear()


def _hold_harm(scene: Scene) -> None:
    scene.replicas[1].verify_status = 65


DAMAGES: tuple[tuple[Callable[[Scene], None], str], ...] = (
    (_lose, "every acknowledged record"),
    (_double, "exactly once"),
    (_swap_a_key, "order"),
    (_acknowledge_at_another_offset, "every acknowledged record"),
    (_give_an_offset_twice, "one record"),
    (_show_what_was_never_committed, "given is what is there"),
    (_show_two_records_at_one_offset, "one record"),
    (_forget_a_commit, "committed offset"),
    (_lose_a_message, "every confirmed message"),
    (_make_up_a_message, "not sent to it"),
    (_settled_again_in_calm, "settled for good"),
    (_settled_again_long_after_a_kill, "settled for good"),
    (_settled_again_in_the_middle_of_a_cut, "settled for good"),
    (_settled_again_long_after_a_cut, "settled for good"),
    (_settled_before_the_cut_and_back_after_it, "settled for good"),
    (_settled_and_there_in_the_end, "settled for good"),
    (_no_mark_in_calm, "says so"),
    (_no_mark_by_a_leader_that_must_know, "says so"),
    (_swapped_in_calm, "in its order"),
    (_forget_a_rejection, "are counted"),
    (_count_a_death_twice, "counted once"),
    (_never_write_again, "writes go on"),
    (_write_again_much_later, "writes go on"),
    (_differ, "same bytes"),
    (_lag, "same bytes"),
    (_miss_a_file, "same bytes"),
    (_hold_harm, "verified"),
)


def self_test() -> tuple[int, int]:
    """Returns how many damages (and the sound ledgers) were judged rightly, and how many wrongly."""
    passed = failed = 0
    wrongly = {name: found for name, found in sound().verdicts().items() if found}
    if wrongly:
        print(f"a sound cluster was found damaged: {wrongly}")
        failed += 1
    else:
        print("a sound cluster: nothing found")
        passed += 1
    for damage, expected in DAMAGES:
        scene = sound()
        damage(scene)
        found = {name: complaints for name, complaints in scene.verdicts().items() if complaints}
        words = damage.__name__.strip("_").replace("_", " ")
        hits = [complaints[0] for name, complaints in found.items() if expected in name]
        if hits:
            print(f"{words}: found ({hits[0]})")
            passed += 1
        else:
            print(f"{words}: NOT FOUND; complaints were {found}")
            failed += 1
    return passed, failed
