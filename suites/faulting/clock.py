"""A wall clock that can be set, for one process alone: the machine's own clock is everybody's.

A small library put before the C library adds what stands in a file to `CLOCK_REALTIME`. The monotonic clock
is left alone, as it is when somebody sets a machine's clock.
"""

import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

from .scenario import CannotDo

SOURCE = """
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static volatile int64_t *offset;

__attribute__((constructor)) static void begin(void) {
    int file = open(getenv("CLOCK_OFFSET_FILE"), O_RDONLY | O_CLOEXEC);
    if (file < 0) abort();
    offset = mmap(0, sizeof *offset, PROT_READ, MAP_SHARED, file, 0);
    close(file);
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    long failed = syscall(SYS_clock_gettime, clock, now);
    if (!failed && clock == CLOCK_REALTIME && offset) now->tv_sec += *offset;
    return failed;
}
"""


@dataclass(frozen=True)
class Clock:
    """The command to run a server under, and the file with its offset."""

    command: list[str]
    offset: Path

    def set(self, seconds: int) -> None:
        with self.offset.open("r+b") as file:
            file.write(struct.pack("=q", seconds))


def settable(place: Path) -> Clock:
    compiler = shutil.which("cc") or shutil.which("gcc")
    if not compiler:
        raise CannotDo("a C compiler is needed to set the clock of one process")
    source, library, offset = place / "clock.c", place / "clock.so", place / "clock-offset"
    source.write_text(SOURCE)
    subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    offset.write_bytes(struct.pack("=q", 0))
    return Clock(["env", f"LD_PRELOAD={library}", f"CLOCK_OFFSET_FILE={offset}"], offset)
