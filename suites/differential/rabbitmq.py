"""The RabbitMQ that Weir is compared with: a node of one's own with one scheduler, from its start to its end."""

import os
import signal
import subprocess
import time
from pathlib import Path

from harness.broker import BrokerFailed
from harness.ports import free_port
from harness.rabbitmq import commands, environment, lay_out

from .client import Connection

START_SECONDS = 90.0
STOP_SECONDS = 20.0
# Alarms would stop publishers for what the rest of the machine does.
SETTINGS = """
loopback_users.guest = true
vm_memory_high_watermark.absolute = 4GB
disk_free_limit.absolute = 1MB
log.file.level = warning
log.console = false
"""
# One scheduler is enough, and should not keep a core busy while it waits.
ERLANG = "+S 1:1 +A 4 +sbwt none"


class RabbitMq:
    """One node, in a directory that is its home."""

    def __init__(self, home: Path):
        self.home = home
        self.port = free_port()
        self.epmd_port = free_port()
        self.processes: list[subprocess.Popen] = []

    @property
    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def start(self) -> None:
        """Starts the node and returns when it takes connections."""
        started = commands(self.epmd_port)
        lay_out(self.home, SETTINGS)
        given = environment(self.home, self.port, self.epmd_port, name=f"beside-{self.port}", erlang=ERLANG)
        with (self.home / "output").open("ab") as output:
            for command in started:
                self.processes.append(
                    subprocess.Popen(
                        command,
                        env=given,
                        cwd=self.home,
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=subprocess.STDOUT,
                        start_new_session=True,
                    )
                )
        deadline = time.monotonic() + START_SECONDS
        while True:
            try:
                Connection(self.address).open().drop()
                return
            except (OSError, ConnectionError):
                if time.monotonic() > deadline or self.processes[-1].poll() is not None:
                    said = self.said()
                    self.stop()
                    raise BrokerFailed(f"RabbitMQ did not start\n{said}") from None
                time.sleep(0.2)

    def said(self) -> str:
        texts = [self.home / "output", *sorted((self.home / "log").glob("*.log"))]
        return "\n".join(path.read_text(errors="replace")[-2000:] for path in texts if path.exists())

    def running(self) -> bool:
        return bool(self.processes) and self.processes[-1].poll() is None

    def stop(self) -> None:
        """Ends the node and its epmd, with everything that they started."""
        for process in reversed(self.processes):
            for signal_number, seconds in ((signal.SIGTERM, STOP_SECONDS), (signal.SIGKILL, STOP_SECONDS)):
                try:
                    os.killpg(process.pid, signal_number)
                    process.wait(timeout=seconds)
                except ProcessLookupError:
                    break
                except subprocess.TimeoutExpired:
                    continue
        self.processes.clear()
