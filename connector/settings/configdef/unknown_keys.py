"""given keys -> faults and notes: unknown ones are refused with the nearest name, near misses and others' are noted."""

from __future__ import annotations

from collections.abc import Collection

import attrs

from connector.settings.configdef import foreign_keys, nearest_key
from connector.settings.configdef.property_files import Entry
from connector.settings.configdef.reader import ConfigReader


@attrs.frozen
class AllowedKeys:
    """The names that have a meaning: of options, and of families (`free`, by how they begin).

    `others` are names that mean something in another kind of file, which `other_todo` tells how to make of this one.
    """

    who: str
    reference: str
    names: Collection[str]
    free: tuple[str, ...]
    others: Collection[str] = ()
    other_todo: str = ""

    def check(self, reading: ConfigReader) -> None:
        """Sort every key that is not an option."""
        others = [(key, entry) for key, entry in reading.entries.items() if key not in self.names]
        for key, entry in others:
            if not _is_foreign(key) and not key.startswith(self.free):
                self._refuse(reading, key, entry)
        reading.notes.extend(foreign_keys.note_foreign_keys(entry.key for _, entry in others))
        reading.notes.extend(note for key, entry in others if (note := self._near_miss(key, entry)))

    def _refuse(self, reading: ConfigReader, key: str, entry: Entry) -> None:
        if key in self.others:
            reading.add_fault(entry, f"is not an option of the {self.who}", self.other_todo)
            return
        meant = nearest_key.find_nearest(key, self.names, self.free) if entry.label == entry.key else None
        todo = f"did you mean {meant}?" if meant else f"{self.reference} lists all keys"
        reading.add_fault(entry, "is not a known key", todo)

    def _near_miss(self, key: str, entry: Entry) -> str | None:
        """A key that goes on to somebody else but looks like one of ours with a slip in it."""
        prefixes = (*self.free, "debezium.source.", "debezium.format.", "debezium.transforms.")
        prefix = max((p for p in prefixes if key.startswith(p)), key=len, default=None)
        if prefix is None or prefix == "debezium.sink.iceberg.partition-by.":
            return None
        ours = [name.removeprefix(prefix) for name in self.names if name.startswith(prefix)]
        meant = nearest_key.find_near_miss(key.removeprefix(prefix), ours)
        if meant is None:
            return None
        return f"{entry.where}: {entry.key} is not an option of the {self.who}; did you mean {prefix}{meant}?"


def _is_foreign(key: str) -> bool:
    return any(owner.owns(key) for owner in (*foreign_keys.FOREIGN_KEYS, foreign_keys.REFUSED))
