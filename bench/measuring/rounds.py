"""Runs a group: starts its brokers, prepares each case on each of them, and measures them in turn."""

import contextlib
import datetime
import time
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from . import machine
from .case import Case, Group
from .loads import LOADS
from .loads.floor import Floor
from .loads.load import Load, Scale
from .peers import KINDS, Peer, commit
from .samples import Run, Sample, Writer

SHOWN = (
    ("records_per_second", "{:,.0f} records/s"),
    ("broker_cpu_s_per_gb", "{:.2f} broker CPU s/GB"),
    ("broker_cpu_us_per_batch", "{:.1f} broker CPU µs/batch"),
    ("broker_cpu_us_per_request", "{:.1f} broker CPU µs/request"),
    ("read_p50_ms", "p50 {:.3f} ms"),
    ("read_p99_ms", "p99 {:.3f} ms"),
    ("read_p999_ms", "p99.9 {:.3f} ms"),
    ("broker_cpu_s_per_million", "{:.2f} broker CPU µs/message"),
    ("broker_cpu_s_per_million_deliveries", "{:.2f} broker CPU µs/delivery"),
    ("confirmed_p50_ms", "confirmed p50 {:.3f} ms"),
    ("confirmed_p99_ms", "p99 {:.3f} ms"),
    ("waiting_million", "{:.2f} million waiting"),
    ("published_of_empty", "published {:.2f} of empty"),
    ("drained_of_empty", "taken {:.2f} of empty"),
    ("confirmed_p99_of_empty", "confirm p99 {:.2f} of empty"),
    ("above_empty_mib", "{:.0f} MiB above empty"),
    ("first_delivered_s", "first delivered after {:.3f} s"),
    ("published_of_undelayed", "published {:.2f} of undelayed"),
    ("late_p99_ms", "late p99 {:.2f} ms"),
    ("first_acknowledged_s", "first acknowledged after {:.3f} s"),
    ("rest_mib", "{:.0f} MiB at rest"),
    ("load_mib", "{:.0f} MiB under load"),
    ("hottest_thread", "hottest client thread {:.0%}"),
    ("other_cores", "others {:.2f} cores"),
)


def versions(peers: list[str]) -> dict[str, str]:
    """What each broker is, once for all its kinds."""
    found = {name: KINDS[name].version() for name in peers if name in KINDS}
    return {words: words for words in found.values()}


def _load(case: Case, name: str, peers: dict[str, Peer], scale: Scale, place: Path) -> Load:
    if name == "floor":
        return Floor(case, None, scale, place)
    return LOADS[case.kind](case, peers[name], scale)


def _commands(loads: list[Load]) -> list[str]:
    """What is run for a case; brokers share the load generator's commands."""
    return list(dict.fromkeys(line for load in loads for line in load.commands()))


def _say(label: str, case: Case, peer: str, figures: dict[str, float]) -> None:
    words = ", ".join(form.format(figures[name]) for name, form in SHOWN if name in figures)
    print(f"{label:<9} {case.name:<42} {peer:<12} {words}", flush=True)


def run_group(
    group: Group, only: set[str], rounds: int, scale: Scale, directory: str | None, command: str, out: Writer
) -> None:
    """Measures a group's cases on those of their brokers that are named in `only`."""
    cases = [replace(case, peers=tuple(peer for peer in case.peers if peer in only)) for case in group.cases]
    cases = [case for case in cases if case.peers]
    names = [name for name in (*KINDS, "floor") if any(name in case.peers for case in cases)]
    load_before = machine.load()
    print(f"\n== {group.title}: {', '.join(names)}, {rounds} rounds of {scale.seconds:g} s", flush=True)
    with contextlib.ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory(prefix="weir-bench-", dir=directory)))
        peers = {name: stack.enter_context(Peer(name, place / name)) for name in names if name != "floor"}
        loads = {(case.name, name): _load(case, name, peers, scale, place) for case in cases for name in case.peers}
        began = datetime.datetime.now(datetime.UTC)
        run = Run(
            id=f"{began:%Y-%m-%dT%H:%M:%S.%f} {group.name}",
            group=group.name,
            date=f"{began:%Y-%m-%d}",
            commit=commit(),
            command=command,
            machine=machine.describe(),
            load_before=load_before,
            rounds=rounds,
            seconds=scale.seconds,
            client="; ".join(sorted({load.generator() for load in loads.values()})),
            versions=versions(names),
            commands={case.name: _commands([loads[case.name, name] for name in case.peers]) for case in cases},
        )
        out.write(run)
        for (case_name, name), load in loads.items():
            since = time.monotonic()
            load.prepare()
            print(f"{'prepared':<9} {case_name:<42} {name:<12} {time.monotonic() - since:.1f} s", flush=True)
        for number in range(rounds):
            for place_in_round, case in enumerate(cases):
                if case.once and number:
                    continue
                turned = (number + place_in_round) % 2
                for name in reversed(case.peers) if turned else case.peers:
                    figures = loads[case.name, name].measure()
                    out.write(Sample(run.id, case.name, name, number + 1, figures))
                    _say(f"round {number + 1}", case, name, figures)
