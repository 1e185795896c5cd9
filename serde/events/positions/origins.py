"""fields of `source` -> whose events they are: one name for each server, database, schema and table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

ORIGIN_FIELDS = ("name", "db", "schema", "table")
"""What names a source: its server (`topic.prefix`), database, schema where it has such, and table."""


def drop_unused_names(origin: pa.DictionaryArray) -> pa.DictionaryArray:
    """Sources without those that no change is of: what is told of each costs a look at all changes."""
    count = len(origin.dictionary)
    if count < 2:  # noqa: PLR2004 - of one name nothing is saved
        return origin
    codes = np.asarray(origin.indices)
    if len(codes) and (codes == codes[0]).all():
        return pa.DictionaryArray.from_arrays(pa.array(np.zeros_like(codes)), origin.dictionary.slice(codes[0], 1))
    used = np.bincount(codes, minlength=count) > 0
    if used.all():
        return origin
    fresh = np.cumsum(used, dtype=np.int32) - np.int32(1)
    return pa.DictionaryArray.from_arrays(pa.array(fresh[codes]), origin.dictionary.filter(pa.array(used)))


def join_origin(columns: Sequence[pa.Array | None], count: int) -> pa.DictionaryArray:
    """The parts of each event's source as one text."""
    names, codes = [""], np.zeros(count, np.int64)
    for place, column in enumerate(columns):
        coded = column.dictionary_encode() if column is not None and pa.types.is_string(column.type) else None
        own = ["", *coded.dictionary.to_pylist()] if coded is not None else [""]
        if coded is not None:
            codes = codes * len(own) + np.asarray(coded.indices.fill_null(-1), np.int64) + 1
        # One source in a block is the usual case: then nothing is sorted.
        same = not count or bool((codes == codes[0]).all())
        used, codes = (codes[:1], np.zeros(count, np.int64)) if same else np.unique(codes, return_inverse=True)
        schema = ORIGIN_FIELDS[place] == "schema"
        parts = [(names[code // len(own)], own[code % len(own)]) for code in used.tolist()]
        names = [name if schema and not part else f"{name}{'.' if place else ''}{part}" for name, part in parts]
    return pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), pa.array(names, pa.string()))
