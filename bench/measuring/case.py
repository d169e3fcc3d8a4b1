"""What a case, a target, a column and a group are: plain data, whoever is driven."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Target:
    """A bound on Weir's figure, divided by that of another broker or of another case where one is named."""

    figure: str
    at: str  # "most" or "least"
    bound: float
    beside: str | None = None
    beside_case: str | None = None
    # Where the client is the bottleneck the figure says nothing of the broker.
    unless_client_bound: bool = False


@dataclass(frozen=True)
class Case:
    """One row. Which fields matter depends on the kind of load."""

    group: str
    name: str
    kind: str
    peers: tuple[str, ...]
    targets: tuple[Target, ...] = ()
    # Part of the short form that runs without naming a group.
    quick: bool = False
    record_bytes: int = 1024
    partitions: int = 8
    # The one partition to produce to; without it the client's partitioner chooses.
    partition: int | None = None
    producers: int = 1
    consumers: int = 1
    client_settings: tuple[tuple[str, str | int], ...] = ()
    batches_counted: bool = False
    cold: bool = False
    # Of what the scale says is stored before it is read.
    stored_share: float = 1.0
    # Records a second, for loads of an even rate.
    rate: int = 10_000
    connections: int = 0
    chunk_bytes: int = 0
    # Of queues: through which type of exchange, to how many queues, by how many bindings.
    exchange: str = "direct"
    queues: int = 1
    bindings: int = 0
    # Messages that each producer has under way, and each consumer.
    unconfirmed: int = 1000
    prefetch: int = 500
    # Of the seconds of a round, for cases that are many or have several phases.
    seconds_share: float = 1.0
    # Measured in the first round only: a single measurement is long, and has samples enough.
    once: bool = False

    @property
    def idempotent(self) -> bool:
        return dict(self.client_settings).get("enable.idempotence") == "true"


@dataclass(frozen=True)
class Column:
    """A figure as it stands in a table."""

    heading: str
    figure: str
    form: str
    scale: float = 1.0


@dataclass(frozen=True)
class Group:
    """A section of the page."""

    name: str
    title: str
    words: str
    columns: tuple[Column, ...]
    cases: tuple[Case, ...] = field(default=())


def sized(record_bytes: int) -> str:
    if record_bytes % 1024 == 0:
        return f"{record_bytes // 1024} KiB"
    return f"{record_bytes} B"


HOTTEST = Column("client's hottest thread, % of a core", "hottest_thread", ".0f", 100)
RESIDENT = Column("resident MiB, highest", "highest_mib", ",.0f")
FLUSHES = Column("disk flushes/s", "disk_flushes_per_second", ",.0f")
OTHERS = Column("others' cores", "other_cores", ".2f")
