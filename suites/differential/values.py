"""Fields, tables and properties as bytes and back.

A value in a table is a pair `[tag, value]`, so that a scenario can say which type it means. Bytes that are not
UTF-8 survive as surrogates. A table is a list of `[name, [tag, value]]`, which keeps order and repetitions; where one
is written by hand a dictionary will do.
"""

import struct

from .protocol import PROPERTIES

# Tags of numbers, and how they lie on the wire.
_NUMBERS = {
    "b": ">b",
    "B": ">B",
    "s": ">h",
    "u": ">H",
    "I": ">i",
    "i": ">I",
    "l": ">q",
    "L": ">q",
    "f": ">f",
    "d": ">d",
    "T": ">Q",
}
_FIXED = {"octet": ">B", "short": ">H", "long": ">I", "long_long": ">Q"}


class Malformed(ValueError):
    """Bytes that are not what they should be."""


def to_bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def to_text(data: bytes) -> str:
    return bytes(data).decode("utf-8", "surrogateescape")


def _short_str(text: str) -> bytes:
    data = to_bytes(text)
    return bytes([len(data)]) + data


def _long_str(text: str) -> bytes:
    data = to_bytes(text)
    return struct.pack(">I", len(data)) + data


def value_bytes(pair) -> bytes:
    """A value of a table with its tag."""
    tag, value = pair
    if tag in _NUMBERS:
        data = struct.pack(_NUMBERS[tag], value)
    elif tag in "Sx":
        data = _long_str(value)
    elif tag == "t":
        data = bytes([bool(value)])
    elif tag == "V":
        data = b""
    elif tag == "D":
        data = struct.pack(">Bi", *value)
    elif tag == "F":
        data = table_bytes(value)
    elif tag == "A":
        inner = b"".join(map(value_bytes, value))
        data = struct.pack(">I", len(inner)) + inner
    elif tag == "raw":
        return to_bytes(value)
    else:
        raise ValueError(f"no tag {tag}")
    return tag.encode() + data


def table_bytes(table) -> bytes:
    pairs = table.items() if isinstance(table, dict) else table
    inner = b"".join(_short_str(name) + value_bytes(value) for name, value in pairs)
    return struct.pack(">I", len(inner)) + inner


def fields_bytes(fields, values: dict) -> bytes:
    """The fields of a method; what is not given is zero, empty or false."""
    out = bytearray()
    bits = 0
    for name, kind in fields:
        if kind == "bit":
            if bits % 8 == 0:
                out.append(0)
            out[-1] |= bool(values.get(name)) << (bits % 8)
            bits += 1
            continue
        bits = 0
        if kind == "table":
            out += table_bytes(values.get(name) or [])
        elif kind == "short_str":
            out += _short_str(values.get(name) or "")
        elif kind == "long_str":
            out += _long_str(values.get(name) or "")
        else:
            out += struct.pack(_FIXED[kind], values.get(name) or 0)
    return bytes(out)


def properties_bytes(properties: dict) -> bytes:
    """A content header's flags and properties."""
    flags = 0
    present = []
    for index, (name, kind) in enumerate(PROPERTIES):
        if name in properties:
            flags |= 1 << (15 - index)
            present.append((name, kind))
    return struct.pack(">H", flags) + b"".join(fields_bytes([field], properties) for field in present)


class Reader:
    """Reads values one after another, never beyond the end."""

    def __init__(self, data: bytes):
        self.data = data
        self.at = 0

    def take(self, length: int) -> bytes:
        if self.at + length > len(self.data):
            raise Malformed(f"{length} bytes wanted at {self.at} of {len(self.data)}")
        self.at += length
        return self.data[self.at - length : self.at]

    def number(self, form: str):
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def field(self, kind: str):
        if kind == "short_str":
            return to_text(self.take(self.number(">B")))
        if kind == "long_str":
            return to_text(self.take(self.number(">I")))
        if kind == "table":
            return self.table()
        return self.number(_FIXED[kind])

    def table(self) -> list:
        inner = Reader(self.take(self.number(">I")))
        found = []
        while inner.at < len(inner.data):
            name = inner.field("short_str")
            found.append([name, inner.value()])
        return found

    def value(self) -> list:
        tag = to_text(self.take(1))
        if tag in _NUMBERS:
            return [tag, self.number(_NUMBERS[tag])]
        if tag in "Sx":
            return [tag, self.field("long_str")]
        if tag == "t":
            return [tag, self.number(">B") != 0]
        if tag == "V":
            return [tag, None]
        if tag == "D":
            return [tag, list(struct.unpack(">Bi", self.take(5)))]
        if tag == "F":
            return [tag, self.table()]
        if tag == "A":
            inner = Reader(self.take(self.number(">I")))
            found = []
            while inner.at < len(inner.data):
                found.append(inner.value())
            return [tag, found]
        raise Malformed(f"a value has the tag {tag!r}")

    def fields(self, fields) -> dict:
        values = {}
        bits = octet = 0
        for name, kind in fields:
            if kind == "bit":
                if bits % 8 == 0:
                    octet = self.number(">B")
                values[name] = bool(octet >> (bits % 8) & 1)
                bits += 1
                continue
            bits = 0
            values[name] = self.field(kind)
        return values

    def properties(self) -> dict:
        flags = self.number(">H")
        if flags & 3:
            raise Malformed(f"property flags {flags:#x}")
        return {
            name: self.field(kind) for index, (name, kind) in enumerate(PROPERTIES) if flags >> (15 - index) & 1
        }
