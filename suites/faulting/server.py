"""A Weir that faults are done to: started under tools that make them, looked into, found ended."""

import base64
import json
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from harness import broker as brokers
from harness.paths import weir_binary

END_SECONDS = 30.0
SAID_BYTES_MAX = 1 << 20


@dataclass(frozen=True)
class Ended:
    """A process that is over: its exit status, negative for a signal, and what it wrote to standard error."""

    status: int
    words: str

    @property
    def last_line(self) -> str:
        lines = self.words.strip().splitlines()
        return lines[-1] if lines else ""


def run_weir(*arguments: str | Path, seconds: float = 60) -> Ended:
    """A verb, with everything that it printed."""
    command = [str(weir_binary()), *map(str, arguments)]
    finished = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds
    )
    return Ended(finished.returncode, finished.stdout)


class Server:
    """One server on one data directory; `under` is a command that runs it.

    Settings are flags: `max__connections=1` is `--max.connections=1`, and `checkpoint_bytes=1` is `--checkpoint-bytes=1`.
    """

    # Few shards and small files: every start recovers all of them, and every fault needs some of them full.
    SMALL = {"shards": 2, "journal-file-bytes": "16MiB", "journal-bytes": "64MiB", "disk-reserve-bytes": 0}

    def __init__(self, data_dir: Path, settings: dict):
        self.data_dir = data_dir
        named = {name.replace("__", ".").replace("_", "-"): value for name, value in settings.items()}
        flags = {**self.SMALL, **named}
        self.settings = {name: str(value) for name, value in flags.items() if value is not None}
        self.broker = brokers.weir(data_dir, settings=self.settings)
        self.plain = list(self.broker.command)
        self.log_begins = 0

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def pid(self) -> int:
        return self.broker.pid

    def start(self, under: list[str] | None = None, flags: list[str] | None = None) -> "Server":
        """Starts it and waits until it is ready."""
        self._command(under, flags)
        self.broker.start()
        return self

    def refusal(self, under: list[str] | None = None, flags: list[str] | None = None) -> Ended | None:
        """Starts it; how it ended if it did not become ready, `None` if it did."""
        self._command(under, flags)
        try:
            self.broker.start()
        except brokers.BrokerEnded as ended:
            return Ended(ended.status, self.said())
        return None

    def _command(self, under: list[str] | None, flags: list[str] | None) -> None:
        self.broker.command = [*(under or []), *self.plain, *(flags or [])]
        self.log_begins = self.broker.log.stat().st_size if self.broker.log.exists() else 0

    def wait_for_end(self, seconds: float = END_SECONDS) -> Ended | None:
        """How the process ended by itself, `None` if it still runs."""
        try:
            status = self.broker.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None
        self.broker.process = None
        return Ended(status, self.said())

    def running(self) -> bool:
        return self.broker.running()

    def kill(self) -> None:
        self.broker.kill()

    def stop(self) -> None:
        self.broker.stop()

    def said(self) -> str:
        """What it wrote to its log since its last start."""
        with self.broker.log.open("rb") as log:
            log.seek(self.log_begins)
            return log.read(SAID_BYTES_MAX).decode(errors="replace")

    def says(self, words: str, seconds: float = 5) -> bool:
        """Whether the log comes to contain these words."""
        return within(seconds, lambda: words in self.said())

    def http(self, path: str, method: str = "GET", body: dict | None = None) -> tuple[int, str]:
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json"} if data else {}
        asked = urllib.request.Request(f"http://{self.broker.addresses['http']}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(asked, timeout=20) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def http_management(self, path: str) -> tuple[int, object]:
        """What RabbitMQ's management API answers to `guest`."""
        secret = base64.b64encode(b"guest:guest").decode()
        url = f"http://{self.broker.addresses['amqp-management']}{path}"
        asked = urllib.request.Request(url, headers={"authorization": f"Basic {secret}"})
        try:
            with urllib.request.urlopen(asked, timeout=20) as answer:
                return answer.status, json.loads(answer.read())
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read().decode()

    def ready(self) -> tuple[bool, str]:
        """Whether it says that it is ready, and its reason if not."""
        status, body = self.http("/health/ready")
        return status == 200, body

    def memory(self, what: str = "VmRSS") -> int:
        """Bytes of memory of the process; `VmHWM` is the most that it ever had."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) * 1024
        raise OSError(f"no {what} of process {self.pid}")

    def open_files(self) -> int:
        return sum(1 for _ in Path(f"/proc/{self.pid}/fd").iterdir())

    def partition_dir(self, topic: str, partition: int) -> Path:
        """Where the partition's files are."""
        rows = json.loads(self.http("/api/v1/log")[1])
        for row in rows:
            if (row["topic"], row["partition"]) == (topic, partition):
                return self.data_dir / row["directory"]
        raise LookupError(f"{topic}-{partition} is not in {rows}")


def within(seconds: float, so: object) -> bool:
    """Whether something comes to be so; asked often. A bound, not a measurement."""
    deadline = time.monotonic() + seconds
    while not so():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True
