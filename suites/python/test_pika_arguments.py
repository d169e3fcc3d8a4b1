"""pika on Weir's AMQP listener: what queues are declared with, replies without a queue, and topics read by offset."""

import os
import subprocess
import threading
import time
import uuid

import pika
import pytest
from confluent_kafka import Producer
from pika.exceptions import ChannelClosedByBroker, NackError

PATIENCE_SECONDS = 20


@pytest.fixture
def connection():
    host, port = os.environ["SUITE_AMQP"].rsplit(":", 1)
    with pika.BlockingConnection(pika.ConnectionParameters(host=host, port=int(port))) as connection:
        yield connection


@pytest.fixture
def channel(connection):
    return connection.channel()


def declared(channel, **arguments) -> str:
    """A queue with these arguments, whose names have underscores here and a prefix there."""
    name = f"q-{uuid.uuid4()}"
    named = {"x-" + key.replace("_", "-"): value for key, value in arguments.items()}
    channel.queue_declare(name, durable=True, arguments=named)
    return name


def bodies(channel, queue) -> list[bytes]:
    """All that waits."""
    got = []
    while (message := channel.basic_get(queue, auto_ack=True))[0] is not None:
        got.append(message[2])
    return got


def dead_letters(channel) -> tuple[str, str]:
    """An exchange and the queue that everything sent there goes to."""
    exchange, queue = f"x-{uuid.uuid4()}", declared(channel)
    channel.exchange_declare(exchange, "fanout", durable=True)
    channel.queue_bind(queue, exchange)
    return exchange, queue


@pytest.mark.parametrize("kind, reject, waits", [
    ("all", False, True), ("all", True, True), ("failed", False, False), ("failed", True, True),
    ("returned", False, True), ("returned", True, False), ("disabled", True, False),
])
def test_a_message_that_came_back_to_a_quorum_queue_rests(channel, kind, reject, waits):
    queue = declared(
        channel, queue_type="quorum", delayed_retry_type=kind, delayed_retry_min=1500, delayed_retry_max=9000
    )
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"again")
    tag = channel.basic_get(queue)[0].delivery_tag
    began = time.monotonic()
    channel.basic_reject(tag) if reject else channel.basic_nack(tag)
    while (got := channel.basic_get(queue, auto_ack=True))[0] is None:
        assert time.monotonic() < began + PATIENCE_SECONDS
        time.sleep(0.05)
    assert (time.monotonic() - began >= 1.4) == waits
    assert got[0].redelivered and got[1].headers["x-delivery-count"] == int(reject)


def test_what_rests_does_so_over_a_crash():
    if not (crash := os.environ.get("SUITE_CRASH")):
        pytest.skip("nobody may kill this broker")
    host, port = os.environ["SUITE_AMQP"].rsplit(":", 1)
    where = pika.ConnectionParameters(host=host, port=int(port))
    connection = pika.BlockingConnection(where)
    channel = connection.channel()
    queue = declared(channel, queue_type="quorum", delayed_retry_type="all", delayed_retry_min=60_000)
    channel.confirm_delivery()
    for body in (b"rests", b"does not"):
        channel.basic_publish("", queue, body)
    method, _, body = channel.basic_get(queue)
    assert body == b"rests"
    channel.basic_nack(method.delivery_tag)
    # Whatever is asked for after that comes after it, and is durable later than it.
    channel.basic_publish("", queue, b"neither does this")
    subprocess.run(crash, shell=True, check=True)
    with pika.BlockingConnection(where) as connection:
        channel = connection.channel()
        assert bodies(channel, queue) == [b"does not", b"neither does this"]
        channel.queue_delete(queue)


@pytest.mark.parametrize("wanted, unfiltered, numbers", [
    ("a", False, range(0, 300, 3)), (["a", "b"], False, [n for n in range(300) if n % 3 < 2]),
    ("a", True, [n for n in range(300) if n % 3 != 1]), ("none such", False, []),
])
def test_a_consumer_of_a_stream_gets_what_its_filter_wants(channel, wanted, unfiltered, numbers):
    stream = declared(channel, queue_type="stream")
    channel.confirm_delivery()
    for number in range(300):
        headers = [{"x-stream-filter-value": "a"}, {"x-stream-filter-value": "b"}, {}][number % 3]
        channel.basic_publish("", stream, str(number).encode(), pika.BasicProperties(headers=headers))
    channel.basic_publish("", stream, b"the end", pika.BasicProperties(headers={"x-stream-filter-value": "end"}))
    channel.basic_qos(prefetch_count=10)
    arguments = {
        "x-stream-offset": "first",
        "x-stream-filter": [*([wanted] if isinstance(wanted, str) else wanted), "end"],
        "x-stream-match-unfiltered": unfiltered,
    }
    came = []
    for method, _, body in channel.consume(stream, arguments=arguments, inactivity_timeout=PATIENCE_SECONDS):
        assert method is not None
        channel.basic_ack(method.delivery_tag)
        if body == b"the end":
            break
        came.append(int(body))
    assert came == list(numbers)


