"""table.include.list + the catalog -> the tables to read.

Plain names need no listing: then a round of polling costs one request per table and nothing else.
"""

from __future__ import annotations

import re

from connector.errors import ConnectorError, FatalError
from connector.iceberg.catalog.catalog import Catalog
from connector.settings import SourceSettings
from connector.settings.source.capture import CaptureSettings

_PLAIN = re.compile(r"(?:[\w-]|\\?\.)+")
DiscoveredTables = dict[str, tuple[tuple[str, ...], str]]
"""A table's name with namespace -> its namespace and its own name."""


def plain_names(capture: CaptureSettings) -> tuple[str, ...] | None:
    """Return the names of `table.include.list` if all of them are plain names; a dot then is a dot."""
    if not capture.tables or not all(_PLAIN.fullmatch(pattern) for pattern in capture.tables):
        return None
    return tuple(pattern.replace("\\", "") for pattern in capture.tables)


def find_tables(catalog: Catalog, settings: SourceSettings) -> DiscoveredTables:
    """Return the tables to read, named ones that are not there too; of positions and signals only what is named.

    Raises:
        RetriableError: the catalog is away.
    """
    capture, signals = settings.capture, settings.signals.table
    plain = plain_names(capture)
    if plain is not None:
        return {name: _split_name(name) for name in plain}
    own = {catalog.full_name(capture.offsets_table), *([signals] if signals else [])}
    listed = {".".join((*namespace, name)): (namespace, name) for namespace, name in catalog.list_tables()}
    found = {full: parts for full, parts in listed.items() if full not in own and capture.takes(full)}
    lower = {full.lower() for full in found}
    named = (pattern.replace("\\", "") for pattern in capture.tables if _PLAIN.fullmatch(pattern))
    return {**{name: _split_name(name) for name in named if name.lower() not in lower}, **found}


def find_in_other_case(catalog: Catalog, namespace: tuple[str, ...], name: str) -> str | None:
    """Return the table of a namespace whose name differs from this one by the case of its letters alone.

    Of a name without a namespace, which no table has, one that has this name in some namespace, in any case. None where
    there is none, or where the namespace cannot be listed: it is only a hint.
    """
    try:
        listed = catalog.list_tables(namespace)
    except ConnectorError:
        return None
    named = ((where, found) for where, found in listed if found.lower() == name.lower())
    return next((".".join((*where, found)) for where, found in named if (where, found) != (namespace, name)), None)


def missing_table(name: str, settings: SourceSettings, meant: str | None) -> FatalError:
    """Return the error of a table that has to be there now, and is not; `meant` is one that it may stand for."""
    hint = f"; did you mean {meant}?" if meant else ""
    return FatalError(
        f"table {name} is not in catalog {settings.catalog.name}; create it, or correct table.include.list (without "
        f"--once the source waits for it){hint}"
    )


def _split_name(name: str) -> tuple[tuple[str, ...], str]:
    *namespace, table = name.split(".")
    return tuple(namespace), table
