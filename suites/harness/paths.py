"""Where things are: the project's root, and the git-ignored place for everything that is installed."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SUITES = ROOT / "suites"
BENCH = ROOT / "bench"
# Installed tools outlive `cargo clean`; they may be shared by several checkouts through the environment.
BUILD = Path(os.environ.get("WEIR_BUILD_DIR", ROOT / ".build"))


def target_directory() -> Path:
    return Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))


def weir_binary(profile: str = "debug") -> Path:
    """The binary under test; `WEIR_BINARY` names another."""
    named = os.environ.get("WEIR_BINARY")
    return Path(named) if named else target_directory() / profile / "weir"
