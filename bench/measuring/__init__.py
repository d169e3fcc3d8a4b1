"""The parts of `bench/run`: what is measured (`cases`), how (`loads`), on whom (`peers`), and the page of it.

* `cases`: every case as plain data, with its target; `case` says of what it is made, `kafka_cases` has those
  beside Apache Kafka and `queue_cases` those beside RabbitMQ.
* `peers`: Weir and the others as processes that are watched; `processes` and `machine` read what the
  kernel says of them; `topics` and `queues` make, check and remove topics and queues.
* `running`: clients as processes; `client`: librdkafka's load generator and what it prints; `paced`: the clients
  whose latency is measured; `perf_test` and `queue_load`: the same for queues.
* `loads`: one module for each kind of case.
* `rounds`: brokers in turn, round after round; `samples`: what they gave, as lines of JSON.
* `judgement`: medians, ratios and whether a target was met; `page`: docs/benchmarks.md.

A fault in a measurement (a record not delivered, a broker that died, a durability that is not what the
row says) raises `Fault`: it never becomes a number.
"""


class Fault(Exception):
    """A measurement that may not count; the words say what was wrong with it."""
