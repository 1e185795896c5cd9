"""The offset of one table <-> its row in the offsets table (pure)."""

from __future__ import annotations

from typing import Any

import attrs
import orjson

from connector.source.snapshots.next_step import SnapshotOffset, SnapshotProgress


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

    def published(self, table_uuid: str, snapshot_id: int | None) -> TableOffset:
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
    def parse(text: str) -> TableOffset:
        """Read what `json` wrote."""
        found = orjson.loads(text)
        read = found.get("full-read")
        reading = None if read is None else SnapshotProgress(read["snapshot-id"], read["part"], read["part-bytes"])
        position = SnapshotOffset(found["table-uuid"], found["snapshot-id"], reading)
        return TableOffset(position, found["ts-ns"], found.get("schema-id"), found.get("place", ""))
