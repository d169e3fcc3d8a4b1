"""The cases in which Weir stands beside Apache Kafka."""

from .case import FLUSHES, HOTTEST, OTHERS, RESIDENT, Case, Column, Group, Target, sized

BATCH_16_KIB = 16 * 1024
BATCH_1_MB = 1_000_000

RATE = Column("records/s", "records_per_second", ",.0f")
MEGABYTES = Column("MB/s", "megabytes_per_second", ",.0f")
CPU_MILLION = Column("broker CPU s per million records", "broker_cpu_s_per_million", ".2f")
CPU_GB = Column("broker CPU s per GB", "broker_cpu_s_per_gb", ".2f")
CLIENT_CPU = Column("client CPU s per million", "client_cpu_s_per_million", ".2f")
THROUGHPUT = (RATE, MEGABYTES, CPU_MILLION, CPU_GB, CLIENT_CPU, HOTTEST, RESIDENT, FLUSHES, OTHERS)


def batched(batch_bytes: int, **more: str | int) -> tuple[tuple[str, str | int], ...]:
    # As many records as fit: librdkafka's own limit of 10,000 would close batches of small records early.
    common = {"enable.idempotence": "true", "linger.ms": 5, "batch.size": batch_bytes, "batch.num.messages": 1_000_000}
    return tuple((common | {name.replace("_", "."): value for name, value in more.items()}).items())


def one_record_a_request(in_flight: int) -> tuple[tuple[str, str | int], ...]:
    return (
        ("enable.idempotence", "false"),
        ("linger.ms", 0),
        ("batch.num.messages", 1),
        ("max.in.flight.requests.per.connection", in_flight),
    )


def _produce_cases():
    cpu_at_most = {100: 0.5, 1024: 0.8}
    for record_bytes in (100, 1024):
        for producers in (1, 8):
            for batch_bytes, batch in ((BATCH_16_KIB, "16 KiB"), (BATCH_1_MB, "1 MB")):
                plural = "s" if producers > 1 else ""
                targets = [
                    Target("broker_cpu_s_per_million", "most", cpu_at_most[record_bytes], "kafka"),
                    Target("records_per_second", "least", 1.3, "kafka", unless_client_bound=True),
                ]
                synced = batch_bytes == BATCH_16_KIB
                if synced:
                    targets.append(
                        Target("records_per_second", "least", 3, "kafka-flush", unless_client_bound=True)
                    )
                yield Case(
                    "produce",
                    f"{sized(record_bytes)}, {producers} producer{plural}, batches of {batch}",
                    "produce",
                    ("weir", "kafka", "kafka-flush") if synced else ("weir", "kafka"),
                    tuple(targets),
                    quick=synced and record_bytes == 1024 and producers == 1,
                    record_bytes=record_bytes,
                    producers=producers,
                    client_settings=batched(batch_bytes),
                )


def _request_cases():
    for connections, in_flight in ((1, 64), (64, 1)):
        plural = "s" if connections > 1 else ""
        yield Case(
            "requests",
            f"{connections} connection{plural} × {in_flight} in flight",
            "produce",
            ("weir", "kafka-flush"),
            (Target("records_per_second", "least", 10, "kafka-flush", unless_client_bound=True),),
            record_bytes=100,
            producers=connections,
            client_settings=one_record_a_request(in_flight),
        )


def _consume_cases():
    for cold in (False, True):
        for consumers in (1, 3):
            plural = "s" if consumers > 1 else ""
            yield Case(
                "consume",
                f"{'cold' if cold else 'hot'}, {consumers} consumer{plural}",
                "consume",
                ("weir", "kafka"),
                (
                    Target("broker_cpu_s_per_gb", "most", 1.0, "kafka"),
                    Target("records_per_second", "least", 1.0, "kafka", unless_client_bound=True),
                ),
                quick=consumers == 1 and not cold,
                consumers=consumers,
                cold=cold,
            )


def _latency_cases():
    # Without idempotence the client library has no window in which records wait for earlier ones.
    for idempotence, words in (("true", ""), ("false", ", without idempotence")):
        targets = (
            Target("read_p50_ms", "most", 0.8, "kafka"),
            Target("read_p99_ms", "most", 0.5, "kafka"),
            Target("read_p999_ms", "most", 0.5, "kafka"),
        )
        yield Case(
            "latency",
            f"10,000 records/s{words}",
            "latency",
            ("weir", "kafka"),
            targets if idempotence == "true" else (),
            quick=idempotence == "true",
            partitions=1,
            partition=0,
            client_settings=(("enable.idempotence", idempotence), ("acks", "all"), ("linger.ms", 0)),
        )


