"""given keys -> faults and notes: unknown ones are refused with the nearest name, near misses and others' are noted."""

from __future__ import annotations

from connector.settings import foreign, nearest
from connector.settings.declared import NAMES, PREFIXES
from connector.settings.entries import Entry
from connector.settings.reading import Reading

REFERENCE = "docs/reference/options.md"
_FREE = tuple(prefix.name for prefix in PREFIXES)


def check(reading: Reading) -> None:
    """Sort every key that is not an option."""
    others = [entry for key, entry in reading.entries.items() if key not in NAMES]
    for entry in others:
        if not _foreign(entry.key) and not entry.key.startswith(_FREE):
            _refuse(reading, entry)
    reading.notes.extend(foreign.notes(entry.key for entry in others))
    reading.notes.extend(note for entry in others if (note := _near_miss(entry)))


def _foreign(key: str) -> bool:
    return any(owner.owns(key) for owner in foreign.ALL)


def _refuse(reading: Reading, entry: Entry) -> None:
    meant = nearest.nearest(entry.key, NAMES, _FREE) if entry.label == entry.key else None
    todo = f"did you mean {meant}?" if meant else f"{REFERENCE} lists all keys"
    reading.refuse(entry, "is not a known key", todo)


def _near_miss(entry: Entry) -> str | None:
    """A key that goes on to somebody else but looks like one of ours with a slip in it."""
    prefixes = (*_FREE, "debezium.source.", "debezium.format.", "debezium.transforms.")
    prefix = max((p for p in prefixes if entry.key.startswith(p)), key=len, default=None)
    if prefix is None or prefix == "debezium.sink.iceberg.partition-by.":
        return None
    ours = [name.removeprefix(prefix) for name in NAMES if name.startswith(prefix)]
    meant = nearest.near_miss(entry.key.removeprefix(prefix), ours)
    return f"{entry.where}: {entry.key} is not an option of the sink; did you mean {prefix}{meant}?" if meant else None
