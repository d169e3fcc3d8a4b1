"""System calls that fail or wait: strace runs the server and meddles with one call.

Only the calls that are meddled with stop the server (`--seccomp-bpf`); everything else runs at full
speed. strace stands beside the server and not above it (`-D`), so that the process, its signals and its
exit status are the server's own. A count (`when`) is kept by thread, and the journal has a thread of its own.
"""

import subprocess
from dataclasses import dataclass
from pathlib import Path

from harness import install

from .scenario import CannotDo


@dataclass(frozen=True)
class Injection:
    """The command to run a server under, and what came of it."""

    command: list[str]
    log: Path

    def done(self) -> int:
        """How many calls were meddled with so far."""
        return self.log.read_text(errors="replace").count("(INJECTED)") if self.log.exists() else 0

    def delayed(self) -> int:
        return self.log.read_text(errors="replace").count("(DELAYED)") if self.log.exists() else 0


def inject(place: Path, calls: str, what: str, paths: list[Path] | None = None) -> Injection:
    """`what` is strace's own, as in `error=EIO:when=20+`; with paths, only calls on these files count."""
    strace = install.strace()
    probe = [str(strace), "-D", "-f", "--seccomp-bpf", "-o", "/dev/null", "-e", f"trace={calls}", "true"]
    tried = subprocess.run(probe, capture_output=True, text=True)
    if tried.returncode != 0:
        raise CannotDo(f"strace may not trace here ({tried.stderr.strip()}); run where ptrace is permitted")
    log = place / f"strace-{len(list(place.glob('strace-*')))}.log"
    log.touch()
    options = ["-D", "-f", "--seccomp-bpf", "-o", str(log), "-e", f"trace={calls}", "-e", f"inject={calls}:{what}"]
    for path in paths or []:
        options += ["-P", str(path)]
    return Injection([str(strace), *options], log)
