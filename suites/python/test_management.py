"""AMQPStorm's management client on Weir's management API, and what tools ask beside it, with requests alone."""

import base64
import json
import os
import socket
import time
import uuid
from urllib.parse import quote

import pika
import pytest
import requests
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from amqpstorm.management import ApiError, ManagementApi

PATIENCE_SECONDS = 20


def base_url() -> str:
    return f"http://{os.environ['SUITE_MANAGEMENT']}"


@pytest.fixture
def api():
    return ManagementApi(base_url(), "guest", "guest", timeout=PATIENCE_SECONDS)


@pytest.fixture
def http():
    """requests, with a path and the usual user."""

    class Http:
        def __call__(self, method: str, path: str, *, auth=("guest", "guest"), **more) -> requests.Response:
            return requests.request(method, f"{base_url()}/api/{path}", auth=auth, timeout=PATIENCE_SECONDS, **more)

        def get(self, path: str, **more):
            response = self("GET", path, **more)
            assert response.status_code == 200, response.text
            return response.json()

    return Http()


@pytest.fixture
def connection():
    host, port = os.environ["SUITE_AMQP"].rsplit(":", 1)
    properties = {"connection_name": "suite"}
    parameters = pika.ConnectionParameters(host=host, port=int(port), client_properties=properties)
    connection = pika.BlockingConnection(parameters)
    yield connection
    if connection.is_open:
        connection.close()


@pytest.fixture
def queue(api):
    name = f"q-{uuid.uuid4()}"
    api.queue.declare(name, durable=True)
    yield name
    if any(found["name"] == name for found in api.queue.list()):
        api.queue.delete(name)


@pytest.fixture
def exchange(api):
    name = f"x-{uuid.uuid4()}"
    api.exchange.declare(name, exchange_type="topic", durable=True)
    yield name
    if any(found["name"] == name for found in api.exchange.list()):
        api.exchange.delete(name)


