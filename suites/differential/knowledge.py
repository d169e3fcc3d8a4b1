"""What a client knows while it plays a scenario: what it has to settle, who consumes, what names the broker made.

Steps say such things by number. Two brokers that have answered alike so far are asked for the same thing, though they
call it differently.
"""

from dataclasses import dataclass, field

from .client import Event
from .scenario import WORDS, Step


@dataclass
class Channel:
    """What a client knows of its channel."""

    # Delivery tags that are not settled, oldest first.
    unsettled: list[int] = field(default_factory=list)
    # Several consumers were delivered to at once: their tags' order is chance.
    mixed: bool = False
    consumers: list[str] = field(default_factory=list)
    no_ack: dict[str, bool] = field(default_factory=dict)
    confirming: bool = False
    published: int = 0
    unconfirmed: set[int] = field(default_factory=set)
    transacted: bool = False
    # Settled in a transaction that is not committed.
    held: list[int] = field(default_factory=list)


class Knowledge:
    """Of one scenario on one broker; `suffix` makes the scenario's own names unique."""

    def __init__(self, suffix: str):
        self.suffix = suffix
        self.channels: dict[str, Channel] = {}
        self.made_names: list[str] = []
        # Where the last request that was delivered wants its reply.
        self.reply_to: str | None = None
        # What was delivered after the present step: by channel, the consumer's place and the delivery tag.
        self.fresh: dict[str, list[tuple[int, int]]] = {}

    def forget(self, connection: str) -> None:
        """A connection is gone."""
        for key in [key for key in self.channels if key[0] == connection]:
            del self.channels[key]

    def named(self, text):
        """A string, or what holds strings, with the scenario's own names made unique."""
        if isinstance(text, str):
            return text.replace("~", self.suffix)
        if isinstance(text, list | tuple):
            return [self.named(part) for part in text]
        if isinstance(text, dict):
            return {self.named(name): self.named(part) for name, part in text.items()}
        return text

    def fields(self, step: Step) -> dict | None:
        """The method's fields with what only the broker knows; none if there is no such thing."""
        fields = {name: self.named(value) for name, value in step.items() if name not in WORDS}
        channel = self.channels.get(step["on"])
        for name in ("queue", "routing_key"):
            made = fields.get(name)
            if made == "@reply":
                if self.reply_to is None:
                    return None
                fields[name] = self.reply_to
                continue
            if isinstance(made, str) and made.startswith("@"):
                if int(made[1:]) >= len(self.made_names):
                    return None
                fields[name] = self.made_names[int(made[1:])]
        if "consumer" in step:
            if not channel or not channel.consumers:
                return None
            fields["consumer_tag"] = channel.consumers[step["consumer"] % len(channel.consumers)]
        if "delivery" in step:
            if not channel or not channel.unsettled:
                return None
            fields["delivery_tag"] = channel.unsettled[step["delivery"] % len(channel.unsettled)]
            if channel.mixed and step.get("multiple"):
                fields["delivery_tag"] = max(channel.unsettled)
        if "delivery_tag" in fields and channel:
            self._settled(channel, fields["delivery_tag"], bool(step.get("multiple")))
        return fields

    def _settled(self, channel: Channel, tag: int, multiple: bool) -> None:
        gone = [
            one
            for one in channel.unsettled
            if one == tag or (multiple and (tag == 0 or (one < tag and tag in channel.unsettled)))
        ]
        channel.unsettled = [one for one in channel.unsettled if one not in gone]
        channel.mixed = channel.mixed and bool(channel.unsettled)
        if channel.transacted:
            channel.held += gone

    def before_sending(self, step: Step) -> None:
        """What is known of a step before anything comes of it."""
        channel = self.channels.get(step["on"])
        if channel is None:
            return
        match step["do"]:
            case "basic.publish" if channel.confirming:
                for _ in range(step.get("times", 1)):
                    channel.published += 1
                    channel.unconfirmed.add(channel.published)
            case "basic.recover" | "basic.recover_async" if step.get("requeue"):
                channel.unsettled = []
                channel.mixed = False
            case "basic.consume":
                # Known before its answer: with no_wait there is none.
                tag = self.named(step.get("consumer_tag", ""))
                channel.no_ack[tag] = bool(step.get("no_ack"))
                if step.get("no_wait") and tag and tag not in channel.consumers:
                    channel.consumers.append(tag)
            case "basic.cancel" if step.get("no_wait"):
                tag = self.named(step.get("consumer_tag", ""))
                channel.consumers = [one for one in channel.consumers if one != tag]
            case "confirm.select":
                channel.confirming = channel.confirming or bool(step.get("no_wait"))

    def absorb(self, step: Step, key: str, event: Event) -> None:
        """Something came on a channel after a step."""
        asked = (event.properties or {}).get("reply_to", "")
        if asked.startswith("amq.rabbitmq.reply-to."):
            self.reply_to = asked
        if event.name in ("connection.close", "connection.close_ok", "end of connection"):
            self.forget(key[0])
            return
        channel = self.channels.get(key)
        if channel is None:
            return
        fields = event.fields
        match event.name:
            case "channel.close" | "channel.close_ok":
                del self.channels[key]
            case "basic.deliver":
                tag = fields["consumer_tag"]
                if not channel.no_ack.get(tag, channel.no_ack.get("", False)):
                    order = channel.consumers.index(tag) if tag in channel.consumers else len(channel.consumers)
                    self.fresh.setdefault(key, []).append((order, fields["delivery_tag"]))
            case "basic.get_ok" if not step.get("no_ack") and step["do"] == "basic.get":
                self.fresh.setdefault(key, []).append((-1, fields["delivery_tag"]))
            case "basic.ack" | "basic.nack":
                channel.unconfirmed -= confirmed_by(event, channel.unconfirmed)
            case "basic.consume_ok":
                tag = fields["consumer_tag"]
                channel.no_ack[tag] = bool(step.get("no_ack"))
                if tag not in channel.consumers:
                    channel.consumers.append(tag)
            case "basic.cancel_ok" | "basic.cancel":
                channel.consumers = [tag for tag in channel.consumers if tag != fields["consumer_tag"]]
            case "confirm.select_ok":
                channel.confirming = True
            case "tx.select_ok":
                channel.transacted = True
            case "tx.commit_ok":
                channel.held = []
            case "tx.rollback_ok":
                channel.unsettled = sorted(channel.unsettled + channel.held)
                channel.held = []
            case "queue.declare_ok" if step["do"] == "queue.declare" and not step.get("queue"):
                if not step.get("passive"):
                    self.made_names.append(fields["queue"])

    def end_step(self) -> None:
        """Everything that came after a step is known; what was delivered has its place from now on."""
        for key, fresh in self.fresh.items():
            channel = self.channels.get(key)
            if channel is not None:
                fresh.sort(key=lambda pair: pair[0])
                channel.mixed = channel.mixed or len({consumer for consumer, _ in fresh}) > 1
                channel.unsettled += [tag for _, tag in fresh]
        self.fresh = {}


def confirmed_by(event: Event, unconfirmed: set[int]) -> set[int]:
    """Which of a channel's messages a broker's `basic.ack` or `basic.nack` tells of."""
    tag = event.fields["delivery_tag"]
    if event.fields["multiple"]:
        return {one for one in unconfirmed if one <= tag or tag == 0}
    return {tag} & unconfirmed
