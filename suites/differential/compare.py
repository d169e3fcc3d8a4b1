"""What two brokers answered, made comparable, and the places where it differs.

Names that a broker makes become numbers in the order in which they come, times become zero, and what the protocol
leaves open is brought into one order: confirmations that come together, deliveries to different consumers of a channel
after one step, and notices to several of its consumers that their queue is gone. All else counts: methods and their
order by channel, codes and words, what is closed, redelivered flags, tags, properties and types of headers, bodies and
counts.
"""

import json
import re
from dataclasses import dataclass

from .client import Event
from .play import Answer
from .scenario import Step, written

MADE = re.compile(r"amq\.(gen-|ctag-|rabbitmq\.reply-to\.)[^ ']+")
# Fields of headers that hold a time of the broker's clock.
TIMES = {"time"}
# Where only these differ, the brokers are in the same state still, and what follows can be compared.
OF_NO_CONSEQUENCE = (
    "reply_code",
    "reply_text",
    "failing_class",
    "failing_method",
    "redelivered",
    "properties.headers",
    "server_properties",
    "connection.start mechanisms",
    "frame_max",
)


@dataclass(frozen=True)
class Difference:
    """One place where answers differ: after which step, on which channel, what, and both sides of it."""

    index: int
    step: Step
    channel: str
    # A path such as `basic.deliver redelivered`, or `events` where one has what the other lacks.
    what: str
    rabbitmq: object
    weir: object
    # Everything that came after the step, by channel.
    theirs: dict
    ours: dict
    # All steps up to this one.
    before: list[Step]

    @property
    def ends_comparison(self) -> bool:
        """Whether the brokers are in different states from here on, as far as anybody can tell."""
        return not self.what.endswith(OF_NO_CONSEQUENCE) and " header " not in self.what

    @property
    def of_words(self) -> bool:
        """Whether only what is said of an error differs."""
        return self.what.endswith(("reply_text", "failing_class", "failing_method"))

    def signature(self) -> str:
        """What is the same for differences that most likely have one cause."""
        sides = f"{_short(self.rabbitmq)} | {_short(self.weir)}"
        return f"{self.step['do']}: {self.what}: {sides}"


def _short(side) -> str:
    """A side of a difference without what is chance."""
    text = re.sub(r"'[^']*'", "'_'", side) if isinstance(side, str) else json.dumps(side, default=str)
    text = re.sub(r"\b[qxt]\d+~?|@\d+|#\d+|\b[A-Z]\d\b", "_", text)
    return re.sub(r"-?\d{4,}|\bm\d+", "N", text)[:300]


class Normaliser:
    """Makes the answers to one scenario comparable; it remembers the names that the broker made."""

    def __init__(self, token: str):
        self.suffix = f"~{token}"
        self.made: dict[str, str] = {}

    def answers(self, answers: list[Answer]) -> list[dict[str, list[dict]]]:
        return [
            {key: made for key, events in sorted(answer.items()) if (made := self._channel(events))}
            for answer in answers
        ]

    def _channel(self, events: list[Event]) -> list[dict]:
        """The events of one channel after one step: others, then confirmations, then deliveries."""
        confirmed: list[str] = []
        others: list[dict] = []
        deliveries: list[dict] = []
        for event in events:
            if event.name in ("basic.ack", "basic.nack"):
                confirmed.append(event)
            elif event.name == "basic.deliver":
                deliveries.append(self.event(event))
            else:
                others.append(self.event(event))
                if event.name == "basic.return" and confirmed:
                    others.append({"name": "confirmed before it was returned"})
        if confirmed:
            others.append({"name": "confirmed", "tags": confirmations(confirmed)})
        others = _cancels_sorted(others)
        tags = sorted(delivery["delivery_tag"] for delivery in deliveries)
        deliveries.sort(key=lambda delivery: delivery["consumer_tag"])
        for delivery, tag in zip(deliveries, tags, strict=True):
            delivery["delivery_tag"] = tag
        return others + deliveries

    def event(self, event: Event) -> dict:
        made = {"name": event.name}
        if event.name == "connection.start":
            # Who a broker says that it is differs; what it says that it can do must not.
            told = [pair for pair in event.fields["server_properties"] if pair[0] in ("product", "capabilities")]
            event = Event(event.name, {**event.fields, "server_properties": told})
        for name, value in event.fields.items():
            made[name] = self.table(value) if isinstance(value, list) else self.text(value)
        if event.properties is not None:
            for name, value in event.properties.items():
                made[f"properties.{name}"] = self.table(value) if name == "headers" else self.text(value)
            made["body"] = self.text(event.body)
        return made

    def text(self, value):
        if not isinstance(value, str):
            return value
        return MADE.sub(self._number, value.replace(self.suffix, "~"))

    def _number(self, match: re.Match) -> str:
        return self.made.setdefault(match[0], f"amq.{match[1][:-1]}#{len(self.made)}")

    def table(self, pairs: list) -> list:
        """A table in the order of its names, which means nothing."""
        return sorted(([self.text(name), self.value(name, value)] for name, value in pairs), key=json.dumps)

    def value(self, name: str, pair: list) -> list:
        tag, value = pair
        if tag == "F":
            return [tag, self.table(value)]
        if tag == "A":
            return [tag, [self.value("", inner) for inner in value]]
        if tag == "T" and name in TIMES:
            return [tag, 0]
        if tag in "fd":
            return [tag, repr(value)]
        return [tag, self.text(value)]


