"""schema texts -> messages and enums by their full names, as they are defined; nothing is resolved yet.

A registry hands out .proto texts, theirs before those that import them. What is not Confluent's may hand out what was
registered, which for Confluent's Python client is a file descriptor in base64.
Sources: the Protobuf language specifications (proto2, proto3, editions).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import define, field, frozen

PROTO2, PROTO3 = "proto2", "proto3"


class Malformed(ValueError):
    """A text that is no schema; says why, without quoting it."""


@frozen(eq=False)
class FieldDefinition:
    """A field as it is written.

    type: a scalar's name, or that of a message or enum, absolute with a dot in front; presence: whether absence differs
    from the default; params: what Confluent's converter noted (`confluent.field_meta`).
    """

    name: str
    number: int
    type: str
    repeated: bool
    presence: bool
    oneof: str | None = None
    params: Mapping[str, str] = field(factory=dict)


@frozen(eq=False)
class MessageDefinition:
    """A message: fields in the order of the text, and the full names of the messages inside of it, by their index."""

    name: str
    fields: tuple[FieldDefinition, ...]
    nested: tuple[str, ...] = ()
    is_map: bool = False


@frozen(eq=False)
class EnumDefinition:
    """An enum: labels by number, the first of each."""

    name: str
    labels: Mapping[int, str]


@define(eq=False)
class Definitions:
    """Everything that some files define; `roots` are the messages of the last file, by their index."""

    messages: dict[str, MessageDefinition] = field(factory=dict)
    enums: dict[str, EnumDefinition] = field(factory=dict)
    roots: tuple[str, ...] = ()

    def find(self, written: str, scope: str) -> MessageDefinition | EnumDefinition:
        """Return what a name means inside of a message: the innermost one. Raises Malformed where nothing has it."""
        for name in _candidates(written, scope):
            definition = self.messages.get(name) or self.enums.get(name)
            if definition is not None:
                return definition
        raise Malformed(f"it has a field of a type that is not defined: {written}")

    def find_by_number(self, number: int) -> MessageDefinition:
        """Return a message by its place among all of the file, those inside of others too, in the order of their names.

        Raises Malformed where there is none.
        """
        inner = tuple(f"{name}." for name in self.roots)
        names = sorted(name for name in self.messages if name in self.roots or name.startswith(inner))
        if not 0 <= number < len(names):
            raise Malformed("it has no message of the number that the record names")
        return self.messages[names[number]]

    def at(self, indexes: tuple[int, ...]) -> MessageDefinition:
        """Return the message at a path of indexes, outermost first. Raises Malformed where there is none."""
        names = self.roots
        for depth, index in enumerate(indexes, 1):
            if not 0 <= index < len(names):
                raise Malformed("it has no message of the index that the record names")
            definition = self.messages[names[index]]
            if depth == len(indexes):
                return definition
            names = definition.nested
        raise Malformed("the record names no message")


def _candidates(written: str, scope: str) -> Iterator[str]:
    if written.startswith("."):
        yield written[1:]
        return
    while scope:
        yield f"{scope}.{written}"
        scope = scope.rpartition(".")[0]
    yield written
