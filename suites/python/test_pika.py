"""pika on Weir's AMQP listener: what RabbitMQ's users do every day, as pika's own documentation shows it."""

import os
import subprocess
import time
import uuid

import pika
import pytest

from pika.exceptions import AMQPConnectionError, ChannelClosedByBroker, ConnectionClosedByBroker, UnroutableError

PATIENCE_SECONDS = 20


def address() -> tuple[str, int]:
    host, port = os.environ["SUITE_AMQP"].rsplit(":", 1)
    return host, int(port)


def parameters(**more) -> pika.ConnectionParameters:
    host, port = address()
    return pika.ConnectionParameters(host=host, port=port, **more)


@pytest.fixture
def connection():
    with pika.BlockingConnection(parameters()) as connection:
        yield connection


@pytest.fixture
def channel(connection):
    return connection.channel()


@pytest.fixture
def queue(channel):
    name = f"q-{uuid.uuid4()}"
    channel.queue_declare(name, durable=True)
    yield name
    if channel.is_open:
        channel.queue_delete(name)


def test_a_message_goes_in_and_comes_out(channel, queue):
    channel.basic_publish("", queue, b"hello")
    method, properties, body = channel.basic_get(queue, auto_ack=True)
    assert (body, method.redelivered, method.exchange, method.routing_key) == (b"hello", False, "", queue)
    assert method.message_count == 0
    assert channel.basic_get(queue) == (None, None, None)


def test_every_property_survives(channel, queue):
    properties = pika.BasicProperties(
        content_type="application/json",
        content_encoding="utf-8",
        headers={"text": "grün", "number": 5, "list": [1, "two", {"three": 3}], "none": None, "yes": True},
        delivery_mode=2,
        priority=3,
        correlation_id="c",
        reply_to="r",
        expiration="60000",
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
    )
    channel.basic_publish("", queue, b"{}", properties)
    _, came, body = channel.basic_get(queue, auto_ack=True)
    assert body == b"{}"
    assert vars(came) == vars(properties)


def test_consumers_get_everything_in_order_and_what_is_acknowledged_never_again(channel, queue):
    for number in range(500):
        channel.basic_publish("", queue, str(number).encode())
    channel.basic_qos(prefetch_count=50)
    numbers = []
    for method, _, body in channel.consume(queue, inactivity_timeout=PATIENCE_SECONDS):
        assert method is not None, f"{len(numbers)} of 500 messages came"
        numbers.append(int(body))
        channel.basic_ack(method.delivery_tag)
        if len(numbers) == 500:
            break
    channel.cancel()
    assert numbers == list(range(500))
    assert channel.queue_declare(queue, passive=True).method.message_count == 0


def test_prefetch_bounds_what_is_on_its_way(channel, queue):
    for number in range(10):
        channel.basic_publish("", queue, str(number).encode())
    channel.basic_qos(prefetch_count=3)
    got = []
    channel.basic_consume(queue, lambda _ch, method, _properties, body: got.append((method.delivery_tag, body)))
    channel.connection.process_data_events(1)
    assert [body for _, body in got] == [b"0", b"1", b"2"]
    channel.basic_ack(got[1][0], multiple=True)
    channel.connection.process_data_events(1)
    assert [body for _, body in got[3:]] == [b"3", b"4"]


def test_what_is_not_acknowledged_comes_again_when_its_channel_is_gone(connection, queue):
    channel = connection.channel()
    channel.basic_publish("", queue, b"once")
    method, _, _ = channel.basic_get(queue)
    assert not method.redelivered
    channel.close()
    channel = connection.channel()
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (method.redelivered, body) == (True, b"once")


def test_requeued_messages_have_their_position_again(channel, queue):
    for body in (b"a", b"b", b"c"):
        channel.basic_publish("", queue, body)
    tags = [channel.basic_get(queue)[0].delivery_tag for _ in range(2)]
    channel.basic_nack(tags[1], requeue=True)
    channel.basic_reject(tags[0], requeue=True)
    assert [channel.basic_get(queue, auto_ack=True)[2] for _ in range(3)] == [b"a", b"b", b"c"]


def test_rejected_messages_are_gone(channel, queue):
    channel.basic_publish("", queue, b"bad")
    method, _, _ = channel.basic_get(queue)
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert channel.queue_declare(queue, passive=True).method.message_count == 0


