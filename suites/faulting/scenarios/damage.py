"""Stored bytes that are not what was written: reported, never skipped, never cut off in silence."""

import os
import re
import shutil
from pathlib import Path

from .. import stored, wire
from ..records import Records
from ..scenario import Trial, scenario
from ..server import Server
from ..stored import KILLED, STOPPED, TOPIC

DAMAGE_STATUS = 65


def reported_by_verify(trial: Trial, server: Server, file: Path, what: str) -> None:
    said = stored.verify(server)
    trial.expect(said.status == DAMAGE_STATUS, f"{what}: `weir log verify` ended with {said.status}")
    trial.expect(str(file) in said.words, f"{what}: `weir log verify` does not name {file.name}: {said.last_line}")


def refused(trial: Trial, server: Server, what: str, names: str, status: int = DAMAGE_STATUS) -> None:
    """The server does not start, says what is damaged, and leaves everything as it is.

    A sound journal is sealed by every start, before anything else is looked at.
    """
    before = stored.fingerprint(server.data_dir)
    ended = server.refusal()
    if not trial.expect(ended, f"{what}: the server starts"):
        server.kill()
        return
    trial.expect(ended.status == status, f"{what}: status {ended.status}, not {status}: {ended.last_line}")
    trial.expect(names in ended.last_line, f"{what}: it does not say '{names}': {ended.last_line}")
    trial.expect("panicked" not in ended.words, f"{what}: it panicked")
    after = stored.fingerprint(server.data_dir)
    sealed = {name for name in before if name.endswith(".journal")} if "journal" not in what else set()
    changed = sorted(name for name in before.keys() - sealed if after.get(name) != before[name])
    trial.expect(not changed, f"{what}: the refused start has changed {changed[:3]}")


def unreadable_only_there(
    trial: Trial, server: Server, records: Records, partition: int, harmed: range, what: str, blurred: range = range(0)
) -> None:
    """Everything is there but the records of one batch, and those are reported.

    Behind a header that cannot be relied on, the next batch that is found is one that the index knows; those
    between are `blurred`.
    """
    place = (TOPIC, partition)
    reading = stored.read_by_hand(server.bootstrap, place)
    found = {offset for offset, _, _ in reading.found}
    acknowledged = {offset for offset, _, _ in records.ledgers.acks[place]}
    told = set(reading.errors)
    for offset in reading.damaged:
        told |= set(harmed) if offset in harmed else set()
    trial.expect(not reading.strange, f"{what}: offsets {reading.strange[:3]} hold what nobody sent")
    trial.expect(not (set(harmed) & found), f"{what}: harmed records were handed out as if they were good")
    silent = acknowledged - found - told
    trial.expect(not silent, f"{what}: offsets {sorted(silent)[:5]} are missing, and no error says so")
    collateral = acknowledged - found - set(harmed) - set(blurred)
    trial.expect(not collateral, f"{what}: offsets {sorted(collateral)[:5]} cannot be read either")
    trial.expect(not reading.damaged, f"{what}: damaged batches {reading.damaged[:3]} were sent to the client")
    wrong_codes = set(reading.errors.values()) - {wire.CORRUPT_MESSAGE}
    trial.expect(not wrong_codes, f"{what}: the client was told {wrong_codes}")
    others = {(TOPIC, other) for other in range(stored.PARTITIONS) if other != partition}
    trial.all_there(server, records, only=others)
    trial.expect(server.says("corrupt"), f"{what}: the log does not say so")


@scenario(
    "closed-segment-flipped",
    "one flipped bit: that batch alone is reported to whoever reads it, everything else is served",
)
def closed_segment_flipped(trial: Trial) -> None:
    for what, of_batch in (("in a record", 0.5), ("in the magic", 16), ("in the length", 11), ("in an offset", 7)):
        server, records = stored.copied(trial, STOPPED, f"flipped {what}")
        file = stored.segments(server)[1]
        batch, following = stored.batches_in(file)[3:5]
        at = batch.position + (int(batch.bytes * of_batch) if of_batch < 1 else of_batch)
        stored.flip(file, at)
        reported_by_verify(trial, server, file, what)
        server.start()
        harmed = range(batch.base, batch.last + 1)
        blurred = range(following.base, following.last + 1) if "record" not in what else range(0)
        unreadable_only_there(trial, server, records, 0, harmed, what, blurred)
        server.kill()


