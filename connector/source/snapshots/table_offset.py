"""The offset of one table <-> its row in the offsets table (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
import orjson

from connector.source.snapshots.next_step import SnapshotOffset, SnapshotProgress

_LIMIT = 2**63


@attrs.frozen
class TableOffset:
    """What is published of one table.

    `ts_ns` is the time of the newest snapshot that is published whole (see `snapshot_info.event_ts_ns`), `schema_id`
    the table's schema then. `target_id` tells the index that has its documents from later ones of that name; topics
    have none.
    """

    position: SnapshotOffset
    ts_ns: int | None = None
    schema_id: int | None = None
    target_id: str = ""

    @property
    def is_forgotten(self) -> bool:
        """Whether only the time of what was published is left: `snapshot.mode` decides where to begin."""
        return not self.position.table_uuid

    def advance_to(self, table_uuid: str, snapshot_id: int | None) -> TableOffset:
        """Return the offset when everything up to a snapshot is published, or was skipped."""
        return attrs.evolve(self, position=SnapshotOffset(table_uuid, snapshot_id))

    def reading(self, table_uuid: str, progress: SnapshotProgress) -> TableOffset:
        """Return the offset while an initial snapshot is read, as far as `progress` says."""
        return attrs.evolve(self, position=SnapshotOffset(table_uuid, self.position.snapshot_id, progress))

    def json(self) -> str:
        """Return the text that is stored."""
        at, read = self.position, self.position.reading
        document: dict[str, Any] = {
            "table-uuid": at.table_uuid,
            "snapshot-id": at.snapshot_id,
            "ts-ns": self.ts_ns,
            "schema-id": self.schema_id,
        }
        if self.target_id:
            document["place"] = self.target_id
        if read is not None:
            document["full-read"] = {
                "snapshot-id": read.snapshot_id,
                "part": read.part,
                "part-bytes": read.part_bytes,
            }
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()

    @staticmethod
    def of_document(document: Mapping[str, Any]) -> TableOffset:
        """Read a document that a user gave, of the shape that `json` writes.

        Raises:
            ValueError: it has another shape; the text says where.
        """
        whole, read = dict(document), document.get("full-read")
        if not isinstance(whole.get("table-uuid"), str) or not whole["table-uuid"]:
            raise ValueError("table-uuid is no text")
        _check_numbers(whole, ("snapshot-id", "ts-ns", "schema-id"), optional=True)
        if not isinstance(whole.get("place", ""), str):
            raise ValueError("place is no text")
        if read is not None:
            if not isinstance(read, Mapping):
                raise ValueError("full-read is no object")
            _check_numbers(read, ("snapshot-id", "part", "part-bytes"), optional=False)
            if read["part"] < 0 or read["part-bytes"] < 1:
                raise ValueError("full-read has a number that is too small")
        return TableOffset.parse(orjson.dumps({"snapshot-id": None, "ts-ns": None, **whole}))

    @staticmethod
    def parse(text: str | bytes) -> TableOffset:
        """Read what `json` wrote."""
        document = orjson.loads(text)
        read = document.get("full-read")
        reading = None if read is None else SnapshotProgress(read["snapshot-id"], read["part"], read["part-bytes"])
        position = SnapshotOffset(document["table-uuid"], document["snapshot-id"], reading)
        return TableOffset(position, document["ts-ns"], document.get("schema-id"), document.get("place", ""))


def forget_offsets(texts: Mapping[str, str], tables: Iterable[str]) -> dict[str, str]:
    """Return the texts to store of tables whose offsets, of those in `texts`, are forgotten: the times that they tell.

    What comes next must not be dated before what was published.
    """
    times = {table: orjson.loads(texts[table]).get("ts-ns") for table in tables if table in texts}
    nowhere = SnapshotOffset("", None)
    return {table: TableOffset(nowhere, ts_ns).json() for table, ts_ns in times.items() if ts_ns is not None}


def _check_numbers(document: Mapping[str, Any], names: Sequence[str], *, optional: bool) -> None:
    """Raise ValueError where one is no whole number of 64 bits."""
    for name in names:
        value = document.get(name)
        if (value is None and optional) or (type(value) is int and -_LIMIT <= value < _LIMIT):
            continue
        raise ValueError(f"{name} is no whole number")
