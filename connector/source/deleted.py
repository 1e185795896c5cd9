"""Older files that a snapshot's delete files touch -> the rows that these deletes took away.

A delete may hit a row that was gone before: a deletion vector repeats its predecessor, an equality delete names keys.
So rows hit by the deletes before are taken out, by file and position.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from connector.iceberg.scan import FILE, POSITION, SEQUENCE, Reader
from connector.iceberg.scan_tasks import Touched


def taken(reader: Reader, touched: Sequence[Touched], *, lineage: bool) -> DataFrame:
    """Give the rows that the new deletes took away; cost: one read of each file, two where it had deletes before."""
    first = [pair for pair in touched if not pair.before.deletes]
    again = [pair for pair in touched if pair.before.deletes]
    parts = []
    if first:
        parts.append(_struck(reader, first, lineage=lineage))
    if again:
        before = reader.struck([pair.before for pair in again]).select(FILE, POSITION)
        parts.append(_struck(reader, again, lineage=lineage).join(before, [FILE, POSITION], "left_anti"))
    rows = parts[0] if len(parts) == 1 else parts[0].unionByName(parts[1])
    return rows.drop(SEQUENCE)


def _struck(reader: Reader, touched: Sequence[Touched], *, lineage: bool) -> DataFrame:
    struck = [pair.struck for pair in touched]
    if not lineage or reader.vectorised(struck):
        return reader.struck(struck, lineage=lineage)
    positions = reader.struck(struck).select(FILE, POSITION)
    # The vectorised reader, which alone can mark and number rows at once, takes neither nested columns nor Avro.
    return reader.live([pair.before for pair in touched], lineage=True).join(positions, [FILE, POSITION], "left_semi")
