"""The indexes of a sink: made on first sight, given fields on need. On the driver.

The columns of an index are kept as an Iceberg schema, in the index itself: documents are decoded and converted exactly
as the rows of a table are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import attrs
import orjson
import pyarrow as pa
import structlog

from connector.errors import DataFault, GapError
from connector.iceberg.deleted_keys import DeletedKeys
from connector.iceberg.evolution import grown, union
from connector.iceberg.layout import TableLayout
from connector.iceberg.position import TopicPartition
from connector.iceberg.table import Table
from connector.iceberg.types import table_schema
from connector.opensearch.actions import Style
from connector.opensearch.indexes import Index, Indexes
from connector.opensearch.mappings import properties
from connector.opensearch.names import index_of
from connector.settings import SinkSettings
from connector.settings.search import SearchSettings
from connector.sink.decode import DELETED
from connector.sink.documents import Documents, Target, Versions
from connector.sink.making import identifiers, with_keys
from connector.sink.matching import merged
from connector.sink.plan import Need, TablePlan
from connector.sink.route import index_name

INDEXES_AT_ONCE = 8


@attrs.frozen
class Noted:
    """What an index was made for: its columns and key, what its versions are, and whether tombstones delete."""

    layout: TableLayout
    versions: Versions
    tombstones: bool

    def document(self) -> dict[str, object]:
        """Give it as the index keeps it."""
        schema = orjson.loads(self.layout.schema_json)
        return {"schema": schema, "versions": self.versions, "tombstones": self.tombstones}


class Indices:
    """All indexes of one sink, by name; events that name their tables themselves name indexes here."""

    def __init__(self, settings: SinkSettings, search: SearchSettings) -> None:
        """Start with no index known."""
        self._settings, self._search = settings, search
        self._indexes = Indexes(search)
        self._known: dict[str, Noted] = {}
        self.refused: dict[str, str] = {}
        self.refused_tables: dict[str, str] = {}
        self.drift: dict[str, set[str]] = {}
        self.deleted_keys: DeletedKeys | None = None
        self._log = structlog.get_logger()

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    @property
    def outlet(self) -> Documents:
        """Where tasks write: the cluster."""
        targets = {
            name: Target(Style(self._place(name), self._search.partial), noted.versions)
            for name, noted in self._known.items()
        }
        return Documents(self._search.connection, self._search.bulk, targets, report=self._search.malformed == "report")

    def label(self, name: str) -> str:
        """Give the name of an index as the cluster has it."""
        return self._place(name)

    def tables(self, names: Iterable[str]) -> list[Table]:  # noqa: ARG002 - there are none
        """Give no tables: documents are looked up by tasks."""
        return []

    def name(self, topic: str) -> str:
        """Give the name of a topic's index."""
        return self._search.existing.get(topic) or index_name(topic, self._settings.table)

    def find(self, topics: Iterable[str]) -> dict[str, str]:
        """Give the index names of those topics whose index is known; none where events decide."""
        if self._settings.table.routes is not None:
            return {}
        names = {topic: self.name(topic) for topic in topics}
        self._load(names.values())
        return {topic: name for topic, name in names.items() if name in self._known}

    def routed(self) -> list[str]:
        """Give the indexes known of those that events name themselves: the configured ones, and those met so far."""
        rule = self._settings.table.routes
        if rule is not None:
            self._load(name for name, _ in rule.tables)
        return [] if rule is None else sorted(self._known)

    def plan(self, name: str, index: int, start: Mapping[TopicPartition, int]) -> TablePlan:  # noqa: ARG002 - no commits
        """Give the executors' view of an index."""
        noted, rule = self._known[name], self._settings.table
        upsert = rule.upsert and bool(noted.layout.keys)
        deletes = upsert and noted.tombstones and self._search.null_values == "delete"
        return TablePlan(
            index=index,
            layout=noted.layout,
            mode="upsert" if upsert else "append",
            keep_deletes=rule.keep_deletes,
            tombstones="delete" if deletes else "skip",
            keys_from=rule.keys.comes_from(name),
        )

    def satisfy(self, needs: Iterable[Need]) -> None:
        """Make indexes, and add fields, for shapes of events that they were not ready for."""
        by_index: dict[str, list[Need]] = {}
        for need in needs:
            by_index.setdefault(need.table or self.name(need.topic), []).append(need)
        with ThreadPoolExecutor(INDEXES_AT_ONCE) as pool:
            list(pool.map(lambda name: self._satisfied(name, by_index[name]), by_index))

    def versions(self, name: str) -> Versions:
        """Tell what an index goes by."""
        return self._known[name].versions

    def check(self, noted: Iterable[str]) -> None:
        """See that the indexes that batches were acknowledged into are still there.

        Raises:
            GapError: one is gone, and its documents with it.
        """
        for place in sorted(noted):
            if self._indexes.find(place) is None:
                raise GapError(
                    f"index {place} is gone, and the stored offsets say that it has their events; see `icebridge "
                    "offsets show`, and `icebridge offsets reset` to fill it again from what the topics hold"
                )

    def patch(self, name: str) -> None:
        """Nothing to note: tasks look documents up whenever an event leaves values out."""

    def drifted(self, name: str, fields: Iterable[str]) -> None:
        """Take note of fields in which events and index differ."""
        self.drift.setdefault(name, set()).update(fields)

    def _place(self, name: str) -> str:
        """The index of a name that events gave: small letters, and nothing that no index may be called."""
        return name if self._settings.table.routes is None else index_of(name)

    def _load(self, names: Iterable[str]) -> None:
        unknown = [name for name in dict.fromkeys(names) if name not in self._known]
        with ThreadPoolExecutor(INDEXES_AT_ONCE) as pool:
            found = list(pool.map(lambda name: self._indexes.find(self._place(name)), unknown))
        for name, index in zip(unknown, found, strict=True):
            if index is not None and index.noted:
                self._known[name] = self._noted(name, index.noted)

    def _noted(self, name: str, noted: Mapping[str, object]) -> Noted:
        schema = orjson.dumps(noted["schema"]).decode()
        rule = self._settings.table
        layout = TableLayout.of_rows(name, schema, rule.keys.of(name) if rule.upsert else ())
        versions: Versions = "offset" if noted["versions"] == "offset" else "source"
        return Noted(layout, versions, tombstones=bool(noted["tombstones"]))

    def _satisfied(self, name: str, needs: list[Need]) -> None:
        try:
            known = self._known.get(name)
            self._known[name] = self._made(name, needs) if known is None else self._evolved(name, known, needs)
        except DataFault as fault:
            if needs[0].table is not None:
                self.refused_tables[name] = str(fault)
            else:
                self.refused.update(dict.fromkeys((need.topic for need in needs), str(fault)))
            self._log.warning("no index", index=name, topics=sorted({n.topic for n in needs}), reason=str(fault))

    def _made(self, name: str, needs: list[Need]) -> Noted:
        """Make an index, or take one over that is there, from the shapes of its events."""
        rule = self._settings.table
        found = self._indexes.find(self._place(name))
        if found is not None and found.noted:
            return self._noted(name, found.noted)
        shapes = (merged(need.row) if rule.case_insensitive else need.row for need in needs)
        columns = union(shapes)
        keys = () if self._is_keyless(needs) else rule.keys.of(name) or identifiers(needs, rule)
        columns = with_keys(columns, needs, keys)
        if not len(columns):
            raise DataFault("its events have no columns that a document could have")
        tells = DELETED in columns.names
        if rule.keep_deletes and keys and not tells:
            columns = columns.append(pa.field(DELETED, pa.string()))
        dated = all(need.dated for need in needs)
        noted = Noted(self._layout(name, columns, keys), "source" if tells and dated else "offset", not tells)
        if found is not None:
            self._grown(found, name, noted)
        elif not rule.auto_create:
            raise DataFault(f"index {self._place(name)} does not exist, and auto-create-enabled is false")
        else:
            self._indexes.create(self._place(name), self._properties(needs, columns), noted.document())
            self._log.info("index created", index=self._place(name), fields=len(columns), key=list(keys))
        return noted

    def _evolved(self, name: str, known: Noted, needs: list[Need]) -> Noted:
        columns = known.layout.columns
        for need in needs:
            columns = grown(columns, need.row, add=self._settings.table.allow_field_addition)
        noted = attrs.evolve(known, layout=self._layout(name, columns, known.layout.keys))
        found = self._indexes.find(self._place(name))
        if found is None:
            raise DataFault(f"index {self._place(name)} is gone")
        self._grown(found, name, noted, needs)
        before = known.layout.columns.names
        self.drifted(name, (field for field in columns.names if field not in before))
        return noted

    def _grown(self, found: Index, name: str, noted: Noted, needs: Iterable[Need] = ()) -> None:
        self._indexes.grow(found, self._properties(needs, noted.layout.columns), noted.document())
        self._log.info("fields added", index=self._place(name), fields=len(noted.layout.columns))

    def _layout(self, name: str, columns: pa.Schema, keys: tuple[str, ...]) -> TableLayout:
        plain = pa.schema([pa.field(field.name, field.type) for field in columns])
        schema = table_schema(plain, keys, frozenset(), nanoseconds=True)
        return TableLayout.of_rows(name, schema.model_dump_json(), ())

    def _properties(self, needs: Iterable[Need], columns: pa.Schema) -> dict[str, dict[str, object]]:
        ignored = self._search.topic_schema_ignore
        if self._search.schema_ignore or any(need.topic in ignored for need in needs):
            return {}
        return properties((field.name, field.type) for field in columns)

    def _is_keyless(self, needs: Iterable[Need]) -> bool:
        ignored = self._search.topic_key_ignore
        return self._search.key_ignore or any(need.topic in ignored for need in needs)
