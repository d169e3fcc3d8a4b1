"""Runs the integration tests inside the published sources of Python's AMQP libraries, and tells what became of each.

They are told of their broker by environment variables, and want certificates where their sources have none. They run in a
directory of their own, on a copy of their tests, against the libraries as they are installed.
"""

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from . import install
from .paths import SUITES
from .ports import free_port
from .secure import SecureWeir, make_authority, make_certificate

SECONDS_MAX = 3600
REDIS_START_SECONDS = 30
LOOK_SECONDS = 0.2

# Of py-amqp: they speak to servers of others on the internet.
ELSEWHERE = ("test_tls_default_certs", "test_tls_no_default_certs_fails")

# Of Celery: the files whose tests give tasks to a worker or speak to one. The others are about other brokers and backends,
# its memory, Django, or its own files. First that which wants no subscriptions of others in Redis.
CELERY_FILES = ("redis_backend", "beat", "canvas", "group_chains", "inspect", "serialization", "tasks", "worker")

Verdict = tuple[str, str, float]


def py_amqp(broker: SecureWeir, place: Path, only: list[str]) -> Iterator[Verdict]:
    """py-amqp's: every operation, plainly and over TLS with a client's certificate."""
    certificates = place / "t" / "certs"
    tests = _copy_tests("amqp", place)
    certificates.mkdir(exist_ok=True)
    make_certificate(broker.papers, "client")
    make_authority(broker.papers, "stranger")
    make_certificate(broker.papers, "broken", "stranger")
    shutil.copy(broker.papers / "ca.pem", certificates / "ca_certificate.pem")
    for kind, extension in (("certificate", "pem"), ("key", "key")):
        shutil.copy(broker.papers / f"client.{extension}", certificates / f"client_{kind}.pem")
        shutil.copy(broker.papers / f"broken.{extension}", certificates / f"client_{kind}_broken.pem")
    # The other file speaks to a broker made of mocks.
    file = f"{tests}/test_rmq.py"
    options = [f"--deselect={file}::{name}" for name in ELSEWHERE]
    yield from _pytest(place, [file, *options], _rabbitmq(broker), only)


def kombu(broker: SecureWeir, place: Path, only: list[str]) -> Iterator[Verdict]:
    """kombu's for its transport over py-amqp."""
    tests = _copy_tests("kombu", place)
    yield from _pytest(place, [f"{tests}/test_py_amqp.py"], _rabbitmq(broker), only)


def celery(broker: SecureWeir, place: Path, only: list[str]) -> Iterator[Verdict]:
    """Celery's, with a worker, tasks over AMQP and results in a Redis."""
    tests = _copy_tests("celery", place)
    with _redis(place) as port:
        environment = {
            "TEST_BROKER": f"pyamqp://guest:guest@{broker.addresses['amqp']}//",
            "TEST_BACKEND": f"redis://127.0.0.1:{port}/0",
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": str(port),
        }
        files = [f"{tests}/test_{name}.py" for name in CELERY_FILES]
        options = ["-p", "celery.contrib.pytest", "-k", "not django"]
        yield from _pytest(place, [*files, *options], environment, only)


def _copy_tests(package: str, place: Path) -> str:
    """Copies the tests of a package to where they run, with what tells pytest about them, and returns where they are there."""
    source = install.python_source(package)
    shutil.copytree(source / "t", place / "t", dirs_exist_ok=True)
    for name in ("setup.cfg", "pyproject.toml"):
        if (source / name).exists():
            shutil.copy(source / name, place)
    return "t/integration"


def _rabbitmq(broker: SecureWeir) -> dict[str, str]:
    """How the tests of py-amqp and kombu are told of their broker; its certificate is one of that name."""
    port = lambda listener: broker.addresses[listener].rsplit(":", 1)[1]
    return {"RABBITMQ_HOST": "localhost", "RABBITMQ_5672_TCP": port("amqp"), "RABBITMQ_5671_TCP": port("amqps")}


@contextlib.contextmanager
def _redis(place: Path) -> Iterator[int]:
    """A Redis that keeps nothing, and its port."""
    port = free_port()
    command = [str(install.redis()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(place)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + REDIS_START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            if time.monotonic() > deadline:
                raise install.InstallFailed(f"redis-server does not answer after {REDIS_START_SECONDS} s")
            time.sleep(LOOK_SECONDS)
        yield port
    finally:
        process.kill()
        process.wait()


def _pytest(place: Path, words: list[str], environment: dict[str, str], only: list[str]) -> Iterator[Verdict]:
    """Runs pytest, and tells of each test when it is over. What had not ended when the time was over has failed."""
    python = install.foreign_python()
    told = place / "verdicts"
    told.write_text("")
    # The last expression counts.
    chosen = ["-k", " or ".join(only)] if only else []
    with (place / "pytest.log").open("w") as log:
        process = subprocess.Popen(
            [str(python), "-m", "pytest", "-p", "no:cacheprovider", "-p", "verdicts", "-v", "--tb=short", *words, *chosen],
            cwd=place,
            env={
                **os.environ,
                **environment,
                "PATH": f"{python.parent}:{os.environ['PATH']}",
                "PYTHONPATH": f"{SUITES / 'python'}:{place}",
                "PYTHONDONTWRITEBYTECODE": "1",
                "SUITE_VERDICTS": str(told),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield from _follow(told, process)
        finally:
            # With what the tests started and left behind.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _follow(told: Path, process: subprocess.Popen) -> Iterator[Verdict]:
    """The verdicts as the plugin writes them: of a test's stages the first that has not passed, or the last."""
    deadline = time.monotonic() + SECONDS_MAX
    open_tests: dict[str, tuple[str, float]] = {}
    with told.open() as lines:
        rest = ""
        while True:
            has_ended = process.poll() is not None or time.monotonic() > deadline
            rest += lines.read()
            *whole, rest = rest.split("\n")
            for line in map(json.loads, whole):
                verdict, seconds = open_tests.pop(line["name"], ("passed", 0.0))
                if line["verdict"] == "failed" or verdict == "passed":
                    verdict = line["verdict"]
                if line["stage"] == "teardown":
                    yield line["name"], verdict, seconds + line["seconds"]
                else:
                    open_tests[line["name"]] = (verdict, seconds + line["seconds"])
            if has_ended:
                break
            time.sleep(LOOK_SECONDS)
    for name, (_, seconds) in sorted(open_tests.items()):
        yield name, "failed", seconds
    if process.poll() is None:
        yield f"what had not ended after {SECONDS_MAX} s", "failed", float(SECONDS_MAX)