def test_the_first_messages_go_where_more_bytes_wait_than_may(channel):
    exchange, dead = dead_letters(channel)
    queue = declared(channel, max_length_bytes=25, dead_letter_exchange=exchange)
    channel.confirm_delivery()
    for body in (b"a" * 10, b"b" * 10, b"c" * 10, b"d" * 3, b"e" * 26):
        channel.basic_publish("", queue, body)
        if body.startswith(b"d"):
            assert channel.queue_declare(queue, passive=True).method.message_count == 3
    assert bodies(channel, queue) == []
    deadline = time.monotonic() + PATIENCE_SECONDS
    while channel.queue_declare(dead, passive=True).method.message_count < 5:
        assert time.monotonic() < deadline
    method, properties, body = channel.basic_get(dead, auto_ack=True)
    assert (body, properties.headers["x-death"][0]["reason"]) == (b"a" * 10, "maxlen")


@pytest.mark.parametrize("limit", [{"max_length": 2}, {"max_length_bytes": 10}])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_what_a_queue_has_no_room_for_is_refused(channel, kind, limit):
    queue = declared(channel, queue_type=kind, overflow="reject-publish", **limit)
    channel.confirm_delivery()
    for _ in range(2):
        channel.basic_publish("", queue, b"12345")
    for _ in range(2):
        with pytest.raises(NackError):
            channel.basic_publish("", queue, b"67890")
    assert channel.basic_get(queue, auto_ack=True)[2] == b"12345"
    channel.basic_publish("", queue, b"abcde")
    assert bodies(channel, queue) == [b"12345", b"abcde"]


def test_what_is_refused_may_be_a_dead_letter(channel):
    exchange, dead = dead_letters(channel)
    queue = declared(channel, overflow="reject-publish-dlx", max_length=1, dead_letter_exchange=exchange)
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"first")
    with pytest.raises(NackError):
        channel.basic_publish("", queue, b"second")
    _, properties, body = channel.basic_get(dead, auto_ack=True)
    assert (body, properties.headers["x-first-death-reason"]) == (b"second", "maxlen")
    assert bodies(channel, queue) == [b"first"]


def test_one_full_queue_of_several_is_told_and_the_others_have_the_message(channel):
    exchange, all_of_it = dead_letters(channel)
    full = declared(channel, overflow="reject-publish", max_length=1)
    channel.queue_bind(full, exchange)
    channel.confirm_delivery()
    channel.basic_publish(exchange, "", b"1")
    with pytest.raises(NackError):
        channel.basic_publish(exchange, "", b"2")
    assert (bodies(channel, full), bodies(channel, all_of_it)) == ([b"1"], [b"1", b"2"])


def test_urgent_messages_come_first(channel):
    queue = declared(channel, max_priority=5)
    channel.confirm_delivery()
    for number, priority in enumerate([None, 1, 5, 3, 200, 0, 1]):
        channel.basic_publish("", queue, str(number).encode(), pika.BasicProperties(priority=priority))
    assert channel.queue_declare(queue, passive=True).method.message_count == 7
    assert bodies(channel, queue) == [b"2", b"4", b"3", b"1", b"6", b"0", b"5"]


def test_a_consumer_that_is_there_before_gets_urgent_messages_too(channel):
    queue = declared(channel, max_priority=10)
    got = []
    channel.basic_consume(queue, lambda _ch, _method, _properties, body: got.append(body), auto_ack=True)
    channel.confirm_delivery()
    for priority in (3, 9, 0):
        channel.basic_publish("", queue, str(priority).encode(), pika.BasicProperties(priority=priority))
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(got) < 3 and time.monotonic() < deadline:
        channel.connection.process_data_events(0.1)
    assert got == [b"3", b"9", b"0"]


