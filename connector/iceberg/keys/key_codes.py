"""columns -> one number per row, equal for equal tuples: what folds and partitioning group by. Runs on executors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from serde.arrays import Ints, unify_floats


def encode_keys(columns: Sequence[pa.Array]) -> Ints:
    """Return each row a number that is equal for equal tuples and different for different ones.

    Args:
        columns: at least one, aligned, of any hashable Arrow type; null is a value of its own. Zero has no sign, and
            what is no number equals itself, as where rows are looked up by keys (`keys.key_hashes`).

    Cost: one hash pass per column, and a sort of the rows per column after the first.
    """
    result = _encode_column(columns[0])
    for column in columns[1:]:
        more = _encode_column(column)
        _, result = np.unique(result * (int(more.max(initial=0)) + 1) + more, return_inverse=True)
    return result


def _encode_column(column: pa.Array) -> Ints:
    storage = column.storage if isinstance(column, pa.ExtensionArray) else column
    return np.asarray(unify_floats(storage).dictionary_encode(null_encoding="encode").indices, dtype=np.int64)
