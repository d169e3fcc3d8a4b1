"""A cluster under faults, and what clients and disks must show of it.

* `records`: Kafka's clients and their ledgers.
* `messages`: AMQP's clients and theirs.
* `faults`: each fault, done to running nodes and undone.
* `nemesis`: which fault when, from a seed, with a timeline.
* `ledgers`: what clients were told, and when.
* `judgement`: what must hold over the ledgers, the timeline and what is there in the end.
* `replicas`: what every node has on its disk.
* `ending`: what is read when all is over.
* `damage`, `shapes`, `rehearsal`, `fake_node`: that the checks can fail, and that faults are what they are named.
"""
