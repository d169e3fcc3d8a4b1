"""The machine: what it is, how busy, what its disk was asked to flush, and how its page cache is emptied."""

import os
import platform
import re
from pathlib import Path

from .processes import TICKS_PER_SECOND

PAGE_CACHE_ONLY = "1"

# How often the page cache was emptied: whoever reads from it afterwards has to fill it again.
drops = 0


def describe() -> str:
    cpu = re.search(r"^model name\s*:\s*(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory_gib = int(re.search(r"^MemTotal:\s+(\d+)", Path("/proc/meminfo").read_text(), re.MULTILINE)[1]) / 1024**2
    name = cpu[1] if cpu else platform.machine()
    return f"{os.cpu_count()} cores ({name}), {memory_gib:.0f} GiB, Linux {platform.release()}"


def load() -> str:
    return " ".join(Path("/proc/loadavg").read_text().split()[:3])


def busy_seconds() -> tuple[float, float]:
    """CPU seconds since boot that all processes and the kernel took, and those that the host kept for others."""
    # user nice system idle iowait irq softirq steal
    ticks = [int(field) for field in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return (sum(ticks[0:3]) + sum(ticks[5:7])) / TICKS_PER_SECOND, ticks[7] / TICKS_PER_SECOND


def disk_flushes(directory: Path) -> int | None:
    """How often the disk under a directory was told to make its cache durable; None where that is not counted."""
    device = os.stat(directory).st_dev
    for line in Path("/proc/diskstats").read_text().splitlines():
        fields = line.split()
        if (int(fields[0]), int(fields[1])) == (os.major(device), os.minor(device)):
            cached = Path(f"/sys/block/{fields[2]}/queue/write_cache")
            if len(fields) < 20 or not cached.exists() or cached.read_text().strip() != "write back":
                return None
            return int(fields[18])
    return None


def free_bytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


def _data_files(directory: Path) -> list[Path]:
    return [path for path in directory.rglob("*") if path.is_file()]


def drop_page_cache(directory: Path) -> str:
    """Empties the page cache of everything under a directory, and says by which means."""
    global drops
    drops += 1
    os.sync()
    try:
        Path("/proc/sys/vm/drop_caches").write_text(PAGE_CACHE_ONLY)
        return "/proc/sys/vm/drop_caches"
    except OSError:
        for path in _data_files(directory):
            descriptor = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)
        return "posix_fadvise"
