"""Where a source stands in one table, as the offsets table holds it (pure)."""

from __future__ import annotations

from typing import Any

import attrs
import orjson

from connector.source.snapshots.next_step import SnapshotOffset, SnapshotProgress


@attrs.frozen
class TableOffset:
    """What is published of one table.

    `ts_ns` is the time of the newest events that are whole (see `wire.stamp`), `schema_id` the table's schema then.
    `place` tells the index that has them from others of its name; empty on the way to Kafka.
    """

    position: SnapshotOffset
    ts_ns: int | None = None
    schema_id: int | None = None
    place: str = ""

    def json(self) -> str:
        """Give the text that is stored."""
        at, read = self.position, self.position.reading
        document: dict[str, Any] = {
            "table-uuid": at.table_uuid,
            "snapshot-id": at.snapshot_id,
            "ts-ns": self.ts_ns,
            "schema-id": self.schema_id,
        }
        if self.place:
            document["place"] = self.place
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
