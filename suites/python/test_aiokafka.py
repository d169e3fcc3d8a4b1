"""aiokafka: a client of its own making that speaks old versions of most requests."""

import asyncio

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

WAIT_SECONDS = 60


async def create(bootstrap: str, topic: str, partitions: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(topic, partitions, 1)])
    finally:
        await admin.close()


def consumer(bootstrap: str, *topics: str, **settings) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        *topics,
        bootstrap_servers=bootstrap,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6000,
        heartbeat_interval_ms=500,
        metadata_max_age_ms=2000,
        **settings,
    )


async def read(client: AIOKafkaConsumer, count: int) -> list:
    records = []
    async with asyncio.timeout(WAIT_SECONDS):
        while len(records) < count:
            for batch in (await client.getmany(timeout_ms=500)).values():
                records += batch
    assert len(records) == count
    return records


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_a_round_with_each_compression(bootstrap, name, codec):
    async def check():
        await create(bootstrap, name, 1)
        sent = []
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, compression_type=codec, linger_ms=20, enable_idempotence=True
        ) as producer:
            waiting = []
            for number in range(300):
                key = None if number % 5 == 0 else b"key %d" % number
                value = None if number % 7 == 0 and key else b"value %d " % number * 10
                headers = [("n", b"%d" % number), ("n", b"again")] if number % 2 else []
                moment = 1_600_000_000_000 + number
                sent.append((key, value, tuple(headers), moment))
                waiting.append(
                    await producer.send(name, value, key=key, headers=headers, timestamp_ms=moment, partition=0)
                )
            offsets = [(await future).offset for future in waiting]
        assert offsets == list(range(300))
        client = consumer(bootstrap)
        client.assign([TopicPartition(name, 0)])
        async with client:
            came = await read(client, 300)
        assert [(r.key, r.value, r.headers, r.timestamp) for r in came] == sent

    asyncio.run(check())


def test_a_group_shares_commits_and_goes_on(bootstrap, name):
    async def check():
        await create(bootstrap, name, 4)
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for number in range(400):
                await producer.send(name, b"%d" % number, partition=number % 4)
        members = [consumer(bootstrap, name, group_id=name) for _ in range(2)]
        await asyncio.gather(*(member.start() for member in members))
        try:
            # Members read until both have their half, whichever rebalance that takes.
            async with asyncio.timeout(WAIT_SECONDS):
                while sorted(len(member.assignment()) for member in members) != [2, 2]:
                    await asyncio.sleep(0.1)
            values = []
            for member in members:
                for partition in member.assignment():
                    await member.seek_to_beginning(partition)
                values += [int(r.value) for r in await read(member, 200)]
                await member.commit()
            assert sorted(values) == list(range(400))
        finally:
            await asyncio.gather(*(member.stop() for member in members))
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            await producer.send_and_wait(name, b"late", partition=3)
        async with consumer(bootstrap, name, group_id=name) as again:
            assert [r.value for r in await read(again, 1)] == [b"late"]
            assert await again.committed(TopicPartition(name, 0)) == 100

    asyncio.run(check())


def test_positions(bootstrap, name):
    async def check():
        await create(bootstrap, name, 1)
        moment = 1_700_000_000_000
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for number in range(50):
                await producer.send(name, b"%d" % number, partition=0, timestamp_ms=moment + 1000 * number)
        partition = TopicPartition(name, 0)
        client = consumer(bootstrap)
        client.assign([partition])
        async with client:
            assert await client.beginning_offsets([partition]) == {partition: 0}
            assert await client.end_offsets([partition]) == {partition: 50}
            found = await client.offsets_for_times({partition: moment + 20_500})
            assert (found[partition].offset, found[partition].timestamp) == (21, moment + 21_000)
            client.seek(partition, 45)
            assert [int(r.value) for r in await read(client, 5)] == list(range(45, 50))

    asyncio.run(check())
