"""A RabbitMQ of one's own: Debian's package as an ordinary node, on loopback, with its own data and its own epmd.

Nothing of it meets a RabbitMQ that the machine may run already: node name, ports, cookie and directories are new.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path

from harness.broker import BrokerFailed

from .client import Connection

# The program itself; the one on the path changes to a user of its own.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")
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
ERLANG = "+S 1:1 +A 4 +sbwt none -kernel inet_dist_use_interface {127,0,0,1}"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


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

    def _environment(self) -> dict[str, str]:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("RABBITMQ_", "ERL_"))}
        return inherited | {
            "HOME": str(self.home),
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"beside-{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(self.home / "data"),
            "RABBITMQ_LOG_BASE": str(self.home / "log"),
            "RABBITMQ_CONFIG_FILE": str(self.home / "rabbitmq"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": str(self.home / "none"),
            "RABBITMQ_CONF_ENV_FILE": str(self.home / "environment.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self.home / "plugins"),
            "RABBITMQ_PID_FILE": str(self.home / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": ERLANG,
        }

    def start(self) -> None:
        """Starts the node and returns when it takes connections."""
        epmd = shutil.which("epmd")
        if not SERVER.exists() or epmd is None:
            raise BrokerFailed(f"{SERVER} is not there; install Debian's package rabbitmq-server")
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "rabbitmq.conf").write_text(SETTINGS)
        (self.home / "environment.conf").write_text("")
        (self.home / "plugins").write_text("[].\n")
        cookie = self.home / ".erlang.cookie"
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)
        environment = self._environment()
        with (self.home / "output").open("ab") as output:
            for command in ([epmd, "-address", "127.0.0.1", "-port", str(self.epmd_port)], [str(SERVER)]):
                self.processes.append(
                    subprocess.Popen(
                        command,
                        env=environment,
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
