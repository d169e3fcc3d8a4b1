"""Every file on disk, harmed in every way: the server refuses in words, or serves all that it does not report."""

import shutil
from pathlib import Path

from .. import stored
from ..scenario import Trial, scenario
from ..stored import KILLED, STOPPED, TOPIC

REFUSALS = (64, 65, 74)


def one(trial: Trial, kind: str, name: str, harm) -> str:
    """Harms one file of a template and says what came of it."""
    server, records = stored.copied(trial, kind, "harmed")
    what = f"{kind}: {name} {harm.__name__}"
    path = server.data_dir / name
    content = path.read_bytes()
    harm(path)
    said = stored.verify(server)
    trial.expect(said.status in (0, 65), f"{what}: `weir log verify` ended with {said.status}: {said.last_line}")
    before = stored.fingerprint(server.data_dir)
    ended = server.refusal()
    outcome = "served"
    if ended:
        outcome = f"refused ({ended.status})"
        trial.expect(ended.status in REFUSALS, f"{what}: status {ended.status}: {ended.last_line}")
        trial.expect("panicked" not in ended.words, f"{what}: it panicked: {ended.words[-500:]}")
        named = any(part in ended.last_line for part in (Path(name).name, str(path.parent), f"shard {shard_of(name)}"))
        trial.expect(named, f"{what}: what it says names no place: {ended.last_line}")
        if ended.status == 65 and name != "node.toml":
            trial.expect(said.status == 65, f"{what}: the start is refused, and `weir log verify` finds nothing")
        after = stored.fingerprint(server.data_dir)
        # A sound journal is sealed by every start, before anything else is looked at.
        kept = [entry for entry in before if not entry.endswith(".journal") or entry == name]
        changed = [entry for entry in kept if after.get(entry) != before[entry]]
        trial.expect(not changed, f"{what}: the refused start has changed {changed[:3]}")
        put_back(path, content)
        ended = server.refusal()
        if not trial.expect(not ended, f"{what}: put back, and refused: {ended and ended.last_line}"):
            shutil.rmtree(server.data_dir)
            return outcome
        trial.all_there(server, records)
    else:
        for partition in range(stored.PARTITIONS):
            place = (TOPIC, partition)
            reading = stored.read_by_hand(server.bootstrap, place)
            found = {offset: whose for offset, *whose in reading.found}
            trial.expect(not reading.strange, f"{what}: {place} holds what nobody sent at {reading.strange[:3]}")
            trial.expect(not reading.damaged, f"{what}: {place}: damaged batches {reading.damaged[:3]} were handed out")
            for offset, *whose in records.ledgers.acks[place]:
                if found.get(offset) != whose and offset not in reading.errors:
                    trial.expect(False, f"{what}: {place}@{offset} is {found.get(offset)} and was {whose}")
                    break
            if reading.errors:
                outcome = "served, reported"
                trial.expect(said.status == 65, f"{what}: reads fail, and `weir log verify` finds nothing")
    server.kill()
    shutil.rmtree(server.data_dir)
    return outcome


def shard_of(name: str) -> str:
    parts = Path(name).parts
    return parts[1] if parts[0] == "shards" and len(parts) > 1 else "-"


def put_back(path: Path, content: bytes) -> None:
    if path.is_dir() and not path.is_symlink():
        path.rmdir()
    elif path.is_symlink():
        path.unlink()
    path.write_bytes(content)


def sweep(trial: Trial, cases) -> None:
    outcomes: dict[str, int] = {}
    for case in cases:
        came = one(trial, *case)
        outcomes[came] = outcomes.get(came, 0) + 1
    trial.note(", ".join(f"{count} {outcome}" for outcome, count in sorted(outcomes.items())))


def files_of(kind: str) -> list[str]:
    directory, _ = stored.template(kind)
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


@scenario("noise-in-any-file", "a file of each kind made noise: refused in words that name it, or served and reported")
def noise_in_any_file(trial: Trial) -> None:
    of_each_kind: dict[str, str] = {}
    for name in files_of(KILLED):
        of_each_kind.setdefault(Path(name).suffix or Path(name).name, name)
    sweep(trial, [(KILLED, name, stored.noise) for name in of_each_kind.values()])
    trial.note(f"kinds: {', '.join(of_each_kind)}")


@scenario("any-harm-to-any-file", "the same for every file of two directories and every kind of harm", slow=True)
def any_harm_to_any_file(trial: Trial) -> None:
    sweep(trial, [(kind, name, harm) for kind in (STOPPED, KILLED) for name in files_of(kind) for harm in stored.HARMS])
