"""docs/benchmarks.md: a section for each group, of which only those are written anew that were measured."""

import re
import statistics

from .case import Case, Column, Group, Target
from .cases import BY_NAME, GROUPS
from .judgement import Judged, Taken, client_bound, judge, values
from .peers import KINDS
from .samples import Results, Run

OPENING = """# Benchmarks

Weir beside Apache Kafka and beside RabbitMQ on the same machine, driven in turn by the same client. For Kafka that
is librdkafka: its own `rdkafka_performance`, and for latency Python clients on top of it. For RabbitMQ it is PerfTest,
its own load generator, and where that does not reach a small program on its Java client; the peers are its classic
queue, version 1 (its default) and version 2, and its quorum queue, each on a node of its own, and every claim names
which. Written by `bench/run --write`, group by group; each section says when, on what, and how to measure it again.
Client and brokers share the cores, so look at the ratios: the figures are one machine's.

How to read it:

- A figure is the median of the rounds, its lowest and highest in parentheses.
- Broker CPU is that of the whole process with its children, from the kernel's count, with the work that it puts off until a
  second after the load. It tells more than records/s wherever the client is what is slow: where the
  client's hottest thread passes 90 % of a core the row says *client-bound*, and only broker CPU is judged.
- The half second that an idempotent librdkafka producer waits for its id is in no rate.
- A ratio is Weir's median over the other's. "At most" means that lower is better.
- *Others' cores* is what everything else on the machine took, the kernel's own threads included; a
  measurement with much of it was disturbed.
- GB and MB are powers of ten, and count the records' values. KiB and MiB are powers of two.
- A record that was not acknowledged or is not there afterwards, a broker that ended, and a durability that
  is not what the row says end the benchmark; they are in no figure. So does a message of a queue that was not
  confirmed, not delivered, delivered twice or before its time, or left in its queue.
- "Records" in the tables of targets are a queue's messages as well.
"""

# A JVM has compiled what matters after some ten seconds of load.
SECONDS_TO_JUDGE = 15

FIGURES = {
    "records_per_second": "records/s",
    "broker_cpu_s_per_million": "broker CPU per record",
    "broker_cpu_s_per_gb": "broker CPU per GB",
    "read_p50_ms": "p50 until read",
    "read_p99_ms": "p99 until read",
    "read_p999_ms": "p99.9 until read",
    "first_acknowledged_s": "s to the first acknowledgement",
    "rest_mib": "MiB at rest",
    "load_mib": "MiB under load",
    "broker_cpu_s_per_million_deliveries": "broker CPU per delivery",
    "confirmed_p50_ms": "p50 until confirmed",
    "confirmed_p99_ms": "p99 until confirmed",
    "published_of_empty": "published/s, waiting over empty",
    "drained_of_empty": "taken/s, waiting over empty",
    "confirmed_p99_of_empty": "p99 until confirmed, waiting over empty",
    "above_empty_mib": "MiB at rest above empty",
    "first_delivered_s": "s to the first delivery",
    "late_p99_ms": "p99 of lateness, ms",
    "published_of_undelayed": "published/s, delayed over undelayed",
}


def title(peer: str) -> str:
    return KINDS[peer].title if peer in KINDS else "the floor alone"


def spread(found: list[float], form: str) -> str:
    middle = f"{statistics.median(found):{form}}"
    return middle if len(found) == 1 else f"{middle} ({min(found):{form}} to {max(found):{form}})"


def _cell(column: Column, taken: Taken, case: str, peer: str) -> str:
    found = [value * column.scale for value in values(taken, case, peer, column.figure)]
    return spread(found, column.form) if found else "–"


