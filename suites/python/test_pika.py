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
        (406, lambda channel: channel.exchange_declare("x-1", "x-delayed-message")),
        (406, lambda channel: channel.exchange_declare("x-1", "x-message-deduplication")),
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
    large = os.urandom(16 << 20)
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


@pytest.fixture
def later(channel, queue):
    """An exchange that delays, bound to the queue by its name."""
    exchange = f"x-{uuid.uuid4()}"
    channel.exchange_declare(exchange, "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"})
    channel.queue_bind(queue, exchange, queue)
    yield exchange
    if channel.is_open:
        channel.exchange_delete(exchange)


def delayed(milliseconds, **more) -> pika.BasicProperties:
    return pika.BasicProperties(headers={"x-delay": milliseconds}, **more)


def arriving(channel, queue, count):
    """So many messages, each with when it came."""
    came = []
    for method, properties, body in channel.consume(queue, auto_ack=True, inactivity_timeout=PATIENCE_SECONDS):
        assert method is not None, f"{len(came)} of {count} messages came"
        came.append((time.monotonic(), properties, body))
        if len(came) == count:
            break
    channel.cancel()
    return came


def test_delayed_messages_arrive_in_the_order_of_their_time(channel, queue, later):
    channel.confirm_delivery()
    began = time.monotonic()
    for milliseconds in (500, 100, 300, 200, "400", 0, -5):
        channel.basic_publish(later, queue, str(milliseconds).encode(), delayed(milliseconds))
    came = arriving(channel, queue, 7)
    assert [body for *_, body in came] == [b"0", b"-5", b"100", b"200", b"300", b"400", b"500"]
    for when, properties, body in came[2:]:
        assert properties.headers == {"x-delay": -int(body)}
        late = when - began - int(body) / 1000
        assert 0 <= late < 1, f"{body} came {late:.3f} s late"


def test_a_message_without_a_delay_goes_through_an_exchange_that_delays_at_once(channel, queue, later):
    channel.confirm_delivery()
    channel.basic_publish(later, queue, b"now", mandatory=True)
    assert channel.basic_get(queue, auto_ack=True)[2] == b"now"
    with pytest.raises(UnroutableError):
        channel.basic_publish(later, "nowhere", b"lost", mandatory=True)


def test_a_mandatory_message_that_is_delayed_is_returned_and_arrives(channel, queue, later):
    channel.confirm_delivery()
    with pytest.raises(UnroutableError):
        channel.basic_publish(later, queue, b"both", delayed(200), mandatory=True)
    assert [body for *_, body in arriving(channel, queue, 1)] == [b"both"]


def test_a_delay_that_is_no_number_is_refused(connection, queue, later):
    channel = connection.channel()
    with pytest.raises(ChannelClosedByBroker) as raised:
        channel.basic_publish(later, queue, b"when?", delayed("soon"))
        channel.queue_declare(queue, passive=True)
    assert raised.value.reply_code == 406


