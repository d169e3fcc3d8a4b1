"""The part of the self-test that is of queues: what PerfTest and `QueueLoad` say is read rightly, faults are found."""

from collections.abc import Callable

from harness import ports

from . import Fault, perf_test, queue_load
from .case import Case, Target
from .cases import BY_NAME
from .judgement import judge
from .peers import KINDS
from .samples import Sample

METRICS = (
    "# HELP perftest_latency_seconds message latency\n"
    "perftest_confirm_latency_seconds_count 40000\n"
    "perftest_confirm_latency_seconds_sum 30520.867435141\n"
    "perftest_confirmed 4997.0\n"
    "perftest_consumed 4882.0\n"
    "perftest_latency_seconds_count 1.0E7\n"
)
LOAD = 'consuming\n{"records": 500, "failed": 0, "double": 0, "early": 0, "seconds": 2.5, "p99_ms": 0.5}\n'
SMALL = BY_NAME["queues"].cases[0]
FANOUT = BY_NAME["fan-out"].cases[0]
BACKLOG = BY_NAME["backlog"].cases[0]


def _refused(act: Callable[[], object]) -> bool:
    try:
        act()
    except Fault:
        return True
    return False


def _verdicts(case: Case, figure: str, **figures: float) -> dict[str | None, str]:
    """What is judged of one figure, by whom Weir stands beside."""
    names = {name.replace("-", "_"): name for name in KINDS}
    taken = {
        (case.name, names[key]): [Sample("r", case.name, names[key], 1, {figure: value})]
        for key, value in figures.items()
    }
    return {target.beside: judge(case, target, taken).verdict for target in case.targets if target.figure == figure}


def _each_kind_has_its_bound() -> bool:
    brokers = {"rabbitmq_classic": 100, "rabbitmq_classic_2": 60, "rabbitmq_quorum": 100}
    found = _verdicts(SMALL, "broker_cpu_s_per_million", weir=30, **brokers)
    return found == {"rabbitmq-classic": "met", "rabbitmq-classic-2": "missed", "rabbitmq-quorum": "missed"}


def _rates_have_their_bound() -> bool:
    brokers = {"rabbitmq_classic": 100, "rabbitmq_classic_2": 100, "rabbitmq_quorum": 100}
    found = _verdicts(SMALL, "records_per_second", weir=400, **brokers)
    return found == {"rabbitmq-classic": "met", "rabbitmq-classic-2": "met", "rabbitmq-quorum": "missed"}


def _own_empty_queue_is_the_measure() -> bool:
    """RabbitMQ's own ratio, however bad, does not make Weir's better."""
    return (
        _verdicts(BACKLOG, "drained_of_empty", weir=0.89, rabbitmq_classic=0.2) == {None: "missed"}
        and _verdicts(BACKLOG, "drained_of_empty", weir=0.91) == {None: "met"}
        and _verdicts(BACKLOG, "confirmed_p99_of_empty", weir=1.2) == {None: "missed"}
        and _verdicts(BACKLOG, "above_empty_mib", weir=63.0) == {None: "met"}
    )


def _every_target_has_words() -> bool:
    from .page import FIGURES

    groups = (BY_NAME[name] for name in ("queues", "confirms", "fan-out", "backlog", "delays"))
    return all(target.figure in FIGURES for group in groups for case in group.cases for target in case.targets)


def _targets_are_shown() -> bool:
    """A target's figure is a column of the table above it."""

    def columns(name: str) -> set[str]:
        return {column.figure for column in BY_NAME[name].columns}

    def targets(name: str) -> list[Target]:
        return [target for case in BY_NAME[name].cases for target in case.targets]

    return all(
        target.figure in columns(name)
        for name in ("queues", "confirms", "fan-out", "backlog", "delays")
        for target in targets(name)
    )


CHECKS: tuple[tuple[str, Callable[[], bool]], ...] = (
    ("PerfTest's counts are read, and not its rates", lambda: perf_test.counts(METRICS) == (40_000, 10_000_000)),
    (
        "a PerfTest that tells no counts is refused",
        lambda: _refused(lambda: perf_test.counts(METRICS.replace("latency_seconds_count", "latency"))),
    ),
    ("everything confirmed and delivered is the end", lambda: perf_test.ended((40, 400), 40, 400)),
    (
        "a confirm or a delivery too few is not the end",
        lambda: not perf_test.ended((39, 400), 40, 400) and not perf_test.ended((40, 399), 40, 400),
    ),
    ("a delivery too many is refused", lambda: _refused(lambda: perf_test.ended((40, 401), 40, 400))),
    ("a confirm too many is refused", lambda: _refused(lambda: perf_test.ended((41, 400), 40, 400))),
    (
        "a kind of queue is asked for by its arguments",
        lambda: "x-queue-type=quorum" in perf_test.words(SMALL, KINDS["rabbitmq-quorum"].queue_arguments)
        and "-qa" not in perf_test.words(SMALL, KINDS["weir"].queue_arguments),
    ),
    (
        "a fan-out has its queues",
        lambda: perf_test.queues_of(FANOUT, "a")[::9] == ["a-1", "a-10"] and perf_test.queues_of(SMALL, "a") == ["a"],
    ),
    ("a result of QueueLoad is read", lambda: queue_load.read(LOAD, 500)["seconds"] == 2.5),
    ("a message too few is refused", lambda: _refused(lambda: queue_load.read(LOAD, 501))),
    (
        "a message that is double, refused or early is refused",
        lambda: all(
            _refused(lambda word=word: queue_load.read(LOAD.replace(f'"{word}": 0', f'"{word}": 1'), 500))
            for word in ("double", "failed", "early")
        ),
    ),
    ("each kind of queue has its own bound of CPU", _each_kind_has_its_bound),
    ("each kind of queue has its own bound of the rate", _rates_have_their_bound),
    ("a backlog is measured by one's own empty queue", _own_empty_queue_is_the_measure),
    ("every figure with a target has words", _every_target_has_words),
    ("every figure with a target has a column", _targets_are_shown),
    (
        "no broker is given a port of clients or of RabbitMQ's distribution",
        lambda: all(
            ports.FIRST <= port <= ports.LAST < 32_768 and port != 25_672
            for port in (ports.free_port() for _ in range(50))
        ),
    ),
)
