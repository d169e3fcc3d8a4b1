"""What a RabbitMQ of one's own needs: Debian's package as an ordinary node, on loopback, with its own data and epmd.

Nothing of it meets a RabbitMQ that the machine may run already: node name, ports, cookie and directories are new.
"""

import os
import secrets
import shutil
from pathlib import Path

from .broker import BrokerFailed
from .ports import free_port

# The program itself; the one on the path changes to a user of its own.
SERVER = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


def lay_out(home: Path, settings: str) -> None:
    """Everything that a node reads at its start, in a directory that is its home; data that is there stays."""
    home.mkdir(parents=True, exist_ok=True)
    (home / "rabbitmq.conf").write_text(settings)
    (home / "environment.conf").write_text("")
    (home / "plugins").write_text("[].\n")
    cookie = home / ".erlang.cookie"
    if not cookie.exists():
        cookie.write_text(secrets.token_hex(16))
        cookie.chmod(0o400)


def commands(epmd_port: int) -> tuple[list[str], list[str]]:
    """The name server, to be started first, and the node."""
    epmd = shutil.which("epmd")
    if not SERVER.exists() or epmd is None:
        raise BrokerFailed(f"{SERVER} is not there; install Debian's package rabbitmq-server")
    return [epmd, "-address", "127.0.0.1", "-port", str(epmd_port)], [str(SERVER)]


def environment(home: Path, port: int, epmd_port: int, *, name: str, erlang: str = "") -> dict[str, str]:
    """Of both commands; a node finds its data again by its name."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("RABBITMQ_", "ERL_"))}
    return inherited | {
        "HOME": str(home),
        "ERL_EPMD_PORT": str(epmd_port),
        "ERL_EPMD_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODENAME": f"{name}@localhost",
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_MNESIA_BASE": str(home / "data"),
        "RABBITMQ_LOG_BASE": str(home / "log"),
        "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq"),
        "RABBITMQ_ADVANCED_CONFIG_FILE": str(home / "none"),
        "RABBITMQ_CONF_ENV_FILE": str(home / "environment.conf"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "plugins"),
        "RABBITMQ_PID_FILE": str(home / "pid"),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-kernel inet_dist_use_interface {{127,0,0,1}} {erlang}".strip(),
    }
