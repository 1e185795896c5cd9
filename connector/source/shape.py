"""What a table's rows are at one snapshot, for those who bring them out."""

from __future__ import annotations

import attrs

from connector.iceberg.schemas import SnapshotSchema
from connector.source.envelope import Wire
from connector.source.keys import Keys


@attrs.frozen
class Shape:
    """A snapshot's schema, what identifies its rows, and how its events look."""

    schema: SnapshotSchema
    keys: Keys
    wire: Wire
