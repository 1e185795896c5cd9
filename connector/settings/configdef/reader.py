"""entries -> typed values: one pass that collects every fault instead of stopping at the first."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TypeVar

import attrs

from connector.redaction import holds_secret, redact_login
from connector.settings.configdef.config_providers import ConfigProviders, UnresolvedReference, has_reference
from connector.settings.configdef.option import Option, Prefix
from connector.settings.configdef.property_files import AFTER_ALL_LINES, ConfigFault, Entry, format_fault
from connector.settings.configdef.value_types import InvalidValue

T = TypeVar("T")
_COMMENT = re.compile(r"\s[#!]")
"""What seems to begin a comment behind a value."""


@attrs.frozen
class PropertyProblem:
    """A property that cannot be used: its name, what is wrong, what to do; never its value."""

    key: str
    what: str
    todo: str


@attrs.define
class ConfigReader:
    """What was given, what was wrong with it, and what a user should be told once.

    `files` names the files for faults about keys that are not there. `prefixes` are all families, so that a key
    belongs to the longest that fits.
    """

    files: Sequence[str]
    entries: dict[str, Entry] = attrs.field(repr=False)
    providers: ConfigProviders
    declared: frozenset[str]
    prefixes: tuple[Prefix, ...]
    complete: bool = True
    faults: list[ConfigFault] = attrs.field(factory=list)
    notes: list[str] = attrs.field(factory=list)
    _told: set[ConfigFault] = attrs.field(init=False, factory=set)

    def entry(self, option: Option[object]) -> Entry | None:
        """The entry of an option: of the last layer that has one of its names, the name itself before aliases."""
        given = [self.entries[name] for name in option.names if name in self.entries]
        last = max(given, key=lambda entry: entry.layer, default=None)
        return last if last and (last.text or option.empty) else None

    def get(self, option: Option[T]) -> T:
        """The option's value; its default when not given or when it is faulty (the fault is kept)."""
        entry = self.entry(option)
        text = None if entry is None else self.text(entry, literal=option.literal)
        if entry is None or text is None or not (text or option.empty):
            return option.default
        try:
            return option.kind.read(text)
        except InvalidValue as unfit:
            what = unfit.what.replace("{}", self.show(entry, option))
            if _COMMENT.search(text):
                what = f"{what} (a comment needs a line of its own)"
            self.add_fault(entry, what, unfit.todo)
            return option.default
        except RecursionError:
            self.add_fault(entry, "is nested too deeply", "write it with fewer levels")
            return option.default

    def peek(self, option: Option[T]) -> T:
        """The value of an option that decides nothing here: one that cannot be used is no fault, but as not given."""
        return attrs.evolve(self, faults=[]).get(option)

    def under(self, prefix: Prefix) -> dict[str, str]:
        """The family's keys without their prefix, those that are options or belong to a longer prefix left out."""
        values: dict[str, str] = {}
        for key, entry in self._family(prefix):
            text = self.text(entry, literal=prefix.target == "Spark")
            if text is not None:
                values[key.removeprefix(prefix.name)] = text
        return values

    def members(self, prefix: Prefix) -> list[Entry]:
        """Entries of a family, as `under` takes them."""
        return [entry for _, entry in self._family(prefix)]

    def _family(self, prefix: Prefix) -> list[tuple[str, Entry]]:
        """Entries of a family by the name they have here, which need not be the one they were written with."""
        longer = tuple(
            other.name for other in self.prefixes if other.name.startswith(prefix.name) and other.name != prefix.name
        )
        return [
            (key, entry)
            for key, entry in self.entries.items()
            if key.startswith(prefix.name) and key not in self.declared and not (longer and key.startswith(longer))
        ]

    def text(self, entry: Entry, *, literal: bool = False) -> str | None:
        """The text with its references resolved, trimmed; None when one cannot be (the fault is kept)."""
        try:
            return self.providers.resolve(entry.text, bare=not literal).strip()
        except UnresolvedReference as missing:
            shown = missing.shortened if holds_secret(entry.key) else missing.reference
            self.add_fault(entry, f"{shown} {missing.why}", missing.todo)
            return None

    def show(self, entry: Entry, option: Option[object] | None) -> str:
        """The value for a message: only what an option's own text says, never a secret, never a looked up value."""
        if option is None or option.secret or holds_secret(entry.key) or has_reference(entry.text):
            return "the value"
        return f"'{redact_login(entry.text)}'"

    def note_idle(self, what: str, options: Iterable[Option[object]], members: Iterable[Entry] = ()) -> None:
        """Keep a note that says why options, and members of families, have no effect, if any of them was given."""
        given = [*(entry for option in options if (entry := self.entry(option))), *members]
        keys = sorted({entry.key for entry in given if entry.layer >= 0})
        if keys:
            self.notes.append(f"{what}: {', '.join(keys)}")

    def add_fault(self, entry: Entry, what: str, todo: str) -> None:
        """Keep a fault about something that was given; the same fault is kept once."""
        self._add(ConfigFault(entry.layer, entry.line, format_fault(entry.where, entry.label, what, todo)))

    def add_missing(self, key: str, what: str, todo: str) -> None:
        """Keep a fault about something that was not given, unless a file that may hold it could not be read."""
        where = self.files[-1] if self.files else "configuration"
        if self.complete:
            self._add(ConfigFault(len(self.files), AFTER_ALL_LINES, format_fault(where, key, what, todo)))

    def _add(self, fault: ConfigFault) -> None:
        if fault not in self._told:
            self._told.add(fault)
            self.faults.append(fault)
