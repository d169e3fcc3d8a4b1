"""Lets a check in any language crash the broker that somebody else started.

The owner of the broker holds a `CrashSwitch`; the check runs this file with the switch's socket, which
returns once the broker has been killed with `kill -9` and is ready again on the same data.
"""

import socket
import sys
import threading
from pathlib import Path

RESTART_SECONDS = 120


class CrashSwitch:
    """A Unix socket on which a line `crash` kills and restarts one broker."""

    def __init__(self, broker, path: Path):
        self.broker = broker
        self.path = path
        self.crashes = 0
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self._serve, daemon=True).start()

    @property
    def command(self) -> str:
        return f"'{sys.executable}' '{Path(__file__).resolve()}' '{self.path}'"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection:
                if connection.recv(64).strip() != b"crash":
                    continue
                try:
                    seconds = self.broker.crash()
                    self.crashes += 1
                    answer = f"ready again after {seconds:.2f} s"
                except Exception as failure:  # told to the check, which fails with these words
                    answer = f"failed: {failure}"
                connection.sendall(answer.encode())

    def close(self) -> None:
        self.listener.close()


def main() -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(RESTART_SECONDS)
        connection.connect(sys.argv[1])
        connection.sendall(b"crash\n")
        answer = connection.recv(1 << 16).decode()
    print(f"killed the broker: {answer}")
    return 0 if answer.startswith("ready") else 1


if __name__ == "__main__":
    sys.exit(main())
