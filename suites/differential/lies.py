"""Answers changed on purpose: shows that the comparison finds each kind of difference.

RabbitMQ plays both parts, and what the second is taken to have answered is changed in one place. Without a lie the
same scenarios must agree.
"""

from collections.abc import Callable

Answers = list[dict[str, list[dict]]]


def _first(answers: Answers, name: str) -> tuple[list[dict], int] | None:
    """Where an event of this name came first: the channel's events and its place among them."""
    for answer in answers:
        for events in answer.values():
            for place, event in enumerate(events):
                if event["name"] == name:
                    return events, place
    return None


def _changed(name: str, field: str, change: Callable) -> Callable[[Answers], bool]:
    def lie(answers: Answers) -> bool:
        found = _first(answers, name)
        if found is None or field not in found[0][found[1]]:
            return False
        events, place = found
        events[place] = {**events[place], field: change(events[place][field])}
        return True

    return lie


def _dropped(name: str) -> Callable[[Answers], bool]:
    def lie(answers: Answers) -> bool:
        found = _first(answers, name)
        if found is not None:
            del found[0][found[1]]
        return found is not None

    return lie


def _doubled(name: str) -> Callable[[Answers], bool]:
    def lie(answers: Answers) -> bool:
        found = _first(answers, name)
        if found is not None:
            found[0].insert(found[1], found[0][found[1]])
        return found is not None

    return lie


def _swapped(answers: Answers) -> bool:
    """Two deliveries in the other order: their bodies are exchanged."""
    for answer in answers:
        for events in answer.values():
            delivered = [event for event in events if event["name"] == "basic.deliver"]
            if len(delivered) > 1 and delivered[0]["body"] != delivered[1]["body"]:
                delivered[0]["body"], delivered[1]["body"] = delivered[1]["body"], delivered[0]["body"]
                return True
    return False


def _widened(answers: Answers) -> bool:
    """A channel's error that ends the connection."""
    for answer in answers:
        for key, events in list(answer.items()):
            for event in events:
                if event["name"] == "channel.close":
                    del answer[key]
                    answer[f"{key[0]}0"] = [{**event, "name": "connection.close"}, {"name": "end of connection"}]
                    return True
    return False


def _retyped(headers: list) -> list:
    name, (_, value) = headers[0]
    return [[name, ["S", str(value)]], *headers[1:]]


ALL: dict[str, Callable[[Answers], bool]] = {
    "a redelivered flag is flipped": _changed("basic.get_ok", "redelivered", lambda flag: not flag),
    "a redelivered flag of a delivery is flipped": _changed("basic.deliver", "redelivered", lambda flag: not flag),
    "a return is lost": _dropped("basic.return"),
    "a return comes twice": _doubled("basic.return"),
    "a delivery is lost": _dropped("basic.deliver"),
    "a delivery comes twice": _doubled("basic.deliver"),
    "deliveries change places": _swapped,
    "another code closes a channel": _changed("channel.close", "reply_code", lambda code: code + 1),
    "other words close a channel": _changed("channel.close", "reply_text", lambda text: text + "!"),
    "a channel's error ends the connection": _widened,
    "a count is one too high": _changed("queue.declare_ok", "message_count", lambda count: count + 1),
    "a consumer is not counted": _changed("queue.declare_ok", "consumer_count", lambda count: count + 1),
    "a confirmation is lost": _dropped("confirmed"),
    "a message is confirmed twice": _changed("confirmed", "tags", lambda tags: ["1 told twice", *tags]),
    "a message is refused": _changed("confirmed", "tags", lambda tags: ["1 refused", *tags]),
    "a header has another type": _changed("basic.get_ok", "properties.headers", _retyped),
    "a body is changed": _changed("basic.get_ok", "body", lambda body: body + "!"),
    "a property is changed": _changed("basic.get_ok", "properties.priority", lambda level: level + 1),
    "a delivery's tag is wrong": _changed("basic.deliver", "delivery_tag", lambda tag: tag + 1),
    "a consumer is not told that its queue went": _dropped("basic.cancel"),
    "an answer is lost": _dropped("queue.bind_ok"),
    "an empty queue says nothing": _dropped("basic.get_empty"),
}
