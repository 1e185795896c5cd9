"""What an index is for <-> what it says of itself: the note that both ways to an index keep in it (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from connector.opensearch.indexes.field_names import assign_fields_by_name

VersionSource = Literal["source", "offset"]
"""What versions of documents are: the time of the change at its source, or its offset in Kafka."""


@attrs.frozen
class IndexMetadata:
    """The columns that an index was made for (Iceberg's JSON), what its versions are, and whether tombstones delete.

    `names` gives the fields that columns are kept under, by their ids, where the way follows columns by id; `fields`
    those that differ from their columns' names, by these, where it knows no ids. `owner` is the name that the index's
    was made of: others may be made into the same; empty where the index is named as it is.
    """

    schema: Mapping[str, Any]
    versions: VersionSource
    tombstones: bool = False
    names: Mapping[int, str] = attrs.field(factory=dict)
    owner: str = ""
    fields: Mapping[str, str] = attrs.field(factory=dict)

    def document(self) -> dict[str, object]:
        """Return it as the index keeps it."""
        document: dict[str, object] = {"schema": self.schema, "versions": self.versions, "tombstones": self.tombstones}
        names = {str(number): name for number, name in self.names.items()}
        more = {"names": names, "owner": self.owner, "fields": dict(self.fields)}
        return document | {key: value for key, value in more.items() if value}

    def fields_by_name(self) -> dict[str, str]:
        """Return the field of every column by the column's name, whichever way made the index."""
        known = {
            column["name"]: self.names[column["id"]] for column in self.schema["fields"] if column["id"] in self.names
        }
        gone = set(self.names.values()) - set(known.values())
        return assign_fields_by_name(self.schema, {**known, **self.fields}, gone)

    def is_foreign(self, owner: str) -> bool:
        """Return whether the index was made for another name than `owner`; for an empty one it never was."""
        return bool(owner and self.owner and owner != self.owner)

    @staticmethod
    def read(noted: Mapping[str, Any]) -> IndexMetadata:
        """Read what an index keeps; one that the other way made has all that both need."""
        names = {int(number): name for number, name in noted.get("names", {}).items()}
        versions: VersionSource = "offset" if noted.get("versions") == "offset" else "source"
        return IndexMetadata(
            noted["schema"],
            versions,
            bool(noted.get("tombstones")),
            names,
            noted.get("owner", ""),
            noted.get("fields", {}),
        )
