"""A run of records -> what became of it, as decoding tells it."""

from __future__ import annotations

import attrs

from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import SchemaChange
from connector.sink.model.result import SourceProgress
from connector.sink.model.truncates import Truncate
from serde.faults import RecordError


@attrs.frozen(eq=False)
class DecodedRecords:
    """What became of a run: rows, shapes the table is not ready for, unusable records (by row of the run).

    `tables` has the table of each part; `nulled`, `drift`, `untold` and `late` are as in `Tally`; `seen` tells how far
    the sources came.
    """

    parts: tuple[ChangeBatch, ...] = ()
    needs: tuple[SchemaChange, ...] = ()
    faults: tuple[RecordError, ...] = ()
    tombstones: int = 0
    ignored: int = 0
    truncates: tuple[Truncate, ...] = ()
    tables: tuple[int, ...] = ()
    nulled: int = 0
    drift: frozenset[tuple[int, str]] = frozenset()
    seen: tuple[SourceProgress, ...] = ()
    untold: int = 0
    late: int = 0
