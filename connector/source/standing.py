"""Where a source stands in one table, as the offsets table holds it (pure)."""

from __future__ import annotations

import attrs
import orjson


@attrs.frozen
class FullRead:
    """A full read under way: how the files are cut (bytes per part), and how many parts are out."""

    part_bytes: int
    parts_done: int = 0


@attrs.frozen
class Standing:
    """What is published of one table.

    `snapshot_id` is the snapshot whose changes, or whose full read, came last; None for a table without snapshots.
    With `read` its full read is still under way. `ts_ns` is the time that its events carry (see `wire.stamp`).
    """

    table_uuid: str
    snapshot_id: int | None
    sequence_number: int
    ts_ns: int | None
    read: FullRead | None = None

    def json(self) -> str:
        """Give the text that is stored."""
        document = {
            "table-uuid": self.table_uuid,
            "snapshot-id": self.snapshot_id,
            "sequence-number": self.sequence_number,
            "ts-ns": self.ts_ns,
        }
        if self.read is not None:
            document["full-read"] = {"part-bytes": self.read.part_bytes, "parts-done": self.read.parts_done}
        return orjson.dumps(document, option=orjson.OPT_SORT_KEYS).decode()

    @staticmethod
    def parse(text: str) -> Standing:
        """Read what `json` wrote."""
        found = orjson.loads(text)
        read = found.get("full-read")
        return Standing(
            found["table-uuid"],
            found["snapshot-id"],
            found["sequence-number"],
            found["ts-ns"],
            None if read is None else FullRead(read["part-bytes"], read["parts-done"]),
        )
