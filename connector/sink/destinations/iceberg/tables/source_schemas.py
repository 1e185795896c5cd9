"""Schema change topics -> the names that the columns of each source table have had. On the driver.

A connector sends a schema change before the first row that has the new schema, but to another topic. So when a column
is new to its table, these topics are read until they mention the column, which takes moments.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection

import pyarrow as pa
import structlog

from connector.kafka.admin import KafkaAdmin
from connector.kafka.record_lookup import RecordReader, to_consumer_records
from connector.settings import SinkSettings
from connector.sink.convert.converters import schema_change_converter
from connector.sink.convert.header_ids import frame_by_headers
from serde.events.schema_changes import ColumnNames, read_table_changes

_PARTITION = 0
"""Debezium sends all schema changes of a connector to the first partition, as their order matters."""
_MOST_READ = 500
_WAIT_S, _PAUSE_S = 5.0, 0.2


class SourceSchemas:
    """The contents of schema change topics, read to their end on each request."""

    def __init__(self, settings: SinkSettings) -> None:
        """Connect lazily."""
        self._settings = settings
        self._topics = settings.table.schema_change_topics
        self._reader = RecordReader(settings.kafka)
        self._value = schema_change_converter(settings.events)
        self._next: dict[tuple[str, int], int] = {}
        self._tables: dict[str, ColumnNames] = {}
        self._turn = threading.Lock()
        self._log = structlog.get_logger()

    def find_names(self, topic: str, columns: Collection[str]) -> ColumnNames:
        """Return the column names of the source table behind a topic, once all of `columns` were mentioned.

        A table that no schema change mentions is not waited for; a column that none mentions (because a transform adds
        it) is waited for for 5 s.

        Raises:
            RetriableError: the broker is away.
            FatalError: it refuses to give the records.
        """
        limit = time.monotonic() + _WAIT_S
        with self._turn:
            while True:
                self._read()
                names = self._tables.get(topic)
                untold = sorted(set(columns) - names.seen) if names is not None else []
                if names is None or not untold:
                    return names or ColumnNames()
                if time.monotonic() > limit:
                    warning = "schema changes do not tell of columns; they are taken for new ones"
                    self._log.warning(warning, topic=topic, columns=untold, schema_changes=list(self._topics))
                    return names
                time.sleep(_PAUSE_S)

    def _read(self) -> None:
        """Take in what is new."""
        for topic in self._topics:
            at = (topic, _PARTITION)
            if at not in self._next:
                admin = KafkaAdmin(self._settings.kafka)
                if topic not in admin.topics([topic]):
                    continue
                self._next[at] = admin.fetch_beginning_offsets([at])[at]
            while records := self._reader.read_from({at: self._next[at]}, _MOST_READ)[at]:
                run = frame_by_headers(to_consumer_records(at, records), self._settings.events)
                for value in run.value.to_pylist():
                    self._note(value)
                self._next[at] = int(records[-1].offset()) + 1

    def _note(self, value: bytes | None) -> None:
        """Read one record; an unreadable one is ignored."""
        decoded = self._value.decode(pa.array([value], pa.binary()), "VALUE_CONVERTER")
        for block in decoded.blocks:
            for event in block.fields.to_pylist():
                for change in read_table_changes(event):
                    for topic in change.topics:
                        self._tables.setdefault(topic, ColumnNames()).note(change)
