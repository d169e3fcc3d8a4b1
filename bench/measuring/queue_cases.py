"""The cases in which Weir stands beside RabbitMQ, by its kinds of queue."""

from .case import FLUSHES, HOTTEST, OTHERS, RESIDENT, Case, Column, Group, Target, sized

CLASSIC = ("rabbitmq-classic", "rabbitmq-classic-2")
QUORUM = "rabbitmq-quorum"
RABBITMQ = (*CLASSIC, QUORUM)
ALL = ("weir", *RABBITMQ)
# Cases are many, and some have several phases: with these all groups of a run fit into their time.
QUEUES_SHARE, PHASE_SHARE = 0.5, 0.2
FAN_OUT_QUEUES, TOPIC_BINDINGS = 10, 10_000

RATE = Column("messages/s", "records_per_second", ",.0f")
CPU_MESSAGE = Column("broker CPU µs per message", "broker_cpu_s_per_million", ".2f")
CPU_DELIVERY = Column("broker CPU µs per delivery", "broker_cpu_s_per_million_deliveries", ".2f")
CLIENT_CPU = Column("client CPU µs per message", "client_cpu_s_per_million", ".2f")
CLIENT_CORES = Column("client, cores", "client_cores", ".2f")
CLIENT = (CLIENT_CPU, CLIENT_CORES, HOTTEST)


def _beside(
    figure: str, at: str, classic: float, quorum: float, *, unless_client_bound: bool = False
) -> tuple[Target, ...]:
    """A bound beside each kind of queue."""
    bounds = dict.fromkeys(CLASSIC, classic) | {QUORUM: quorum}
    return tuple(
        Target(figure, at, bound, peer, unless_client_bound=unless_client_bound) for peer, bound in bounds.items()
    )


def _queue_cases():
    for record_bytes in (12, 1024, 16 * 1024):
        for clients in (1, 8):
            plural = "s" if clients > 1 else ""
            yield Case(
                "queues",
                f"{sized(record_bytes)}, {clients} producer{plural} and {clients} consumer{plural}",
                "queues",
                ALL,
                (
                    *_beside("broker_cpu_s_per_million", "most", 1 / 3, 1 / 5),
                    *_beside("records_per_second", "least", 3, 5, unless_client_bound=True),
                ),
                quick=record_bytes == 1024 and clients == 1,
                record_bytes=record_bytes,
                producers=clients,
                consumers=clients,
                seconds_share=QUEUES_SHARE,
            )


def _fan_out_cases():
    # Routing is the same for both versions of the classic queue.
    peers = ("weir", "rabbitmq-classic", QUORUM)
    targets = tuple(
        Target("broker_cpu_s_per_million_deliveries", "most", 1 / 5, peer) for peer in peers if peer != "weir"
    )
    yield Case(
        "fan-out",
        f"fanout, {FAN_OUT_QUEUES} queues",
        "queues",
        peers,
        targets,
        exchange="fanout",
        queues=FAN_OUT_QUEUES,
        consumers=FAN_OUT_QUEUES,
        seconds_share=QUEUES_SHARE,
    )
    yield Case(
        "fan-out",
        f"topic, {TOPIC_BINDINGS:,} bindings",
        "topic",
        peers,
        targets,
        exchange="topic",
        queues=FAN_OUT_QUEUES,
        bindings=TOPIC_BINDINGS,
        seconds_share=QUEUES_SHARE,
    )


def _backlog_cases():
    peers = ("weir", "rabbitmq-classic", QUORUM)
    yield Case(
        "backlog",
        "empty and waiting",
        "backlog",
        peers,
        (
            Target("published_of_empty", "least", 0.9),
            Target("drained_of_empty", "least", 0.9),
            Target("confirmed_p99_of_empty", "most", 1.1),
            Target("above_empty_mib", "most", 64),
        ),
        record_bytes=100,
        seconds_share=PHASE_SHARE,
    )
    yield Case(
        "backlog",
        "`kill -9` and start",
        "backlog-restart",
        peers,
        (Target("first_delivered_s", "most", 1.0),),
        record_bytes=100,
        seconds_share=PHASE_SHARE,
    )


