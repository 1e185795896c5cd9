"""The columns that files were written with + those of their table now -> those that only one of both has (pure).

Columns are told by their ids: one that was dropped and added again under its name is another one, and what is in a file
under the old id nobody reads any more.
"""

from __future__ import annotations

import orjson

from connector.iceberg.types.schemas.schema_json import iter_fields


def find_moved_columns(written: str, now: str, *, whole: bool) -> list[str]:
    """Name the columns, at any depth, that a table has lost since files were written, sorted.

    Args:
        written: the schema that the files were written with, as Iceberg's JSON has it.
        now: the table's schema.
        whole: whether the files may hold rows that the table has already: then what it got since is missing in them.
    """
    if written == now:
        return []
    before, after = _names_by_id(written), _names_by_id(now)
    moved = before.keys() ^ after.keys() if whole else before.keys() - after.keys()
    return sorted({before.get(one) or after[one] for one in moved})


def _names_by_id(schema_json: str) -> dict[int, str]:
    return {field["id"]: name for name, field in iter_fields(orjson.loads(schema_json))}
