"""What a table's rows are at one snapshot, for those who bring them out."""

from __future__ import annotations

import attrs

from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.source.changes.row_key import Keys
from connector.source.envelope.envelope import Wire


@attrs.frozen
class Shape:
    """A snapshot's schema, what identifies its rows, and how its events look."""

    schema: SnapshotSchema
    keys: Keys
    wire: Wire
