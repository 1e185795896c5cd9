"""objects whose last fields were cut off -> wire rows; of envelopes with one image, that image alone is parsed.

Most envelopes have one image and a null in place of the other. Arrow's JSON reader spends as much on the columns of an
image that is null as on those of one that is there. So where the bytes say `{"before":null,"after":{..}` or
`{"before":{..},"after":null`, what is between is read as an object of its own, and both images share its columns.
What is taken is the same: these bytes around one object that a strict reader took are that JSON, each name once.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from serde.arrays import Mask, children
from serde.byte_windows import ByteWindows
from serde.json.columns.column_reader import ColumnReader, ReadResult

_IMAGES = ["before", "after"]
_CREATED, _GONE = b'{"before":null,"after":', b'{"before":'
_NO_AFTER = b',"after":null,'
_USUAL_SHARE = 32
"""Where more than one in so many messages have another form, all are read as they are: rows would be out of order."""


def read_heads(heads: ByteWindows, kind: pa.StructType, *, strict: bool, give_up: int | None) -> ReadResult:
    """Read objects whose last byte is a comma, in place of their end (`ColumnReader.cut_off`); its other arguments."""
    created, gone = _find_images(heads, kind)
    single = created | gone
    if not len(heads) or np.count_nonzero(~single) > len(heads) // _USUAL_SHARE:
        return ColumnReader(heads, kind, strict, give_up, cut_off=True).read()
    front = np.where(created[single], len(_CREATED), len(_GONE))
    behind = np.where(created[single], 1, len(_NO_AFTER))
    some = heads.pick(single)
    images = ByteWindows(heads.data, some.starts + front, some.ends - behind)
    image = kind.field("after").type
    reading, rows = ColumnReader(images, image, strict, give_up).read(), np.flatnonzero(single)
    parts = [(rows[where], _place_images(array, kind, created[rows[where]])) for where, array in reading.parts]
    failed, rest = ([rows[where] for where in some] for some in (reading.failed, reading.rest))
    if not single.all():
        others = np.flatnonzero(~single)
        whole = ColumnReader(heads.pick(others), kind, strict, give_up, cut_off=True).read()
        parts += [(others[where], array) for where, array in whole.parts]
        failed += [others[where] for where in whole.failed]
        rest += [others[where] for where in whole.rest]
    return ReadResult(parts, failed, rest)


def _find_images(heads: ByteWindows, kind: pa.StructType) -> tuple[Mask, Mask]:
    """Mark the objects that are nothing but an `after`, and those that are nothing but a `before`."""
    none = np.zeros(len(heads), np.bool_)
    if kind.names != _IMAGES or not len(heads) or not pa.types.is_struct(kind.field("after").type):
        return none, none
    view = heads.view
    created = heads.starts_with(_CREATED + b"{")
    created[created] = view[heads.ends[created] - 2] == ord("}")
    gone = none
    if not created.all() and kind.field("before").type == kind.field("after").type:
        gone = ~created & (heads.sizes > len(_GONE) + len(_NO_AFTER) + 1)
        gone &= heads.starts_with(_GONE + b"{") & heads.ends_with(b"}" + _NO_AFTER)
    return created, gone


def _place_images(image: pa.StructArray, kind: pa.StructType, created: Mask) -> pa.StructArray:
    """Make envelopes of images: where `created`, they are `after`, else `before`."""
    before, after = (kind.field(name).type for name in _IMAGES)
    if created.all():
        return pa.StructArray.from_arrays([pa.nulls(len(image), before), image], fields=list(kind))
    columns, fields = children(image), list(after)
    both = [pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(away)) for away in (created, ~created)]
    return pa.StructArray.from_arrays(both, fields=list(kind))
