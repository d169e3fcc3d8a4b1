"""What was measured, as lines of JSON: a line for each run of a group, and one for each measurement.

The lines are the truth of which the page is a view: files of several runs, taken at different times, can be
put together. Of a case that several runs have measured, the last one counts.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Run:
    """The circumstances of one group at one time."""

    id: str
    group: str
    date: str
    commit: str
    command: str
    machine: str
    load_before: str
    rounds: int
    seconds: float
    client: str
    versions: dict[str, str]
    # By case, the load generators' command lines.
    commands: dict[str, list[str]]


@dataclass(frozen=True)
class Sample:
    """One measurement of one case on one broker."""

    run: str
    case: str
    peer: str
    round: int
    figures: dict[str, float]


class Writer:
    """Appends to a file, each line at once: what was measured before an interruption is kept."""

    def __init__(self, path: Path):
        self.path = path

    def write(self, entry: Run | Sample) -> None:
        with self.path.open("a") as lines:
            lines.write(json.dumps({"kind": type(entry).__name__.lower(), **asdict(entry)}) + "\n")


@dataclass
class Results:
    """Runs and their samples from one or several files."""

    runs: dict[str, Run]
    samples: list[Sample]

    def of_group(self, group: str, cases: list[str]) -> tuple[list[Run], dict[tuple[str, str], list[Sample]]]:
        """The runs that count for a group's cases, oldest first, and the samples by case and broker."""
        latest: dict[str, Run] = {}
        for sample in self.samples:
            run = self.runs[sample.run]
            if run.group == group and sample.case in cases:
                known = latest.get(sample.case)
                if known is None or run.id >= known.id:
                    latest[sample.case] = run
        taken: dict[tuple[str, str], list[Sample]] = {}
        for sample in self.samples:
            if sample.case in latest and latest[sample.case].id == sample.run:
                taken.setdefault((sample.case, sample.peer), []).append(sample)
        runs = {run.id: run for run in latest.values()}
        return [runs[key] for key in sorted(runs)], taken


def read(paths: list[Path]) -> Results:
    results = Results({}, [])
    for path in paths:
        for line in path.read_text().splitlines():
            entry = json.loads(line)
            kind = entry.pop("kind")
            if kind == "run":
                results.runs[entry["id"]] = Run(**entry)
            else:
                results.samples.append(Sample(**entry))
    return results
