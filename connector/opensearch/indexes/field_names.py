"""A table's schema + what an index noted of earlier ones -> the field that each column is kept under (pure).

Iceberg knows columns by their ids, documents by names. A document that was written before its column was renamed keeps
the old name; so later ones keep it too, and the new name becomes an alias of it (Data Prepper's Iceberg source
leaves this to the user).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import attrs

from connector.opensearch.documents.field_paths import is_apart, is_path, join_path

Json = dict[str, Any]

_VARIANT_TYPE = "variant"

METADATA_FIELDS = frozenset(
    (
        "_data_stream_timestamp",
        "_doc_count",
        "_field_names",
        "_id",
        "_ignored",
        "_index",
        "_nested_path",
        "_primary_term",
        "_routing",
        "_seq_no",
        "_source",
        "_version",
    )
)
"""What OpenSearch keeps of a document itself: a field of such a name is refused."""


@attrs.frozen
class FieldNames:
    """The name of each column's field, by the column's id, for every column that the index has ever had."""

    names: Mapping[int, str]

    def columns(self, schema: Mapping[str, Any]) -> list[str]:
        """Return the fields of a schema's columns, in order."""
        return [self.names[column["id"]] for column in schema["fields"]]

    def aliases(self, schema: Mapping[str, Any]) -> dict[str, Json]:
        """Return the mapping of aliases: the names of now of columns without parts that are kept under another.

        An object can have none, nor a variant, which may be one.

        A name that another column had before is an alias of this one's field from now on.
        """
        taken = set(self.names.values())
        return {
            column["name"]: {"type": "alias", "path": self.names[column["id"]]}
            for column in schema["fields"]
            if isinstance(column["type"], str) and column["type"] != _VARIANT_TYPE and is_free(column["name"], taken)
        }


def assign_field_names(schema: Mapping[str, Any], known: Mapping[int, str], taken: Collection[str] = ()) -> FieldNames:
    """Return the fields of a schema (Iceberg's JSON): known columns keep theirs, new ones get their own name.

    A new column whose name another column's field has, or one of `taken`, gets its id behind it; so does one with a
    name that no field may have. Dots are parts of a path to OpenSearch: where those lead nowhere, or through another
    field, they become `_`.

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


def assign_fields_by_name(
    schema: Mapping[str, Any], known: Mapping[str, str], taken: Collection[str] = ()
) -> dict[str, str]:
    """Return the field of each column by its name, for the way that knows columns by their names (events of Kafka).

    Args:
        schema: the columns, as Iceberg's JSON.
        known: the fields that columns had before, by the columns' names; those of columns that are gone stay taken.
        taken: as for `assign_field_names`.
    """
    ids = {column["name"]: column["id"] for column in schema["fields"]}
    gone = (field for name, field in known.items() if name not in ids)
    fields = assign_field_names(
        schema, {ids[name]: field for name, field in known.items() if name in ids}, {*taken, *gone}
    )
    return {name: fields.names[number] for name, number in ids.items()}


def find_aliases(properties: Mapping[str, Any], path: str = "") -> frozenset[str]:
    """Return the names of an index's fields that are aliases of others; names with dots are paths there."""
    aliases = frozenset(f"{path}{name}" for name, field in properties.items() if field.get("type") == "alias")
    inner = (find_aliases(field.get("properties", {}), f"{path}{name}.") for name, field in properties.items())
    return aliases.union(*inner)


def is_free(name: str, taken: Collection[str]) -> bool:
    """Tell whether a field may have a name beside others: none is another's, or a part of the path to another."""
    return name not in METADATA_FIELDS and is_path(name) and is_apart(name, taken)


def _unused_name(name: str, number: int, taken: Collection[str]) -> str:
    if is_free(name, taken):
        return name
    field = join_path(name)
    while not is_free(field, taken):
        field = f"{field}_{number}"
    return field
