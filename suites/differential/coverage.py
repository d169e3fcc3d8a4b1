"""Which methods, values of their fields and outcomes were met, of all that there are.

A row is a method with a kind of value of one of its fields, or with an outcome: that all went well, or the code with
which RabbitMQ closed the channel or the connection.
"""

import struct
from collections import Counter

from . import protocol
from .scenario import Step
from .vocabulary import REPLIES

# Methods that a client sends while it works. The handshake is gone through by every connection.
_CLIENT = [
    name
    for name in protocol.BY_NAME
    if not name.startswith("connection.")
    and not name.endswith(("_ok", "_empty", ".close", ".return", ".deliver"))
] + ["channel.close", "connection.close"]

# Arguments with a meaning, by method.
_ARGUMENTS = {
    "exchange.declare": ("alternate-exchange", "x-own"),
    "exchange.bind": ("x-match", "h1"),
    "exchange.unbind": ("x-match", "h1"),
    "queue.declare": (
        "x-message-ttl",
        "x-expires",
        "x-max-length",
        "x-max-length-bytes",
        "x-overflow",
        "x-dead-letter-exchange",
        "x-dead-letter-routing-key",
        "x-max-priority",
        "x-single-active-consumer",
        "x-queue-mode",
        "x-queue-type",
        "x-delivery-limit",
        "x-own",
        "x-max-age",
        "x-stream-max-segment-size-bytes",
        "x-initial-cluster-size",
        "x-queue-leader-locator",
        "x-max-in-memory-length",
        "x-quorum-initial-group-size",
        "x-dead-letter-strategy",
        "x-queue-version",
        "x-queue-master-locator",
    ),
    "queue.bind": ("x-match", "h1"),
    "queue.unbind": ("x-match", "h1"),
    "basic.consume": ("x-priority", "x-stream-offset"),
}
# Values of arguments that make a difference, by argument.
_VALUES = {
    "x-queue-type": ("classic", "quorum", "stream"),
    "x-overflow": ("drop-head", "reject-publish", "reject-publish-dlx"),
    "x-match": ("all", "any", "all-with-x", "any-with-x"),
    "x-stream-offset": ("first", "last", "next"),
}
# Where something else than a queue or an exchange is meant, by its name.
_NAMES = {"basic.consume queue": REPLIES, "basic.publish routing_key": "@reply", "queue.declare queue": "@reply"}
# What is sent as bytes only, and must not be missing.
_IN_BYTES = (
    *("connection.start_ok", "connection.secure_ok", "connection.tune_ok", "connection.open", "connection.close"),
    *("connection.close_ok", "connection.update_secret", "basic.publish", "basic.deliver"),
)
_PROPERTIES = [*(name for name, _ in protocol.PROPERTIES), "CC", "BCC"]

# Outcomes that the protocol and RabbitMQ know of, by method; all of them may end well.
_OUTCOMES = {
    "channel.open": (504,),
    "channel.flow": (540,),
    "exchange.declare": (403, 404, 406, 503),
    "exchange.delete": (403, 406),
    "exchange.bind": (403, 404, 406),
    "exchange.unbind": (403,),
    "queue.declare": (403, 404, 405, 406),
    "queue.bind": (403, 404, 405, 406),
    "queue.unbind": (403, 404, 405),
    "queue.purge": (404, 405, 540),
    "queue.delete": (404, 405, 406, 540),
    "basic.qos": (540,),
    "basic.consume": (403, 404, 405, 406, 530, 540),
    "basic.cancel": (),
    "basic.publish": (403, 404, 406, 540),
    "basic.get": (404, 405, 540),
    "basic.ack": (406,),
    "basic.nack": (406, 540),
    "basic.reject": (406, 540),
    "basic.recover": (540,),
    "basic.recover_async": (540,),
    "confirm.select": (406,),
    "tx.select": (406,),
    "tx.commit": (406,),
    "tx.rollback": (406,),
}
# What may come without being the answer to a method.
_NOTICES = ("basic.deliver", "basic.return", "basic.cancel", "confirmed", "redelivered", "x-death")


def _kinds(kind: str) -> tuple[str, ...]:
    return {"bit": ("false", "true"), "table": ("empty", "given")}.get(kind, ("zero or empty", "given"))


