"""declaration -> everything: an option is declared once, as a value; reading, validation, documents derive from it.

`Option` is one key, `Prefix` a family of keys that are handed on as they are (Kafka clients, the catalog, Spark).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, Literal, TypeVar

import attrs

from connector.settings.configdef.value_types import ValueType

T_co = TypeVar("T_co", covariant=True)
Importance = Literal["high", "medium", "low"]


@attrs.frozen(kw_only=True)
class Option(Generic[T_co]):
    """One key: its kind, default, importance and a sentence about it.

    `shown` stands for the default in documents where it is derived from other keys. `aliases` are other names of the
    same key. An empty text counts as not given unless `empty` says that it means something. A `secret` value never
    appears in a message. `literal` values are not searched for bare `${NAME}`: Java replacements use that form.
    """

    name: str
    kind: ValueType[T_co]
    default: T_co
    importance: Importance
    doc: str
    shown: str | None = None
    aliases: tuple[str, ...] = ()
    secret: bool = False
    empty: bool = False
    literal: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Its name, then its aliases."""
        return (self.name, *self.aliases)

    @property
    def default_text(self) -> str:
        """The default as one would write it in a file; empty when there is none."""
        return format_value(self.default) if self.shown is None else self.shown


@attrs.frozen(kw_only=True)
class Prefix:
    """A family of keys that go on as they are, without the prefix; `target` says where to."""

    name: str
    target: str
    importance: Importance
    doc: str


def format_names(values: Iterable[str]) -> str:
    """Show which keys are passed on, never their values."""
    return f"<{', '.join(values)}>"


def format_value(value: object) -> str:
    """A typed value as the text of a property."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(str(item) for item in value)
    return str(value)
