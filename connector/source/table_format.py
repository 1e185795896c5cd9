"""What a table's rows are at one snapshot, for those who bring them out."""

from __future__ import annotations

import attrs

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.source.changes.row_key import RowKey
from connector.source.envelope.envelope import EventFormat


@attrs.frozen
class TableFormat:
    """A snapshot's schema, what identifies its rows, and how its events look."""

    schema: SnapshotSchema
    keys: RowKey
    wire: EventFormat