PARTITION_COUNTS = (1, 1000, 10_000)


def _partition_cases():
    def named(count: int, way: str) -> str:
        return f"{count:,} partition{'s' if count > 1 else ''}, {way}"

    for count in PARTITION_COUNTS:
        own = Target(
            "records_per_second", "least", 0.9, beside_case=named(1, "sticky"), unless_client_bound=True
        )
        yield Case(
            "partitions",
            named(count, "sticky"),
            "produce",
            ("weir", "kafka"),
            () if count == 1 else (own,),
            partitions=count,
            client_settings=batched(BATCH_16_KIB),
        )
    for count in PARTITION_COUNTS[1:]:
        yield Case(
            "partitions",
            named(count, "random"),
            "produce",
            ("weir", "kafka"),
            record_bytes=100,
            partitions=count,
            client_settings=batched(BATCH_16_KIB, sticky_partitioning_linger_ms=0),
            batches_counted=True,
        )


def _floor_cases():
    for batch_bytes, batch in ((BATCH_16_KIB, "16 KiB"), (BATCH_1_MB, "1 MB")):
        yield Case(
            "floor",
            f"1 KiB, 8 producers, batches of {batch}",
            "produce",
            ("weir", "kafka", "floor"),
            (Target("broker_cpu_s_per_gb", "most", 2.0, "floor"),),
            producers=8,
            client_settings=batched(batch_bytes),
            chunk_bytes=batch_bytes,
        )


def _curve_cases():
    both = ("weir", "kafka")
    for connections in (10, 100, 1000, 10_000):
        yield Case(
            "curves",
            f"{connections:,} connections, 2,000 requests/s in all",
            "connections",
            both,
            record_bytes=100,
            rate=2000,
            connections=connections,
        )
    for record_bytes in (10, 100, 1024, 10 * 1024, 100 * 1024, 900 * 1024):
        yield Case(
            "curves",
            f"records of {sized(record_bytes)}",
            "produce",
            both,
            record_bytes=record_bytes,
            client_settings=batched(BATCH_1_MB),
        )
    for consumers in (1, 3, 10, 30):
        yield Case(
            "curves",
            f"{consumers} consumer{'s' if consumers > 1 else ''} of one partition",
            "consume",
            both,
            partitions=1,
            consumers=consumers,
            stored_share=0.25,
        )
    for count in (1, 10, 100, 1000, 10_000):
        yield Case(
            "curves",
            f"producing to {count:,} partition{'s' if count > 1 else ''}",
            "produce",
            both,
            partitions=count,
            client_settings=batched(BATCH_1_MB),
        )