def test_confirms_and_returns(channel, queue):
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"safe", mandatory=True)
    with pytest.raises(UnroutableError) as raised:
        channel.basic_publish("", "nowhere-" + queue, b"lost", mandatory=True)
    assert raised.value.messages[0].body == b"lost"
    channel.basic_publish("", "nowhere-" + queue, b"dropped in silence")


@pytest.mark.parametrize(
    ("kind", "key", "published", "reached"),
    [
        ("direct", "a", "a", True),
        ("direct", "a", "b", False),
        ("fanout", "", "anything", True),
        ("topic", "stock.*.nyse", "stock.usd.nyse", True),
        ("topic", "stock.#", "stock", True),
        ("topic", "*.orange.*", "quick.orange.fox.x", False),
    ],
)
def test_exchanges_route(channel, queue, kind, key, published, reached):
    exchange = f"x-{uuid.uuid4()}"
    channel.exchange_declare(exchange, kind)
    channel.queue_bind(queue, exchange, key)
    channel.basic_publish(exchange, published, b"m")
    assert (channel.basic_get(queue, auto_ack=True)[2] is not None) == reached
    channel.queue_unbind(queue, exchange, key)
    channel.basic_publish(exchange, published, b"m")
    assert channel.basic_get(queue, auto_ack=True)[2] is None
    channel.exchange_delete(exchange)


def test_headers_exchanges_compare_headers(channel, queue):
    exchange = f"x-{uuid.uuid4()}"
    channel.exchange_declare(exchange, "headers", durable=True)
    channel.queue_bind(queue, exchange, arguments={"x-match": "all", "format": "pdf", "pages": 5})
    publish = lambda **headers: channel.basic_publish(  # noqa: E731
        exchange, "", b"m", pika.BasicProperties(headers=headers)
    )
    publish(format="pdf", pages=5, other=1)
    publish(format="pdf", pages=6)
    assert channel.queue_declare(queue, passive=True).method.message_count == 1
    channel.exchange_delete(exchange)


def test_exchanges_pass_on_to_exchanges_and_alternates(channel, queue):
    first, second, other = (f"x-{uuid.uuid4()}" for _ in range(3))
    channel.exchange_declare(other, "fanout")
    channel.exchange_declare(first, "direct", arguments={"alternate-exchange": other})
    channel.exchange_declare(second, "fanout")
    channel.exchange_bind(second, first, "k")
    channel.queue_bind(queue, second)
    channel.basic_publish(first, "k", b"by binding")
    channel.queue_unbind(queue, second)
    channel.queue_bind(queue, other)
    channel.basic_publish(first, "unknown", b"by alternate")
    assert [channel.basic_get(queue, auto_ack=True)[2] for _ in range(2)] == [b"by binding", b"by alternate"]
    for exchange in (first, second, other):
        channel.exchange_delete(exchange)


@pytest.mark.parametrize(
    ("code", "do"),
    [
        (404, lambda channel: channel.queue_declare("no-such-queue", passive=True)),
        (404, lambda channel: channel.exchange_declare("no-such-exchange", passive=True)),
        (404, lambda channel: channel.basic_consume("no-such-queue", print)),
        (404, lambda channel: channel.queue_bind("no-such-queue", "amq.direct", "k")),
        (403, lambda channel: channel.queue_declare("amq.mine")),
        (403, lambda channel: channel.exchange_declare("amq.mine")),
        (406, lambda channel: channel.exchange_declare("x-1", "no-such-type")),
        (406, lambda channel: channel.queue_declare("q-ttl", arguments={"x-message-ttl": "soon"})),
    ],
)
def test_what_is_wrong_ends_the_channel_and_not_the_connection(connection, code, do):
    channel = connection.channel()
    with pytest.raises(ChannelClosedByBroker) as raised:
        do(channel)
    assert raised.value.reply_code == code
    assert connection.is_open and connection.channel().is_open


def test_an_unknown_tag_is_refused(connection, queue):
    channel = connection.channel()
    channel.basic_ack(99)
    with pytest.raises(ChannelClosedByBroker) as raised:
        channel.queue_declare(queue, passive=True)
    assert raised.value.reply_code == 406


