"""Updates that gave a row another key of the value -> changes of key, and the keys that the rows left.

The source tells such an update as one event; from the row before it a delete of the old key was made, at the update's
own offset (`convert.value_keys`). What the update does not send the old key's row has, as where the key of a record
changes (`convert.key_change_headers`).
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import numpy as np

from connector.iceberg.types.nested_columns import read_path
from connector.sink.convert.key_change_headers import name_old_keys
from connector.sink.convert.value_keys import leaves_keys
from connector.sink.model.change_rows import OP_KEY_CHANGE, ChangeBatch
from connector.sink.model.plan import TablePlan
from serde.events.kinds.operations import OP_DELETE, OP_UPDATE


def follow_left_keys(
    parts: Sequence[ChangeBatch], tables: Sequence[TablePlan]
) -> tuple[list[ChangeBatch], list[tuple[TablePlan, ChangeBatch]]]:
    """Mark updates that changed a key; return the changes, and for each such update one of its place under the old key.

    Args:
        parts: changes of one run.
        tables: the table of each; those are left as they are whose events are not known to leave values out.
    """
    marked, left = list(parts), list[tuple[TablePlan, ChangeBatch]]()
    for table in {table.index: table for table in tables if table.patches and leaves_keys(table)}.values():
        own = [place for place, other in enumerate(tables) if other.index == table.index]
        deletes = ChangeBatch.concat([_select(parts[place], OP_DELETE) for place in own])
        deletes = deletes.take(np.argsort(deletes.order.offset, kind="stable"))
        for place in own:
            part = parts[place]
            moved = (part.order.op == OP_UPDATE) & np.isin(part.order.offset, deletes.order.offset)
            if not moved.any():
                continue
            op = np.where(moved, np.uint8(OP_KEY_CHANGE), part.order.op)
            marked[place] = attrs.evolve(part, order=attrs.evolve(part.order, op=op))
            changes = marked[place].take(np.flatnonzero(moved))
            before = deletes.take(np.searchsorted(deletes.order.offset, changes.order.offset)).rows
            paths = zip(table.layout.keys, table.layout.key_paths, strict=True)
            keys = {name: read_path(before.column(path[0]), path[1:]) for name, path in paths}
            left.append((table, name_old_keys(changes, keys, table)))
    return marked, left


def _select(part: ChangeBatch, op: int) -> ChangeBatch:
    return part.take(np.flatnonzero(part.order.op == op))
