"""properties -> BackPressureSettings: how far tables may be behind with their maintenance before the sink waits.

RisingWave's `compaction.max_snapshots_num` is the model.
"""

from __future__ import annotations

import attrs

from connector.settings.configdef.option import Option
from connector.settings.configdef.reader import ConfigReader
from connector.settings.configdef.value_types import whole_number

MAX_SNAPSHOTS = Option(
    name="iceberg.backpressure.max-snapshots",
    kind=whole_number(0),
    default=0,
    importance="low",
    doc="No batch begins while a table has more snapshots than this; 0 for no limit.",
)
MAX_DELETE_FILES = Option(
    name="iceberg.backpressure.max-delete-files",
    kind=whole_number(0),
    default=0,
    importance="low",
    doc="No batch begins while a table has more delete files than this, deletion vectors included; 0 for no limit.",
)
INTERVAL = Option(
    name="iceberg.backpressure.check-interval-ms",
    kind=whole_number(1),
    default=5_000,
    importance="low",
    doc="How often tables above a limit are looked at again (ms).",
)
OPTIONS: tuple[Option[object], ...] = (MAX_SNAPSHOTS, MAX_DELETE_FILES, INTERVAL)


@attrs.frozen
class BackPressureSettings:
    """The most snapshots and delete files of a table; 0 for no limit. They are counted again after `interval_ms`."""

    max_snapshots: int = MAX_SNAPSHOTS.default
    max_delete_files: int = MAX_DELETE_FILES.default
    interval_ms: int = INTERVAL.default

    def find_excess(self, snapshots: int, delete_files: int) -> str | None:
        """Say which limit a table of so many snapshots and delete files is above; None for none."""
        counts = (
            (snapshots, self.max_snapshots, "snapshots", MAX_SNAPSHOTS),
            (delete_files, self.max_delete_files, "delete files", MAX_DELETE_FILES),
        )
        over = [f"{count} {what} ({option.name}={limit})" for count, limit, what, option in counts if 0 < limit < count]
        return " and ".join(over) or None


def build(reader: ConfigReader) -> BackPressureSettings:
    """Read the options."""
    return BackPressureSettings(reader.get(MAX_SNAPSHOTS), reader.get(MAX_DELETE_FILES), reader.get(INTERVAL))