@scenario("open-segment-flipped", "the same in the segment that is appended to, below the last checkpoint")
def open_segment_flipped(trial: Trial) -> None:
    server, records = stored.copied(trial, STOPPED)
    file = stored.segments(server)[-1]
    batch = stored.batches_in(file)[1]
    stored.flip(file, batch.position + batch.bytes // 2)
    reported_by_verify(trial, server, file, "open segment")
    server.start()
    unreadable_only_there(trial, server, records, 0, range(batch.base, batch.last + 1), "open segment")
    stored.send(server, records, 30)
    server.kill()
    server.start()
    unreadable_only_there(trial, server, records, 0, range(batch.base, batch.last + 1), "after more was written")


@scenario("behind-the-checkpoint", "what lies in segments behind the last checkpoint is written anew from the journal")
def behind_the_checkpoint(trial: Trial) -> None:
    directory, _ = stored.template(STOPPED)
    lengths = {str(path.relative_to(directory)): path.stat().st_size for path in directory.glob("shards/*/*/*.log")}
    for what in ("flipped", "cut", "noise", "gone"):
        server, records = stored.copied(trial, KILLED, what)
        for file in server.data_dir.glob("shards/*/*/*.log"):
            covered = lengths.get(str(file.relative_to(server.data_dir)), 0)
            if file.stat().st_size <= covered:
                continue
            if what == "flipped":
                stored.flip(file, covered + 70)
            elif what == "cut" or (what == "gone" and covered):
                os.truncate(file, covered)
            elif what == "noise":
                with file.open("r+b") as opened:
                    opened.seek(covered)
                    opened.write(os.urandom(5000))
            else:
                file.unlink()
        server.start()
        trial.all_there(server, records)
        server.kill()


@scenario("segment-cut-or-missing", "a start is refused with 65 and names the file; the file put back, all is there")
def segment_cut_or_missing(trial: Trial) -> None:
    for number in (1, -1):
        for harm in (stored.halved, stored.removed, stored.emptied, stored.made_a_directory):
            what = f"segment {number} {harm.__name__}"
            server, records = stored.copied(trial, STOPPED, what)
            file = stored.segments(server)[number]
            content = file.read_bytes()
            harm(file)
            reported_by_verify(trial, server, file, what)
            refused(trial, server, what, file.name)
            if file.is_dir():
                file.rmdir()
            file.write_bytes(content)
            if harm is stored.removed:
                server.start()
                trial.all_there(server, records)
                server.kill()


@scenario("index-harmed", "indexes are derived: harmed in any way they are made again, searches by time included")
def index_harmed(trial: Trial) -> None:
    for harm in stored.HARMS:
        server, records = stored.copied(trial, STOPPED, harm.__name__)
        files = [*server.data_dir.glob("shards/*/*/*.index"), *server.data_dir.glob("shards/*/*/*.timeindex")]
        trial.expect(len(files) > 8, f"only {len(files)} index files")
        for file in files:
            harm(file)
        server.start()
        trial.all_there(server, records)
        for partition in range(stored.PARTITIONS):
            for words in stored.wrong_by_time(server.bootstrap, TOPIC, partition):
                trial.expect(False, f"{harm.__name__}: {words}")
        trial.expect(server.ready()[0], f"{harm.__name__}: not ready")
        server.kill()


@scenario("checkpoint-harmed", "a start is refused with 65 and names the file; nothing is deleted or begun anew")
def checkpoint_harmed(trial: Trial) -> None:
    for name in ("manifest", "*.state"):
        for harm in (stored.flipped, stored.noise, stored.emptied, stored.removed, stored.made_a_directory):
            what = f"{name} {harm.__name__}"
            server, _ = stored.copied(trial, STOPPED, what.replace("*", "a"))
            file = sorted(server.data_dir.glob(f"shards/1/checkpoint/{name}"))[-1]
            harm(file)
            reported_by_verify(trial, server, file.parent, what)
            names = "shards/1" if (name, harm) == ("manifest", stored.removed) else str(file)
            # What is a directory cannot be read at all, which is the system's word and not ours.
            refused(trial, server, what, names, 74 if harm is stored.made_a_directory else DAMAGE_STATUS)


@scenario(
    "journal-gone",
    "a journal of which nothing is left is refused with 65; accepted, what checkpoints have is served",
)
def journal_gone(trial: Trial) -> None:
    harms = (stored.noise, stored.zeroes, stored.emptied, stored.removed, stored.made_a_directory)
    for harm in harms:
        what = f"journal {harm.__name__}"
        server, records = stored.copied(trial, STOPPED, what)
        for file in (server.data_dir / "journal").glob("*.journal"):
            harm(file)
        reported_by_verify(trial, server, server.data_dir / "journal", what)
        refused(trial, server, what, "--journal-accept-loss-from")
        if harm is not stored.made_a_directory:
            accepted(trial, server, records, what)


def accepted(trial: Trial, server: Server, records: Records, what: str) -> None:
    """With the position that the refusal names, it starts with what it has, and then without it."""
    ended = server.refusal()
    position = re.search(r"--journal-accept-loss-from (\d+)", ended.last_line if ended else "")
    if not trial.expect(position, f"{what}: no position to accept: {ended and ended.last_line}"):
        return
    ended = server.refusal(flags=[f"--journal-accept-loss-from={position[1]}"])
    if not trial.expect(not ended, f"{what}: accepted, and refused: {ended and ended.last_line}"):
        return
    trial.all_there(server, records)
    server.stop()
    ended = server.refusal()
    if trial.expect(not ended, f"{what}: refused after it was accepted: {ended and ended.last_line}"):
        stored.send(server, records, 10)
        trial.all_there(server, records)
        server.kill()


def journal_files(server: Server) -> list[Path]:
    """Files with groups in them, the lowest first."""
    return [path for path in sorted((server.data_dir / "journal").glob("*.journal")) if path.read_bytes()[:3] == b"WJG"]


@scenario(
    "journal-flipped",
    "one flipped bit in a durable group is refused with 65 and the position; accepted, what a checkpoint has is served",
)
def journal_flipped(trial: Trial) -> None:
    for kind in (KILLED, STOPPED):
        for what, part in (("first", 0.0), ("middle", 0.5), ("last", 1.0)):
            server, records = stored.copied(trial, kind, f"{kind} {what}")
            file = journal_files(server)[-1]
            groups = [group for group in groups_in(file) if group[1] > 200]
            position, length = groups[round(part * (len(groups) - 1))]
            stored.flip(file, position + 64 + (length - 64) // 2)
            reported_by_verify(trial, server, server.data_dir / "journal", f"{kind} {what}")
            refused(trial, server, f"{kind} {what}", "--journal-accept-loss-from")
            if kind == STOPPED:
                accepted(trial, server, records, f"{kind} {what}")


@scenario("journal-torn-end", "a write that was cut short is no loss: what was acknowledged is before it")
def journal_torn_end(trial: Trial) -> None:
    for what in ("noise behind the end", "half a group behind the end", "a group of another file behind the end"):
        server, records = stored.copied(trial, KILLED, what)
        file = journal_files(server)[-1]
        groups = groups_in(file)
        position, length = groups[-1]
        end = position + (length + 4095) // 4096 * 4096
        with file.open("r+b") as opened:
            opened.seek(groups[-2][0])
            group = opened.read(groups[-2][1])
            opened.seek(end)
            if what.startswith("noise"):
                opened.write(os.urandom(3 * 4096))
            elif what.startswith("half"):
                opened.write(group[: len(group) // 2])
            else:
                opened.write(group)
        ended = server.refusal()
        if trial.expect(not ended, f"{what}: {ended and ended.last_line}"):
            trial.all_there(server, records)
            server.kill()


def groups_in(file: Path) -> list[tuple[int, int]]:
    """Where groups begin, and how long they are, as docs/formats.md draws them."""
    content = file.read_bytes()
    found, at = [], 0
    (generation,) = wire.struct.unpack_from("<Q", content, 16)
    while at + 64 <= len(content) and content[at : at + 3] == b"WJG":
        if wire.struct.unpack_from("<Q", content, at + 16)[0] != generation:
            break
        (length,) = wire.struct.unpack_from("<I", content, at + 48)
        found.append((at, length))
        at += (length + 4095) // 4096 * 4096
    return found


@scenario("directory-gone", "a shard's or a partition's directory that is gone is a loss that refuses the start")
def directory_gone(trial: Trial) -> None:
    for what in ("partition", "shard", "shards", "checkpoint", "journal"):
        server, records = stored.copied(trial, STOPPED, what)
        partition = stored.segments(server)[0].parent
        gone = {
            "partition": partition,
            "shard": partition.parent,
            "shards": partition.parent.parent,
            "checkpoint": partition.parent / "checkpoint",
            "journal": server.data_dir / "journal",
        }[what]
        shutil.rmtree(gone)
        said = stored.verify(server)
        trial.expect(said.status == DAMAGE_STATUS, f"{what} gone: `weir log verify` ended with {said.status}")
        ended = server.refusal()
        if ended:
            trial.expect(ended.status == DAMAGE_STATUS, f"{what} gone: status {ended.status}: {ended.last_line}")
        else:
            # Only if the journal brings everything again.
            trial.all_there(server, records)
            server.kill()


@scenario("node-file-harmed", "a start is refused with a sentence that names node.toml, which is never replaced")
def node_file_harmed(trial: Trial) -> None:
    for harm in (stored.noise, stored.emptied, stored.halved, stored.removed, stored.made_a_directory, stored.zeroes):
        server, _ = stored.copied(trial, STOPPED, harm.__name__)
        harm(server.data_dir / "node.toml")
        status = 64 if harm in (stored.removed, stored.made_a_directory) else DAMAGE_STATUS
        refused(trial, server, f"node.toml {harm.__name__}", "node.toml", status)


@scenario("strangers", "files and directories that are not Weir's are left alone, and in nobody's way")
def strangers(trial: Trial) -> None:
    server, records = stored.copied(trial, STOPPED)
    partition = stored.segments(server)[0].parent
    places = [
        server.data_dir, server.data_dir / "journal", server.data_dir / "shards", partition.parent, partition,
        partition.parent / "checkpoint",
    ]  # fmt: skip
    strange = []
    for place in places:
        for name in ("notes.txt", "00000000000000000000.log~", ".hidden", "7.state", "1.journal"):
            (place / name).write_text("not Weir's")
            strange.append(place / name)
        (place / "lost+found").mkdir()
        strange.append(place / "lost+found")
    (partition / "00000000000000000001.log").mkdir()
    server.start()
    trial.all_there(server, records)
    stored.send(server, records, 30)
    server.stop()
    server.start()
    trial.all_there(server, records)
    gone = [str(path) for path in strange if not path.exists()]
    trial.expect(not gone, f"gone: {gone[:3]}")


@scenario("symbolic-links", "directories may be links to other disks; files that are links are served or refused in words", slow=True)
def symbolic_links(trial: Trial) -> None:
    for what in ("data directory", "journal", "shards", "shard", "partition", "checkpoint"):
        server, records = stored.copied(trial, STOPPED, what)
        partition = stored.segments(server)[0].parent
        path = {
            "data directory": server.data_dir,
            "journal": server.data_dir / "journal",
            "shards": server.data_dir / "shards",
            "shard": partition.parent,
            "partition": partition,
            "checkpoint": partition.parent / "checkpoint",
        }[what]
        elsewhere = trial.place / f"elsewhere-{what}"
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
        ended = server.refusal()
        if trial.expect(not ended, f"{what} is a link: {ended and ended.last_line}"):
            trial.all_there(server, records)
            stored.send(server, records, 30)
            server.stop()
            server.start()
            trial.all_there(server, records)
            server.kill()
    for what in ("node.toml", "manifest", "segment", "journal file", "lock"):
        server, records = stored.copied(trial, STOPPED, f"file {what}")
        path = {
            "node.toml": server.data_dir / "node.toml",
            "manifest": stored.segments(server)[0].parent.parent / "checkpoint" / "manifest",
            "segment": stored.segments(server)[0],
            "journal file": journal_files(server)[0],
            "lock": server.data_dir / "lock",
        }[what]
        elsewhere = trial.place / f"elsewhere-file-{what}"
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
        ended = server.refusal()
        if ended:
            trial.expect(ended.status in (64, 65, 74), f"{what} is a link: status {ended.status}: {ended.last_line}")
            trial.expect("panicked" not in ended.words, f"{what} is a link: it panicked")
            trial.note(f"{what} is a link: {ended.last_line}")
        else:
            trial.all_there(server, records)
            server.kill()
