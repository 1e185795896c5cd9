"""Changes of one snapshot -> documents in the table's index, without Kafka; all are settled when it returns.

A document's version is the time of its snapshot's events, as on the way through Kafka. Deletes of a key come before
what follows them in the same snapshot: they are settled before the next rows are sent.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, cast

import attrs
import orjson
import pyarrow as pa
import structlog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from connector.errors import FatalError, GapError
from connector.iceberg.catalog.snapshot_schema import SnapshotSchema
from connector.iceberg.types.schemas.arrow_types import VARIANT_ARROW_TYPE, to_arrow_schema
from connector.opensearch.bulk.bulk_processor import DocumentCounts
from connector.opensearch.bulk.item_results import apply_policy
from connector.opensearch.indexes.field_names import FieldNames, assign_field_names, find_aliases
from connector.opensearch.indexes.index_admin import IndexAdmin, IndexInfo
from connector.opensearch.indexes.index_identity import decode_ids, encode_ids, explain_loss
from connector.opensearch.indexes.index_meta import IndexMetadata
from connector.opensearch.indexes.index_names import to_index_name
from connector.opensearch.indexes.mapping import map_columns
from connector.runtime.spark.task_errors import raise_task_errors
from connector.settings import SourceSettings
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.source.changes.row_key import KeyKind
from connector.source.destination import CapturedTable, PublishTarget, TargetRebuild, drop_skipped
from connector.source.destinations.document_tasks import DocumentPlan, send_batches
from connector.source.envelope.record_keys import key_parts
from connector.source.envelope.row_schema import RecordKey, check_columns, describe_row, describe_row_key

_METADATA_TYPES = {"iceberg_snapshot_id": "long"}
_MAX_REASONS = 3
_MAX_SETTINGS = 20


@attrs.define(eq=False)
class OpenSearchPublisher:
    """A `ChangePublisher` of documents; `name_index` names the index of a topic."""

    settings: SourceSettings
    search: OpenSearchSettings
    indexes: IndexAdmin
    name_index: Callable[[str], str] = to_index_name
    _ready: dict[str, tuple[str, FieldNames, IndexInfo]] = attrs.field(factory=dict)

    def target(self, table: str) -> PublishTarget:
        """Return the index of a table: topics with different names may have one name of an index."""
        return PublishTarget("index", self.name_index(self.settings.outgoing.topic(table)))

    def check_columns(self, table: CapturedTable) -> None:
        """Check that every column has a type and a name of its own, by the rules of events.

        Raises:
            FatalError: one has not.
        """
        check_columns(table.name, table.row, self.settings.outgoing.modes)

    def publish(self, changes: DataFrame, table: CapturedTable) -> Mapping[str, int]:
        """Write the documents of changes to the index, all settled when it returns.

        Raises:
            RetriableError: cluster or store are away; some documents may be there, a retry gives the same ones.
            FatalError: the index refuses a document, or a file cannot be read.
        """
        plan = self._plan(table)
        kept = drop_skipped(changes, self.settings.outgoing.skipped)
        frame = kept.select(*_task_columns(table, plan))
        with raise_task_errors():
            results = frame.mapInArrow(partial(send_batches, plan=plan), "result binary").collect()
        self._check_unchanged(self.target(table.name).name)
        outcomes = [orjson.loads(bytes(row.result)) for row in results]
        self._report_results(plan, outcomes)
        return dict(sum((Counter(one["operations"]) for one in outcomes), Counter[str]()))

    def check_target(self, table: CapturedTable, target_id: str) -> None:
        """Check that the index that has the table's documents is still there.

        Raises:
            GapError: it is gone, or another has its name.
            RetriableError, FatalError: the cluster is away, or does not let us in.
        """
        name = self.target(table.name).name
        if not target_id:
            self._ready.pop(name, None)
            return
        index = self.indexes.find(name)
        reason = explain_loss(name, decode_ids(target_id), {} if index is None else index.ids)
        if reason is not None:
            raise GapError(f"table {table.name}: {reason}")

    def target_id(self, table: CapturedTable) -> str:
        """Return what tells the index that has the table's documents from later ones of its name."""
        name = self.target(table.name).name
        if name in self._ready:
            return encode_ids(self._ready[name][2].ids)
        index = self.indexes.find(name)
        return "" if index is None else encode_ids(index.ids)

    def schema_changed(self, table: CapturedTable, *, created: bool) -> None:  # noqa: ARG002 - both the same
        """Make the index, or give it the fields that it lacks: its mapping is its schema."""
        topic = self.settings.outgoing.topic(table.name)
        self._prepare_index(self.name_index(topic), table.schema, topic)

    def heartbeat(self, ts_ms: int) -> None:
        """Publish nothing: an index has no place for heartbeats."""

    def _report_results(self, plan: DocumentPlan, results: list[dict[str, Any]]) -> None:
        counts = {name: sum(result["counts"][name] for result in results) for name in attrs.fields_dict(DocumentCounts)}
        reasons = sorted({reason for result in results for reason in result["reasons"]})[:_MAX_REASONS]
        structlog.get_logger().info("documents settled", table=plan.table, snapshot_id=plan.snapshot_id, **counts)
        where = f"table {plan.table}, snapshot {plan.snapshot_id}: index {plan.style.index}"
        refused = (
            f"{where} refuses {counts['malformed']} documents ({'; '.join(reasons)}); put its mapping right, or set "
            "behavior.on.malformed.documents=warn to leave them out"
        )
        # There are no records here that dead letters could hold.
        rule = "fail" if self.search.malformed == "report" else self.search.malformed
        apply_policy(rule, counts["malformed"], refused, "documents left out", table=plan.table, reasons=reasons)
        older = f"{where} holds newer versions of {counts['stale']} documents"
        apply_policy(self.search.conflict, counts["stale"], older, "older changes left out", table=plan.table)

    def _plan(self, table: CapturedTable) -> DocumentPlan:
        schema, key, topic = table.schema, _record_key(table), self.settings.outgoing.topic(table.name)
        names, index = self._prepare_index(self.name_index(topic), schema, topic)
        chosen = _document_columns(table)
        kinds = to_arrow_schema(schema.iceberg)
        ids = [column["id"] for column in schema.document["fields"]]
        types = [None if ids[place] in schema.variants else kinds.field(place).type for place in chosen]
        return DocumentPlan(
            connection=self.search.connection,
            bulk=self.search.bulk,
            style=index.style(partial=self.search.partial),
            key_names=() if key is None else tuple(member.name for member in key.record.members),
            key_types=_key_types(table),
            names=tuple(names[place] for place in chosen),
            types=tuple(types),
            version=table.snapshot.ts_ns,
            metadata=self.search.metadata,
            table=table.name,
            snapshot_id=table.snapshot.snapshot_id,
        )

    def _prepare_index(self, name: str, schema: SnapshotSchema, topic: str) -> tuple[list[str], IndexInfo]:
        """Create or evolve the index; return its fields in the order of the schema's columns, and the index."""
        schema_json, names, index = self._ready.get(name, ("", FieldNames({}), IndexInfo(name, {}, {})))
        if schema_json == schema.json:
            index = self.indexes.current(index)
        else:
            names, index = self._evolve_index(name, schema, topic)
        self._ready[name] = schema.json, names, index
        return names.columns(schema.document), index

    def _check_unchanged(self, name: str) -> None:
        schema_json, names, index = self._ready[name]
        self._ready[name] = schema_json, names, self.indexes.confirm_indexes(index)

    def _evolve_index(self, index: str, schema: SnapshotSchema, topic: str) -> tuple[FieldNames, IndexInfo]:
        found = self.indexes.find(index)
        if found is not None and found.stream:
            raise FatalError(f"{index} is a data stream, which is append-only; give the source an index")
        before = IndexMetadata.read(found.noted) if found is not None and found.noted else IndexMetadata({}, "source")
        if before.versions != "source":
            raise FatalError(
                f"index {index} is versioned by Kafka offsets, not by snapshots; give the source another index"
            )
        if before.is_foreign(topic):
            raise FatalError(
                f"index {index} has the documents of {before.owner}, and {topic} maps to the same index name; "
                "exclude one of the two tables, or read them by sources with a topic.prefix each"
            )
        others = frozenset[str]() if found is None else find_aliases(found.properties)
        known = {number: name for number, name in before.names.items() if name not in others}
        # What stands beside the columns has names of its own.
        names = assign_field_names(schema.document, known, {*others, *self.search.metadata})
        kinds = zip(names.columns(schema.document), _column_types(schema), strict=True)
        metadata = {name: {"type": _METADATA_TYPES.get(name, "keyword")} for name in self.search.metadata}
        fields = {**map_columns(kinds), **names.aliases(schema.document), **metadata}
        mapping = {} if self.search.schema_ignore else fields
        note = IndexMetadata(schema.document, "source", names=names.names, owner=topic).document()
        if found is None:
            found = self.indexes.create(index, mapping, note)
            structlog.get_logger().info("index created", index=index, fields=len(mapping))
        else:
            self.indexes.grow(found, mapping, note)
        return names, found


