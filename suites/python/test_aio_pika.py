"""aio-pika on Weir's AMQP listener: what asyncio programs do, and how they find their way back by themselves."""

import asyncio
import os
import uuid

import aio_pika
import pytest

from aio_pika.exceptions import ChannelClosed, DeliveryError
from aio_pika.patterns import RPC, Master

PATIENCE_SECONDS = 20
URL = f"amqp://guest:guest@{os.environ.get('SUITE_AMQP')}/?reconnect_interval=0.2"


def asynchronous(check):
    """A check is a coroutine with a connection of its own."""

    def run():
        async def with_connection():
            async with await aio_pika.connect_robust(URL) as connection:
                await asyncio.wait_for(check(connection), PATIENCE_SECONDS * 2)

        asyncio.run(with_connection())

    run.__name__ = check.__name__
    return run


async def until(holds):
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():
            await asyncio.sleep(0.02)


def fresh(words: str) -> str:
    return f"{words}-{uuid.uuid4().hex[:8]}"


@asynchronous
async def test_a_queue_is_iterated_with_acknowledgements(connection):
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=10)
    queue = await channel.declare_queue(fresh("q"), durable=True)
    exchange = channel.default_exchange
    await asyncio.gather(*(exchange.publish(aio_pika.Message(str(n).encode()), queue.name) for n in range(200)))
    numbers = []
    async with queue.iterator() as messages:
        async for message in messages:
            async with message.process():
                numbers.append(int(message.body))
            if len(numbers) == 200:
                break
    assert sorted(numbers) == list(range(200))
    await queue.delete(if_unused=False, if_empty=False)


@asynchronous
async def test_what_goes_nowhere_is_an_error_of_its_publisher(connection):
    channel = await connection.channel(on_return_raises=True)
    with pytest.raises(DeliveryError):
        await channel.default_exchange.publish(aio_pika.Message(b"m"), fresh("nowhere"), mandatory=True)
    assert not channel.is_closed


@asynchronous
async def test_what_fails_in_processing_goes_back_or_dies(connection):
    channel = await connection.channel()
    dead = await channel.declare_queue(exclusive=True)
    queue = await channel.declare_queue(
        exclusive=True, arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead.name}
    )
    await channel.default_exchange.publish(aio_pika.Message(b"m", headers={"own": 7}), queue.name)
    for requeue in (True, False):
        with pytest.raises(ValueError):
            async with (await queue.get(timeout=5)).process(requeue=requeue):
                raise ValueError
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (message := await dead.get(fail=False)) is None:
            await asyncio.sleep(0.02)
    async with message.process():
        assert (message.headers["own"], message.headers["x-death"][0]["reason"]) == (7, "rejected")


@asynchronous
async def test_remote_calls_return_or_raise(connection):
    channel = await connection.channel()
    rpc = await RPC.create(channel)

    async def divide(*, a, b):
        return a / b

    name = fresh("divide")
    await rpc.register(name, divide, auto_delete=True)
    assert await asyncio.gather(*(rpc.call(name, {"a": n, "b": 2}) for n in range(20))) == [n / 2 for n in range(20)]
    with pytest.raises(ZeroDivisionError):
        await rpc.call(name, {"a": 1, "b": 0})


@asynchronous
async def test_workers_share_tasks(connection):
    channel = await connection.channel()
    master, name, done = Master(channel), fresh("tasks"), []

    async def work(*, number):
        done.append(number)

    workers = [await master.create_worker(name, work, auto_delete=True) for _ in range(3)]
    for number in range(30):
        await master.create_task(name, {"number": number})
    await until(lambda: len(done) == 30)
    assert sorted(done) == list(range(30))
    for worker in workers:
        await worker.close()


@asynchronous
async def test_a_transaction_is_committed_or_rolled_back(connection):
    channel = await connection.channel(publisher_confirms=False)
    queue = await channel.declare_queue(exclusive=True)
    async with channel.transaction():
        await channel.default_exchange.publish(aio_pika.Message(b"kept"), queue.name)
    with pytest.raises(ValueError):
        async with channel.transaction():
            await channel.default_exchange.publish(aio_pika.Message(b"forgotten"), queue.name)
            raise ValueError
    assert (await queue.get(no_ack=True)).body == b"kept"
    assert await queue.get(fail=False) is None


@asynchronous
async def test_a_channel_that_broke_is_no_connection_that_broke(connection):
    channel = await connection.channel()
    with pytest.raises(ChannelClosed):
        await channel.declare_queue(fresh("none"), passive=True)
    await (await connection.channel()).declare_queue(exclusive=True)


def test_after_a_crash_it_consumes_again_by_itself(crash):
    async def check():
        async with await aio_pika.connect_robust(URL) as connection:
            channel = await connection.channel()
            await channel.set_qos(prefetch_count=5)
            queue = await channel.declare_queue(fresh("durable"), durable=True)
            transient = await channel.declare_queue(fresh("transient"), auto_delete=True)
            seen = set()

            async def receive(message):
                async with message.process(ignore_processed=True):
                    seen.add(bytes(message.body))

            await queue.consume(receive)
            await transient.consume(receive)
            message = aio_pika.Message(b"before", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
            await channel.default_exchange.publish(message, queue.name)
            await until(lambda: b"before" in seen)
            await asyncio.to_thread(crash)
            async with asyncio.timeout(PATIENCE_SECONDS):
                for name, body in ((queue.name, b"after"), (transient.name, b"declared again")):
                    while body not in seen:
                        try:
                            publishing = channel.default_exchange.publish(aio_pika.Message(body), name)
                            await asyncio.wait_for(publishing, 1)
                        except Exception:  # not connected again yet, in one of many words
                            pass
                        await asyncio.sleep(0.1)
            await queue.delete(if_unused=False, if_empty=False)

    asyncio.run(asyncio.wait_for(check(), PATIENCE_SECONDS * 3))