def _cancels_sorted(events: list[dict]) -> list[dict]:
    """Notices that consumers are cancelled, which come for all of a channel at once, in the order of their tags."""
    cancels = [event for event in events if event["name"] == "basic.cancel"]
    waiting = iter(sorted(cancels, key=lambda event: event["consumer_tag"]))
    return [next(waiting) if event["name"] == "basic.cancel" else event for event in events]


def confirmations(events: list[Event]) -> list[str]:
    """What confirmations that came together say: each message with its fate, one that is told twice included.

    `multiple` is meant of what was not told before; that is only known here for what came together, so the highest
    number stands for all below it.
    """
    told: list[str] = []
    last = 0
    fates = set()
    for event in sorted(events, key=lambda event: event.fields["delivery_tag"]):
        tag = event.fields["delivery_tag"]
        if tag == last:
            told.append(f"{tag} told twice")
        last = max(last, tag)
        fates.add(event.name)
        if event.name == "basic.nack":
            told.append(f"{tag} refused")
    return [*told, f"up to {last}"]


def differences(steps: list[Step], rabbitmq: list[dict], weir: list[dict]) -> list[Difference]:
    """All differences up to the first behind which nothing can be compared."""
    found: list[Difference] = []
    for index, step in enumerate(steps):
        theirs = rabbitmq[index] if index < len(rabbitmq) else {}
        ours = weir[index] if index < len(weir) else {}
        found += _of_step(steps[: index + 1], theirs, ours)
        if any(difference.ends_comparison for difference in found):
            break
    return found


def _of_step(steps: list[Step], theirs: dict, ours: dict) -> list[Difference]:
    index, step = len(steps) - 1, steps[-1]
    channels = sorted(theirs.keys() | ours.keys())
    names = [
        {channel: [event["name"] for event in side.get(channel, [])] for channel in channels} for side in (theirs, ours)
    ]
    uneven = [channel for channel in channels if names[0][channel] != names[1][channel]]
    if uneven:
        sides = [
            [f"{channel} {_in_short(event)}" for channel in uneven for event in side.get(channel, [])]
            for side in (theirs, ours)
        ]
        return [Difference(index, step, uneven[0], "events", *sides, theirs, ours, steps)]
    found = []
    for channel in channels:
        for their, our in zip(theirs[channel], ours[channel], strict=True):
            found += [
                Difference(index, step, channel, f"{their['name']} {name}", *sides, theirs, ours, steps)
                for name, *sides in _of_event(their, our)
            ]
    return found


def _of_event(their: dict, our: dict):
    """Fields that differ, with both values. Headers are fields of their own; of another message nothing else counts."""
    if their.get("body") != our.get("body"):
        yield "body", their.get("body"), our.get("body")
        return
    for name in sorted(their.keys() | our.keys()):
        sides = their.get(name), our.get(name)
        if sides[0] == sides[1]:
            continue
        if name != "properties.headers":
            yield name, *sides
            continue
        headers = [{header: value for header, value in side or ()} for side in sides]
        inner = [
            (f"header {header}", headers[0].get(header), headers[1].get(header))
            for header in sorted(headers[0].keys() | headers[1].keys())
            if headers[0].get(header) != headers[1].get(header)
        ]
        # Repetitions of a name are told whole.
        yield from inner or [(name, *sides)]


def _in_short(event: dict) -> str:
    words = [event["name"]]
    for name in ("reply_code", "reply_text", "consumer_tag", "redelivered", "routing_key", "tags", "body"):
        if name in event and not (name == "reply_code" and event[name] == 0):
            words.append(f"{name}={event[name]!r}")
    return " ".join(words)


def transcript(steps: list[Step], rabbitmq: list[dict], weir: list[dict], found: list[Difference]) -> str:
    """The scenario with what both answered, so that a person can follow it."""
    lines = []
    for index, step in enumerate(steps):
        theirs = rabbitmq[index] if index < len(rabbitmq) else {}
        ours = weir[index] if index < len(weir) else {}
        lines.append(f"> {written(step)}")
        if theirs == ours:
            lines += [f"    {channel} {_in_short(event)}" for channel in theirs for event in theirs[channel]]
            continue
        for title, side in (("rabbitmq", theirs), ("weir", ours)):
            lines += [
                f"  {title}: {channel} {json.dumps(event, ensure_ascii=False, default=str)}"
                for channel in side
                for event in side[channel]
            ] or [f"  {title}: nothing"]
        if any(difference.index == index and difference.ends_comparison for difference in found):
            break
    return "\n".join(lines)
