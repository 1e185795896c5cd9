"""A table's schema + what an index noted of earlier ones -> the field that each column is kept under (pure).

Iceberg knows columns by their ids, documents by names. A document that was written before its column was renamed keeps
the old name; so later ones keep it too, and the new name becomes an alias of it (Data Prepper's Iceberg source
leaves this to the user).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import attrs

Json = dict[str, Any]


@attrs.frozen
class FieldNames:
    """The name of each column's field, by the column's id, for every column that the index has ever had."""

    names: Mapping[int, str]

    def columns(self, schema: Mapping[str, Any]) -> list[str]:
        """Return the fields of a schema's columns, in order."""
        return [self.names[column["id"]] for column in schema["fields"]]

    def aliases(self, schema: Mapping[str, Any]) -> dict[str, Json]:
        """Return the mapping of aliases: the names of now of columns without parts that are kept under another.

        A name that another column had before is an alias of this one's field from now on.
        """
        taken = set(self.names.values())
        return {
            column["name"]: {"type": "alias", "path": self.names[column["id"]]}
            for column in schema["fields"]
            if column["name"] not in taken and isinstance(column["type"], str)
        }


def assign_field_names(schema: Mapping[str, Any], known: Mapping[int, str], taken: Collection[str] = ()) -> FieldNames:
    """Return the fields of a schema (Iceberg's JSON): known columns keep theirs, new ones get their own name.

    A new column whose name another column's field has, or one of `taken`, gets its id behind it.

    Args:
        schema: the table's.
        known: the fields of columns that the index had before, by the columns' ids.
        taken: names that no column may have: those of aliases, to which nothing can be written, and of other fields.
    """
    names = dict(known)
    for column in schema["fields"]:
        if column["id"] not in names:
            names[column["id"]] = _unused_name(column["name"], column["id"], {*names.values(), *taken})
    return FieldNames(names)


def find_aliases(properties: Mapping[str, Any]) -> frozenset[str]:
    """Return the names of an index's fields that are aliases of others."""
    return frozenset(name for name, field in properties.items() if field.get("type") == "alias")


def _unused_name(name: str, number: int, taken: Collection[str]) -> str:
    made = name
    while made in taken:
        made = f"{made}_{number}"
    return made
