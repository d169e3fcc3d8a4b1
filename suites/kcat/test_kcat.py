"""kcat from Debian, on a librdkafka of 2023: an old client's habits have to keep working.

Old versions choose their record format by what the broker advertises, and skip unknown tagged fields
wrongly; both go unnoticed with newer clients.
"""

import json
import subprocess
import threading
import time

import pytest

from harness import install, wire

WAIT_SECONDS = 60


@pytest.fixture(scope="session")
def kcat() -> str:
    return str(install.kcat())


def run(command: list[str], text: str = "") -> str:
    finished = subprocess.run(command, input=text, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_round_with_each_compression(bootstrap, name, kcat, codec):
    lines = [f"key-{number}:value {number} " + "x" * 50 for number in range(1000)]
    produce = [kcat, "-b", bootstrap, "-P", "-t", name, "-p", "0", "-K", ":", "-z", codec, "-H", "suite=kcat"]
    run([*produce, "-X", "linger.ms=50"], "\n".join(lines) + "\n")
    came = run([kcat, "-b", bootstrap, "-C", "-q", "-t", name, "-p", "0", "-o", "beginning", "-e", "-J"])
    records = [json.loads(line) for line in came.splitlines()]
    assert [f"{record['key']}:{record['payload']}" for record in records] == lines
    assert [record["offset"] for record in records] == list(range(1000))
    assert all(record["headers"] == ["suite", "kcat"] for record in records)
    assert {batch.codec for batch in wire.batches(bootstrap, name, 0)} == {codec}, "an old client stopped compressing"


def test_idempotent_production(bootstrap, name, kcat):
    lines = [str(number) for number in range(2000)]
    run([kcat, "-b", bootstrap, "-P", "-t", name, "-p", "0", "-X", "enable.idempotence=true"], "\n".join(lines) + "\n")
    came = run([kcat, "-b", bootstrap, "-C", "-q", "-t", name, "-p", "0", "-o", "beginning", "-e"])
    assert came.split() == lines
    stored = wire.batches(bootstrap, name, 0)
    assert all(batch.producer_id >= 0 and batch.producer_epoch >= 0 for batch in stored)
    assert [batch.base_sequence for batch in stored] == [batch.base_offset for batch in stored]


def test_metadata(bootstrap, name, kcat):
    run([kcat, "-b", bootstrap, "-P", "-t", name], "one\n")
    listed = json.loads(run([kcat, "-b", bootstrap, "-L", "-J"]))
    assert bootstrap in [broker["name"] for broker in listed["brokers"]]
    (topic,) = [topic for topic in listed["topics"] if topic["topic"] == name]
    brokers = {broker["id"] for broker in listed["brokers"]}
    assert topic["partitions"]
    for partition in topic["partitions"]:
        assert partition["leader"] in brokers
        assert partition["replicas"] and partition["isrs"]
    text = run([kcat, "-b", bootstrap, "-L", "-t", name])
    assert f'topic "{name}" with' in text


def test_positions_from_the_end_and_by_time(bootstrap, name, kcat):
    run([kcat, "-b", bootstrap, "-P", "-t", name, "-p", "0"], "".join(f"{n}\n" for n in range(50)))
    between = int(time.time() * 1000) + 50
    time.sleep(0.1)
    run([kcat, "-b", bootstrap, "-P", "-t", name, "-p", "0"], "".join(f"{n}\n" for n in range(50, 80)))
    consume = [kcat, "-b", bootstrap, "-C", "-q", "-t", name, "-p", "0", "-e"]
    assert run([*consume, "-o", "-5"]).split() == ["75", "76", "77", "78", "79"]
    assert run([*consume, "-o", "77"]).split() == ["77", "78", "79"]
    assert run([*consume, "-o", f"s@{between}"]).split() == [str(n) for n in range(50, 80)]
    queried = run([kcat, "-b", bootstrap, "-Q", "-t", f"{name}:0:{between}"])
    assert "offset 50" in queried


def test_a_group_reads_and_goes_on(bootstrap, name, kcat):
    settings = ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=500"]
    member = [kcat, "-b", bootstrap, "-q", *settings, "-G", name]
    run([kcat, "-b", bootstrap, "-P", "-t", name, "-p", "0"], "".join(f"{n}\n" for n in range(100)))
    assert run([*member, "-c", "60", name]).split() == [str(n) for n in range(60)]
    assert run([*member, "-e", name]).split() == [str(n) for n in range(60, 100)]
    run([kcat, "-b", bootstrap, "-P", "-t", name, "-p", "0"], "late\n")
    assert run([*member, "-e", name]).split() == ["late"]


def test_two_members_share(bootstrap, name, kcat):
    run([kcat, "-b", bootstrap, "-P", "-t", name, "-p", "0"], "first\n")
    settings = ["-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000", "-X", "heartbeat.interval.ms=500"]
    member = [kcat, "-b", bootstrap, "-u", *settings, "-G", name, "-f", "%s\n", name]
    members = [
        subprocess.Popen(member, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) for _ in range(2)
    ]
    read: list[str] = []
    threads = [
        threading.Thread(target=lambda out=process.stdout: read.extend(line.strip() for line in out))
        for process in members
    ]
    for thread in threads:
        thread.start()
    expected = ["first", *(str(n) for n in range(200))]
    try:
        run([kcat, "-b", bootstrap, "-P", "-t", name, "-p", "0"], "".join(f"{n}\n" for n in range(100)))
        time.sleep(3)
        run([kcat, "-b", bootstrap, "-P", "-t", name, "-p", "0"], "".join(f"{n}\n" for n in range(100, 200)))
        deadline = time.monotonic() + WAIT_SECONDS
        while len(read) < len(expected) and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        for process in members:
            process.terminate()
        for process, thread in zip(members, threads, strict=True):
            process.wait(WAIT_SECONDS)
            thread.join(WAIT_SECONDS)
    assert sorted(read) == sorted(expected)
