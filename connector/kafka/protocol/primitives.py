"""Bytes of Kafka's messages -> fields, and back: numbers, texts, arrays (pure).

Source: Kafka's protocol documentation, "Protocol Primitive Types".
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

_CLIENT_ID_HEADER = struct.Struct(">hhi")
_SIZE = struct.Struct(">i")


class ResponseReader:
    """Reads the fields of a response in order; struct.error where it ends too early."""

    def __init__(self, data: memoryview) -> None:
        """Begin at its start."""
        self._data, self._at = data, 0

    def numbers(self, layout: str) -> tuple[int, ...]:
        """Return numbers of fixed size (struct's letters)."""
        shape = f">{layout}"
        found = struct.unpack_from(shape, self._data, self._at)
        self._at += struct.calcsize(shape)
        return found

    def number(self, layout: str) -> int:
        """Return one number."""
        return self.numbers(layout)[0]

    def skip(self, layout: str) -> None:
        """Pass numbers over."""
        self.numbers(layout)

    def count(self) -> int:
        """Return how many elements an array has; none where it is null. struct.error for more than there are bytes."""
        found = self.number("i")
        if found > len(self._data) - self._at:
            raise struct.error(f"an array of {found} elements in {len(self._data) - self._at} bytes")
        return max(found, 0)

    def rows(self, layout: str) -> Iterator[tuple[int, ...]]:
        """Return the elements of an array of numbers."""
        for _ in range(self.count()):
            yield self.numbers(layout)

    def read_bytes(self, size: int) -> memoryview:
        """Return the next bytes; none for a negative size, which stands for null."""
        start, self._at = self._at, self._at + max(size, 0)
        if self._at > len(self._data):
            raise struct.error(f"a field of {size} bytes ends after the response")
        return self._data[start : self._at]

    def text(self) -> str:
        """Return a text; empty where it is null."""
        return str(self.read_bytes(self.number("h")), "utf-8", "replace")

    def blob(self) -> bytes:
        """Return bytes; empty where they are null."""
        return bytes(self.read_bytes(self.number("i")))


def encode_text(value: str) -> bytes:
    """Return a text behind its length."""
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def encode_blob(value: bytes) -> bytes:
    """Return bytes behind their length."""
    return _SIZE.pack(len(value)) + value


def encode_request(api: int, version: int, number: int, client_id: str, body: bytes) -> bytes:
    """Return a request with its size and header; `number` comes back with its response."""
    head = _CLIENT_ID_HEADER.pack(api, version, number) + encode_text(client_id)
    return _SIZE.pack(len(head) + len(body)) + head + body
