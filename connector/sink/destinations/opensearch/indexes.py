"""Shapes of events -> the indexes of a sink: made on first sight, given fields on need. On the driver.

The columns of an index are kept as an Iceberg schema, in the index itself: documents are decoded and converted exactly
as the rows of a table are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
import orjson
import pyarrow as pa

from connector.errors import DataFault, FatalError, GapError
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.state.deleted_keys_table import DeletedKeysTable
from connector.iceberg.types.schemas.arrow_types import build_table_schema
from connector.iceberg.types.schemas.row_layout import RowLayout
from connector.iceberg.types.schemas.schema_evolution import evolve, union_shapes
from connector.opensearch.indexes.field_names import assign_fields_by_name, find_aliases
from connector.opensearch.indexes.index_admin import IndexAdmin, IndexInfo
from connector.opensearch.indexes.index_identity import IndexIds, decode_ids, encode_ids, explain_loss
from connector.opensearch.indexes.index_meta import IndexMetadata, VersionSource
from connector.opensearch.indexes.index_names import IndexNamePattern
from connector.opensearch.indexes.index_templates import TIMESTAMP_FIELD, DataStreamAdmin, DatedIndexAdmin
from connector.opensearch.indexes.mapping import FieldMapping, map_columns
from connector.runtime.topic_partitions import TopicPartition
from connector.settings import SinkSettings
from connector.settings.opensearch.documents import OpenSearchSettings
from connector.sink.convert.columns.field_matching import (
    match_key_shapes,
    match_names,
    match_shape,
    merge_case_variants,
)
from connector.sink.destinations.deleted_keys import DeletedKeyLog
from connector.sink.destinations.opensearch.index_naming import IndexNaming
from connector.sink.destinations.opensearch.write.document_requests import IndexTarget
from connector.sink.destinations.opensearch.write.document_writer import OpenSearchWriterFactory
from connector.sink.destinations.opensearch.write.timestamps import TimestampRule
from connector.sink.destinations.table_registry import BaseTableRegistry, run_concurrently
from connector.sink.destinations.table_schema import choose_key, with_keys
from connector.sink.model.plan import SchemaChange, TablePlan
from serde.events.changes import DELETED_COLUMN


@attrs.frozen
class KnownIndex:
    """What an index was made for: its columns and key, what its versions are, and whether tombstones delete.

    `owner` as in `IndexMetadata`. `fields` gives the field of each column, by the column's name: all before the writing
    of documents knows columns by the names that events give them.
    """

    layout: RowLayout
    versions: VersionSource
    tombstones: bool
    index: IndexInfo
    owner: str = ""
    fields: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def other_fields(self) -> dict[str, str]:
        """The fields of columns that are kept under another name than their own."""
        return {name: field for name, field in self.fields.items() if field != name}

    def document(self) -> dict[str, object]:
        """Return it as the index keeps it."""
        schema = orjson.loads(self.layout.schema_json)
        noted = IndexMetadata(schema, self.versions, self.tombstones, owner=self.owner, fields=self.other_fields)
        return noted.document()

    def properties(self) -> dict[str, FieldMapping]:
        """Return the mapping of its columns."""
        return map_columns((self.fields[column.name], column.type) for column in self.layout.columns)


class OpenSearchIndexes(BaseTableRegistry[KnownIndex]):
    """All indexes of one sink, by name; events that name their tables themselves name indexes here."""

    KIND = "index"

    def __init__(
        self,
        settings: SinkSettings,
        search: OpenSearchSettings,
        stored_offsets: Mapping[str, KafkaOffsets] | None = None,
        deleted_keys: DeletedKeysTable | None = None,
    ) -> None:
        """Start with no index known; `stored_offsets` is what the offsets table says of indexes."""
        super().__init__(settings)
        self._positions = dict(stored_offsets or {})
        self._search = search
        self._indexes, self._dating = _select_index_kind(search)
        self.deleted_keys = deleted_keys
        self._ids: dict[str, IndexIds] = {}
        self._names = IndexNaming(settings.table, search)

    def writers(self) -> OpenSearchWriterFactory:
        """Return what opens the bulk requests of tasks."""
        targets, report = {name: self.target(name) for name in self._known}, self._search.malformed == "report"
        layout = None if self.deleted_keys is None else self.deleted_keys.layout
        memory = DeletedKeyLog.of(layout, self._settings.name)
        return OpenSearchWriterFactory(self._search.connection, self._search.bulk, targets, memory, report=report)

    def label(self, name: str) -> str:
        """Return the name of an index as the cluster has it."""
        return self._names.place(name)

    def name(self, topic: str) -> str:
        """Return the name of a topic's index. FatalError: another topic has the same, though nobody said so."""
        return self._names.of_topic(topic)

    def plan(self, name: str, index: int, start: Mapping[TopicPartition, int]) -> TablePlan:  # noqa: ARG002 - no commits
        """Return the executors' view of an index."""
        noted, rule = self._known[name], self._settings.table
        upsert = rule.upsert and bool(noted.layout.keys)
        deletes = upsert and noted.tombstones and self._search.null_values == "delete"
        position, numbered = self.position(name), upsert and noted.versions == "source"
        return TablePlan(
            index=index,
            layout=noted.layout,
            upsert=upsert,
            keep_deletes=rule.keep_deletes,
            tombstones="delete" if deletes else "skip",
            keys_from=rule.keys.key_source(name),
            key_configured=bool(rule.keys.of(name)),
            numbered=numbered,
            remembers=numbered and self.deleted_keys is not None,
            watermarks=position.watermarks,
            partitions=position.partitions,
            truncates=position.truncates if numbered else {},
        )

    def position(self, name: str) -> KafkaOffsets:
        """Return where an index stands: after the batches that are in it, as far as anybody knows."""
        return self._positions.get(self._names.place(name), KafkaOffsets())

    def record_position(self, name: str, position: KafkaOffsets) -> None:
        """Take note of where an index stands once a batch is in it."""
        self._positions[self._names.place(name)] = position

    def target(self, name: str) -> IndexTarget:
        """Return how documents of an index are written."""
        noted = self._known[name]
        style = attrs.evolve(noted.index.style(partial=self._search.partial), fields=noted.other_fields)
        return IndexTarget(style, noted.versions, self._dating)

    def confirm_indexes(self, names: Iterable[str]) -> dict[str, str]:
        """See that documents that were just sent are behind these names; give by name what is to be noted of each.

        Raises:
            RetriableError, GapError, FatalError: as `IndexAdmin.confirm_indexes`.
        """
        confirmed, before = {}, {name: self._known[name].index for name in names}
        same = self._indexes.find_unchanged(before.values())
        for name, index in before.items():
            now = index if index.name in same else self._indexes.confirm_indexes(index)
            self._ids[now.name] = now.ids
            confirmed[name] = encode_ids(now.ids)
        return confirmed

    def check(self, stored_ids: Mapping[str, str]) -> None:
        """See that the indexes that batches were acknowledged into are still there; each with what was noted of it.

        Raises:
            GapError: one is gone, or another has its name, and its documents are gone with it.
        """
        for place, text in sorted(stored_ids.items()):
            self._ids[place] = decode_ids(text)
            if self._find(place) is None:
                raise GapError(
                    f"index {place} is gone, although the stored offsets say that it has their events; see `icebridge "
                    "offsets show`, and `icebridge offsets reset` to fill it again from what the topics hold"
                )

    def _find(self, place: str) -> IndexInfo | None:
        """Look an index up. Raises GapError: it, or its documents, are gone."""
        index, stored_ids = self._indexes.find(place), self._ids.get(place, {})
        reason = explain_loss(place, stored_ids, {} if index is None else index.ids)
        if reason is not None:
            raise GapError(reason)
        return index

    def expect_unavailable_values(self, name: str) -> None:
        """Nothing to note: tasks look documents up whenever an event leaves values out."""

    def _load(self, names: Iterable[str]) -> None:
        """Look up what is not known yet, and what may have been rolled over, or deleted."""
        same = self._indexes.find_unchanged(one.index for one in self._known.values())
        known = [name for name, one in self._known.items() if one.index.name not in same]
        current = run_concurrently(lambda name: self._indexes.current(self._known[name].index), known)
        for name, now in zip(known, current, strict=True):
            if now is not self._known[name].index:
                self._log.info("alias rolled over", alias=now.name, index=now.writes, behind=len(now.behind))
                self._known[name] = attrs.evolve(self._known[name], index=now)
        super()._load(names)

    def _load_existing(self, name: str) -> KnownIndex | None:
        index = self._find(self._names.place(name))
        try:
            self._names.claim(name)
            return self._read_note(name, index) if index is not None and index.noted else None
        except DataFault as fault:
            raise FatalError(str(fault)) from fault

    def _read_note(self, name: str, index: IndexInfo) -> KnownIndex:
        self._check_stream(index)
        note, rule, owner = IndexMetadata.read(index.noted), self._settings.table, self._names.owner(name)
        if note.is_foreign(owner):
            raise DataFault(
                f"index {index.name} has the documents of {note.owner}, and {owner} maps to the same index name; "
                "name an index for it (topic.to.existing.resource.mapping)"
            )
        layout, keys = RowLayout(name, orjson.dumps(note.schema).decode()), rule.keys.of(name) if rule.upsert else ()
        layout = attrs.evolve(
            layout, id_columns=match_names(keys, layout.columns.names) if rule.case_insensitive else keys
        )
        return KnownIndex(layout, note.versions, note.tombstones, index, owner, note.fields_by_name())

    def _check_stream(self, index: IndexInfo) -> None:
        if index.stream and not self._search.series.streams:
            raise FatalError(
                f"{index.name} is a data stream, which is append-only; set data.stream.enabled=true and "
                "key.ignore=true, or give the sink an index or alias"
            )

    def _create(self, name: str, needs: list[SchemaChange]) -> KnownIndex:
        """Make an index, or take one over that is there, from the shapes of its events."""
        self._names.claim(name)
        rule = self._settings.table
        existing = self._find(self._names.place(name))
        if existing is not None and existing.noted:
            return self._read_note(name, existing)
        if existing is not None:
            self._check_stream(existing)
        columns, keys = self._choose_columns(name, needs)
        tells = DELETED_COLUMN in columns.names
        if rule.keep_deletes and keys and not tells:
            columns = columns.append(pa.field(DELETED_COLUMN, pa.string()))
        dated = all(need.dated for need in needs)
        index = existing or IndexInfo(self._names.place(name), {}, {})
        versions: VersionSource = "source" if tells and dated else "offset"
        layout = self._build_layout(name, columns, keys)
        created = KnownIndex(
            layout, versions, not tells, index, self._names.owner(name), self._assign_fields(layout, index, {})
        )
        if existing is not None:
            self._grow(existing, name, created)
        elif not rule.auto_create:
            raise DataFault(
                f"index {self._names.place(name)} does not exist, and auto-create-enabled is false; create it, or set "
                "iceberg.tables.auto-create-enabled=true, and replay the record"
            )
        else:
            index = self._indexes.create(self._names.place(name), self._properties(needs, created), created.document())
            created = attrs.evolve(created, index=index)
            self._log.info("index created", index=self._names.place(name), fields=len(columns), key=list(keys))
        return created

    def _choose_columns(self, name: str, needs: list[SchemaChange]) -> tuple[pa.Schema, tuple[str, ...]]:
        """Return the columns of a new index, and its key. DataFault: there are no columns."""
        rule, columns = self._settings.table, union_shapes(need.row for need in needs)
        if rule.case_insensitive:
            columns = pa.schema(merge_case_variants(columns))
            needs = match_key_shapes(needs, columns.names)
        keys = () if self._is_keyless(needs) else choose_key(needs, columns, rule, (name,))
        columns = with_keys(columns, needs if rule.keys.key_source(name) == "record" else [], keys)
        if not len(columns):
            raise DataFault(
                "its events have no columns that a document could have; create the index, or take the topic out of "
                "topics"
            )
        return columns, keys

    def _evolve(self, name: str, known: KnownIndex, needs: list[SchemaChange]) -> KnownIndex:
        columns, rule = known.layout.columns, self._settings.table
        for need in needs:
            row = match_shape(need.row, columns.names) if rule.case_insensitive else need.row
            columns = evolve(columns, row, add=rule.allow_field_addition)
        index = self._indexes.current(known.index)
        # With the fields that others added meanwhile, by hand or by documents: those keep their types.
        index = self._indexes.find(index.name) or index
        layout = self._build_layout(name, columns, known.layout.keys)
        fields = self._assign_fields(layout, index, known.fields)
        evolved = attrs.evolve(known, layout=layout, index=index, fields=fields)
        self._grow(index, name, evolved, needs)
        before = known.layout.columns.names
        self.record_drift(name, (field for field in columns.names if field not in before))
        return evolved

    def _grow(self, index: IndexInfo, name: str, known: KnownIndex, needs: Iterable[SchemaChange] = ()) -> None:
        self._indexes.grow(index, self._properties(needs, known), known.document())
        self._log.info("fields added", index=self._names.place(name), fields=len(known.layout.columns))

    def _build_layout(self, name: str, columns: pa.Schema, keys: tuple[str, ...]) -> RowLayout:
        plain = pa.schema([pa.field(field.name, field.type) for field in columns])
        schema = build_table_schema(plain, keys, frozenset(), nanoseconds=True)
        return RowLayout(name, schema.model_dump_json())

    def _assign_fields(self, layout: RowLayout, index: IndexInfo, known: Mapping[str, str]) -> dict[str, str]:
        # A stream's documents have a time beside their columns, or in the column of its name.
        beside = {TIMESTAMP_FIELD: TIMESTAMP_FIELD} if self._search.series.streams else {}
        schema, aliases = orjson.loads(layout.schema_json), find_aliases(index.properties)
        return assign_fields_by_name(schema, {**known, **beside}, aliases)

    def _properties(self, needs: Iterable[SchemaChange], known: KnownIndex) -> dict[str, FieldMapping]:
        ignored = self._search.topic_schema_ignore
        if self._search.schema_ignore or any(need.topic in ignored for need in needs):
            return {}
        return known.properties()

    def _is_keyless(self, needs: Iterable[SchemaChange]) -> bool:
        ignored = self._search.topic_key_ignore
        return self._search.key_ignore or any(need.topic in ignored for need in needs)


def _select_index_kind(search: OpenSearchSettings) -> tuple[IndexAdmin, TimestampRule | None]:
    """Return the kind of index that a sink writes, and which time its documents need for it."""
    series = search.series
    if series.streams:
        field = series.stream_field
        return DataStreamAdmin(search), TimestampRule((field,), source=field == TIMESTAMP_FIELD)
    if series.pattern is not None:
        pattern = IndexNamePattern(*series.pattern)
        return DatedIndexAdmin(search, pattern), TimestampRule(series.fields, source=not series.fields, pattern=pattern)
    return IndexAdmin(search), None
