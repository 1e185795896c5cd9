"""Metadata files below a table's location -> one of another table, whose other files are no orphans. On the driver."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import attrs

from connector.iceberg.catalog.file_io import file_io_for
from connector.iceberg.catalog.table import Table
from connector.settings.iceberg.location_schemes import SCHEME

METADATA_ENDINGS, METADATA_PATH_PROPERTY = (".metadata.json", ".metadata.json.gz"), "write.metadata.path"
_READERS, _BEGINNING = 16, 4096
_AUTHORITY = re.compile(f"{SCHEME}:(?://[^/]*)?")
_UUID, _GZIP = re.compile(rb'"table-uuid"\s*:\s*"([^"]+)"'), b"\x1f\x8b"


def metadata_folders(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return where a table's metadata files are, and were before its properties said something else."""
    default = f"{location.rstrip('/')}/metadata"
    return (default, properties.get(METADATA_PATH_PROPERTY, default).rstrip("/"))


def plain_path(path: str) -> str:
    """Return a path without scheme and authority, in which listings differ from what a table says."""
    authority = _AUTHORITY.match(path)
    return path if authority is None else path[authority.end() :]


@attrs.define(eq=False)
class MetadataFiles:
    """Java's `Consumer` that leaves files where they are, and notes metadata files: `beside` those of the table, in its
    folders `own`, and the first that is `elsewhere`.
    """

    own: frozenset[str]
    beside: list[str] = attrs.field(factory=list)
    elsewhere: str | None = None

    def accept(self, path: Any) -> None:
        """Note a file."""
        name = str(path)
        if not name.endswith(METADATA_ENDINGS):
            return
        if plain_path(name).rpartition("/")[0] in self.own:
            self.beside.append(name)
        else:
            self.elsewhere = min(name, self.elsewhere or name)

    class Java:
        """Which Java interface this object stands for (Py4J's convention)."""

        implements = ("java.util.function.Consumer",)


def find_metadata_of_others(table: Table, paths: Sequence[str]) -> str | None:
    """Return the first of some metadata files that tells another table's id; None without one.

    Cost: the beginning of each file.

    Raises:
        RetriableError: the store is away.
        FatalError: a file cannot be read.
    """
    properties, uuid = table.io_properties(), table.uuid
    with table.reading("metadata files"), ThreadPoolExecutor(_READERS) as pool:
        found = zip(paths, pool.map(lambda path: read_table_uuid(properties, path), paths), strict=True)
        return next((path for path, told in found if told not in (None, uuid)), None)


def read_table_uuid(properties: Mapping[str, str], path: str) -> str | None:
    """Return the table's id that a metadata file tells; None where the file is gone meanwhile, or tells none."""
    place = plain_path(path) if path.startswith("file:") else path
    try:
        with file_io_for(properties, place).new_input(place).open() as file:
            content = file.read(_BEGINNING)
            # Iceberg writes the id first; others may not.
            found = _UUID.search(_unpack(content)) or _UUID.search(_unpack(content + file.read()))
    except FileNotFoundError:
        return None
    return None if found is None else found[1].decode()


def _unpack(content: bytes) -> bytes:
    return zlib.decompressobj(16 + zlib.MAX_WBITS).decompress(content) if content.startswith(_GZIP) else content
