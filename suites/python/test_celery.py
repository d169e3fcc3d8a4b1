"""Celery on Weir's AMQP listener: a worker process with two children, and results in a Redis."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from harness import install

PATIENCE_SECONDS = 40
HERE = Path(__file__).resolve().parent


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def redis(tmp_path_factory):
    port = free_port()
    place = tmp_path_factory.mktemp("redis")
    command = [str(install.redis()), "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(place)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield f"redis://127.0.0.1:{port}/0"
    process.kill()
    process.wait()


@pytest.fixture(scope="module")
def tasks(redis):
    os.environ["CELERY_CHECK_BACKEND"] = redis
    os.environ["CELERY_CHECK_QUEUE"] = f"celery-{uuid.uuid4().hex[:8]}"
    sys.path.insert(0, str(HERE))
    import celery_tasks

    return celery_tasks


class Worker:
    def __init__(self, place: Path):
        self.log = (place / f"worker-{uuid.uuid4().hex[:8]}.log").open("w+")
        command = [sys.executable, "-m", "celery", "-A", "celery_tasks", "worker", "--concurrency", "2", "--loglevel", "INFO"]
        command += ["--hostname", f"{uuid.uuid4().hex[:8]}@here"]
        self.process = subprocess.Popen(
            command, cwd=HERE, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(PATIENCE_SECONDS)
        finally:
            self.kill()
        self.log.seek(0)
        print(self.log.read()[-3000:])


@pytest.fixture(scope="module")
def worker(tasks, tmp_path_factory):
    worker = Worker(tmp_path_factory.mktemp("worker"))
    yield worker
    worker.stop()


def test_tasks_return(worker, tasks):
    results = [tasks.add.delay(number, number) for number in range(40)]
    assert [result.get(timeout=PATIENCE_SECONDS) for result in results] == [2 * number for number in range(40)]


def test_a_task_is_tried_again(worker, tasks):
    assert tasks.succeeds_on_try.delay(3).get(timeout=PATIENCE_SECONDS) == 3


def test_a_task_waits_for_its_time(worker, tasks):
    due = time.time() + 1
    results = [tasks.now.apply_async(countdown=1) for _ in range(10)]
    assert all(result.get(timeout=PATIENCE_SECONDS) >= due for result in results)


def test_groups_chains_and_chords(worker, tasks):
    from celery import chain, chord, group

    assert group(tasks.add.s(n, 1) for n in range(5)).apply_async().get(timeout=PATIENCE_SECONDS) == [1, 2, 3, 4, 5]
    assert chain(tasks.add.s(1, 2), tasks.add.s(3), tasks.add.s(4)).apply_async().get(timeout=PATIENCE_SECONDS) == 10
    assert chord([tasks.add.s(n, n) for n in range(10)], tasks.total.s()).apply_async().get(timeout=PATIENCE_SECONDS) == 90


def test_workers_are_spoken_to(worker, tasks):
    tasks.add.delay(1, 1).get(timeout=PATIENCE_SECONDS)
    control = tasks.app.control
    assert list(control.ping(timeout=PATIENCE_SECONDS, limit=1)[0].values()) == [{"ok": "pong"}]
    (queues,) = control.inspect(timeout=PATIENCE_SECONDS, limit=1).active_queues().values()
    assert [queue["name"] for queue in queues] == [tasks.app.conf.task_default_queue]


def test_a_task_outlives_its_worker(worker, tasks, tmp_path):
    """What a killed worker had taken and not acknowledged goes to another."""
    tasks.add.delay(1, 1).get(timeout=PATIENCE_SECONDS)
    doomed = Worker(tmp_path)
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(tasks.app.control.ping(timeout=2, limit=2)) < 2:
            assert time.monotonic() < deadline
        results = [tasks.slow.delay(0.3) for _ in range(8)]
        time.sleep(0.5)
    finally:
        doomed.kill()
    assert all(result.get(timeout=PATIENCE_SECONDS) for result in results)


def test_worker_and_tasks_outlive_the_broker(worker, tasks, crash):
    results = [tasks.add.apply_async((number, 1), countdown=1) for number in range(10)]
    crash()
    assert [result.get(timeout=PATIENCE_SECONDS) for result in results] == [number + 1 for number in range(10)]
    assert tasks.add.apply_async((1, 2), retry=True).get(timeout=PATIENCE_SECONDS) == 3