def open_opensearch_publisher(settings: SourceSettings) -> OpenSearchPublisher:
    """Open a publisher to the cluster of the settings."""
    search = cast("OpenSearchSettings", settings.destination)
    return OpenSearchPublisher(settings, search, IndexAdmin(search))


def rebuild_index(settings: SourceSettings, table: str) -> TargetRebuild:
    """Return a publisher into a fresh index for a table; its alias moves there when it is put in place."""
    search = cast("OpenSearchSettings", settings.destination)
    indexes, alias = IndexAdmin(search), to_index_name(settings.outgoing.topic(table))
    fresh = f"{alias}-{time.time_ns() // 1_000_000}"
    publisher = OpenSearchPublisher(settings, search, indexes, partial(_name_index, fresh))
    swap, delete = partial(_swap_alias, indexes, alias, fresh), partial(indexes.delete, fresh)
    return TargetRebuild(fresh, alias, publisher, swap, delete)


def _swap_alias(indexes: IndexAdmin, alias: str, fresh: str) -> None:
    """Let the alias stand for the fresh index, and tell which settings go with the one before."""
    lost = indexes.find_lost_settings(alias, fresh)
    indexes.swap_alias(alias, fresh)
    if lost:
        structlog.get_logger().warning(
            "settings of the index before are not in the new one; an index template keeps them",
            index=fresh,
            settings=lost[:_MAX_SETTINGS],
        )


