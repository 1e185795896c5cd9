"""bytes -> blocks: what a converter hands on; messages of one schema as one struct array.

Every input row is in exactly one of a block, the tombstones or the faults.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
from attrs import evolve, frozen

from serde.arrays import Ints, Mask
from serde.faults import RecordError

Rows = Ints


@frozen(eq=False)
class MessageBlock:
    """Decoded messages of one schema.

    rows: ascending indices into the input; fields: struct array of the same length, logical Arrow types;
    schema_id: digest of the schema block ("" without one); name: Connect schema name or None;
    optional: dotted field path ("id", "after.id") -> optional flag, empty without a schema block; the items of a list
    are its `element`, the values of a map its `value` ("after.lines.element.price"); documents: paths of texts that
    are JSON documents; numbers: paths of texts that are numbers, with as many digits as their events wrote; unknown:
    names of types that are read as the plain type behind them (`connect.type_table`).
    """

    rows: Rows
    fields: pa.StructArray
    schema_id: str
    name: str | None
    optional: Mapping[str, bool]
    documents: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    unknown: frozenset[str] = frozenset()

    def filter(self, mask: Mask) -> MessageBlock:
        """Return the messages that the mask marks."""
        return evolve(self, rows=self.rows[mask], fields=self.fields.filter(pa.array(mask)))


@frozen(eq=False)
class DecodedMessages:
    """The outcome for one input array: blocks, tombstones (ascending rows) and faults (by row)."""

    blocks: tuple[MessageBlock, ...]
    tombstones: Rows
    faults: tuple[RecordError, ...]
