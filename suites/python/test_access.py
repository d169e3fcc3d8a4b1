"""Users, passwords and TLS, as clients of Kafka and RabbitMQ meet them: confluent-kafka, kafka-python and pika."""

import base64
import json
import os
import ssl
import time
import urllib.error
import urllib.request

import pika
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
)

PATIENCE_SECONDS = 30
OPS = ("ops", "operating")
SHOP = ("shop", "selling")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


def ask(method: str, path: str, body=None, user=OPS, scheme="http"):
    """One request to the admin API."""
    address = os.environ["SUITE_HTTP" if scheme == "http" else "SUITE_HTTPS"]
    request = urllib.request.Request(f"{scheme}://{address}{path}", method=method)
    if user is not None:
        request.add_header("Authorization", "Basic " + base64.b64encode(":".join(user).encode()).decode())
    data = None if body is None else json.dumps(body).encode()
    context = ssl.create_default_context(cafile=os.environ["SUITE_CA"]) if scheme == "https" else None
    with urllib.request.urlopen(request, data, timeout=PATIENCE_SECONDS, context=context) as answer:
        return json.load(answer)


def create_user(name: str, password: str, tags=(), by=OPS) -> None:
    ask("POST", "/api/v1/users", {"name": name, "password": password, "tags": list(tags)}, user=by)


def grant(name: str, configure="", write="", read="", namespace="/", by=OPS) -> None:
    body = {"namespace": namespace, "configure": configure, "write": write, "read": read}
    ask("PUT", f"/api/v1/users/{name}/permissions", body, user=by)


@pytest.fixture(scope="session", autouse=True)
def users():
    """An administrator, and one who may send orders and read prices, and work in topics and groups of its own."""
    # Nobody has to authenticate yet, and the default user is there to begin with.
    create_user(*OPS, tags=["administrator"], by=None)
    grant("ops", ".*", ".*", ".*")
    create_user(*SHOP)
    grant("shop", configure="^shop-", write="^(orders|shop-|amq.default$)", read="^(prices|shop-)")


def kafka_settings(mechanism: str | None, user=SHOP, tls=False) -> dict[str, str]:
    """librdkafka's settings."""
    settings = {"bootstrap.servers": os.environ["SUITE_KAFKA_TLS" if tls else "SUITE_BOOTSTRAP"]}
    if tls:
        settings["ssl.ca.location"] = os.environ["SUITE_CA"]
    if mechanism is None:
        return settings | {"security.protocol": "SSL" if tls else "PLAINTEXT"}
    settings |= {"sasl.mechanism": mechanism, "sasl.username": user[0], "sasl.password": user[1]}
    return settings | {"security.protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT"}


