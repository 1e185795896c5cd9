"""Updates under another key of the value -> deletes of the rows under the keys before. Runs on executors; no I/O.

A record key that changes comes from the source as a delete and a create. Of a key in the value (`id-columns`) the
source knows nothing: an update may give it another value, and only the image before tells which row that was.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.keys.key_codes import encode_keys
from connector.iceberg.types.nested_columns import read_columns
from connector.sink.model.change_rows import ChangeBatch
from connector.sink.model.plan import TablePlan
from serde.arrays import Ints, children
from serde.events.kinds.cloudevents import is_cloud_event, unwrap_cloud_events
from serde.events.kinds.event_kind import is_envelope
from serde.messages import MessageBlock


def leaves_keys(table: TablePlan | None) -> bool:
    """Tell whether rows of a table may leave a key by an update: then the row under it has to go."""
    return table is not None and table.upsert and table.keys_from == "value"


def find_rows_before(block: MessageBlock, keys: Sequence[str] = ()) -> MessageBlock | None:
    """Return the updates of a block that tell the row before them, as deletes of that row; None without any.

    Args:
        block: envelopes; of others there are none.
        keys: columns; updates that leave each of them as it is are left out, as far as that is cheap to see.
    """
    if is_cloud_event(block):
        block = unwrap_cloud_events(block)
    kind = block.fields.type
    if not is_envelope(kind) or not {"before", "after"} <= {field.name for field in kind}:
        return None
    columns = dict(zip(kind.names, children(block.fields), strict=True))
    updates = pc.and_(pc.equal(columns["op"], "u"), pc.and_(columns["before"].is_valid(), columns["after"].is_valid()))
    wanted = pc.and_(updates.fill_null(False), _find_changed(columns["before"], columns["after"], keys))
    if not pc.any(wanted).as_py():
        return None
    columns = {name: column.filter(wanted) for name, column in columns.items()}
    count = len(columns["op"])
    columns |= {"op": pa.array(["d"] * count, columns["op"].type), "after": pa.nulls(count, columns["after"].type)}
    fields = pa.StructArray.from_arrays(list(columns.values()), fields=list(kind))
    return attrs.evolve(block, rows=block.rows[np.asarray(wanted)], fields=fields)


def _find_changed(before: pa.Array, after: pa.Array, keys: Sequence[str]) -> pa.BooleanArray:
    """Mark where one of the columns differs; everywhere if that cannot be told of one of them."""
    every = pa.array(np.ones(len(before), np.bool_))
    if not keys or any(not _is_comparable(before.type, after.type, key) for key in keys):
        return every
    same = every
    for key in keys:
        one, other = (pc.struct_field(side, key) for side in (before, after))
        same = pc.and_(same, pc.equal(one, other).fill_null(False))
    return pc.invert(same)


def _is_comparable(before: pa.DataType, after: pa.DataType, key: str) -> bool:
    if not pa.types.is_struct(before) or not pa.types.is_struct(after):
        return False
    places = [kind.get_field_index(key) for kind in (before, after)]
    if min(places) < 0:
        return False
    one, other = (kind.field(place).type for kind, place in zip((before, after), places, strict=True))
    return bool(one == other and (pa.types.is_integer(one) or pa.types.is_string(one)))


def drop_rows_that_stay(before: ChangeBatch, after: Iterable[ChangeBatch], keys: Sequence[str]) -> ChangeBatch:
    """Return deletes of the rows before updates, without those whose update left the key as it is.

    Args:
        before: these deletes.
        after: rows of the same table, the updates' own among them; the row of an event is known by its offset.
        keys: the key's columns.
    """
    parts = [part for part in after if len(part)]
    if not parts or not len(before):
        return before
    sides = [before, *parts]
    columns = [read_columns(part.rows, keys) for part in sides]
    codes = encode_keys([pa.concat_arrays(list(same)) for same in zip(*columns, strict=True)])
    places: Ints = np.concatenate([part.order.offset for part in sides])
    count = len(before)
    stay = _is_in(codes[:count], places[:count], codes[count:], places[count:])
    return before.take(np.flatnonzero(~stay))


def _is_in(
    codes: Ints, places: Ints, other_codes: Ints, other_places: Ints
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Mark the pairs that are among the others."""
    span = int(max(codes.max(initial=0), other_codes.max(initial=0))) + 1
    least = int(min(places.min(initial=0), other_places.min(initial=0)))
    return np.isin((places - least) * span + codes, (other_places - least) * span + other_codes)