GROUPS = (
    Group(
        "produce",
        "Producing",
        "Producers at full speed, 8 partitions (0 to 7), librdkafka's own partitioner. Weir always syncs; Kafka "
        "once as it comes and, for batches of 16 KiB, once with `flush.messages=1`.",
        THROUGHPUT,
        tuple(_produce_cases()),
    ),
    Group(
        "requests",
        "One record a request",
        "Records of 100 bytes, each in a request of its own, idempotence off, 8 partitions (0 to 7); a connection is a "
        "producer process.",
        (RATE, CPU_MILLION, CLIENT_CPU, HOTTEST, RESIDENT, FLUSHES, OTHERS),
        tuple(_request_cases()),
    ),
    Group(
        "consume",
        "Consuming",
        "Each consumer reads the whole of a stored topic of 1 KiB records in 8 partitions (0 to 7), again and again "
        "until the round is over. Hot: from the page cache. Cold: the page cache is emptied before each pass. "
        "That it was so is checked by what was read from the disk.",
        (*THROUGHPUT[:-2], Column("read from disk, share", "read_from_disk", ".2f"), OTHERS),
        tuple(_consume_cases()),
    ),
    Group(
        "latency",
        "End to end",
        "From when a record is due until the consumer has it, and until the producer has its acknowledgement; 1 KiB "
        "records, `acks=all`, `linger.ms=0`, one partition (0). Each millisecond the records of that millisecond are "
        "due; latency counts from then, by a schedule that was fixed at the start. So a stall of the broker or of a "
        "client is not forgiven: what it held up is late by all of it. Both clients sleep in between, and wake for "
        "records or acknowledgements. With idempotence librdkafka sends nothing more while five records are "
        "unacknowledged; as long as others wait for that, its producer polls without a pause.",
        (
            Column("records/s", "records_per_second", ",.0f"),
            Column("read p50 ms", "read_p50_ms", ".3f"),
            Column("read p99 ms", "read_p99_ms", ".3f"),
            Column("read p99.9 ms", "read_p999_ms", ".3f"),
            Column("read max ms", "read_max_ms", ".1f"),
            Column("acknowledged p50 ms", "acknowledged_p50_ms", ".3f"),
            Column("acknowledged p99 ms", "acknowledged_p99_ms", ".3f"),
            CPU_MILLION,
            Column("producer, cores", "producer_cores", ".2f"),
            Column("consumer, cores", "consumer_cores", ".2f"),
            HOTTEST,
            FLUSHES,
            OTHERS,
        ),
        tuple(_latency_cases()),
    ),
    Group(
        "partitions",
        "Partitions",
        "One producer, batches of up to 16 KiB. Sticky: librdkafka keeps to a partition for 10 ms, its default. Random: "
        "each record goes to any partition (`sticky.partitioning.linger.ms=0`), records of 100 bytes; the batches "
        "that came of it are counted by reading them back.",
        (
            *THROUGHPUT[:3],
            CLIENT_CPU,
            HOTTEST,
            RESIDENT,
            Column("records a batch", "records_per_batch", ".1f"),
            Column("broker CPU µs per batch", "broker_cpu_us_per_batch", ".1f"),
            OTHERS,
        ),
        tuple(_partition_cases()),
    ),
    Group(
        "restart",
        "Restart after `kill -9`",
        "Killed while 8 producers send at full rate, over what was stored before. From exec (for Kafka: of its "
        "launcher) to the first acknowledgement of a probe that tries again at once.",
        (
            Column("first acknowledged, s", "first_acknowledged_s", ".3f"),
            Column("said ready, s", "ready_s", ".3f"),
            Column("GB stored", "stored_gb", ".1f"),
        ),
        (
            Case(
                "restart",
                "8 producers, 8 partitions",
                "restart",
                ("weir", "kafka"),
                (Target("first_acknowledged_s", "most", 1.0),),
                producers=8,
                client_settings=batched(BATCH_1_MB),
            ),
        ),
    ),
    Group(
        "memory",
        "Resident memory",
        "A broker without data at rest; its highest resident memory while 8 producers and then 3 consumers run at full "
        "speed; and 5 s after them. Kafka's heap is what its JVM's collector counts, of the 1 GiB that its "
        "start script gives it.",
        (
            Column("at rest, MiB", "rest_mib", ",.0f"),
            Column("highest under load, MiB", "load_mib", ",.0f"),
            Column("of it anonymous at the end, MiB", "load_anonymous_mib", ",.0f"),
            Column("heap in use, MiB", "heap_mib", ",.0f"),
            Column("at rest afterwards, MiB", "after_mib", ",.0f"),
        ),
        (
            Case(
                "memory",
                "8 producers, then 3 consumers",
                "memory",
                ("weir", "kafka"),
                (Target("rest_mib", "most", 64), Target("load_mib", "most", 640)),
                producers=8,
                client_settings=batched(BATCH_1_MB),
            ),
        ),
    ),
    Group(
        "floor",
        "Distance to the hardware",
        "Broker CPU per GB produced, beside what `recv`, CRC-32C and two writes of the same bytes into the page cache "
        "cost alone, in pieces as large as the batches: once over a ring of preallocated files, once to the end of "
        "a growing one (`bench/floor`).",
        (CPU_GB, MEGABYTES, HOTTEST, OTHERS),
        tuple(_floor_cases()),
    ),
    Group(
        "curves",
        "Cost curves",
        "What one more of something costs. Connections produce one record of 100 bytes in turn, at the same "
        "total rate, from one process; everything else is `rdkafka_performance`.",
        (
            RATE,
            MEGABYTES,
            CPU_MILLION,
            CPU_GB,
            Column("broker CPU µs per request", "broker_cpu_us_per_request", ".1f"),
            HOTTEST,
            RESIDENT,
            OTHERS,
        ),
        tuple(_curve_cases()),
    ),
)