def _universe() -> list[str]:
    rows = []
    for name in _CLIENT:
        for field, kind in protocol.BY_NAME[name].fields:
            if field in ("ticket", "reserved_1", "failing_class", "failing_method", "realm"):
                continue
            rows += [f"{name} {field} {value}" for value in _kinds(kind)]
        rows += [f"{name} argument {argument}" for argument in _ARGUMENTS.get(name, ())]
        rows += [
            f"{name} argument {argument}: {value}"
            for argument in _ARGUMENTS.get(name, ())
            for value in _VALUES.get(argument, ())
        ]
        rows += [f"{name} -> {outcome}" for outcome in ("well", *_OUTCOMES.get(name, ()))]
    rows += [f"basic.publish property {name}" for name in _PROPERTIES]
    rows += [f"{field} {value}" for field, value in _NAMES.items()]
    rows += [f"in bytes: {name}" for name in _IN_BYTES]
    rows += [f"header of type {tag}" for tag in "tbBsuIilfdDSTFAVx"]
    return rows + [f"came: {name}" for name in _NOTICES]


ALL = _universe()


def covered(step: Step, answer: dict[str, list[dict]]) -> set[str]:
    """The rows that a step and RabbitMQ's answer to it are."""
    rows = set()
    name = step["do"]
    if name in protocol.BY_NAME:
        for field, kind in protocol.BY_NAME[name].fields:
            given = step.get(field) or (field == "delivery_tag" and "delivery" in step)
            given = given or (field == "consumer_tag" and "consumer" in step)
            rows.add(f"{name} {field} {_kinds(kind)[bool(given)]}")
        arguments = step.get("arguments") or {}
        rows |= {f"{name} argument {argument}" for argument in arguments}
        rows |= {
            f"{name} argument {argument}: {value[1]}" for argument, value in arguments.items() if argument in _VALUES
        }
        rows |= {f"{name} {field} {step.get(field)}" for field in ("queue", "routing_key")}
        rows.add(f"{name} -> {_outcome(step, answer)}")
    if name == "bytes":
        rows |= {f"in bytes: {method}" for method in _methods_in(bytes.fromhex(step["hex"]))}
    properties = step.get("properties") or {}
    rows |= {f"basic.publish property {one}" for one in properties}
    for header, (tag, _) in properties.get("headers", []):
        rows |= {f"header of type {tag}", f"basic.publish property {header}"}
    for events in answer.values():
        for event in events:
            rows.add(f"came: {event['name']}")
            if event.get("redelivered"):
                rows.add("came: redelivered")
            if any(header == "x-death" for header, _ in event.get("properties.headers", ())):
                rows.add("came: x-death")
    return rows


def _methods_in(data: bytes) -> set[str]:
    """The methods in bytes that a client sends, as far as they are frames."""
    found = set()
    data = data[8:] if data.startswith(b"AMQP") else data
    while len(data) >= 11:
        kind, _, length, class_id, method_id = struct.unpack_from(">BHIHH", data)
        if kind == protocol.FRAME_METHOD and (class_id, method_id) in protocol.BY_NUMBERS:
            found.add(protocol.BY_NUMBERS[class_id, method_id].name)
        data = data[length + 8 :]
    return found


def _outcome(step: Step, answer: dict[str, list[dict]]) -> str:
    for events in answer.values():
        for event in events:
            if event["name"] in ("channel.close", "connection.close"):
                return str(event["reply_code"])
    return "well" if "" not in answer else "skipped"


def table(counts: Counter) -> str:
    """Every method with how much of it was met, and what was not."""
    missing = [row for row in ALL if not counts[row]]
    lines = [f"coverage: {len(ALL) - len(missing)} of {len(ALL)} rows"]
    for name in _CLIENT:
        rows = [row for row in ALL if row.startswith(f"{name} ")]
        outcomes = ", ".join(
            f"{row.split(' -> ')[1]} x {counts[row]}" for row in rows if " -> " in row and counts[row]
        )
        lines.append(f"    {name:22} {sum(bool(counts[row]) for row in rows):3} of {len(rows):3}  {outcomes}")
    unforeseen = sorted(row for row in counts if " -> " in row and row not in ALL and not row.endswith("skipped"))
    if unforeseen:
        lines.append("    outcomes beyond the table: " + ", ".join(f"{row} x {counts[row]}" for row in unforeseen))
    if missing:
        lines.append("    not met: " + "; ".join(missing))
    return "\n".join(lines)