def test_a_queue_declared_otherwise_is_refused(connection, queue):
    channel = connection.channel()
    with pytest.raises(ChannelClosedByBroker) as raised:
        channel.queue_declare(queue, durable=False)
    assert raised.value.reply_code == 406


def test_an_exclusive_queue_is_its_connections_alone(connection, channel):
    name = channel.queue_declare("", exclusive=True).method.queue
    assert name.startswith("amq.gen-")
    with pika.BlockingConnection(parameters()) as other:
        with pytest.raises(ChannelClosedByBroker) as raised:
            other.channel().queue_declare(name, passive=True)
        assert raised.value.reply_code == 405
    connection.close()
    with pika.BlockingConnection(parameters()) as other:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                other.channel().queue_declare(name, passive=True)
            except ChannelClosedByBroker as closed:
                if closed.reply_code == 404:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_an_auto_delete_queue_goes_with_its_last_consumer(connection, channel):
    name = f"q-{uuid.uuid4()}"
    channel.queue_declare(name, auto_delete=True)
    tag = channel.basic_consume(name, print)
    channel.basic_cancel(tag)
    with pytest.raises(ChannelClosedByBroker) as raised:
        connection.channel().queue_declare(name, passive=True)
    assert raised.value.reply_code == 404


def test_transactions_are_committed_or_rolled_back(channel, queue):
    channel.tx_select()
    channel.basic_publish("", queue, b"kept")
    channel.tx_commit()
    channel.basic_publish("", queue, b"forgotten")
    channel.tx_rollback()
    assert channel.queue_declare(queue, passive=True).method.message_count == 1


def test_expired_messages_do_not_come(channel, queue):
    channel.basic_publish("", queue, b"short", pika.BasicProperties(expiration="50"))
    channel.basic_publish("", queue, b"long")
    time.sleep(0.2)
    assert channel.basic_get(queue, auto_ack=True)[2] == b"long"


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_was_confirmed_and_settled_outlives_a_crash(kind):
    if not (crash := os.environ.get("SUITE_CRASH")):
        pytest.skip("nobody may kill this broker")
    durable, exchange, transient = f"q-{uuid.uuid4()}", f"x-{uuid.uuid4()}", f"q-{uuid.uuid4()}"
    connection = pika.BlockingConnection(parameters())
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare(exchange, "topic", durable=True)
    channel.queue_declare(durable, durable=True, arguments={"x-queue-type": kind})
    channel.queue_declare(transient)
    channel.queue_bind(durable, exchange, "a.#")
    for number in range(200):
        channel.basic_publish(exchange, "a.b", str(number).encode(), mandatory=True)
    tags = [channel.basic_get(durable)[0].delivery_tag for _ in range(100)]
    for tag in tags[::2]:
        channel.basic_ack(tag)
    # Whatever is asked for after an acknowledgement comes after it.
    assert channel.queue_declare(durable, passive=True).method.message_count == 100
    subprocess.run(crash, shell=True, check=True)

    with pika.BlockingConnection(parameters()) as connection:
        channel = connection.channel()
        came = [channel.basic_get(durable, auto_ack=True) for _ in range(150)]
        assert sorted(int(body) for _, _, body in came) == [*range(1, 100, 2), *range(100, 200)]
        assert all(method.redelivered for method, _, body in came if int(body) < 100)
        assert channel.basic_get(durable)[0] is None
        channel.confirm_delivery()
        channel.basic_publish(exchange, "a.c", b"still bound", mandatory=True)
        channel.queue_delete(durable)
        channel.exchange_delete(exchange)
        with pytest.raises(ChannelClosedByBroker) as raised:
            channel.queue_declare(transient, passive=True)
        assert raised.value.reply_code == 404


def test_purging_and_counting(channel, queue):
    for _ in range(7):
        channel.basic_publish("", queue, b"m")
    assert channel.queue_declare(queue, passive=True).method.message_count == 7
    assert channel.queue_purge(queue).method.message_count == 7
    assert channel.basic_get(queue) == (None, None, None)


