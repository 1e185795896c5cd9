"""given keys -> faults and notes: unknown keys are refused with the nearest name, keys of other programs are noted.

A file that was written for Debezium, Kafka Connect or another sink has to run as it is, so a key of theirs is named in
a note and not refused. The nearest name is found by difflib's ratio over what differs, not over a shared prefix.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping

import attrs

from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader

# From trying: catches one or two slips of the pen in a name, and keeps write.delete.format.default apart from
# write.format.default (0.85), which are both Iceberg's.
_NEAR = 0.86
_NEAR_PREFIX = 0.8
_LIKELY = 0.6
_OF_CATALOGS = ("adls.", "catalog.", "client.region", "gcs.", "glue.", "jdbc.", "s3.")
"""How properties of Iceberg's catalogs and stores begin."""
_COMPARED, _LONGEST = 100, 250
"""So many keys, of so many characters, are compared with all names: nobody reads more suggestions, or means more."""


@attrs.frozen
class ForeignKeys:
    """Keys of another program, by whole name or by how they begin; without a `note` the caller says what is wrong.

    Those that end with one of `read` are looked at after all, and not noted.
    """

    note: str
    names: frozenset[str]
    prefixes: tuple[str, ...] = ()
    read: tuple[str, ...] = ()

    def owns(self, key: str) -> bool:
        """Whether the key is one of these."""
        return key in self.names or key.startswith(self.prefixes)


@attrs.frozen
class AllowedKeys:
    """The names that have a meaning: of options, and of families (`free`, by how they begin).

    `foreign`: whose other keys are let through. `others` are names that mean something in another kind of file, which
    `other_todo` tells how to make of this one. `meant`: what those mean who write a name that another program has.
    `catalog` begins the keys of the catalog, which are often written without it.
    """

    who: str
    reference: str
    names: Collection[str]
    free: tuple[str, ...]
    foreign: tuple[ForeignKeys, ...] = ()
    others: Collection[str] = ()
    other_todo: str = ""
    meant: Mapping[str, str] = attrs.field(factory=dict)
    catalog: str = ""

    def knows(self, key: str) -> bool:
        """Tell whether a key is let through: an option, or one of another program."""
        return key in self.names or key.startswith(self.free) or any(owner.owns(key) for owner in self.foreign)

    def check(self, reader: ConfigReader) -> None:
        """Sort every key that is not an option."""
        others = [(key, entry) for key, entry in reader.entries.items() if key not in self.names]
        unknown = [(key, entry) for key, entry in others if not self.knows(key)]
        for place, (key, entry) in enumerate(unknown):
            self._refuse(reader, key, entry, is_compared=place < _COMPARED)
        reader.notes.extend(_note_foreign_keys(self.foreign, others))
        reader.notes.extend(note for key, entry in others[:_COMPARED] if (note := self._near_miss(key, entry)))

    def _refuse(self, reader: ConfigReader, key: str, entry: Entry, *, is_compared: bool) -> None:
        if key in self.others:
            reader.add_fault(entry, f"is not an option of the {self.who}", self.other_todo)
            return
        meant = self._guess(key) if is_compared and entry.label == entry.key else None
        todo = f"did you mean {meant}?" if meant else f"{self.reference} lists all keys"
        reader.add_fault(entry, "is not a known key", todo)

    def _guess(self, key: str) -> str | None:
        if self.catalog and key.startswith(_OF_CATALOGS):
            return self.catalog + key.removeprefix("catalog.")
        return self.meant.get(key) or find_nearest(key, self.names, self.free)

    def _near_miss(self, key: str, entry: Entry) -> str | None:
        """A key that goes on to somebody else but looks like one of ours with a slip in it."""
        prefixes = (*self.free, "debezium.source.", "debezium.format.", "debezium.transforms.")
        prefix = max((p for p in prefixes if key.startswith(p)), key=len, default=None)
        if prefix is None or prefix == "debezium.sink.iceberg.partition-by.":
            return None
        ours = [name.removeprefix(prefix) for name in self.names if name.startswith(prefix)]
        meant = find_near_miss(key.removeprefix(prefix), ours)
        if meant is None:
            return None
        return f"{entry.where}: {entry.key} is not an option of the {self.who}; did you mean {prefix}{meant}?"


def _note_foreign_keys(owners: Iterable[ForeignKeys], given: Iterable[tuple[str, Entry]]) -> Iterator[str]:
    """One note for each owner that has keys among these, naming them all as they are written."""
    named = sorted((entry.key, key) for key, entry in given)
    for owner in owners:
        owned = [written for written, key in named if owner.owns(key) and not key.endswith(owner.read)]
        if owned and owner.note:
            yield f"{owner.note}: {', '.join(owned)}"


def normalize_key(key: str) -> str:
    """A key without what is most often mistaken: case, underscores."""
    return key.lower().replace("_", "-")


def find_near_miss(key: str, names: Collection[str]) -> str | None:
    """A name so close that the key is likely a slip; None when it may well be meant as it is."""
    return _find_closest(key, names, _NEAR)


def find_nearest(key: str, names: Collection[str], prefixes: Collection[str]) -> str | None:
    """The best guess for an unknown key: a mistyped prefix, a name without its prefix, or the most similar name."""
    close = find_near_miss(key, names)
    return close or _with_prefix(key, prefixes) or _without_prefix(key, names) or _find_closest(key, names, _LIKELY)


def _with_prefix(key: str, prefixes: Collection[str]) -> str | None:
    parts = key.split(".")
    for prefix in prefixes:
        depth = prefix.count(".")
        start = ".".join(parts[:depth]) + "."
        if len(parts) > depth and _find_closest(start, [prefix], _NEAR_PREFIX):
            return prefix + ".".join(parts[depth:])
    return None


def _without_prefix(key: str, names: Collection[str]) -> str | None:
    return next((name for name in names if name.endswith(f".{normalize_key(key)}")), None)


def _find_closest(key: str, names: Collection[str], cutoff: float) -> str | None:
    if len(key) > _LONGEST:
        return None
    by_plain = {normalize_key(name): name for name in names}
    closest = difflib.get_close_matches(normalize_key(key), by_plain, n=1, cutoff=cutoff)
    return by_plain[closest[0]] if closest else None
