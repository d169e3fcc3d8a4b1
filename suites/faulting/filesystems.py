"""Small file systems of a scenario's own, to be filled, made read-only, and thrown away."""

import os
import subprocess
from pathlib import Path

from .scenario import CannotDo, Trial


def _run(*command: str | Path) -> None:
    finished = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if finished.returncode != 0:
        words = finished.stderr.strip() or f"status {finished.returncode}"
        raise CannotDo(f"`{' '.join(map(str, command))}` failed ({words}); this needs root and loop devices")


def ext4(trial: Trial, megabytes: int) -> Path:
    """An ext4 file system in a file. Nothing of it is kept for root, as on a disk that is for data only."""
    image, mount = trial.place / "ext4.image", trial.place / "ext4"
    with image.open("wb") as file:
        file.truncate(megabytes << 20)
    _run("mkfs.ext4", "-q", "-m", "0", "-O", "^has_journal", image)
    mount.mkdir()
    _run("mount", "-o", "loop", image, mount)
    trial.at_end(lambda: subprocess.run(["umount", "-l", str(mount)], check=False))
    return mount


def tmpfs(trial: Trial, megabytes: int) -> Path:
    mount = trial.place / "tmpfs"
    mount.mkdir()
    _run("mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "weir-faults", mount)
    trial.at_end(lambda: subprocess.run(["umount", "-l", str(mount)], check=False))
    return mount


def remount(mount: Path, option: str) -> None:
    _run("mount", "-o", f"remount,{option}", mount)


def free_bytes(mount: Path) -> int:
    space = os.statvfs(mount)
    return space.f_bavail * space.f_frsize


def fill(mount: Path, leave: int = 0) -> Path:
    """Somebody else takes what is left, but for some bytes."""
    path = mount / "somebody-elses"
    with path.open("ab", buffering=0) as file:
        block = bytes(1 << 16)
        while (left := free_bytes(mount) - leave) > 0:
            try:
                file.write(block[: min(left, len(block))])
            except OSError:
                break
    return path
