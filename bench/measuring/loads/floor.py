"""What the hardware asks for the least that a broker with a journal and segments does with bytes.

`weir-bench-floor receive` takes them from a socket, computes their CRC-32C, and writes them twice into the
page cache: over a preallocated ring of files, as a journal does, and to the end of a growing file.
"""

import subprocess
from tempfile import TemporaryDirectory

from harness.install import run as installer
from harness.paths import ROOT, target_directory

from .. import Fault, client, running
from ..peers import TIED
from .load import Load

LISTENING_SECONDS = 10


def program() -> str:
    installer(["cargo", "build", "--release", "--locked", "--quiet", "--package", "weir-bench-floor"], cwd=ROOT)
    return str(target_directory() / "release" / "weir-bench-floor")


class Floor(Load):
    """Of no broker: `peer` is None, and `place` is where its files go."""

    def __init__(self, case, peer, scale, place):
        super().__init__(case, peer, scale)
        self.place = place

    def prepare(self) -> None:
        self.program = program()
        self._run(self.scale.warm_seconds)

    def commands(self) -> list[str]:
        return [
            f"weir-bench-floor receive --chunk {self.case.chunk_bytes} --bytes BYTES --directory DIR",
            f"weir-bench-floor send --chunk {self.case.chunk_bytes} --bytes BYTES --to ADDRESS",
        ]

    def measure(self) -> dict[str, float]:
        self.pause()
        return self._run(self.scale.seconds)

    def _run(self, seconds: float) -> dict[str, float]:
        # About what a core manages; the time of one run is not what is measured.
        chunks = int(min(seconds * 1e9, self.scale.bytes_max)) // self.case.chunk_bytes
        size = ["--chunk", str(self.case.chunk_bytes), "--bytes", str(chunks * self.case.chunk_bytes)]
        with TemporaryDirectory(prefix="floor-", dir=self.place) as place:
            receive = [self.program, "receive", *size, "--directory", place]
            with subprocess.Popen([*TIED, *receive], stdout=subprocess.PIPE, text=True) as receiver:
                try:
                    words = receiver.stdout.readline().split()
                    if len(words) != 2 or words[0] != "listening":
                        raise Fault(f"weir-bench-floor said {words}")
                    running.run([[self.program, "send", *size, "--to", words[1]]], seconds)
                    told = dict(line.split() for line in receiver.stdout)
                    if receiver.wait(LISTENING_SECONDS) != 0 or int(told["bytes"]) != chunks * self.case.chunk_bytes:
                        raise Fault(f"weir-bench-floor ended with {receiver.returncode} after {told}")
                finally:
                    receiver.kill()
        gigabytes = chunks * self.case.chunk_bytes / 1e9
        return {
            "broker_cpu_s_per_gb": float(told["cpu_seconds"]) / gigabytes,
            "megabytes_per_second": gigabytes * 1000 / float(told["seconds"]),
            "records": chunks,
        }
