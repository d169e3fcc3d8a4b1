"""Faults done to a real broker, one scenario each, and what clients, the log and the disk must show.

* `scenario`: what a scenario is, and what it may use.
* `server`: a Weir that can be started with faults, looked into, and found ended.
* `records`: numbered records, who acknowledged them, and whether they are all there.
* `wire`: requests by hand, where a client would hide the broker's own answer.
* `injection`, `filesystems`, `clock`: how a fault is done.
* `scenarios`: the faults themselves, by subject.
"""
