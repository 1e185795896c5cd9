"""Changes of one snapshot -> bulk requests to the table's index. On executors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import attrs
import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from connector.iceberg.types.values.spark_types import from_spark
from connector.opensearch.bulk.actions import WriteOptions
from connector.opensearch.bulk.document_sender import DocumentSender
from connector.opensearch.documents.document_ids import build_document_ids
from connector.opensearch.documents.json_values import quote_json, to_json_texts
from connector.settings.opensearch.connection import BulkSettings, ConnectionSettings
from connector.source.changes.key_values import refuse_nulls
from serde.arrays import Ints

OPERATION_NAMES = {"r": "INSERT", "c": "INSERT", "u": "UPDATE_AFTER"}
"""Names of operations in metadata fields, as in Data Prepper; a delete leaves no document to hold one."""


@attrs.frozen
class DocumentPlan:
    """What a task needs to know.

    The frame has `op`, the key's columns (`key_types`), those of the old key, then the row's (`types`; None for a
    column of JSON text). Without a key, OpenSearch assigns the documents' ids.
    """

    connection: ConnectionSettings
    bulk: BulkSettings
    style: WriteOptions
    key_names: tuple[str, ...]
    key_types: tuple[pa.DataType, ...]
    names: tuple[str, ...]
    types: tuple[pa.DataType | None, ...]
    version: int
    metadata: tuple[str, ...]
    table: str
    snapshot_id: int


def send_batches(batches: Iterator[pa.RecordBatch], plan: DocumentPlan) -> Iterator[pa.RecordBatch]:
    """Send a task's changes; return one row with their results. Raises FatalError: a row's key has a null."""
    reasons: set[str] = set()
    operations = Counter[str]()
    sender = DocumentSender(plan.connection, plan.bulk, lambda _, reason: reasons.add(reason))
    for batch in batches:
        if batch.num_rows:
            _send_batch(batch, plan, sender)
            operations.update({row["values"]: row["counts"] for row in pc.value_counts(batch.column(0)).to_pylist()})
    result = {"counts": attrs.asdict(sender.finish()), "reasons": sorted(reasons), "operations": operations}
    yield pa.RecordBatch.from_pydict({"result": [orjson.dumps(result)]})


def _send_batch(batch: pa.RecordBatch, plan: DocumentPlan, sender: DocumentSender) -> None:
    width = len(plan.key_types)
    ops, keys = batch.column(0), batch.columns[1 : 1 + width]
    old, columns = batch.columns[1 + width : 1 + 2 * width], batch.columns[1 + 2 * width :]
    is_delete = pc.equal(ops, "d")
    if width:
        where = f"table {plan.table}, snapshot {plan.snapshot_id}: "
        refuse_nulls(plan.key_names, keys, where)
        updated = pc.equal(ops, "u")
        refuse_nulls(plan.key_names, [column.filter(updated) for column in old], where)
        ids = _to_document_ids(keys, plan)
        ids_to_delete = pa.concat_arrays([ids.filter(is_delete), _changed_ids(ids, old, plan)])
        if len(ids_to_delete):
            sender.delete(
                plan.style, ids_to_delete, _snapshot_versions(plan, len(ids_to_delete)), np.arange(len(ids_to_delete))
            )
            sender.settle()
    else:
        ids = None
    live = pc.invert(is_delete)
    kept = [column.filter(live) for column in columns]
    count = pc.sum(live).as_py() or 0
    if count:
        texts = [_to_json_texts(column, kind) for column, kind in zip(kept, plan.types, strict=True)]
        own = None if ids is None else ids.filter(live)
        more = _metadata_fields(plan, ops.filter(live), own)
        versions = None if own is None else _snapshot_versions(plan, count)
        sender.put(plan.style, {**dict(zip(plan.names, texts, strict=True)), **more}, own, versions, np.arange(count))


def _snapshot_versions(plan: DocumentPlan, count: int) -> Ints:
    return np.full(count, plan.version, np.int64)


def _to_document_ids(keys: list[pa.Array], plan: DocumentPlan) -> pa.StringArray:
    typed = [from_spark(key, kind) for key, kind in zip(keys, plan.key_types, strict=True)]
    return build_document_ids(typed)


def _changed_ids(ids: pa.StringArray, old: list[pa.Array], plan: DocumentPlan) -> pa.StringArray:
    """Return the old ids of updated rows whose id changed."""
    has_old = old[0].is_valid()
    if not pc.any(has_old).as_py():
        return ids.slice(0, 0)
    before = _to_document_ids([column.filter(has_old) for column in old], plan)
    return before.filter(pc.not_equal(before, ids.filter(has_old)))


def _to_json_texts(column: pa.Array, kind: pa.DataType | None) -> pa.StringArray:
    return pc.fill_null(column, "null") if kind is None else to_json_texts(from_spark(column, kind))


def _metadata_fields(plan: DocumentPlan, ops: pa.StringArray, ids: pa.StringArray | None) -> dict[str, pa.StringArray]:
    """Return the columns of `iceberg.metadata.fields`."""
    fields: dict[str, pa.StringArray] = {}
    for name in plan.metadata:
        if name == "iceberg_operation":
            place = pc.index_in(ops, pa.array(list(OPERATION_NAMES)))
            fields[name] = pa.array([quote_json(word) for word in OPERATION_NAMES.values()]).take(place)
        elif name == "document_id" and ids is not None:
            fields[name] = to_json_texts(ids)
        elif name != "document_id":
            constant = {
                "iceberg_table_name": quote_json(plan.table),
                "iceberg_snapshot_id": str(plan.snapshot_id),
                "bulk_action": quote_json("INDEX"),
            }[name]
            fields[name] = pc.if_else(ops.is_valid(), constant, constant)
    return fields
