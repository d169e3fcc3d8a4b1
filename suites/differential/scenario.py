"""What a scenario is: steps, one after another, each a method on a channel of a connection.

A step is a dictionary. `on` names connection and channel (`A1` is channel 1 of connection A, `A0` the connection
itself) and `do` the method; everything else is a field of the method, and what is not given is zero, empty or false.
Both are opened when a step first needs them, and again after they were closed. Beside methods a step may do

    drop      the connection is gone without a word
    wait      nothing happens for `ms` milliseconds
    bytes     what `hex` says goes out as it is; with `first`, on a connection that has said nothing yet, and with
              `mangled` drawn with dice, so that there may be more wrong with it than one thing; `agreed` is the
              size of frames that they agree upon
    drain     `basic.get` with no_ack of `queue` until it is empty

Names that end in `~` are the scenario's own: they get a suffix that no other scenario has. What only the broker
knows is said by number:

    delivery: 2     instead of `delivery_tag`: of what the channel has not settled, this (modulo how much there is)
    consumer: 0     instead of `consumer_tag`: of the channel's consumers, this
    queue: "@0"     the first queue whose name the broker made
    routing_key: "@reply"   where the last request that was delivered wants its reply

`times` publishes so many messages in one piece, and `anyway: True` sends a method on a channel that was not opened. A
step for which there is no such thing is skipped, on either broker.
"""

from . import protocol

Step = dict
# Not fields of the method.
WORDS = set("on do ms hex first mangled agreed delivery consumer anyway properties body times".split())
AUDITOR = "Z"
DRAINED_MAX = 200


def connection_of(step: Step) -> str:
    return step["on"][0]


def channel_of(step: Step) -> int:
    return int(step["on"][1:] or 0)


def is_answered(step: Step) -> bool:
    """Whether the broker answers this method if all is well."""
    name = step["do"]
    return name in protocol.BY_NAME and name not in protocol.UNANSWERED and not step.get("no_wait")


def own_names(steps: list[Step], method: str, field: str) -> list[str]:
    """Names of the scenario's own that were declared, each once, in order."""
    return list(
        dict.fromkeys(
            step[field] for step in steps if step["do"] == method and step.get(field, "").endswith("~")
        )
    )


def with_audit(steps: list[Step]) -> list[Step]:
    """The scenario, and then what it left behind: all connections end, and every queue is counted and read."""
    connections = sorted({connection_of(step) for step in steps if step["do"] not in ("wait", "bytes")})
    end = [{"on": f"{name}0", "do": "connection.close", "reply_code": 200} for name in connections]
    here = f"{AUDITOR}1"
    look = [
        {"on": here, "do": "exchange.declare", "exchange": name, "passive": True}
        for name in own_names(steps, "exchange.declare", "exchange")
    ]
    for name in own_names(steps, "queue.declare", "queue"):
        look.append({"on": here, "do": "queue.declare", "queue": name, "passive": True})
        look.append({"on": here, "do": "drain", "queue": name})
    return [*steps, *end, *look]


def written(step: Step) -> str:
    """A step on one line, as a person reads it."""
    words = [step["on"], step["do"]]
    for name, value in step.items():
        if name not in ("on", "do"):
            words.append(f"{name}={value!r}" if value is not True else name)
    return " ".join(words)