def test_large_messages_and_empty_ones(channel, queue):
    large = os.urandom(7 << 20)
    channel.basic_publish("", queue, large)
    channel.basic_publish("", queue, b"")
    assert channel.basic_get(queue, auto_ack=True)[2] == large
    assert channel.basic_get(queue, auto_ack=True)[2] == b""


def test_wrong_credentials_are_refused():
    with pytest.raises(AMQPConnectionError):
        pika.BlockingConnection(parameters(credentials=pika.PlainCredentials("guest", "wrong")))
    with pytest.raises((AMQPConnectionError, ConnectionClosedByBroker)):
        pika.BlockingConnection(parameters(virtual_host="nowhere"))


def test_recovered_messages_come_again(channel, queue):
    channel.basic_publish("", queue, b"m")
    channel.basic_get(queue)
    channel.basic_recover(requeue=True)
    method, _, body = channel.basic_get(queue, auto_ack=True)
    assert (method.redelivered, body) == (True, b"m")


def test_two_consumers_share_a_queue(connection, queue):
    got = {1: [], 2: []}
    channels = {}
    for number in got:
        channels[number] = connection.channel()
        channels[number].basic_qos(prefetch_count=1)

        def receive(channel, method, _properties, body, number=number):
            got[number].append(body)
            channel.basic_ack(method.delivery_tag)

        channels[number].basic_consume(queue, receive)
    for number in range(40):
        channels[1].basic_publish("", queue, str(number).encode())
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(got[1]) + len(got[2]) < 40 and time.monotonic() < deadline:
        connection.process_data_events(0.1)
    assert sorted(map(int, got[1] + got[2])) == list(range(40))
    assert got[1] and got[2]


def test_what_a_cancelled_consumer_did_not_get_stays_in_its_own_queue(connection, queue):
    """A channel has several queues: what comes back goes to the one it came from, also when the tag is another's."""
    channel = connection.channel()
    other = channel.queue_declare("", exclusive=True).method.queue
    for _ in range(3):
        for number in range(100):
            channel.basic_publish("", queue, str(number).encode())
        got, others = [], []
        channel.basic_consume(queue, lambda _c, _m, _p, body: got.append(body), consumer_tag="tag")
        channel.basic_cancel("tag")
        channel.basic_consume(other, lambda _c, _m, _p, body: others.append(body), consumer_tag="tag")
        connection.process_data_events(0.2)
        assert others == []
        channel.basic_cancel("tag")
        channel.basic_recover(requeue=True)
        came = []
        for _ in range(100):
            came.append(channel.basic_get(queue, auto_ack=True)[2])
        assert sorted(map(int, came)) == list(range(100))
        assert channel.basic_get(queue)[0] is None


def test_dead_letters_say_where_they_died_and_why(channel, queue):
    exchange, dying = f"x-{uuid.uuid4()}", f"q-{uuid.uuid4()}"
    channel.exchange_declare(exchange, "fanout", durable=True)
    channel.queue_bind(queue, exchange)
    channel.queue_declare(dying, durable=True, arguments={"x-dead-letter-exchange": exchange, "x-message-ttl": 300})
    channel.basic_publish("", dying, b"rejected")
    method, _, _ = channel.basic_get(dying)
    channel.basic_reject(method.delivery_tag, requeue=False)
    channel.basic_publish("", dying, b"expired", pika.BasicProperties(expiration="50", headers={"own": 1}))
    deadline = time.monotonic() + PATIENCE_SECONDS
    dead = {}
    while len(dead) < 2 and time.monotonic() < deadline:
        _, properties, body = channel.basic_get(queue, auto_ack=True)
        if body is not None:
            dead[body] = properties
        else:
            time.sleep(0.02)
    (rejected,) = dead[b"rejected"].headers["x-death"]
    assert (rejected["reason"], rejected["queue"], rejected["count"]) == ("rejected", dying, 1)
    assert (rejected["exchange"], rejected["routing-keys"]) == ("", [dying])
    assert dead[b"rejected"].headers["x-first-death-reason"] == "rejected"
    (expired,) = dead[b"expired"].headers["x-death"]
    assert (expired["reason"], expired["original-expiration"]) == ("expired", "50")
    assert dead[b"expired"].headers["own"] == 1
    assert dead[b"expired"].expiration is None
    channel.queue_delete(dying)
    channel.exchange_delete(exchange)
