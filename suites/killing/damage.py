"""Shows that the judge finds damage: sound ledgers pass, and each kind of harm done to them is named.

A check that cannot fail proves nothing, so each way in which a broker may break its promises is played
once on made-up ledgers.
"""

from collections.abc import Callable
from copy import deepcopy

from .ledger import Held, Ledgers, judge

IDEMPOTENT = {"once"}
PLACE = ("topic", 0)


def sound() -> tuple[Ledgers, Held]:
    """Two producers in one partition; the plain one has sent its record 1 twice, as it may."""
    records = [(0, "once", 0), (1, "plain", 0), (2, "plain", 1), (3, "plain", 1), (4, "once", 1), (5, "once", 2)]
    ledgers = Ledgers()
    ledgers.acks[PLACE] = [record for record in records if record[0] != 2] + [(-1, "once", 1)]
    ledgers.reads[PLACE] = records[:4]
    ledgers.commits[PLACE] = [(2, 1.0, 1.1), (4, 2.0, 2.1)]
    ledgers.starts[PLACE] = [(0, 0.5, 0.6), (2, 2.05, 2.2), (4, 3.0, 3.1)]
    ledgers.made = {"kept", "dropped", "perhaps dropped"}
    ledgers.going = {"dropped", "perhaps dropped"}
    ledgers.gone = {"dropped"}
    return ledgers, Held({PLACE: records}, {PLACE: 4}, {"topic", "kept"}, [1, 2, 4])


def _lose(_: Ledgers, held: Held) -> None:
    held.records[PLACE].pop()


def _lose_from_the_middle(_: Ledgers, held: Held) -> None:
    del held.records[PLACE][4]


def _lose_everything(_: Ledgers, held: Held) -> None:
    held.records[PLACE] = []


def _overwrite(_: Ledgers, held: Held) -> None:
    held.records[PLACE][1] = (1, "plain", 7)


def _repeat(_: Ledgers, held: Held) -> None:
    held.records[PLACE].append((6, "once", 2))


def _skip(ledgers: Ledgers, held: Held) -> None:
    held.records[PLACE][5] = (5, "once", 3)
    ledgers.acks[PLACE][-1] = (5, "once", 3)


def _swap(ledgers: Ledgers, held: Held) -> None:
    for records in (held.records[PLACE], ledgers.acks[PLACE]):
        records[-2:] = [(4, "once", 2), (5, "once", 1)]


def _swap_plain(ledgers: Ledgers, held: Held) -> None:
    records = held.records[PLACE]
    records[1:4] = [(1, "plain", 1), (2, "plain", 0), (3, "plain", 1)]
    ledgers.acks[PLACE] = [record for record in records if record[0] != 2] + [(-1, "once", 1)]
    ledgers.reads[PLACE] = []


def _change_what_was_read(ledgers: Ledgers, _: Held) -> None:
    ledgers.reads[PLACE][2] = (2, "plain", 9)


def _take_back_what_was_read(ledgers: Ledgers, _: Held) -> None:
    ledgers.reads[PLACE].append((6, "once", 3))


def _forget_a_commit(_: Ledgers, held: Held) -> None:
    held.committed[PLACE] = 2


def _forget_all_commits(_: Ledgers, held: Held) -> None:
    held.committed = {}


def _begin_before_a_commit(ledgers: Ledgers, _: Held) -> None:
    ledgers.starts[PLACE].append((3, 4.0, 4.1))


def _repeat_a_generation(_: Ledgers, held: Held) -> None:
    held.generations = [1, 2, 2]


def _fall_back_a_generation(_: Ledgers, held: Held) -> None:
    held.generations = [5, 1]


def _forget_a_member(_: Ledgers, held: Held) -> None:
    held.group_complaints.append("a heartbeat answered UNKNOWN_MEMBER_ID")


def _lose_a_topic(_: Ledgers, held: Held) -> None:
    held.topics.remove("kept")


def _raise_a_topic_from_the_dead(_: Ledgers, held: Held) -> None:
    held.topics.add("dropped")


DAMAGES: tuple[tuple[Callable[[Ledgers, Held], None], str], ...] = (
    (_lose, "every acknowledged record"),
    (_lose_from_the_middle, "offsets are dense"),
    (_lose_everything, "every acknowledged record"),
    (_overwrite, "every acknowledged record"),
    (_repeat, "exactly once"),
    (_skip, "exactly once"),
    (_swap, "order"),
    (_swap_plain, "order"),
    (_change_what_was_read, "given"),
    (_take_back_what_was_read, "given"),
    (_forget_a_commit, "committed offset"),
    (_forget_all_commits, "committed offset"),
    (_begin_before_a_commit, "committed offset"),
    (_repeat_a_generation, "generations"),
    (_fall_back_a_generation, "generations"),
    (_forget_a_member, "generations"),
    (_lose_a_topic, "topics"),
    (_raise_a_topic_from_the_dead, "topics"),
)


def self_test() -> tuple[int, int]:
    """Returns how many damages (and the sound ledgers) were judged rightly, and how many wrongly."""
    passed = failed = 0
    ledgers, held = sound()
    wrongly = {name: found for name, found in judge(ledgers, held, IDEMPOTENT).items() if found}
    if wrongly:
        print(f"sound ledgers were found damaged: {wrongly}")
        failed += 1
    else:
        print("sound ledgers: nothing found")
        passed += 1
    for damage, expected in DAMAGES:
        ledgers, held = deepcopy(sound())
        damage(ledgers, held)
        found = {name: complaints for name, complaints in judge(ledgers, held, IDEMPOTENT).items() if complaints}
        words = damage.__name__.strip("_").replace("_", " ")
        hits = [complaints[0] for name, complaints in found.items() if expected in name]
        if hits:
            print(f"{words}: found ({hits[0]})")
            passed += 1
        else:
            print(f"{words}: NOT FOUND; complaints were {found}")
            failed += 1
    return passed, failed