def send(settings: dict[str, str], topic: str, value: bytes):
    """Sends one record; the error of its delivery, or none."""
    outcome = []
    producer = Producer(settings | {"message.timeout.ms": PATIENCE_SECONDS * 1000})
    producer.produce(topic, value, on_delivery=lambda error, _: outcome.append(error))
    producer.flush(PATIENCE_SECONDS)
    assert outcome, "the delivery was not reported"
    return outcome[0]


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_authenticates_by_every_mechanism(mechanism, tls, name):
    topic, settings = f"shop-{name}", kafka_settings(mechanism, tls=tls)
    values = [f"{number}".encode() * 1000 for number in range(200)]
    for value in values[:1]:
        assert send(settings, topic, value) is None
    producer = Producer(settings)
    for value in values[1:]:
        producer.produce(topic, value)
    assert producer.flush(PATIENCE_SECONDS) == 0
    consumer = Consumer(settings | {"group.id": f"shop-{name}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    came, deadline = [], time.monotonic() + PATIENCE_SECONDS
    while len(came) < len(values) and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None:
            assert message.error() is None, message.error()
            came.append(message.value())
    consumer.close()
    assert came == values


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_an_authentication_error(mechanism):
    errors = []
    settings = kafka_settings(mechanism, ("shop", "buying")) | {"error_cb": errors.append}
    producer = Producer(settings)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not errors and time.monotonic() < deadline:
        producer.poll(0.2)
    assert errors and errors[0].code() == KafkaError._AUTHENTICATION, errors
    assert "authentication" in errors[0].str().lower()


def test_a_mechanism_that_is_not_served_is_an_authentication_error():
    errors = []
    settings = kafka_settings("OAUTHBEARER") | {"error_cb": errors.append}
    for setting in ("sasl.username", "sasl.password"):
        del settings[setting]
    settings |= {"oauth_cb": lambda _: ("token", time.time() + 3600)}
    producer = Producer(settings)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not any(error.code() == KafkaError._AUTHENTICATION for error in errors) and time.monotonic() < deadline:
        producer.poll(0.2)
    assert any(error.code() == KafkaError._AUTHENTICATION for error in errors), errors


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_a_client_that_does_not_authenticate_is_told_that_it_may_do_nothing(tls):
    settings = kafka_settings(None, tls=tls)
    error = send(settings, "orders", b"x")
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, error
    consumer = Consumer(settings | {"group.id": "shop-unknown"})
    consumer.subscribe(["prices"])
    deadline, message = time.monotonic() + PATIENCE_SECONDS, None
    while message is None and time.monotonic() < deadline:
        message = consumer.poll(1)
    consumer.close()
    denied = (KafkaError.TOPIC_AUTHORIZATION_FAILED, KafkaError.GROUP_AUTHORIZATION_FAILED)
    assert message is not None and message.error().code() in denied


def test_a_certificate_that_nobody_vouches_for_is_refused_by_the_client():
    errors = []
    settings = kafka_settings("PLAIN", tls=True) | {"error_cb": errors.append}
    del settings["ssl.ca.location"]
    producer = Producer(settings)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not errors and time.monotonic() < deadline:
        producer.poll(0.2)
    assert errors and "certificate verify failed" in errors[0].str(), errors


def test_permissions_hold_topic_by_topic():
    admin = AdminClient(kafka_settings("SCRAM-SHA-256", OPS))
    for future in admin.create_topics([NewTopic(name, 1) for name in ("orders", "prices", "secrets")]).values():
        future.result(PATIENCE_SECONDS)
    settings = kafka_settings("SCRAM-SHA-256")
    assert send(settings, "orders", b"apples") is None
    for topic in ("prices", "secrets"):
        error = send(settings, topic, b"x")
        assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, error
    # One that nobody holds gives up what it was asked.
    shop = AdminClient(settings)
    seen = set(shop.list_topics(timeout=PATIENCE_SECONDS).topics)
    assert {"orders", "prices"} <= seen and "secrets" not in seen
    with pytest.raises(KafkaException) as refused:
        shop.delete_topics(["orders"])["orders"].result(PATIENCE_SECONDS)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as refused:
        shop.create_topics([NewTopic("other", 1)])["other"].result(PATIENCE_SECONDS)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_authenticates_by_every_mechanism(mechanism, tls, name):
    settings = {
        "bootstrap_servers": os.environ["SUITE_KAFKA_TLS" if tls else "SUITE_BOOTSTRAP"],
        "security_protocol": "SASL_SSL" if tls else "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": SHOP[0],
        "sasl_plain_password": SHOP[1],
    }
    if tls:
        settings["ssl_cafile"] = os.environ["SUITE_CA"]
    topic = f"shop-{name}"
    producer = KafkaProducer(**settings)
    for number in range(50):
        producer.send(topic, str(number).encode())
    producer.flush(PATIENCE_SECONDS)
    producer.close()
    consumer = KafkaConsumer(topic, auto_offset_reset="earliest", consumer_timeout_ms=PATIENCE_SECONDS * 1000, **settings)
    came = [next(consumer).value for _ in range(50)]
    consumer.close()
    assert came == [str(number).encode() for number in range(50)]
    with pytest.raises(PythonKafkaError):
        # It tries again until it gives up; were it let in, it would have no reason to.
        wrong = settings | {"sasl_plain_password": "buying", "bootstrap_timeout_ms": 3000, "max_block_ms": 3000}
        KafkaProducer(**wrong).send(topic, b"x").get(3)


def amqp(user=SHOP, tls=False, **more) -> pika.ConnectionParameters:
    host, port = os.environ["SUITE_AMQPS" if tls else "SUITE_AMQP"].rsplit(":", 1)
    if tls:
        context = ssl.create_default_context(cafile=os.environ["SUITE_CA"])
        more["ssl_options"] = pika.SSLOptions(context, "localhost")
    return pika.ConnectionParameters(host, int(port), credentials=pika.PlainCredentials(*user), **more)


@pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])
def test_pika_authenticates(tls, name):
    with pika.BlockingConnection(amqp(tls=tls)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        queue = f"shop-{name}"
        channel.queue_declare(queue, durable=True)
        body = os.urandom(300_000)
        channel.basic_publish("", queue, body)
        assert channel.basic_get(queue, auto_ack=True)[2] == body
        connection.update_secret("another", "the old one has expired")


def test_a_wrong_password_is_access_refused():
    began = time.monotonic()
    with pytest.raises(ProbableAuthenticationError) as refused:
        pika.BlockingConnection(amqp(("shop", "buying")))
    assert "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN" in str(refused.value)
    assert time.monotonic() - began < PATIENCE_SECONDS


def test_a_virtual_host_that_is_missing_or_forbidden_is_not_allowed(name):
    with pytest.raises(ProbableAccessDeniedError) as missing:
        pika.BlockingConnection(amqp(virtual_host=name))
    assert f"NOT_ALLOWED - vhost {name} not found" in str(missing.value)
    ask("POST", "/api/v1/namespaces", {"name": name})
    with pytest.raises(ProbableAccessDeniedError) as forbidden:
        pika.BlockingConnection(amqp(virtual_host=name))
    assert f"NOT_ALLOWED - access to vhost '{name}' refused for user 'shop'" in str(forbidden.value)
    grant("shop", ".*", ".*", ".*", namespace=name)
    with pika.BlockingConnection(amqp(virtual_host=name)) as there, pika.BlockingConnection(amqp()) as elsewhere:
        channel = there.channel()
        channel.queue_declare("shop-same")
        channel.basic_publish("", "shop-same", b"there")
        channel = elsewhere.channel()
        assert channel.queue_declare("shop-same").method.message_count == 0
        channel.queue_delete("shop-same")
    ask("DELETE", f"/api/v1/namespaces/{name}")


def refused(what, *words, **more) -> str:
    """What a channel says that is closed by an operation."""
    with pika.BlockingConnection(amqp()) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        with pytest.raises(ChannelClosedByBroker) as closed:
            what(channel, *words, **more)
        return f"{closed.value.reply_code} {closed.value.reply_text}"


def test_every_operation_needs_its_permission():
    with pika.BlockingConnection(amqp(OPS)) as connection:
        channel = connection.channel()
        channel.queue_declare("secrets-queue", durable=True)
        channel.exchange_declare("secrets-exchange", "topic", durable=True)
    denied = "403 ACCESS_REFUSED - {} access to {} '{}' in vhost '/' refused for user 'shop'"
    queue, exchange = "secrets-queue", "secrets-exchange"
    assert refused(lambda c: c.queue_declare(queue)) == denied.format("configure", "queue", queue)
    passive = refused(lambda c: c.queue_declare(queue, passive=True))
    assert passive == f"403 ACCESS_REFUSED - access to queue '{queue}' in vhost '/' refused for user 'shop'"
    assert refused(lambda c: c.queue_delete(queue)) == denied.format("configure", "queue", queue)
    assert refused(lambda c: c.queue_purge(queue)) == denied.format("read", "queue", queue)
    assert refused(lambda c: c.basic_get(queue)) == denied.format("read", "queue", queue)
    assert refused(lambda c: c.basic_consume(queue, lambda *_: None)) == denied.format("read", "queue", queue)
    assert refused(lambda c: c.exchange_declare(exchange)) == denied.format("configure", "exchange", exchange)
    assert refused(lambda c: c.exchange_delete(exchange)) == denied.format("configure", "exchange", exchange)
    assert refused(lambda c: c.basic_publish(exchange, "k", b"")) == denied.format("write", "exchange", exchange)
    assert refused(lambda c: c.queue_bind(queue, exchange, "k")) == denied.format("write", "queue", queue)

    def bound(channel):
        channel.queue_declare("shop-bound", auto_delete=True)
        channel.queue_bind("shop-bound", exchange, "k")

    assert refused(bound) == denied.format("read", "exchange", exchange)
    dead = {"x-dead-letter-exchange": exchange}
    assert refused(lambda c: c.queue_declare("shop-dlx", arguments=dead)) == denied.format("write", "exchange", exchange)
    other = {"alternate-exchange": exchange}
    declare = lambda c: c.exchange_declare("shop-alternate", arguments=other)
    assert refused(declare) == denied.format("write", "exchange", exchange)


def test_topic_permissions_hold_for_routing_keys(name):
    exchange = f"shop-{name}"
    body = {"exchange": exchange, "write": "^{username}\\.", "read": "^all$"}
    ask("PUT", "/api/v1/users/shop/topic-permissions", body)
    with pika.BlockingConnection(amqp()) as connection:
        channel = connection.channel()
        channel.exchange_declare(exchange, "topic")
        channel.basic_publish(exchange, "shop.sold", b"")
    says = refused(lambda c: c.basic_publish(exchange, "eve.sold", b""))
    assert says == (
        f"403 ACCESS_REFUSED - write access to topic 'eve.sold' in exchange '{exchange}' in vhost '/' refused for user 'shop'"
    )
    copy = pika.BasicProperties(headers={"CC": ["eve.copied"]})
    assert "topic 'eve.copied'" in refused(lambda c: c.basic_publish(exchange, "shop.sold", b"", copy))

    def bound(channel, key):
        channel.queue_declare(f"{exchange}-queue", exclusive=True)
        channel.queue_bind(f"{exchange}-queue", exchange, key)

    assert "read access to topic 'some'" in refused(bound, "some")
    with pika.BlockingConnection(amqp()) as connection:
        bound(connection.channel(), "all")
        connection.channel().exchange_delete(exchange)


def test_nobody_sends_as_somebody_else():
    with pika.BlockingConnection(amqp()) as connection:
        channel = connection.channel()
        channel.queue_declare("shop-signed", auto_delete=True)
        channel.basic_publish("", "shop-signed", b"", pika.BasicProperties(user_id="shop"))
    says = refused(lambda c: c.basic_publish("", "shop-signed", b"", pika.BasicProperties(user_id="ops")))
    assert says.startswith("406 PRECONDITION_FAILED - user_id property set to 'ops' but authenticated user was 'shop'")
    with pika.BlockingConnection(amqp()) as connection:
        connection.channel().queue_delete("shop-signed")


def test_a_user_who_is_deleted_is_sent_away(name):
    create_user(name, "soon gone")
    grant(name, ".*", ".*", ".*")
    with pika.BlockingConnection(amqp((name, "soon gone"))) as connection:
        channel = connection.channel()
        channel.queue_declare("", exclusive=True)
        ask("DELETE", f"/api/v1/users/{name}")
        with pytest.raises(ConnectionClosedByBroker) as closed:
            connection.process_data_events(PATIENCE_SECONDS)
        assert (closed.value.reply_code, closed.value.reply_text) == (320, f"CONNECTION_FORCED - user '{name}' is deleted")
    with pytest.raises(AMQPConnectionError):
        pika.BlockingConnection(amqp((name, "soon gone")))


def test_the_admin_api_asks_who_wants_to_know():
    for user, status in [(None, 401), (("ops", "wrong"), 401), (SHOP, 403)]:
        with pytest.raises(urllib.error.HTTPError) as refused:
            ask("GET", "/api/v1/topics", user=user)
        assert refused.value.code == status
        assert ("WWW-Authenticate" in refused.value.headers) == (status == 401)
    assert ask("GET", "/health/live", user=None) == {"status": "live"}
    assert ask("GET", "/api/v1/users", scheme="https")[0]["name"] == "guest"
