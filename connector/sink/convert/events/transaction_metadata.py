"""records of the transaction topic -> counts and dead letters: transaction metadata is no row, and no other record is.

`microbatch.transactions` reads what the metadata says. The topic is read because `transaction.topic` names it: whatever
else is in it belongs to no table.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.convert.decoded_records import DecodedRecords
from serde.arrays import Mask, column_at
from serde.faults import RecordError
from serde.messages import DecodedMessages, MessageBlock

_STATUSES = pa.array(["BEGIN", "END"])
_REASON = "no transaction metadata: the transaction topic has nothing else"


def check_transaction_metadata(values: DecodedMessages) -> DecodedRecords:
    """Return dead letters for values that are no BEGIN or END with the transaction's id; the others are counted."""
    masks = [(block.rows, _is_metadata(block)) for block in values.blocks]
    others = np.concatenate([values.tombstones, *(rows[~mask] for rows, mask in masks)])
    faults = [RecordError(int(row), "TASK_PUT", _REASON) for row in np.sort(others)]
    metadata = sum(int(mask.sum()) for _, mask in masks)
    return DecodedRecords(faults=(*values.faults, *faults), metrics=TaskMetrics(ignored=metadata))


def _is_metadata(block: MessageBlock) -> Mask:
    status, transaction = (column_at(block.fields, name) for name in ("status", "id"))
    if any(column is None or not pa.types.is_string(column.type) for column in (status, transaction)):
        return np.zeros(len(block.rows), np.bool_)
    mask: Mask = np.asarray(pc.and_(pc.is_in(status, _STATUSES), pc.is_valid(transaction)))
    return mask
