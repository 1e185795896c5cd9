"""schema id -> writer schema: what a decoder asks of a registry; the client itself is no part of the wire."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

SchemaTexts: TypeAlias = tuple[str, ...]
"""A writer schema: the texts of the schemas that it refers to, in order, then its own."""

FetchSchema: TypeAlias = Callable[[int], SchemaTexts]
"""Gives the writer schema of an id. Raises UnknownSchema; any other error (the registry is away) goes
through the decoder to its caller: no message is at fault then.
"""


class UnknownSchema(LookupError):
    """The registry answers, and has no Avro schema of this id; the text says why, without content."""
