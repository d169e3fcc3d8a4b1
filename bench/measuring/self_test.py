"""Shows that faults of a measurement are found, that targets are judged rightly, and that a page keeps what
was not measured anew; on made-up output, without a broker."""

from collections.abc import Callable
from dataclasses import replace

from . import Fault, client, paced, produce_probe, queue_self_test
from .case import Case, Target
from .cases import BY_NAME, CASES
from .judgement import judge
from .page import page, parts, section
from .running import read_result
from .samples import Results, Run, Sample

PRODUCED = (
    "% 3000 messages produced (300000 bytes), 3000 delivered (offset 2999, 0 failed) in 1500ms: "
    "2000 msgs/s and 0.20 MB/s, 0 produce failures, 0 in queue, no compression\n"
)
CONSUMED = "% 3000 messages (300000 bytes) consumed in 250ms: 12000 msgs/s (1.20 MB/s)\n"
PACED = '%4|thread: words of the library\n{"records": 3000, "failed": 0, "double": 0, "p50_ms": 0.5}\n'
CASE = replace(BY_NAME["produce"].cases[0], targets=())


def _refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except Fault:
        return True
    return False


def _taken(weir: float, kafka: float, hottest: float = 0.5):
    def sample(peer: str, value: float) -> list[Sample]:
        return [Sample("r", CASE.name, peer, 1, {"records_per_second": value, "hottest_thread": hottest})]

    return {(CASE.name, "weir"): sample("weir", weir), (CASE.name, "kafka"): sample("kafka", kafka)}


def _paced() -> paced.Taken:
    """Four records, due at 0, 0, 1 and 1 ms: the second never came, the third came late and twice."""
    taken = paced.Taken(4)
    for number, milliseconds in ((0, 1), (2, 9), (2, 9), (3, 9)):
        due = paced.due(number, rate=2000, at_once=2)
        taken.note(paced.HEADER.pack(number, due), milliseconds * 1_000_000)
    return taken


def _missing_and_double_are_told() -> bool:
    told = _paced().told(0, 0, 0.0)
    return (told["records"], told["double"]) == (3, 1)


def _verdict(target: Target, *numbers: float) -> str:
    return judge(CASE, target, _taken(*numbers)).verdict


def _results(*runs: tuple[str, str, float]) -> Results:
    """Runs of one sample each: id, case, records a second."""
    found = Results({}, [])
    for name, case, value in runs:
        found.runs[name] = Run(name, "produce", "date", "c0ffee", "bench/run", "m", "0", 1, 1, "c", {"weir": "Weir"}, {})
        found.samples.append(Sample(name, case, "weir", 1, {"records_per_second": value}))
    return found


def _faster() -> Target:
    return Target("records_per_second", "least", 1.3, "kafka", unless_client_bound=True)


def _page_keeps_other_sections() -> bool:
    first = page("", {"produce": "old words\n", "memory": "of memory\n"})
    second = parts(page(first, {"produce": "new words\n"}))
    return second["Producing"].strip() == "new words" and second["Resident memory"].strip() == "of memory"


def _latest_run_counts() -> bool:
    first, second = (case.name for case in BY_NAME["produce"].cases[:2])
    text = section(BY_NAME["produce"], _results(("1", first, 111), ("2", first, 222), ("1", second, 333)))
    return "222" in text and "333" in text and "111" not in text


def _names_are_unique() -> bool:
    names = [(case.group, case.name) for case in CASES]
    return len(names) == len(set(names))


def _targets_name_what_is_measured() -> bool:
    def known(case: Case, target: Target) -> bool:
        others = {other.name for other in BY_NAME[case.group].cases}
        return (target.beside is None or target.beside in case.peers) and (
            target.beside_case is None or target.beside_case in others
        )

    return all(known(case, target) for case in CASES for target in case.targets)


CHECKS: tuple[tuple[str, Callable[[], bool]], ...] = (
    ("a producer's result is read", lambda: client.read_produced(PRODUCED, 3000) == 1.5),
    ("a record too few is refused", lambda: _refused(lambda: client.read_produced(PRODUCED, 3001))),
    (
        "a failed record is refused",
        lambda: _refused(lambda: client.read_produced(PRODUCED.replace("0 failed", "1 failed"), 3000)),
    ),
    ("output without a result is refused", lambda: _refused(lambda: client.read_produced("% ERROR\n", 3000))),
    ("a consumer's result is read", lambda: client.read_consumed(CONSUMED, 3000, 100) == 0.25),
    ("a record read too few is refused", lambda: _refused(lambda: client.read_consumed(CONSUMED, 3001, 100))),
    ("records of another size are refused", lambda: _refused(lambda: client.read_consumed(CONSUMED, 3000, 101))),
    (
        "an error while reading is refused",
        lambda: _refused(lambda: client.read_consumed(f"% Consume error for topic\n{CONSUMED}", 3000, 100)),
    ),
    ("a ratio above the bound is met", lambda: _verdict(_faster(), 140, 100) == "met"),
    ("a ratio below the bound is missed", lambda: _verdict(_faster(), 120, 100) == "missed"),
    ("a client-bound rate is not judged", lambda: "client-bound" in _verdict(_faster(), 120, 100, 0.95)),
    (
        "an absolute bound is judged by the figure itself",
        lambda: _verdict(Target("records_per_second", "most", 64), 63, 1) == "met"
        and _verdict(Target("records_per_second", "most", 64), 65, 1) == "missed",
    ),
    ("what was not measured is not judged", lambda: _verdict(Target("rest_mib", "most", 64), 1, 1) == "not measured"),
    ("percentiles are by rank", lambda: paced.percentiles(range(1_000_000, 0, -1000))["p99_ms"] == 0.991),
    (
        "what is due at one moment is due together",
        lambda: [paced.due(number, 10_000, 10) for number in (9, 10, 25)] == [0, 1_000_000, 2_000_000],
    ),
    ("latency is from when a record was due", lambda: _paced().told(2, 0, 0.0)["p50_ms"] == 8.0),
    ("a record that is missing or double is told", _missing_and_double_are_told),
    ("a paced client's result is read", lambda: read_result(PACED, 3000)["p50_ms"] == 0.5),
    ("a paced record too few is refused", lambda: _refused(lambda: read_result(PACED, 3001))),
    (
        "a paced record that is double is refused",
        lambda: _refused(lambda: read_result(PACED.replace('"double": 0', '"double": 1'), 3000)),
    ),
    ("a page keeps the sections that were not measured", _page_keeps_other_sections),
    ("of several runs of a case the last one counts", _latest_run_counts),
    ("no two cases of a group have one name", _names_are_unique),
    ("targets name brokers and cases that are measured", _targets_name_what_is_measured),
    ("the checksum of a hand-made batch is Castagnoli's", lambda: produce_probe.crc32c(b"123456789") == 0xE3069283),
)


def self_test() -> int:
    failed = 0
    checks = (*CHECKS, *queue_self_test.CHECKS)
    for words, check in checks:
        sound = check()
        failed += not sound
        print(f"{'ok' if sound else 'FAILED'}: {words}")
    print(f"{len(checks) - failed} passed, {failed} failed")
    return 1 if failed else 0
