"""What all checks written in Python share: the broker to talk to, fresh names, and a way to crash the broker."""

import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))


@pytest.fixture(scope="session")
def bootstrap() -> str:
    return os.environ["SUITE_BOOTSTRAP"]


@pytest.fixture
def name(request) -> str:
    """A name that no other check and no earlier run has used: for a topic, a group, an identity."""
    words = "".join(c if c.isalnum() else "-" for c in request.node.name).strip("-")
    return f"{words}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def crash():
    """Kills the broker with `kill -9` and starts it on the same data; returns once it is ready."""
    command = os.environ.get("SUITE_CRASH")
    if not command:
        pytest.skip("the broker is not ours to kill")
    return lambda: subprocess.run(command, shell=True, check=True, timeout=120)