def test_replies_need_no_queue(connection, channel):
    requests = declared(channel)

    def serve() -> None:
        host, port = os.environ["SUITE_AMQP"].rsplit(":", 1)
        with pika.BlockingConnection(pika.ConnectionParameters(host=host, port=int(port))) as serving:
            channel = serving.channel()
            for method, properties, body in channel.consume(requests, inactivity_timeout=PATIENCE_SECONDS):
                if method is None or body == b"stop":
                    return
                assert channel.queue_declare(properties.reply_to, passive=True).method.consumer_count == 1
                answer = pika.BasicProperties(correlation_id=properties.correlation_id)
                channel.basic_publish("", properties.reply_to, body.upper(), answer)

    server = threading.Thread(target=serve)
    server.start()
    answers = []
    on_answer = lambda _ch, _method, properties, body: answers.append((properties.correlation_id, body))  # noqa: E731
    channel.basic_consume("amq.rabbitmq.reply-to", on_answer, auto_ack=True)
    for number, body in enumerate([b"one", b"two"]):
        asked = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id=str(number))
        channel.basic_publish("", requests, body, asked)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(answers) < 2 and time.monotonic() < deadline:
        connection.process_data_events(0.1)
    channel.basic_publish("", requests, b"stop")
    server.join()
    assert answers == [("0", b"ONE"), ("1", b"TWO")]


def test_replies_are_asked_for_on_a_channel_that_gets_them(connection):
    for do, words in [
        (lambda channel: channel.basic_consume("amq.rabbitmq.reply-to", print), "cannot acknowledge"),
        (
            lambda channel: channel.basic_publish(
                "", "q", b"", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
            ),
            "does not exist",
        ),
    ]:
        channel = connection.channel()
        with pytest.raises(ChannelClosedByBroker) as raised:
            do(channel)
            channel.queue_declare("", exclusive=True)
        assert raised.value.reply_code == 406
        assert words in raised.value.reply_text


def read(channel, name, count, **arguments) -> list[tuple[int, bytes]]:
    """Offsets and bodies of so many messages of a stream."""
    channel.basic_qos(prefetch_count=3)
    named = {"x-stream-" + key: value for key, value in arguments.items()}
    got = []
    for method, properties, body in channel.consume(name, inactivity_timeout=PATIENCE_SECONDS, arguments=named):
        assert method is not None, got
        got.append((properties.headers["x-stream-offset"], body))
        channel.basic_ack(method.delivery_tag)
        if len(got) == count:
            break
    channel.cancel()
    return got


def test_streams_are_read_by_offset_as_often_as_one_likes(channel):
    stream = declared(channel, queue_type="stream", max_age="1h")
    channel.confirm_delivery()
    for number in range(10):
        channel.basic_publish("", stream, str(number).encode())
    everything = [(number, str(number).encode()) for number in range(10)]
    assert read(channel, stream, 10, offset="first") == everything
    assert read(channel, stream, 10, offset=0) == everything
    assert read(channel, stream, 4, offset=6) == everything[6:]
    assert read(channel, stream, 1, offset="last") == everything[9:]
    assert read(channel, stream, 10, offset="1h") == everything
    assert channel.queue_declare(stream, passive=True).method.message_count == 10


@pytest.mark.parametrize(
    ("code", "do"),
    [
        (540, lambda channel, stream: channel.basic_get(stream)),
        (540, lambda channel, stream: channel.queue_purge(stream)),
        (540, lambda channel, stream: (channel.basic_qos(prefetch_count=5), channel.basic_consume(stream, print, auto_ack=True))),
        (406, lambda channel, stream: channel.basic_consume(stream, print)),
    ],
)
def test_what_streams_cannot_do_is_refused(code, do):
    host, port = os.environ["SUITE_AMQP"].rsplit(":", 1)
    connection = pika.BlockingConnection(pika.ConnectionParameters(host=host, port=int(port)))
    channel = connection.channel()
    stream = declared(channel, queue_type="stream")
    with pytest.raises(pika.exceptions.AMQPError) as raised:
        do(channel, stream)
    assert raised.value.reply_code == code


def test_a_topic_of_kafkas_clients_is_read_as_a_stream_and_published_to(channel):
    topic = f"t-{uuid.uuid4()}"
    producer = Producer({"bootstrap.servers": os.environ["SUITE_BOOTSTRAP"]})
    producer.produce(topic, b"from Kafka", key=b"k", headers={"colour": "grün"}, partition=0)
    producer.flush(PATIENCE_SECONDS)
    assert read(channel, topic, 1, offset="first") == [(0, b"from Kafka")]
    exchange = f"x-{uuid.uuid4()}"
    channel.exchange_declare(exchange, "direct", durable=True)
    channel.queue_bind(topic, exchange, "key")
    channel.confirm_delivery()
    channel.basic_publish(exchange, "key", b"from AMQP", mandatory=True)
    assert {body for _, body in read(channel, topic, 2, offset="first")} == {b"from Kafka", b"from AMQP"}
