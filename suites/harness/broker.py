"""Brokers as processes: start, wait until ready, kill without warning, start again on the same data.

Weir and its peers' launchers keep the same small contract: `serve --data-dir DIR --listen
kafka=ADDRESS`, a line `listening PROTOCOL ADDRESS` for each listener and then `ready` on standard output.
"""

import os
import queue
import random
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from .paths import BENCH, weir_binary

START_SECONDS = 60.0
RABBITMQ_START_SECONDS = 300.0
STOP_SECONDS = 30.0
LOG_TAIL_BYTES = 4000


class BrokerFailed(Exception):
    """A broker did not start or stop as it should; the words carry the end of its log."""


class BrokerEnded(BrokerFailed):
    """A broker ended before it was ready."""

    def __init__(self, status: int, log_tail: str):
        super().__init__(f"ended with status {status} before it was ready\n{log_tail}")
        self.status = status


class Broker:
    """One broker process on one data directory. It keeps its ports over a restart, as clients expect."""

    def __init__(
        self,
        command: list[str],
        data_dir: Path,
        listeners: tuple[str, ...] = ("kafka",),
    ):
        self.command = command
        self.data_dir = data_dir
        self.log = data_dir.parent / f"{data_dir.name}.log"
        self.addresses: dict[str, str] = {name: "127.0.0.1:0" for name in listeners}
        self.process: subprocess.Popen | None = None
        self.starts = 0
        self.start_seconds = START_SECONDS

    def take_lasting_ports(self) -> "Broker":
        """Takes ports that the system gives to nobody who connects: while the broker is down, its clients try again and
        again, and one of their own ends could otherwise take an address that the next start needs."""
        self.addresses = {name: f"127.0.0.1:{lasting_port()}" for name in self.addresses}
        return self

    @property
    def bootstrap(self) -> str:
        return self.addresses["kafka"]

    @property
    def pid(self) -> int:
        if self.process is None:
            raise BrokerFailed("the broker is not running")
        return self.process.pid

    def begin(self) -> None:
        """Starts the process; `await_ready` is to follow."""
        if self.process is not None:
            raise BrokerFailed("the broker is running already")
        command = [*self.command, "--data-dir", str(self.data_dir)]
        for name, address in self.addresses.items():
            command += ["--listen", f"{name}={address}"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                # Weir takes settings from WEIR_ variables, and refuses those it does not know; a check
                # depends on neither.
                env={name: value for name, value in os.environ.items() if not name.startswith("WEIR_")},
                # Ctrl-C ends the check, which then ends its brokers in good order.
                start_new_session=True,
            )
        self.began = time.monotonic()
        self.lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._drain, args=(self.process.stdout, self.lines), daemon=True).start()

    def start(self) -> float:
        """Starts the process and returns after how many seconds it said `ready`."""
        self.begin()
        return self.await_ready()

    def await_ready(self) -> float:
        """Returns after how many seconds from its start on the process said `ready`."""
        began = self.began
        while True:
            try:
                line = self.lines.get(timeout=max(0.0, began + self.start_seconds - time.monotonic()))
            except queue.Empty:
                self.kill()
                raise BrokerFailed(f"not ready after {self.start_seconds:.0f} s\n{self.log_tail()}") from None
            if line is None:
                status = self.process.wait()
                self.process = None
                raise BrokerEnded(status, self.log_tail())
            words = line.split()
            if words == ["ready"]:
                self.starts += 1
                return time.monotonic() - began
            if len(words) == 3 and words[0] == "listening":
                self.addresses[words[1]] = words[2]

    def start_and_kill_after(self, seconds: float) -> None:
        """A start that is cut short by `kill -9`, most likely while it still recovers."""
        self.begin()
        try:
            status = self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return
        self.process = None
        raise BrokerFailed(f"ended by itself with status {status} while starting\n{self.log_tail()}")

    @staticmethod
    def _drain(stdout, lines: queue.Queue) -> None:
        for line in stdout:
            lines.put(line)
        lines.put(None)

    def kill(self) -> None:
        """`kill -9`: whatever the process had only in memory is gone."""
        if self.process is None:
            return
        self.process.kill()
        self.process.wait()
        self.process = None

    def crash(self) -> float:
        """`kill -9` and a start on the same data; the seconds until it was ready again."""
        self.kill()
        return self.start()

    def stop(self) -> None:
        """SIGTERM; a broker that does not drain in time or ends with another status than 0 has failed."""
        if self.process is None:
            return
        process, self.process = self.process, None
        process.send_signal(signal.SIGTERM)
        try:
            status = process.wait(timeout=STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise BrokerFailed(f"still running {STOP_SECONDS:.0f} s after SIGTERM\n{self.log_tail()}") from None
        if status != 0:
            raise BrokerFailed(f"SIGTERM ended it with status {status}\n{self.log_tail()}")

    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def log_tail(self) -> str:
        try:
            return self.log.read_bytes()[-LOG_TAIL_BYTES:].decode(errors="replace")
        except FileNotFoundError:
            return ""

    def __enter__(self) -> "Broker":
        self.start()
        return self

    def __exit__(self, *_) -> None:
        self.kill()


# Ports that were given out, whether somebody listens there by now or not.
GIVEN_PORTS: set[int] = set()


def lasting_port() -> int:
    """A free port outside the range from which the system takes those of connections (32768 and up, mostly)."""
    while True:
        port = random.SystemRandom().randrange(10_000, 32_000)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        if port not in GIVEN_PORTS:
            GIVEN_PORTS.add(port)
            return port


def weir(data_dir: Path, *, profile: str = "debug", settings: dict[str, str] | None = None) -> Broker:
    """Weir; every setting is a flag of its name."""
    binary = weir_binary(profile)
    if not binary.exists():
        build = "make build" if profile == "debug" else "cargo build --release"
        raise BrokerFailed(f"{binary} is not there; run `{build}`, or name another in WEIR_BINARY")
    flags = [f"--{name}={value}" for name, value in (settings or {}).items()]
    broker = Broker([str(binary), "serve", *flags], data_dir, ("kafka", "amqp", "amqp-management", "http"))
    return broker.take_lasting_ports()


def kafka(data_dir: Path, *, settings: dict[str, str] | None = None) -> Broker:
    """Apache Kafka with its own defaults, by the launcher that the benchmark uses too."""
    flags = [word for name, value in (settings or {}).items() for word in ("--set", f"{name}={value}")]
    return Broker([str(BENCH / "kafka"), "serve", *flags], data_dir)


def rabbitmq(data_dir: Path) -> Broker:
    """The real RabbitMQ with its own defaults."""
    broker = Broker([str(BENCH / "rabbitmq"), "serve"], data_dir, ("amqp",))
    # After a `kill -9` it looks through everything that waits before it opens its port.
    broker.start_seconds = RABBITMQ_START_SECONDS
    return broker


PEERS = {"weir": weir, "kafka": kafka}
