"""AMQP 0-9-1's methods and properties, as data: what they are called, and which fields they have.

The numbers and fields are those of the protocol's specification with RabbitMQ's extensions.
"""

from dataclasses import dataclass

# Class and method number, name, and fields in their order on the wire. Adjacent bits share an octet.
_METHODS = """
10 10 connection.start version_major:octet version_minor:octet server_properties:table mechanisms:long_str locales:long_str
10 11 connection.start_ok client_properties:table mechanism:short_str response:long_str locale:short_str
10 20 connection.secure challenge:long_str
10 21 connection.secure_ok response:long_str
10 30 connection.tune channel_max:short frame_max:long heartbeat:short
10 31 connection.tune_ok channel_max:short frame_max:long heartbeat:short
10 40 connection.open virtual_host:short_str reserved_1:short_str reserved_2:bit
10 41 connection.open_ok reserved_1:short_str
10 50 connection.close reply_code:short reply_text:short_str failing_class:short failing_method:short
10 51 connection.close_ok
10 60 connection.blocked reason:short_str
10 61 connection.unblocked
10 70 connection.update_secret new_secret:long_str reason:short_str
10 71 connection.update_secret_ok
20 10 channel.open reserved_1:short_str
20 11 channel.open_ok reserved_1:long_str
20 20 channel.flow active:bit
20 21 channel.flow_ok active:bit
20 40 channel.close reply_code:short reply_text:short_str failing_class:short failing_method:short
20 41 channel.close_ok
30 10 access.request realm:short_str exclusive:bit passive:bit active:bit write:bit read:bit
30 11 access.request_ok ticket:short
40 10 exchange.declare ticket:short exchange:short_str type:short_str passive:bit durable:bit auto_delete:bit internal:bit no_wait:bit arguments:table
40 11 exchange.declare_ok
40 20 exchange.delete ticket:short exchange:short_str if_unused:bit no_wait:bit
40 21 exchange.delete_ok
40 30 exchange.bind ticket:short destination:short_str source:short_str routing_key:short_str no_wait:bit arguments:table
40 31 exchange.bind_ok
40 40 exchange.unbind ticket:short destination:short_str source:short_str routing_key:short_str no_wait:bit arguments:table
40 51 exchange.unbind_ok
50 10 queue.declare ticket:short queue:short_str passive:bit durable:bit exclusive:bit auto_delete:bit no_wait:bit arguments:table
50 11 queue.declare_ok queue:short_str message_count:long consumer_count:long
50 20 queue.bind ticket:short queue:short_str exchange:short_str routing_key:short_str no_wait:bit arguments:table
50 21 queue.bind_ok
50 30 queue.purge ticket:short queue:short_str no_wait:bit
50 31 queue.purge_ok message_count:long
50 40 queue.delete ticket:short queue:short_str if_unused:bit if_empty:bit no_wait:bit
50 41 queue.delete_ok message_count:long
50 50 queue.unbind ticket:short queue:short_str exchange:short_str routing_key:short_str arguments:table
50 51 queue.unbind_ok
60 10 basic.qos prefetch_size:long prefetch_count:short global:bit
60 11 basic.qos_ok
60 20 basic.consume ticket:short queue:short_str consumer_tag:short_str no_local:bit no_ack:bit exclusive:bit no_wait:bit arguments:table
60 21 basic.consume_ok consumer_tag:short_str
60 30 basic.cancel consumer_tag:short_str no_wait:bit
60 31 basic.cancel_ok consumer_tag:short_str
60 40 basic.publish ticket:short exchange:short_str routing_key:short_str mandatory:bit immediate:bit
60 50 basic.return reply_code:short reply_text:short_str exchange:short_str routing_key:short_str
60 60 basic.deliver consumer_tag:short_str delivery_tag:long_long redelivered:bit exchange:short_str routing_key:short_str
60 70 basic.get ticket:short queue:short_str no_ack:bit
60 71 basic.get_ok delivery_tag:long_long redelivered:bit exchange:short_str routing_key:short_str message_count:long
60 72 basic.get_empty reserved_1:short_str
60 80 basic.ack delivery_tag:long_long multiple:bit
60 90 basic.reject delivery_tag:long_long requeue:bit
60 100 basic.recover_async requeue:bit
60 110 basic.recover requeue:bit
60 111 basic.recover_ok
60 120 basic.nack delivery_tag:long_long multiple:bit requeue:bit
85 10 confirm.select no_wait:bit
85 11 confirm.select_ok
90 10 tx.select
90 11 tx.select_ok
90 20 tx.commit
90 21 tx.commit_ok
90 30 tx.rollback
90 31 tx.rollback_ok
"""

# The first is announced by the highest bit of the flags.
PROPERTIES = (
    ("content_type", "short_str"),
    ("content_encoding", "short_str"),
    ("headers", "table"),
    ("delivery_mode", "octet"),
    ("priority", "octet"),
    ("correlation_id", "short_str"),
    ("reply_to", "short_str"),
    ("expiration", "short_str"),
    ("message_id", "short_str"),
    ("timestamp", "long_long"),
    ("type", "short_str"),
    ("user_id", "short_str"),
    ("app_id", "short_str"),
    ("cluster_id", "short_str"),
)

FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT = 1, 2, 3, 8
FRAME_END = 0xCE
HEADER = b"AMQP\x00\x00\x09\x01"


@dataclass(frozen=True)
class Method:
    """A method's numbers, its name and its fields: pairs of a name and a type."""

    class_id: int
    method_id: int
    name: str
    fields: tuple[tuple[str, str], ...]


def _read(line: str) -> Method:
    class_id, method_id, name, *fields = line.split()
    return Method(int(class_id), int(method_id), name, tuple(tuple(field.split(":")) for field in fields))


BY_NAME = {method.name: method for method in map(_read, _METHODS.split("\n")[1:-1])}
BY_NUMBERS = {(method.class_id, method.method_id): method for method in BY_NAME.values()}

# Those that carry a message.
WITH_CONTENT = {"basic.publish", "basic.return", "basic.deliver", "basic.get_ok"}

# What a client sends and is not answered. Others are, unless they say that they do not wait.
UNANSWERED = {"basic.publish", "basic.ack", "basic.nack", "basic.reject", "basic.recover_async"}

REPLY_NAMES = {
    200: "success",
    311: "CONTENT_TOO_LARGE",
    312: "NO_ROUTE",
    313: "NO_CONSUMERS",
    320: "CONNECTION_FORCED",
    402: "INVALID_PATH",
    403: "ACCESS_REFUSED",
    404: "NOT_FOUND",
    405: "RESOURCE_LOCKED",
    406: "PRECONDITION_FAILED",
    501: "FRAME_ERROR",
    502: "SYNTAX_ERROR",
    503: "COMMAND_INVALID",
    504: "CHANNEL_ERROR",
    505: "UNEXPECTED_FRAME",
    506: "RESOURCE_ERROR",
    530: "NOT_ALLOWED",
    540: "NOT_IMPLEMENTED",
    541: "INTERNAL_ERROR",
}