def eventually(what):
    """What becomes true soon after something happened on a connection."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (found := what()):
        assert time.monotonic() < until, "it did not become true"
        time.sleep(0.05)
    return found


def test_who_and_what_answers(api):
    assert api.whoami()["name"] == "guest"
    assert "administrator" in api.whoami()["tags"]
    overview = api.overview()
    assert overview["product_name"] == "Weir"
    assert overview["object_totals"]["queues"] == len(api.queue.list(show_all=True))
    assert {listener["protocol"] for listener in overview["listeners"]} >= {"amqp", "http", "kafka"}
    assert "message_stats" not in overview
    (node,) = api.nodes()
    assert node["running"] and node["name"] == overview["node"]
    assert api.node(node["name"])["name"] == node["name"]
    assert api.aliveness_test("/") == {"status": "ok"}


def test_a_wrong_password_is_refused(http):
    for auth in (("guest", "wrong"), ("nobody", "guest"), None):
        response = http("GET", "overview", auth=auth)
        assert response.status_code == 401
        assert response.json()["error"].startswith("not_author")
    assert http("GET", "overview", auth=None).headers["www-authenticate"].startswith("Basic")


def test_errors_are_told_as_rabbitmq_tells_them(http):
    assert http("GET", "queues/%2F/none-such").status_code == 404
    assert http("GET", "queues/%2F/none-such").json() == {"error": "Object Not Found", "reason": "Not Found"}
    assert http("GET", "no-such-thing").status_code == 404
    assert http("GET", "exchanges/no-such-host").status_code == 404
    assert http("PUT", "queues/no-such-host/q", json={}).status_code == 404
    assert http("POST", "overview").status_code == 405
    assert "GET" in http("POST", "overview").headers["allow"]
    for body in ("{", "[]", '"text"', '{"durable": "troo"}', '{"arguments": [1]}', '{"arguments": {"a": null}}'):
        response = http("PUT", "queues/%2F/refused", data=body)
        assert (response.status_code, response.json()["error"]) == (400, "bad_request"), body
    assert http("PUT", "exchanges/%2F/refused", json={"type": "none"}).status_code == 400
    assert http("GET", "queues/%2F/refused").status_code == 404


def test_queues_are_declared_shown_and_deleted(api, http):
    name = f"a b/ü~{uuid.uuid4()}"
    path = f"queues/%2F/{quote(name, '')}"
    arguments = {"x-message-ttl": 60_000, "x-queue-type": "quorum", "x-own": ["text", 1, True, {"a": 0.5}]}
    body = {"durable": True, "arguments": arguments}
    assert http("PUT", path, json=body).status_code == 201
    assert http("PUT", path, json=body).status_code == 204
    assert http("PUT", path, json=body | {"durable": "true"}).status_code == 204
    found = http.get(path)
    assert (found["name"], found["vhost"], found["type"]) == (name, "/", "quorum")
    assert found["arguments"] == arguments
    assert (found["durable"], found["exclusive"], found["auto_delete"]) == (True, False, False)
    assert (found["messages"], found["consumers"], found["consumer_details"]) == (0, 0, [])
    other = http("PUT", path, json={"durable": True, "arguments": arguments | {"x-message-ttl": 1}})
    assert other.status_code == 400 and "x-message-ttl" in other.json()["reason"]
    assert http("PUT", "queues/%2F/amq.mine", json={}).status_code in (400, 401, 403)
    assert http("DELETE", path).status_code == 204
    assert http("DELETE", path).status_code == 404


def test_a_queue_in_use_is_not_deleted_unasked(api, http, queue, connection):
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"one")
    assert http("DELETE", f"queues/%2F/{queue}", params={"if-empty": "true"}).status_code == 400
    channel.basic_consume(queue, lambda *_: None)
    assert http("DELETE", f"queues/%2F/{queue}", params={"if-unused": "true"}).status_code == 400
    assert http("DELETE", f"queues/%2F/{queue}").status_code == 204


def test_an_exclusive_queue_is_its_connections(http, connection):
    name = connection.channel().queue_declare("", exclusive=True).method.queue
    assert http.get(f"queues/%2F/{name}")["exclusive"] is True
    for method, path in (("DELETE", ""), ("DELETE", "/contents")):
        response = http(method, f"queues/%2F/{name}{path}")
        assert response.status_code == 400 and "exclusive access" in response.json()["reason"]


def test_lists_come_in_pages(api, http):
    prefix = f"page-{uuid.uuid4()}-"
    names = [f"{prefix}{number:02}" for number in range(7)]
    for name in names:
        api.queue.declare(name, durable=True)
    assert [found["name"] for found in api.queue.list(name=prefix, page_size=3)] == names
    assert [found["name"] for found in api.queue.list(name=f"^{prefix}0[2-4]$", use_regex=True)] == names[2:5]
    page = http.get("queues/%2F", params={"page": 2, "page_size": 3, "name": prefix, "columns": "name,messages"})
    assert page["items"] == [{"name": name, "messages": 0} for name in names[3:6]]
    assert (page["page"], page["page_size"], page["page_count"]) == (2, 3, 3)
    assert (page["item_count"], page["filtered_count"]) == (3, 7)
    assert page["total_count"] >= 7
    reverse = http.get("queues", params={"sort": "name", "sort_reverse": "true", "page": 1, "name": prefix})
    assert [found["name"] for found in reverse["items"]] == names[::-1]
    api.basic.publish("one", names[5])
    fullest = http.get("queues", params={"sort": "messages", "sort_reverse": "true", "page": 1, "name": prefix})
    assert fullest["items"][0]["name"] == names[5]
    for wrong in ({"page": 0}, {"page": 1, "page_size": 501}, {"page": 9, "name": prefix}, {"page": "x"}):
        assert http("GET", "queues", params=wrong).status_code == 400, wrong
    for name in names:
        api.queue.delete(name)


def test_exchanges_are_declared_shown_and_deleted(api, http, exchange):
    found = api.exchange.get(exchange)
    assert (found["type"], found["durable"], found["internal"], found["arguments"]) == ("topic", True, False, {})
    listed = {each["name"] for each in api.exchange.list()}
    assert listed >= {exchange, "", "amq.direct", "amq.topic", "amq.fanout", "amq.headers", "amq.match"}
    assert http("PUT", f"exchanges/%2F/{exchange}", json={"type": "fanout", "durable": True}).status_code == 400
    assert http("PUT", "exchanges/%2F/amq.default", json={"type": "direct"}).status_code in (400, 401, 403)
    assert http("DELETE", "exchanges/%2F/amq.topic").status_code in (400, 401, 403)
    hashed = f"h-{uuid.uuid4()}"
    body = {"type": "x-consistent-hash", "durable": True, "arguments": {"hash-header": "k"}}
    assert http("PUT", f"exchanges/%2F/{hashed}", json=body).status_code == 201
    assert http.get(f"exchanges/%2F/{hashed}")["arguments"] == {"hash-header": "k"}
    assert http("DELETE", f"exchanges/%2F/{hashed}", params={"if-unused": "true"}).status_code == 204


def test_bindings_have_rabbitmqs_names(api, http, exchange, queue):
    path = f"bindings/%2F/e/{exchange}/q/{queue}"
    made = http("POST", path, json={})
    assert (made.status_code, made.headers["location"]) == (201, f"{queue}/~")
    made = http("POST", path, json={"routing_key": "a.b c/~%"})
    assert made.headers["location"] == f"{queue}/a.b%2Bc%252F%257E%2525"
    # Known answers of RabbitMQ.
    for arguments, key in KNOWN_KEYS:
        made = http("POST", path, json={"routing_key": "routing", "arguments": arguments})
        assert (made.status_code, made.headers["location"]) == (201, f"{queue}/{key}"), arguments
        assert http.get(f"{path}/{key}")["arguments"] == arguments
    listed = http.get(path)
    assert len(listed) == 2 + len(KNOWN_KEYS)
    assert http.get(f"queues/%2F/{queue}/bindings") == sorted(
        [*listed, http.get(f"bindings/%2F/e/amq.default/q/{queue}/{queue}")],
        key=lambda each: (each["source"], each["routing_key"], each["properties_key"]),
    )
    assert {each["properties_key"] for each in http.get(f"exchanges/%2F/{exchange}/bindings/source")} == {
        each["properties_key"] for each in listed
    }
    for binding in listed:
        at = f"{path}/{quote(binding['properties_key'], '')}"
        assert http.get(at) == binding
        assert http("DELETE", at).status_code == 204
        assert http("DELETE", at).status_code == 404
    assert http.get(path) == []


# Made by RabbitMQ 3.10.8: bindings of routing key `routing` with these arguments.
KNOWN_KEYS = [
    ({"foo": "bar"}, "routing~lwiNYA"),
    ({"a": 1}, "routing~Ajat_Q"),
    ({"a": -1}, "routing~ElVmZA"),
    ({"a": 1 << 40}, "routing~B_0fhA"),
    ({"a": True}, "routing~a2lJKQ"),
    ({"a": 0.5}, "routing~0L2aaw"),
    ({"a": "grün"}, "routing~7EgBsw"),
    ({"b": "2", "a": "1"}, "routing~DRJqbA"),
    ({"a": [1, "two", True, []]}, "routing~jhpFpA"),
    ({"a": {"b": {"c": 1}}}, "routing~sJOChA"),
    ({"x-match": "any", "h1": 5, "h2": "v"}, "routing~RosiIA"),
]


def test_bindings_that_cannot_be(http, exchange, queue):
    for path in (
        f"bindings/%2F/e/{exchange}/q/none-such",
        f"bindings/%2F/e/none-such/q/{queue}",
        f"bindings/%2F/e/{exchange}/e/none-such",
        f"bindings/none-such/e/{exchange}/q/{queue}",
    ):
        assert http("POST", path, json={}).status_code == 404, path
    assert http("POST", f"bindings/%2F/e/amq.default/q/{queue}", json={}).status_code in (400, 401, 403)
    assert http("POST", f"bindings/%2F/e/{exchange}/q/{queue}", json={"routing_key": 1}).status_code == 400


def test_exchanges_are_bound_to_exchanges(api, http, exchange, queue):
    other = f"x-{uuid.uuid4()}"
    api.exchange.declare(other, exchange_type="fanout")
    api.exchange.bind(source=exchange, destination=other, routing_key="#")
    api.queue.bind(queue, other)
    assert api.basic.publish("through two", "any.key", exchange) == {"routed": True}
    (message,) = api.basic.get(queue, to_dict=True)
    assert (message["payload"], message["exchange"], message["routing_key"]) == ("through two", exchange, "any.key")
    (binding,) = http.get(f"exchanges/%2F/{other}/bindings/destination")
    assert (binding["destination_type"], binding["properties_key"]) == ("exchange", "%23")
    api.exchange.unbind(source=exchange, destination=other, properties_key=quote("%23"))
    assert api.basic.publish("nowhere", "any.key", exchange) == {"routed": False}
    api.exchange.delete(other)


def test_messages_are_published_and_got(api, http, queue):
    properties = {
        "content_type": "text/plain",
        "delivery_mode": 2,
        "priority": 3,
        "correlation_id": "c",
        "message_id": "m",
        "timestamp": 1_700_000_000,
        "type": "t",
        "app_id": "suite",
        "user_id": "guest",
        "headers": {"text": "grün", "number": 5, "list": [1, {"deep": True}]},
    }
    assert api.basic.publish("grün", queue, properties=properties) == {"routed": True}
    binary = base64.b64encode(bytes(range(256))).decode()
    assert api.basic.publish(binary, queue, payload_encoding="base64") == {"routed": True}
    first, second = api.basic.get(queue, count=5, requeue=True, to_dict=True)
    assert first["properties"] == properties
    assert (first["payload"], first["payload_encoding"], first["payload_bytes"]) == ("grün", "string", 5)
    assert (first["redelivered"], first["message_count"]) == (False, 1)
    assert (second["payload"], second["payload_encoding"], second["payload_bytes"]) == (binary, "base64", 256)
    assert second["properties"] == {}
    # They came back, and are marked.
    again = api.basic.get(queue, count=1, requeue=True, to_dict=True, truncate=2, encoding="base64")
    assert [(each["redelivered"], each["payload"], each["payload_bytes"]) for each in again] == [(True, "Z3I=", 5)]
    assert [each["payload"] for each in api.basic.get(queue, count=5, to_dict=True)] == ["grün", binary]
    assert api.basic.get(queue, to_dict=True) == []
    assert http.get(f"queues/%2F/{queue}")["messages"] == 0


def test_messages_that_cannot_be(http, queue):
    path = "exchanges/%2F/amq.default/publish"
    good = {"routing_key": queue, "properties": {}, "payload": "x", "payload_encoding": "string"}
    for wrong in (
        {"properties": {"user_id": "other"}},
        {"properties": {"priority": "high"}},
        {"properties": {"expiration": 1234}},
        {"properties": {"expiration": "soon"}},
        {"properties": {"headers": {"CC": "no list"}}},
        {"payload": ["x"]},
        {"payload": "flibble", "payload_encoding": "base64"},
        {"payload_encoding": "base99"},
    ):
        assert http("POST", path, json=good | wrong).status_code == 400, wrong
    assert http("POST", path, json={"routing_key": queue}).status_code == 400
    assert http("POST", "exchanges/%2F/none-such/publish", json=good).status_code == 404
    assert http("POST", path, data=b"x" * (17 << 20)).status_code in (400, 413)
    for wrong in ({"ackmode": "no"}, {"count": "many"}, {"encoding": "none"}, {"count": 1_001}):
        body = {"ackmode": "ack_requeue_false", "count": 1, "encoding": "auto"} | wrong
        assert http("POST", f"queues/%2F/{queue}/get", json=body).status_code == 400, wrong
    assert http.get(f"queues/%2F/{queue}")["messages"] == 0


def test_messages_expire_and_die_as_by_amqp(api, http, queue):
    doomed = f"q-{uuid.uuid4()}"
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": queue}
    api.queue.declare(doomed, durable=True, arguments=arguments)
    api.basic.publish("expires", doomed, properties={"expiration": "1"})
    eventually(lambda: http.get(f"queues/%2F/{queue}")["messages"] == 1)
    api.basic.publish("rejected", doomed)
    body = {"ackmode": "reject_requeue_false", "count": 1, "encoding": "auto"}
    assert [each["payload"] for each in http("POST", f"queues/%2F/{doomed}/get", json=body).json()] == ["rejected"]
    eventually(lambda: http.get(f"queues/%2F/{queue}")["messages"] == 2)
    dead = api.basic.get(queue, count=2, to_dict=True)
    assert [each["properties"]["headers"]["x-first-death-reason"] for each in dead] == ["expired", "rejected"]
    assert dead[0]["properties"]["headers"]["x-death"][0]["queue"] == doomed
    api.queue.delete(doomed)


def test_a_copy_goes_where_cc_says(api, queue):
    properties = {"headers": {"CC": [queue], "BCC": ["nobody"]}}
    assert api.basic.publish("copied", "nowhere", properties=properties) == {"routed": True}
    (message,) = api.basic.get(queue, to_dict=True)
    assert message["properties"]["headers"] == {"CC": [queue]}


def test_a_queue_is_purged(api, http, queue):
    for number in range(10):
        api.basic.publish(str(number), queue)
    found = http.get(f"queues/%2F/{queue}")
    assert (found["messages"], found["messages_ready"], found["messages_unacknowledged"]) == (10, 10, 0)
    api.queue.purge(queue)
    assert http.get(f"queues/%2F/{queue}")["messages"] == 0


def test_connections_channels_and_consumers_are_seen(api, http, connection, queue):
    channel = connection.channel()
    channel.confirm_delivery()
    channel.basic_qos(prefetch_count=2)
    for number in range(3):
        channel.basic_publish("", queue, str(number).encode())
    tag = channel.basic_consume(queue, lambda *_: None, arguments={"x-priority": 5})
    connection.process_data_events(time_limit=0.2)

    (mine,) = [each for each in api.connection.list() if each.get("user_provided_name") == "suite"]
    assert (mine["protocol"], mine["user"], mine["vhost"], mine["state"]) == ("AMQP 0-9-1", "guest", "/", "running")
    assert mine["name"] == f"{mine['peer_host']}:{mine['peer_port']} -> {mine['host']}:{mine['port']}"
    assert f"{mine['host']}:{mine['port']}" == os.environ["SUITE_AMQP"]
    assert mine["client_properties"]["product"] == "Pika Python Client Library"
    assert mine["channels"] == 1 and mine["recv_oct"] > 0 and mine["send_oct"] > 0
    assert abs(mine["connected_at"] / 1000 - time.time()) < PATIENCE_SECONDS
    assert http.get(f"connections/{quote(mine['name'], '')}")["name"] == mine["name"]
    assert mine["name"] in [each["name"] for each in http.get("connections/username/guest")]

    (seen,) = http.get(f"connections/{quote(mine['name'], '')}/channels")
    assert (seen["name"], seen["number"]) == (f"{mine['name']} (1)", 1)
    assert (seen["confirm"], seen["transactional"], seen["consumer_count"]) == (True, False, 1)
    assert (seen["prefetch_count"], seen["messages_unacknowledged"], seen["messages_unconfirmed"]) == (2, 2, 0)
    assert http.get(f"channels/{quote(seen['name'], '')}")["consumer_details"][0]["consumer_tag"] == tag
    assert seen["name"] in [each["name"] for each in api.channel.list()]

    (consumer,) = [each for each in http.get("consumers/%2F") if each["consumer_tag"] == tag]
    assert consumer["queue"] == {"name": queue, "vhost": "/"}
    assert (consumer["ack_required"], consumer["exclusive"], consumer["prefetch_count"]) == (True, False, 2)
    assert consumer["arguments"] == {"x-priority": 5}
    assert consumer["channel_details"]["connection_name"] == mine["name"]

    found = http.get(f"queues/%2F/{queue}")
    assert (found["messages"], found["messages_ready"], found["messages_unacknowledged"]) == (3, 1, 2)
    assert [each["consumer_tag"] for each in found["consumer_details"]] == [tag]


def test_a_connection_is_closed_with_a_reason(api, http, connection):
    (mine,) = [each for each in api.connection.list() if each.get("user_provided_name") == "suite"]
    api.connection.close(mine["name"], reason="make room")
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as closed:
        for _ in range(100):
            connection.process_data_events(time_limit=0.1)
    assert closed.value.reply_code == 320
    assert closed.value.reply_text == "CONNECTION_FORCED - make room"
    eventually(lambda: http("GET", f"connections/{quote(mine['name'], '')}").status_code == 404)
    assert http("DELETE", f"connections/{quote(mine['name'], '')}").status_code == 404


def test_kafkas_connections_are_seen_and_closed(http):
    host, port = os.environ["SUITE_BOOTSTRAP"].rsplit(":", 1)
    with socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) as client:
        name = "{}:{} -> {}:{}".format(*client.getsockname(), *client.getpeername())
        path = f"connections/{quote(name, '')}"
        eventually(lambda: http("GET", path).status_code == 200)
        found = http.get(path)
        assert (found["protocol"], found["channels"]) == ("Kafka", 0) and "user" not in found
        assert http("DELETE", path).status_code == 204
        assert client.recv(1) == b""
    eventually(lambda: http("GET", path).status_code == 404)


def test_a_stream_is_seen_and_is_not_got_from(api, http):
    name = f"s-{uuid.uuid4()}"
    api.queue.declare(name, durable=True, arguments={"x-queue-type": "stream"})
    for number in range(3):
        assert api.basic.publish(str(number), name) == {"routed": True}
    found = http.get(f"queues/%2F/{name}")
    assert (found["type"], found["messages"]) == ("stream", 3)
    body = {"ackmode": "ack_requeue_true", "count": 1, "encoding": "auto"}
    for method, path, more in (("POST", "get", {"json": body}), ("DELETE", "contents", {})):
        response = http(method, f"queues/%2F/{name}/{path}", **more)
        assert response.status_code == 400 and "stream" in response.json()["reason"]
    api.queue.delete(name)


def test_a_full_queue_refuses_over_http_too(api, http):
    name = f"q-{uuid.uuid4()}"
    api.queue.declare(name, durable=True, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    assert api.basic.publish("fits", name) == {"routed": True}
    body = {"routing_key": name, "properties": {}, "payload": "too much", "payload_encoding": "string"}
    response = http("POST", "exchanges/%2F/amq.default/publish", json=body)
    assert response.status_code == 400 and "rejected" in response.json()["reason"]
    api.queue.delete(name)


def test_a_transaction_is_seen(http, connection, queue):
    channel = connection.channel()
    channel.tx_select()
    channel.basic_publish("", queue, b"one")
    channel.basic_publish("", queue, b"two")
    channel.queue_declare(queue, passive=True)
    (seen,) = [each for each in http.get("channels") if each["transactional"]]
    assert (seen["messages_uncommitted"], seen["acks_uncommitted"]) == (2, 0)
    channel.tx_rollback()


def test_definitions_go_round(api, http):
    tag = uuid.uuid4()
    names = {kind: f"{kind}-{tag}" for kind in ("exchange", "queue", "classic")}
    api.exchange.declare(names["exchange"], exchange_type="headers", durable=True, arguments={"alternate-exchange": "amq.fanout"})
    api.queue.declare(names["queue"], durable=True, arguments={"x-queue-type": "quorum", "x-delivery-limit": 3})
    api.queue.declare(names["classic"], durable=True)
    api.queue.bind(names["queue"], names["exchange"], arguments={"x-match": "any", "a": 1})
    api.queue.bind(names["classic"], "amq.topic", routing_key="orders.#")

    document = http.get("definitions")
    assert document["users"][0]["name"] == "guest" and document["vhosts"][0]["name"] == "/"
    mine = {
        section: [each for each in document[section] if str(tag) in json.dumps(each)]
        for section in ("exchanges", "queues", "bindings")
    }
    assert [len(mine[section]) for section in mine] == [1, 2, 2]
    of_host = http.get("definitions/%2F")
    assert "users" not in of_host and all("vhost" not in each for each in of_host["queues"])

    for name in (names["queue"], names["classic"]):
        api.queue.delete(name)
    api.exchange.delete(names["exchange"])
    assert http("POST", "definitions", json=document).status_code == 204
    assert http("POST", "definitions", json=document).status_code == 204
    again = http.get("definitions")
    for section in mine:
        assert [each for each in again[section] if str(tag) in json.dumps(each)] == mine[section]

    for name in (names["queue"], names["classic"]):
        api.queue.delete(name)
    api.exchange.delete(names["exchange"])
    assert http("POST", "definitions/%2F", json=of_host).status_code == 204
    assert http.get(f"queues/%2F/{names['queue']}")["arguments"] == {"x-queue-type": "quorum", "x-delivery-limit": 3}


def test_a_definition_that_would_do_nothing_is_refused_whole(http):
    name = f"q-{uuid.uuid4()}"
    queues = [{"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}]
    for section, item in (
        ("parameters", {"vhost": "/", "component": "shovel", "name": "s", "value": {}}),
        ("global_parameters", {"name": "mqtt_port_to_vhost_mapping", "value": {}}),
    ):
        response = http("POST", "definitions", json={"queues": queues, section: [item]})
        assert response.status_code == 501, section
        assert http("GET", f"queues/%2F/{name}").status_code == 404
    bindings = [{"source": "none-such", "vhost": "/", "destination": name, "destination_type": "queue", "routing_key": "", "arguments": {}}]
    assert http("POST", "definitions", json={"queues": queues, "bindings": bindings}).status_code == 404
    bad = [{"name": name, "vhost": "/", "arguments": {"x-message-ttl": "long"}}]
    assert http("POST", "definitions", json={"queues": bad}).status_code == 400
    assert http("POST", "definitions", data="{").status_code == 400
    assert http("GET", f"queues/%2F/{name}").status_code == 404


# Of the password `guest`, made by RabbitMQ 3.10.8.
GUEST_HASH = "EUX4bjQuYmBYwXcuMt8u2NY9WKCs4lkQBFDxrG+ey0t6ACmy"


def test_what_an_unchanged_rabbitmq_exports_can_be_imported(http):
    document = {
        "rabbit_version": "3.10.8",
        "rabbitmq_version": "3.10.8",
        "product_name": "RabbitMQ",
        "users": [{"name": "guest", "password_hash": GUEST_HASH, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ["administrator"], "limits": {}}],
        "vhosts": [{"name": "/"}],
        "permissions": [{"user": "guest", "vhost": "/", "configure": ".*", "write": ".*", "read": ".*"}],
        "topic_permissions": [],
        "parameters": [],
        "global_parameters": [{"name": "internal_cluster_id", "value": "rabbitmq-cluster-id-x"}],
        "policies": [],
        "queues": [],
        "exchanges": [],
        "bindings": [],
    }
    before = http.get("users/guest")
    assert http("POST", "definitions", json=document).status_code == 204
    # Whose password everybody knows is as in the beginning.
    assert http.get("users/guest") == before


def test_health_is_checked(http):
    host, port = os.environ["SUITE_AMQP"].rsplit(":", 1)
    for check in (
        "alarms",
        "local-alarms",
        f"port-listener/{port}",
        "protocol-listener/amqp091",
        "protocol-listener/amqp,http",
        "virtual-hosts",
        "node-is-quorum-critical",
        "quorum-queues-without-elected-leaders/all-vhosts/",
        "quorum-queues-without-elected-leaders/vhost/%2F/pattern/%5Ea",
        "certificate-expiration/1/weeks",
        "metadata-store/initialized",
    ):
        assert http.get(f"health/checks/{check}")["status"] == "ok", check
    for check in ("is-in-service", "ready-to-serve-clients"):
        assert http.get(f"health/checks/{check}", auth=None) == {"status": "ok"}
    for check in ("port-listener/1", "protocol-listener/mqtt"):
        response = http("GET", f"health/checks/{check}")
        assert (response.status_code, response.json()["status"]) == (503, "failed"), check
    assert http("GET", "health/checks/port-listener/x").status_code == 400


def test_what_is_not_served_says_so(http):
    assert http("PUT", "vhosts/%2F", json={"tracing": True}).status_code == 501
    assert http("PUT", "parameters/shovel/%2F/s", json={"value": {}}).status_code == 501
    for path in ("parameters", "vhost-limits"):
        assert http.get(path) == []


def eventually(check, seconds=20):
    until = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_policies_say_what_queues_do_while_they_are_used(api, http):
    tag = uuid.uuid4()
    queue, dead, exchange, policy = f"q-{tag}", f"dead-{tag}", f"x-{tag}", f"p-{tag}"
    waits = lambda name: len(api.basic.get(name, count=100, requeue=True))
    for name in (queue, dead):
        api.queue.declare(name, durable=True)
    for _ in range(5):
        assert api.basic.publish("m", queue)["routed"]
    assert waits(queue) == 5
    body = {"pattern": f"^q-{tag}$", "definition": {"max-length": 2, "dead-letter-exchange": "", "dead-letter-routing-key": dead}}
    assert http("PUT", f"policies/%2F/{policy}", json=body).status_code == 201
    assert http("PUT", f"policies/%2F/{policy}", json={**body, "priority": 7}).status_code == 204
    assert http.get(f"policies/%2F/{policy}") == {**body, "priority": 7, "vhost": "/", "name": policy, "apply-to": "all"}
    assert policy in [each["name"] for each in http.get("policies")]
    # Those that were there too: the first ones went where the policy says.
    eventually(lambda: (waits(queue), waits(dead)) == (2, 3))
    shown = http.get(f"queues/%2F/{queue}")
    assert (shown["policy"], shown["effective_policy_definition"]) == (policy, body["definition"])

    # An operator bounds it, and is not overridden.
    bound = {"pattern": f"^q-{tag}$", "definition": {"max-length": 1}}
    assert http("PUT", f"operator-policies/%2F/{policy}", json=bound).status_code == 201
    eventually(lambda: (waits(queue), waits(dead)) == (1, 4))
    shown = http.get(f"queues/%2F/{queue}")
    assert shown["operator_policy"] == policy and shown["effective_policy_definition"]["max-length"] == 1
    for kind in ("operator-policies", "policies"):
        assert http("DELETE", f"{kind}/%2F/{policy}").status_code == 204
        assert http("GET", f"{kind}/%2F/{policy}").status_code == 404
    for _ in range(5):
        api.basic.publish("m", queue)
    assert waits(queue) == 6
    assert "policy" not in http.get(f"queues/%2F/{queue}")

    # An exchange that routes nowhere has an alternate one, as long as a policy says so.
    api.exchange.declare(exchange, "topic", durable=True)
    body = {"pattern": f"^x-{tag}$", "apply-to": "exchanges", "definition": {"alternate-exchange": "amq.fanout"}}
    api.queue.bind(queue=dead, exchange="amq.fanout")
    assert not api.basic.publish("m", "nowhere", exchange=exchange)["routed"]
    assert http("PUT", f"policies/%2F/{policy}", json=body).status_code == 201
    assert api.basic.publish("m", "nowhere", exchange=exchange)["routed"]
    assert http.get(f"exchanges/%2F/{exchange}")["policy"] == policy
    document = http.get("definitions")
    assert [each["pattern"] for each in document["policies"] if each["name"] == policy] == [f"^x-{tag}$"]
    assert http("DELETE", f"policies/%2F/{policy}").status_code == 204
    assert not api.basic.publish("m", "nowhere", exchange=exchange)["routed"]
    assert http("POST", "definitions", json={"policies": [{**body, "name": policy, "vhost": "/"}]}).status_code == 204
    assert api.basic.publish("m", "nowhere", exchange=exchange)["routed"]
    assert http("DELETE", f"policies/%2F/{policy}").status_code == 204
    api.exchange.delete(exchange)
    for name in (queue, dead):
        api.queue.delete(name)


def test_a_policy_says_how_long_a_streams_records_stay_and_changes_no_other(api, http):
    tag = uuid.uuid4()
    mine, other, policy = f"s-{tag}", f"other-{tag}", f"p-{tag}"
    for name in (mine, other):
        api.queue.declare(name, durable=True, arguments={"x-queue-type": "stream"})
    kafka = AdminClient({"bootstrap.servers": os.environ["SUITE_BOOTSTRAP"]})

    def retention(name: str) -> str:
        resource = ConfigResource("topic", name)
        return kafka.describe_configs([resource])[resource].result()["retention.ms"].value

    entry = ConfigEntry("retention.ms", "123000000", incremental_operation=AlterConfigOpType.SET)
    changed = ConfigResource("topic", other, incremental_configs=[entry])
    kafka.incremental_alter_configs([changed])[changed].result()
    body = {"pattern": f"^s-{tag}$", "apply-to": "streams", "definition": {"max-age": "1h"}}
    assert http("PUT", f"policies/%2F/{policy}", json=body).status_code == 201
    assert (retention(mine), retention(other)) == ("3600000", "123000000")
    assert http("DELETE", f"policies/%2F/{policy}").status_code == 204
    assert (retention(mine), retention(other)) == ("-1", "123000000")
    for name in (mine, other):
        api.queue.delete(name)


@pytest.mark.parametrize("body", [
    {"pattern": ".*", "definition": {}},
    {"pattern": ".*", "definition": {"message-ttl": "long"}},
    {"pattern": ".*", "definition": {"message-ttl": -1}},
    {"pattern": ".*", "definition": {"no-such-thing": 1}},
    {"pattern": "(", "definition": {"message-ttl": 1}},
    {"pattern": ".*", "definition": {"message-ttl": 1}, "apply-to": "everything"},
    {"pattern": ".*", "definition": {"message-ttl": 1}, "priority": "high"},
    {"definition": {"message-ttl": 1}},
    {"pattern": ".*"},
])
def test_policies_that_cannot_be_are_refused(http, body):
    assert http("PUT", "policies/%2F/wrong", json=body).status_code == 400
    assert http("GET", "policies/%2F/wrong").status_code == 404
    assert http("PUT", "policies/none-such/wrong", json={"pattern": ".*", "definition": {"expires": 1}}).status_code == 404


def test_virtual_hosts_are_apart(api, http, queue):
    name = f"host {uuid.uuid4()}"
    path = quote(name, "")
    assert http("GET", f"vhosts/{path}").status_code == 404
    body = {"description": "for a check", "tags": "one,two", "default_queue_type": "quorum"}
    assert http("PUT", f"vhosts/{path}", json=body).status_code == 201
    assert http("PUT", f"vhosts/{path}", json=body).status_code == 204
    found = http.get(f"vhosts/{path}")
    assert (found["description"], found["tags"], found["messages"]) == ("for a check", ["one", "two"], 0)
    assert name in [each["name"] for each in http.get("vhosts")]
    # Whoever makes one may do everything in it.
    assert http.get(f"permissions/{path}/guest")["configure"] == ".*"
    api.queue.declare(queue, virtual_host=name, durable=True)
    assert api.basic.publish("there", queue, virtual_host=name) == {"routed": True}
    assert http.get(f"queues/{path}/{queue}")["messages"] == 1
    assert http.get(f"queues/%2F/{queue}")["messages"] == 0
    assert {each["vhost"] for each in http.get(f"exchanges/{path}")} == {name}
    host, port = os.environ["SUITE_AMQP"].rsplit(":", 1)
    parameters = pika.ConnectionParameters(host=host, port=int(port), virtual_host=name)
    with pika.BlockingConnection(parameters) as connection:
        assert connection.channel().basic_get(queue, auto_ack=True)[2] == b"there"
        assert [each["vhost"] for each in http.get(f"vhosts/{path}/connections")] == [name]
    assert http("DELETE", f"vhosts/{path}").status_code == 204
    assert http("DELETE", f"vhosts/{path}").status_code == 404
    assert http("GET", f"queues/{path}/{queue}").status_code == 404
    assert http("DELETE", "vhosts/%2F").status_code == 400


@pytest.fixture
def user(http):
    """A user who may use the API and nothing else yet."""
    name = f"user-{uuid.uuid4()}"
    body = {"password": "secret", "tags": "management"}
    assert http("PUT", f"users/{name}", json=body).status_code == 201
    yield name
    http("DELETE", f"users/{name}")


def test_users_are_made_and_unmade(http, user):
    login = (user, "secret")
    assert http.get("whoami", auth=login)["tags"] == ["management"]
    assert http("GET", "overview", auth=(user, "wrong")).status_code == 401
    assert http("GET", "users", auth=login).status_code == 401
    assert http("GET", "queues/%2F", auth=login).status_code == 404
    found = http.get(f"users/{user}")
    assert (found["name"], found["tags"], found["limits"]) == (user, ["management"], {})
    assert found["password_hash"] and "hashing" in found["hashing_algorithm"]
    # A hash that RabbitMQ has made is a password here.
    body = {"password_hash": GUEST_HASH, "hashing_algorithm": "rabbit_password_hashing_sha256", "tags": ["monitoring"]}
    assert http("PUT", f"users/{user}", json=body).status_code == 204
    assert http.get("whoami", auth=(user, "guest"))["tags"] == ["monitoring"]
    assert len(http.get("nodes", auth=(user, "guest"))) == 1
    assert http("PUT", f"users/{user}", json={"password": "x"}).status_code == 400
    assert http("PUT", f"users/{user}", json={"tags": "management"}).status_code == 204
    assert http("GET", "whoami", auth=(user, "guest")).status_code == 401
    assert http("DELETE", f"users/{user}").status_code == 204
    assert http("DELETE", f"users/{user}").status_code == 404
    assert http("GET", f"users/{user}").status_code == 404


def test_permissions_hold_over_http_as_over_amqp(api, http, user, exchange, queue):
    login = (user, "secret")
    path = f"permissions/%2F/{user}"
    body = {"configure": "^mine-", "write": f"^(mine-.*|{exchange})$", "read": "^mine-"}
    assert http("PUT", path, json=body).status_code == 201
    assert http("PUT", path, json=body).status_code == 204
    assert http.get(path) == {"user": user, "vhost": "/"} | body
    assert http.get(f"users/{user}/permissions") == [{"user": user, "vhost": "/"} | body]
    assert http("PUT", f"permissions/%2F/nobody-{uuid.uuid4()}", json=body).status_code == 400
    assert http("PUT", path, json={"configure": ".*"}).status_code == 400
    assert http("PUT", path, json=body | {"read": "("}).status_code == 400

    mine = f"mine-{uuid.uuid4()}"
    assert http("PUT", f"queues/%2F/{mine}", json={"durable": True}, auth=login).status_code == 201
    for method, place, more in (
        ("PUT", f"queues/%2F/not-{mine}", {"json": {}}),
        ("DELETE", f"queues/%2F/{queue}", {}),
        ("DELETE", f"queues/%2F/{queue}/contents", {}),
        ("POST", f"queues/%2F/{queue}/get", {"json": {"ackmode": "ack_requeue_true", "count": 1, "encoding": "auto"}}),
        ("PUT", f"exchanges/%2F/not-{mine}", {"json": {"type": "fanout"}}),
        ("DELETE", f"exchanges/%2F/{exchange}", {}),
        ("POST", f"bindings/%2F/e/{exchange}/q/{mine}", {"json": {}}),
        ("POST", "exchanges/%2F/amq.direct/publish", {"json": PUBLISHED | {"routing_key": mine}}),
    ):
        response = http(method, place, auth=login, **more)
        assert response.status_code == 401 and "refused for user" in response.json()["reason"], place

    topics = f"topic-permissions/%2F/{user}"
    assert http("PUT", topics, json={"exchange": exchange, "write": "^allowed", "read": ".*"}).status_code == 201
    assert len(http.get(topics)) == 1
    publish = f"exchanges/%2F/{exchange}/publish"
    assert http("POST", publish, json=PUBLISHED | {"routing_key": "allowed.x"}, auth=login).status_code == 200
    assert http("POST", publish, json=PUBLISHED | {"routing_key": "other"}, auth=login).status_code == 401
    assert http("DELETE", topics).status_code == 204
    assert http("POST", publish, json=PUBLISHED | {"routing_key": "other"}, auth=login).status_code == 200

    assert http("DELETE", f"queues/%2F/{mine}", auth=login).status_code == 204
    assert http("DELETE", path).status_code == 204
    assert http("DELETE", path).status_code == 404


PUBLISHED = {"properties": {}, "payload": "x", "payload_encoding": "string"}


def test_definitions_bring_users_and_hosts(http):
    tag = uuid.uuid4()
    document = {
        "users": [{"name": f"user-{tag}", "password_hash": GUEST_HASH, "tags": "administrator"}],
        "vhosts": [{"name": f"host-{tag}", "metadata": {"description": "brought", "tags": []}}],
        "permissions": [{"user": f"user-{tag}", "vhost": f"host-{tag}", "configure": ".*", "write": ".*", "read": ".*"}],
        "topic_permissions": [{"user": f"user-{tag}", "vhost": f"host-{tag}", "exchange": "amq.topic", "write": "a", "read": "b"}],
        "queues": [{"name": "q", "vhost": f"host-{tag}", "durable": True, "auto_delete": False, "arguments": {}}],
    }
    assert http("POST", "definitions", json=document).status_code == 204
    login = (f"user-{tag}", "guest")
    assert http.get(f"queues/host-{tag}/q", auth=login)["durable"] is True
    exported = http.get("definitions", auth=login)
    for section in ("users", "permissions", "topic_permissions"):
        assert [each for each in exported[section] if str(tag) in json.dumps(each)], section
    assert [each["description"] for each in exported["vhosts"] if each["name"] == f"host-{tag}"] == ["brought"]
    assert http("POST", "definitions", json=exported).status_code == 204
    assert http.get("whoami", auth=login)["name"] == f"user-{tag}"
    assert http("DELETE", f"vhosts/host-{tag}").status_code == 204
    assert http("DELETE", f"users/user-{tag}").status_code == 204


def test_pages_of_other_sites_are_refused(http):
    for origin, status in (("http://elsewhere.example", 403), (base_url(), 204)):
        response = http("PUT", "vhosts/%2F", headers={"Origin": origin})
        assert response.status_code == status, origin


def test_what_is_declared_outlives_a_crash(api, http, exchange, queue, crash):
    api.queue.bind(queue, exchange, routing_key="k")
    assert api.basic.publish("kept", "k", exchange) == {"routed": True}
    crash()
    assert api.exchange.get(exchange)["type"] == "topic"
    assert http.get(f"queues/%2F/{queue}")["messages"] == 1
    (message,) = api.basic.get(queue, to_dict=True)
    assert (message["payload"], message["exchange"]) == ("kept", exchange)
