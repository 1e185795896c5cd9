"""A table's schema + what an index noted of earlier ones -> the field that each column is kept under (pure).

Iceberg knows columns by their ids, documents by names. A document that was written before its column was renamed keeps
the old name; so later ones keep it too, and the new name becomes an alias of it (RFC, "Schema evolution", which leaves
this to the user).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

Json = dict[str, Any]


@attrs.frozen
class Fields:
    """The name of each column's field, by the column's id, for every column that the index has ever had."""

    names: Mapping[int, str]

    def columns(self, schema: Mapping[str, Any]) -> list[str]:
        """Give the fields of a schema's columns, in order."""
        return [self.names[column["id"]] for column in schema["fields"]]

    def aliases(self, schema: Mapping[str, Any]) -> dict[str, Json]:
        """Give the mapping of aliases: the names of now of columns without parts that are kept under another."""
        taken = set(self.names.values())
        return {
            column["name"]: {"type": "alias", "path": self.names[column["id"]]}
            for column in schema["fields"]
            if column["name"] not in taken and isinstance(column["type"], str)
        }


def fields(schema: Mapping[str, Any], known: Mapping[int, str]) -> Fields:
    """Give the fields of a schema (Iceberg's JSON): known columns keep theirs, new ones get their own name.

    A new column whose name another column's field has gets its id behind it.
    """
    names = dict(known)
    for column in schema["fields"]:
        if column["id"] not in names:
            taken = set(names.values())
            names[column["id"]] = f"{column['name']}_{column['id']}" if column["name"] in taken else column["name"]
    return Fields(names)
