"""Differences behind frames and handshakes that are not as they should be."""

from ..compare import Difference
from .common import code, names, words

# `channel.close` with the code 200 and no words, up to its end.
CLOSED_IN_BYTES = "0014002800c80000000000ce"
# `connection.tune_ok` with neither a number of channels nor a size of frames.
TUNED_WITHOUT_LIMITS = "0100000000000c000a001f" + "00" * 8 + "ce"


def broken_bytes(difference: Difference) -> bool:
    """What a client sent that no client sends: the code is the same, the words are Erlang terms or ours."""
    return difference.step["do"] == "bytes" and difference.what.endswith("reply_text")


def named_method(difference: Difference) -> bool:
    return (
        difference.what in ("connection.close failing_class", "connection.close failing_method")
        and difference.rabbitmq == 0
        and code(difference.theirs) == code(difference.ours) == 501
    )


def no_limits(difference: Difference) -> bool:
    return (
        difference.step.get("hex", "").startswith(TUNED_WITHOUT_LIMITS)
        and names(difference.theirs) == ["end of connection"]
        and names(difference.ours) == ["connection.open_ok"]
    )


def offers_anonymous(difference: Difference) -> bool:
    return difference.what == "connection.start mechanisms" and difference.weir == f"{difference.rabbitmq} ANONYMOUS"


def is_anonymous(difference: Difference) -> bool:
    """A client that does not say who it is."""
    return (
        bool(difference.step.get("first"))
        and b"ANONYMOUS" in bytes.fromhex(difference.step["hex"])
        and names(difference.ours) == ["connection.tune"]
    )


def refused_early(difference: Difference) -> bool:
    return (
        bool(difference.step.get("first"))
        and names(difference.theirs) == ["end of connection"]
        and "connection.close" in names(difference.ours)
    )


def reader_fails(difference: Difference) -> bool:
    if difference.step["do"] != "bytes" or difference.step.get("first"):
        return False
    return names(difference.theirs) == ["end of connection"] or code(difference.theirs) == 541


def two_faults(difference: Difference) -> bool:
    codes = {code(difference.theirs), code(difference.ours)}
    return bool(difference.step.get("mangled")) and len(codes) == 2 and codes < {501, 504, 505}


def unnamed_before_open(difference: Difference) -> bool:
    return (
        bool(difference.step.get("mangled"))
        and (code(difference.theirs), code(difference.ours)) == (404, 504)
        and "no previously declared queue" in words(difference.theirs)
    )


def behind_a_close(difference: Difference) -> bool:
    return (
        difference.step["do"] == "bytes"
        and CLOSED_IN_BYTES in difference.step["hex"]
        and names(difference.theirs) == ["channel.close_ok"]
        and code(difference.ours) == 504
    )
