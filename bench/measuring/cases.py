"""Every case of the benchmark as plain data: what is driven, on which brokers, and what has to come out.

A group is what is measured at one time and has one section on the page; a case is one row of it.
"""

from . import kafka_cases, queue_cases

GROUPS = (*kafka_cases.GROUPS, *queue_cases.GROUPS)

BY_NAME = {group.name: group for group in GROUPS}
CASES = tuple(case for group in GROUPS for case in group.cases)