def _name_index(name: str, topic: str) -> str:  # noqa: ARG001 - one table at a time
    return name


def _record_key(table: CapturedTable) -> RecordKey | None:
    return describe_row_key(describe_row(table.schema.document), table.key)


def _key_types(table: CapturedTable) -> tuple[pa.DataType, ...]:
    if table.key.kind == KeyKind.NONE:
        return ()
    if table.key.kind == KeyKind.ROW_ID:
        return (pa.int64(),)
    fields = [table.schema.iceberg.find_field(name) for name in table.key.columns]
    own = Schema(*(NestedField(n, f"k{n}", field.field_type, required=False) for n, field in enumerate(fields, 1)))
    return tuple(to_arrow_schema(own).types)


def _column_types(schema: SnapshotSchema) -> list[pa.DataType]:
    """Return the types of a schema's columns, that of variants too."""
    types = zip(schema.document["fields"], to_arrow_schema(schema.iceberg).types, strict=True)
    return [VARIANT_ARROW_TYPE if column["id"] in schema.variants else kind for column, kind in types]


def _document_columns(table: CapturedTable) -> list[int]:
    """Return the places of the columns that documents have, in the schema's order."""
    kept = {member.name for member in table.row.members}
    return [place for place, name in enumerate(table.schema.names) if name in kept]


def _task_columns(table: CapturedTable, plan: DocumentPlan) -> list[Column]:
    """Select what a task gets, under names that have no dots."""
    before, after = F.col("before"), F.col("after")
    key = _record_key(table)
    keys = key_parts(key, F.coalesce(after, before))
    old = [F.when(F.col("op") == "u", column) for column in key_parts(key, before)]
    columns = [after[table.schema.names[place]] for place in _document_columns(table)]
    rows = [F.to_json(column) if kind is None else column for column, kind in zip(columns, plan.types, strict=True)]
    sides = {"k": keys, "o": old, "c": rows}
    named = [column.alias(f"{side}{place}") for side, found in sides.items() for place, column in enumerate(found)]
    return [F.col("op"), *named]