GROUPS = (
    Group(
        "queues",
        "Queues",
        "One queue, persistent messages, 1,000 unconfirmed of each producer, acknowledged one by one with a prefetch "
        "of 500; every client has a connection of its own, all in one PerfTest. From the first confirm or delivery to "
        "the last.",
        (RATE, Column("MB/s", "megabytes_per_second", ",.1f"), CPU_MESSAGE, *CLIENT, RESIDENT, FLUSHES, OTHERS),
        tuple(_queue_cases()),
    ),
    Group(
        "confirms",
        "Confirms",
        "From publishing a persistent message of 1 KiB to its confirm, one message under way. Nobody consumes "
        "meanwhile, so that no consumer's acknowledgement spares the sync.",
        (
            RATE,
            Column("p50 ms", "confirmed_p50_ms", ".3f"),
            Column("p99 ms", "confirmed_p99_ms", ".3f"),
            Column("p99.9 ms", "confirmed_p999_ms", ".3f"),
            CPU_MESSAGE,
            HOTTEST,
            FLUSHES,
            OTHERS,
        ),
        (
            Case(
                "confirms",
                "one in flight",
                "confirms",
                ALL,
                (*_beside("confirmed_p50_ms", "most", 0.5, 0.5), *_beside("confirmed_p99_ms", "most", 0.5, 0.5)),
                unconfirmed=1,
                seconds_share=QUEUES_SHARE,
            ),
        ),
    ),
    Group(
        "fan-out",
        "Fan-out",
        f"Messages of 1 KiB, persistent, confirmed, acknowledged one by one. A fanout exchange to {FAN_OUT_QUEUES} "
        f"queues with a consumer each; and a topic exchange with {TOPIC_BINDINGS:,} bindings to {FAN_OUT_QUEUES} queues, "
        "of which every message meets one, with keys that take turns. The classic queue is of version 1.",
        (
            RATE,
            Column("deliveries/s", "deliveries_per_second", ",.0f"),
            CPU_DELIVERY,
            *CLIENT,
            RESIDENT,
            FLUSHES,
            OTHERS,
        ),
        tuple(_fan_out_cases()),
    ),
    Group(
        "backlog",
        "Backlog",
        "Persistent messages of 100 bytes wait in a queue; every phase is measured on an empty queue of the same broker "
        "and then on that one, and ratios are to the same broker's empty queue: publishing with 1,000 unconfirmed, taking "
        "with a prefetch of 500, and the p99 of confirms with one message under way. Memory is resident memory at rest "
        "with the backlog, less that of the same process at rest before it, both once it no longer falls. Then the "
        "broker is killed with `kill -9`; from exec (for RabbitMQ: of its launcher) to the first delivery to a new "
        "consumer that tries again at once. The classic queue is of version 1.",
        (
            Column("million waiting", "waiting_million", ".2f"),
            Column("filled, messages/s", "fill_per_second", ",.0f"),
            Column("published/s, empty", "published_empty", ",.0f"),
            Column("waiting", "published_waiting", ",.0f"),
            Column("taken/s, empty", "drained_empty", ",.0f"),
            Column("waiting", "drained_waiting", ",.0f"),
            Column("confirm p99 ms, empty", "confirmed_p99_empty_ms", ".3f"),
            Column("waiting", "confirmed_p99_waiting_ms", ".3f"),
            Column("published, ratio", "published_of_empty", ".2f"),
            Column("taken, ratio", "drained_of_empty", ".2f"),
            Column("confirm p99, ratio", "confirmed_p99_of_empty", ".2f"),
            Column("resident MiB, empty", "empty_mib", ",.0f"),
            Column("above it, waiting", "above_empty_mib", ",.0f"),
            Column("said ready, s", "ready_s", ".3f"),
            Column("first delivered, s", "first_delivered_s", ".3f"),
        ),
        tuple(_backlog_cases()),
    ),
    Group(
        "delays",
        "Delayed messages",
        "Persistent messages of 100 bytes through an `x-delayed-message` exchange, delays at random up to the longest, "
        "published at full speed with 1,000 unconfirmed. Late is from when a message was given to the client, and its "
        "delay, to when the consumer has it. Measured once, in the first round. Debian's RabbitMQ has no such exchange, "
        "so Weir stands alone.",
        (
            Column("million delayed", "delayed_million", ".2f"),
            Column("by up to, s", "delay_seconds", ",.0f"),
            Column("published/s", "records_per_second", ",.0f"),
            Column("undelayed/s", "undelayed_per_second", ",.0f"),
            Column("ratio", "published_of_undelayed", ".2f"),
            Column("late p50 ms", "late_p50_ms", ".2f"),
            Column("late p99 ms", "late_p99_ms", ".2f"),
            Column("late p99.9 ms", "late_p999_ms", ".2f"),
            Column("late max ms", "late_max_ms", ".1f"),
            CPU_MESSAGE,
            RESIDENT,
            OTHERS,
        ),
        (
            Case(
                "delays",
                "random delays",
                "delays",
                ("weir",),
                (Target("late_p99_ms", "most", 50), Target("published_of_undelayed", "least", 0.8)),
                record_bytes=100,
                once=True,
            ),
        ),
    ),
)