def test_delayed_messages_go_on_to_exchanges_and_by_headers(channel, queue):
    first, second = f"x-{uuid.uuid4()}", f"x-{uuid.uuid4()}"
    arguments = {"x-delayed-type": "headers"}
    channel.exchange_declare(first, "x-delayed-message", durable=True, arguments=arguments)
    channel.exchange_declare(second, "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    channel.exchange_bind(second, first, arguments={"x-match": "all", "kind": "a", "n": 5})
    channel.queue_bind(queue, second)
    for kind, number in (("a", 5), ("b", 5), ("a", 6)):
        headers = {"x-delay": 200, "kind": kind, "n": number}
        channel.basic_publish(first, "", f"{kind}{number}".encode(), pika.BasicProperties(headers=headers))
    ((_, properties, body),) = arriving(channel, queue, 1)
    assert (body, properties.headers) == (b"a5", {"x-delay": -200, "kind": "a", "n": 5})
    time.sleep(0.3)
    assert channel.basic_get(queue)[0] is None
    channel.exchange_delete(first)
    channel.exchange_delete(second)


def test_a_message_that_goes_at_once_and_later_is_confirmed_when_it_is_on_both_ways(channel, queue, later):
    channel.confirm_delivery()
    fanout, other = f"x-{uuid.uuid4()}", f"q-{uuid.uuid4()}"
    channel.exchange_declare(fanout, "fanout", durable=True)
    channel.queue_declare(other, durable=True)
    channel.queue_bind(other, fanout)
    channel.exchange_bind(later, fanout)
    channel.basic_publish(fanout, queue, b"twice", delayed(300), mandatory=True)
    _, properties, body = channel.basic_get(other, auto_ack=True)
    assert (body, properties.headers) == (b"twice", {"x-delay": 300})
    assert channel.basic_get(queue)[0] is None
    assert [body for *_, body in arriving(channel, queue, 1)] == [b"twice"]
    channel.queue_delete(other)
    channel.exchange_delete(fanout)


def test_delayed_messages_outlive_a_crash_and_come_once():
    if not (crash := os.environ.get("SUITE_CRASH")):
        pytest.skip("nobody may kill this broker")
    queue, exchange = f"q-{uuid.uuid4()}", f"x-{uuid.uuid4()}"
    connection = pika.BlockingConnection(parameters())
    channel = connection.channel()
    channel.confirm_delivery()
    channel.exchange_declare(exchange, "x-delayed-message", durable=True, arguments={"x-delayed-type": "fanout"})
    channel.queue_declare(queue, durable=True)
    channel.queue_bind(queue, exchange)
    for number in range(200):
        channel.basic_publish(exchange, "", str(number).encode(), delayed(10 + number * 20))
    subprocess.run(crash, shell=True, check=True)
    with pika.BlockingConnection(parameters()) as connection:
        channel = connection.channel()
        came = [int(body) for *_, body in arriving(channel, queue, 200)]
        assert came == list(range(200))
        time.sleep(0.2)
        assert channel.basic_get(queue)[0] is None
        channel.queue_delete(queue)
        channel.exchange_delete(exchange)


def keyed(key) -> pika.BasicProperties:
    return pika.BasicProperties(headers={"x-deduplication-header": key})


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_takes_no_message_twice_while_it_has_it(channel, kind):
    channel.confirm_delivery()
    queue = f"q-{uuid.uuid4()}"
    arguments = {"x-message-deduplication": True, "x-queue-type": kind}
    channel.queue_declare(queue, durable=True, arguments=arguments)
    for key in ("a", 42, None):
        for _ in range(3):
            channel.basic_publish("", queue, str(key).encode(), keyed(key))
        method, _, body = channel.basic_get(queue)
        assert (body, method.message_count) == (str(key).encode(), 0)
        channel.basic_publish("", queue, b"it is still with somebody", keyed(key))
        assert channel.basic_get(queue)[0] is None
        channel.basic_ack(method.delivery_tag)
        channel.basic_publish("", queue, b"again", keyed(key))
        assert channel.basic_get(queue, auto_ack=True)[2] == b"again"
    for _ in range(2):
        channel.basic_publish("", queue, b"without a key")
    assert channel.queue_declare(queue, passive=True).method.message_count == 2
    channel.queue_delete(queue)


def test_a_queue_that_takes_no_message_twice_forgets_those_that_expired_or_died(channel, queue):
    channel.confirm_delivery()
    unique = f"q-{uuid.uuid4()}"
    arguments = {
        "x-message-deduplication": True,
        "x-message-ttl": 200,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": queue,
    }
    channel.queue_declare(unique, durable=True, arguments=arguments)
    for body in (b"one", b"again"):
        channel.basic_publish("", unique, body, keyed("a"))
    time.sleep(0.5)
    channel.basic_publish("", unique, b"two", keyed("a"))
    method, _, body = channel.basic_get(unique)
    assert body == b"two"
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert sorted(body for *_, body in arriving(channel, queue, 2)) == [b"one", b"two"]
    channel.basic_publish("", unique, b"three", keyed("a"))
    assert channel.basic_get(unique, auto_ack=True)[2] == b"three"
    channel.queue_delete(unique)


def test_a_queue_may_know_keys_for_a_time_and_a_number_of_them(channel):
    channel.confirm_delivery()
    queue = f"q-{uuid.uuid4()}"
    arguments = {"x-message-deduplication": True, "x-cache-ttl": 60_000, "x-cache-size": 2}
    channel.queue_declare(queue, durable=True, arguments=arguments)
    for key in ("a", "b", "a"):
        channel.basic_publish("", queue, key.encode(), keyed(key))
    assert [body for *_, body in arriving(channel, queue, 2)] == [b"a", b"b"]
    for key in ("b", "c", "b", "a"):
        channel.basic_publish("", queue, key.encode(), keyed(key))
    assert [body for *_, body in arriving(channel, queue, 2)] == [b"c", b"a"]
    channel.queue_delete(queue)
