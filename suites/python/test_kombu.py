"""kombu and the py-amqp below it on Weir's AMQP listener: what Celery and OpenStack stand on."""

import os
import socket
import time
import uuid

import amqp
import kombu
import pytest

from kombu.mixins import ConsumerMixin

PATIENCE_SECONDS = 20
ADDRESS = os.environ.get("SUITE_AMQP")


def fresh(words: str) -> str:
    return f"{words}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def connection():
    with kombu.Connection(f"amqp://guest:guest@{ADDRESS}//", heartbeat=10) as connection:
        yield connection


@pytest.fixture
def raw():
    """py-amqp itself, on a connection that confirms what it publishes."""
    with amqp.Connection(ADDRESS, userid="guest", password="guest", confirm_publish=True) as connection:
        yield connection


def drain(connection, holds):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        try:
            connection.drain_events(timeout=0.1)
        except (TimeoutError, socket.timeout):
            pass


def test_a_simple_queue(connection):
    with connection.SimpleQueue(fresh("simple")) as queue:
        for number in range(20):
            queue.put({"number": number}, compression="gzip")
        assert len(queue) == 20
        for number in range(20):
            message = queue.get(timeout=PATIENCE_SECONDS)
            assert message.payload == {"number": number}
            message.ack()
        assert len(queue) == 0
    queue.queue(connection.default_channel).delete()


def test_what_is_rejected_or_given_back(connection):
    dead = kombu.Queue(fresh("dead"), kombu.Exchange(fresh("dlx"), "fanout"), routing_key="")
    work = kombu.Queue(fresh("work"), queue_arguments={"x-dead-letter-exchange": dead.exchange.name})
    with connection.channel() as channel:
        dead, work = dead(channel), work(channel)
        dead.declare()
        work.declare()
        producer = kombu.Producer(channel, serializer="json")
        for name in ("again", "never"):
            producer.publish({"name": name}, routing_key=work.name)
        seen = []

        def receive(body, message):
            seen.append((body["name"], message.delivery_info["redelivered"]))
            if body["name"] == "never":
                message.reject()
            elif message.delivery_info["redelivered"]:
                message.ack()
            else:
                message.requeue()

        with kombu.Consumer(channel, [work], callbacks=[receive]):
            drain(connection, lambda: len(seen) == 3)
        assert sorted(seen) == [("again", False), ("again", True), ("never", False)]
        drain(connection, lambda: dead.queue_declare(passive=True).message_count == 1)
        message = dead.get(no_ack=True)
        assert message.headers["x-death"][0]["reason"] == "rejected"
        for thing in (work, dead, dead.exchange):
            thing.delete()


def test_a_worker_of_several_queues_with_the_same_channel(connection):
    exchange = kombu.Exchange(fresh("topic"), "topic", durable=False)
    queues = [kombu.Queue(fresh(key), exchange, routing_key=f"{key}.#", auto_delete=True) for key in "abc"]

    class Worker(ConsumerMixin):
        def __init__(self):
            self.connection, self.seen = connection, []

        def get_consumers(self, consumer, channel):
            return [consumer([queue], callbacks=[self.receive], prefetch_count=2) for queue in queues]

        def on_consume_ready(self, connection, channel, consumers, **_):
            producer = kombu.Producer(connection.channel(), exchange)
            for number in range(30):
                producer.publish(number, routing_key=f"{'abc'[number % 3]}.x", retry=True, expiration=30)

        def receive(self, body, message):
            self.seen.append(body)
            message.ack()
            self.should_stop = len(self.seen) == 30

    worker = Worker()
    for _ in worker.consume(limit=None, timeout=PATIENCE_SECONDS):
        if worker.should_stop:
            break
    assert sorted(worker.seen) == list(range(30))


def test_it_connects_again_after_a_crash(crash):
    name = fresh("durable")
    with kombu.Connection(f"amqp://guest:guest@{ADDRESS}//", transport_options={"confirm_publish": True}) as connection:
        with connection.SimpleQueue(name) as queue:
            queue.put("before")
            crash()
            connection.ensure_connection(max_retries=10, interval_start=0.1)
        publish = connection.ensure(connection, lambda body: connection.SimpleQueue(name).put(body), max_retries=5)
        publish("after")
        with connection.SimpleQueue(name) as queue:
            got = []
            for _ in range(2):
                message = queue.get(timeout=PATIENCE_SECONDS)
                got.append(message.payload)
                message.ack()
            assert got == ["before", "after"]
        queue.queue(connection.default_channel).delete()


def test_py_amqp_confirms_and_returns(raw):
    channel = raw.channel()
    returned = []
    channel.events["basic_return"].add(lambda *arguments: returned.append(arguments[0]))
    channel.basic_publish(amqp.Message("m"), routing_key=fresh("nowhere"), mandatory=True)
    assert returned[0].args[1] == 312 or returned[0].reply_code == 312


def test_py_amqp_without_waiting_for_answers(raw):
    channel = raw.channel()
    queue, exchange = fresh("q"), fresh("x")
    channel.exchange_declare(exchange, "direct", durable=False, auto_delete=True, nowait=True)
    channel.queue_declare(queue, nowait=True, auto_delete=False)
    channel.queue_bind(queue, exchange, "k", nowait=True)
    channel.basic_publish(amqp.Message("m", application_headers={"n": 1}), exchange=exchange, routing_key="k")
    message = channel.basic_get(queue)
    assert (message.body, message.headers) == ("m", {"n": 1})
    channel.basic_ack(message.delivery_tag)
    channel.queue_unbind(queue, exchange, "k")
    with pytest.raises(amqp.exceptions.NotFound):
        channel.queue_declare(exchange, passive=True)
    channel = raw.channel()
    with pytest.raises(amqp.exceptions.NotFound):
        channel.exchange_declare(exchange, "direct", passive=True)
    channel = raw.channel()
    channel.queue_delete(queue, nowait=True)
    with pytest.raises(amqp.exceptions.NotFound):
        channel.queue_declare(queue, passive=True)


def test_py_amqp_transactions_and_recovery(raw):
    with amqp.Connection(ADDRESS, userid="guest", password="guest") as connection:
        channel = connection.channel()
        queue = channel.queue_declare(exclusive=True).queue
        channel.tx_select()
        channel.basic_publish(amqp.Message("forgotten"), routing_key=queue)
        channel.tx_rollback()
        channel.basic_publish(amqp.Message("kept"), routing_key=queue)
        channel.tx_commit()
        message = channel.basic_get(queue)
        channel.basic_ack(message.delivery_tag)
        channel.tx_rollback()
        channel.basic_recover(requeue=True)
        message = channel.basic_get(queue)
        assert (message.body, message.delivery_info["redelivered"]) == ("kept", True)
        channel.basic_ack(message.delivery_tag)
        channel.tx_commit()
        assert channel.basic_get(queue) is None


def test_py_amqp_refuses_what_is_refused():
    with pytest.raises(amqp.exceptions.AccessRefused):
        amqp.Connection(ADDRESS, userid="guest", password="wrong").connect()
    with pytest.raises(amqp.exceptions.NotAllowed):
        amqp.Connection(ADDRESS, userid="guest", password="guest", virtual_host="nowhere").connect()
