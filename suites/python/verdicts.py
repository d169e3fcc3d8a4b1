"""A plugin of pytest that tells what became of each test, a line each, in the file that SUITE_VERDICTS names.

It is loaded into the test runs of others, which may have another pytest than ours: it uses nothing but hooks that every
version has.
"""

import json
import os

SAID = {"passed": "passed", "failed": "failed", "skipped": "skipped"}


def pytest_runtest_logreport(report):
    """A test is set up, called and torn down; it has passed if all three have."""
    verdict = SAID[report.outcome]
    if hasattr(report, "wasxfail"):
        # What its authors expect to fail tells nothing, whether it does or not.
        verdict = "skipped"
    line = {"name": report.nodeid, "stage": report.when, "verdict": verdict, "seconds": report.duration}
    with open(os.environ["SUITE_VERDICTS"], "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")


def pytest_collectreport(report):
    """A file that cannot be read is a failure of its own."""
    if report.failed:
        line = {"name": report.nodeid or "collection", "stage": "teardown", "verdict": "failed", "seconds": 0.0}
        with open(os.environ["SUITE_VERDICTS"], "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
