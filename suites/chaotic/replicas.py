"""What every node holds in the end: the same bytes, in files that verify.

Segments of generation 0 are the same on every replica, byte by byte. Those of topics all stay until retention takes them,
which it does not within a run; those of queues go, and are written anew, when each node comes to it, so that there only
files that two nodes have are compared.
"""

import hashlib
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness.cluster import Cluster

SEGMENT = re.compile(r"shards/[^/]+/(\d+)/\d{20}\.log")
VERIFY_SECONDS = 120


@dataclass
class Replica:
    """One node's segments of generation 0 by their name below its data directory: length and hash."""

    files: dict[str, tuple[int, str]]
    # Ids of partitions from which nothing may go.
    lasting: set[int]
    verify_status: int
    verify_words: str


def lasting_partitions(cluster: Cluster, topics: list[str]) -> set[int]:
    """Ids of the partitions of these topics, as a node that runs tells."""
    for number in cluster.serving():
        code, body = cluster.nodes[number].http("/api/v1/log")
        if code == 200:
            return {row["partition_id"] for row in json.loads(body) if row["topic"] in topics}
    return set()


def look(cluster: Cluster, lasting: set[int]) -> dict[int, Replica]:
    """At every node's directory, all of them stopped."""
    found = {}
    for number, node in cluster.nodes.items():
        files = {}
        for path in sorted(node.data_dir.glob("shards/*/*/*.log")):
            name = str(path.relative_to(node.data_dir))
            if SEGMENT.fullmatch(name):
                files[name] = (path.stat().st_size, hash_of(path))
        command = [str(cluster.binary), "log", "verify", str(node.data_dir)]
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=VERIFY_SECONDS)
        found[number] = Replica(files, lasting, done.returncode, (done.stdout + done.stderr)[-1000:])
    return found


def hash_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def judge_replicas(replicas: dict[int, Replica]) -> dict[str, list[str]]:
    harmed = [
        f"node {number}: `weir log verify` ends with {replica.verify_status}: {replica.verify_words.strip()}"
        for number, replica in replicas.items()
        if replica.verify_status != 0
    ]
    return {"all replicas have the same bytes": _same(replicas), "what nodes hold is verified": harmed}


def _same(replicas: dict[int, Replica]) -> list[str]:
    complaints = []
    names = sorted({name for replica in replicas.values() for name in replica.files})
    for name in names:
        has = {number: replica.files[name] for number, replica in replicas.items() if name in replica.files}
        partition = int(SEGMENT.fullmatch(name)[1])
        without = [number for number in replicas if number not in has]
        if without and any(partition in replica.lasting for replica in replicas.values()):
            complaints.append(f"{name}: nodes {without} do not have it, nodes {sorted(has)} do")
        if len(set(has.values())) > 1:
            words = ", ".join(f"node {number} has {size} bytes ({digest[:8]})" for number, (size, digest) in has.items())
            complaints.append(f"{name}: {words}")
    if not names:
        complaints.append("there is no segment at all")
    return complaints