def _table(head: list[str], rows: list[list[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows)]


def _measured(group: Group, taken: Taken) -> list[str]:
    columns = [
        column
        for column in group.columns
        if any(values(taken, case, peer, column.figure) for case, peer in taken)
    ]
    rows = []
    for case in group.cases:
        for peer in case.peers:
            if (case.name, peer) not in taken:
                continue
            name = f"{case.name} (client-bound)" if client_bound(taken, case.name, peer) else case.name
            rows.append([name, title(peer), *(_cell(column, taken, case.name, peer) for column in columns)])
    return _table(["case", "broker", *(column.heading for column in columns)], rows)


def _beside(case: Case, target: Target) -> str:
    if target.beside_case:
        return f"Weir, {target.beside_case}"
    return title(target.beside) if target.beside else "–"


def _bound(target: Target) -> str:
    return f"{'≤' if target.at == 'most' else '≥'} {target.bound:.3g}"


def _judged(group: Group, taken: Taken) -> list[str]:
    rows = []
    for case in group.cases:
        if not any(name == case.name for name, _ in taken):
            continue
        for target in case.targets:
            found: Judged = judge(case, target, taken)
            ratio = "–" if found.ratio is None else f"{found.ratio:.2f}"
            rows.append(
                [case.name, FIGURES[target.figure], _beside(case, target), ratio, _bound(target), found.verdict]
            )
    if not rows:
        return []
    return ["", *_table(["case", "figure", "beside", "measured", "target", "result"], rows)]


def _circumstances(run: Run) -> list[str]:
    versions = "; ".join(run.versions.values())
    plural = "s" if run.rounds != 1 else ""
    short = []
    if run.seconds < SECONDS_TO_JUDGE:
        short = ["- Rounds this short are for use while working: a JVM is not warm, and nothing is settled."]
    return [
        *short,
        f"- {run.date}, {run.machine}; load before the run {run.load_before}. {run.rounds} round{plural} of "
        f"{run.seconds:g} s, brokers in turn, the order turning, `sync` and idle between. Again: `{run.command}`.",
        f"- {versions}; load generator: {run.client}.",
    ]


def section(group: Group, results: Results) -> str | None:
    """The group as Markdown without its heading; None where nothing of it was measured."""
    runs, taken = results.of_group(group.name, [case.name for case in group.cases])
    if not taken:
        return None
    lines = [group.words, ""]
    for run in runs:
        lines += _circumstances(run)
    synced = {peer: KINDS[peer].synced for _, peer in taken if peer in KINDS}
    lines += [f"- {words}" for words in dict.fromkeys(synced.values())]
    samples = [sample for found in taken.values() for sample in found]
    dropped = {str(sample.figures["dropped_by"]) for sample in samples if "dropped_by" in sample.figures}
    lines += [f"- The page cache was emptied by `{means}`." for means in sorted(dropped)]
    missing = [case.name for case in group.cases if not any(name == case.name for name, _ in taken)]
    if missing:
        lines.append(f"- Not measured: {'; '.join(missing)}.")
    lines += ["", *_measured(group, taken), *_judged(group, taken)]
    commands: dict[str, list[str]] = {}
    for run in runs:
        for case, words in run.commands.items():
            if words and any(name == case for name, _ in taken):
                commands.setdefault("\n".join(words), []).append(case)
    if any(commands):
        lines += ["", "What was run:", ""]
        for text, cases in commands.items():
            lines += [f"- {'; '.join(cases)}", *(f"  - `{line}`" for line in text.splitlines())]
    return "\n".join(lines) + "\n"


def parts(document: str) -> dict[str, str]:
    """The sections of a page by their headings."""
    found = re.split(r"^## (.*)$", document, flags=re.MULTILINE)
    return {heading.strip(): text.strip("\n") + "\n" for heading, text in zip(found[1::2], found[2::2], strict=True)}


def page(present: str, written: dict[str, str]) -> str:
    """The page with the sections of the named groups put in place of what was there; the others stay."""
    kept = parts(present)
    for name, text in written.items():
        kept[BY_NAME[name].title] = text
    sections = [f"## {group.title}\n\n{kept[group.title].strip()}\n" for group in GROUPS if group.title in kept]
    return "\n".join([OPENING, *sections])
