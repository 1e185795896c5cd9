"""Faults that a change of this program may bring -> it with such a fault, for as long as a test needs it.

They stand where the simulated world was blind once: it had no such event, or nobody looked at what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import attrs
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from connector.errors import ConnectorError
from connector.iceberg.commit import commit
from connector.maintenance import maintainer
from connector.opensearch.bulk import bulk_processor
from connector.sink.convert import row_builder
from connector.sink.destinations.iceberg import committer
from connector.sink.destinations.iceberg.tables.iceberg_tables import IcebergTables
from connector.sink.destinations.iceberg.write import table_writer
from connector.sink.destinations.opensearch import index_naming
from connector.sink.destinations.soft_deletes import mark_deleted
from connector.sink.microbatch.processor import BatchProcessor
from connector.sink.model.plan import BatchPlan
from connector.sink.model.truncates import TableTruncate
from serde.events.positions.log_positions import FIRST_NUMBER

_BUSY = 429


class _Held:
    """Letters that wait for the commit."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Any, Any]] = []

    def write(self, letters: Any, topic_ids: Any) -> None:
        self.waiting.append((letters, topic_ids))


@contextmanager
def letters_come_behind_commits() -> Iterator[None]:
    """Dead letters are written once the tables have the batch: a crash between the two loses them."""
    whole = BatchProcessor._commit

    def commit(self: Any, *values: Any) -> Any:
        letters, held = self._letters, _Held()
        self._letters = held
        try:
            done = whole(self, *values)
        finally:
            self._letters = letters
        for each in held.waiting:
            letters.write(*each)
        return done

    with patch.object(BatchProcessor, "_commit", commit):
        yield


@contextmanager
def truncates_take_what_came_later() -> Iterator[None]:
    """A truncate empties its table, whatever other partitions have brought that is later."""
    with patch.object(TableTruncate, "deletes_until", lambda *_: None):
        yield


@contextmanager
def marked_rows_are_emptied() -> Iterator[None]:
    """A truncate that deletes keep rows of marks them, and loses their values."""

    def mark(rows: pa.RecordBatch, *values: Any) -> pa.RecordBatch:
        marked = mark_deleted(rows, *values)
        place = marked.schema.get_field_index("n")
        field = marked.schema.field(place)
        return marked.set_column(place, field, pa.nulls(marked.num_rows, field.type))

    with patch("tests.simulation.missing_values.mark_deleted", mark):
        yield


@contextmanager
def dropped_tables_are_made_anew() -> Iterator[None]:
    """A table that somebody dropped is made again for the next batch, and its earlier rows are gone."""
    whole = IcebergTables._create

    def create(self: Any, *values: Any) -> Any:
        noted, self._noted = self._noted, {}
        try:
            return whole(self, *values)
        finally:
            self._noted = noted

    with patch.object(IcebergTables, "_create", create):
        yield


@contextmanager
def busy_nodes_are_taken_for_done() -> Iterator[None]:
    """What a node refuses as it is busy counts as indexed."""
    whole = bulk_processor.classify_item

    def classify(status: int, *told: Any, **more: Any) -> Any:
        return "done" if status == _BUSY else whole(status, *told, **more)

    with patch.object(bulk_processor, "classify_item", classify):
        yield


@contextmanager
def expiry_forgets_readers() -> Iterator[None]:
    """Snapshots expire that a source has still to read."""
    whole = maintainer.find_expiry

    def find(table: Any, policy: Any, _: Any, **more: Any) -> Any:
        return whole(table, policy, (), **more)

    with patch.object(maintainer, "find_expiry", find):
        yield


@contextmanager
def versions_are_not_raised() -> Iterator[None]:
    """The last change of a key keeps the version that its date gives, though another of its batch has a greater one."""
    with patch("connector.sink.job.reduce_task.raise_winner_versions", lambda folded, _: folded):
        yield


@contextmanager
def missing_values_are_not_looked_up() -> Iterator[None]:
    """Values that an update left out, and nothing in its batch tells, stay as they came."""
    with patch.object(table_writer, "mark_unavailable", lambda folded, **_: np.zeros(len(folded.winners), np.bool_)):
        yield


@contextmanager
def grown_topics_are_not_noticed() -> Iterator[None]:
    """A topic that got partitions is read as before: what the old one still has of a key goes over newer rows."""
    with (
        patch.object(BatchPlan, "has_grown", lambda *_: False),
        patch("connector.sink.destinations.table_position.track_grown_topics", lambda *_: {}),
    ):
        yield


@contextmanager
def the_last_partition_wins() -> Iterator[None]:
    """Of changes of a key in several partitions the one in the last of these wins, wherever the source's log has it."""

    def sort(several: Any, codes: Any, order: Any) -> Any:
        own = order.take(several)
        return np.lexsort((own.offset, own.partition, np.unique(codes[several], return_inverse=True)[1]))

    with patch("connector.sink.fold.order.rival_partitions.sort_by_rule", sort):
        yield


@contextmanager
def sources_are_where_a_batch_ends() -> Iterator[None]:
    """How far a source has come is what the last change of a batch says, though it may have come again."""
    whole = row_builder.find_latest_by_source

    def find(order: Any, origin: Any, versions: Any = None) -> Any:
        found = whole(order, origin, versions)
        if len(found) != 1 or not len(order):
            return found
        ((name, mark),) = found.items()
        last = order.take(np.array([len(order) - 1]))
        place = tuple(map(int, last.place[0, FIRST_NUMBER:])) if mark.place else ()
        return {name: attrs.evolve(mark, date=int(last.date[0]), place=place)}

    with patch.object(row_builder, "find_latest_by_source", find):
        yield


@contextmanager
def partitions_that_appear_are_read_from_where_they_begin() -> Iterator[None]:
    """What retention removed of a partition before it was read for the first time is not missed."""
    with (
        patch("connector.sink.microbatch.start_offsets.check_appeared", lambda *_: None),
        patch("tests.simulation.process.check_appeared", lambda *_: None),
    ):
        yield


@contextmanager
def rollbacks_of_truncates_pass() -> Iterator[None]:
    """A table is rolled back to before a truncate's own commit, and nobody looks whether that is still there."""
    with patch.object(committer, "check_no_rollback", lambda *_: None):
        yield


@contextmanager
def rollbacks_behind_truncates_pass() -> Iterator[None]:
    """The same between that look and the commit of the batch."""
    whole = commit.expect_last_commit

    def expect(name: str, expected: Any, checked: int | None, needed: int | None = None) -> Any:
        return whole(name, expected, checked)

    with patch.object(commit, "expect_last_commit", expect):
        yield


@contextmanager
def deletes_without_a_row_are_told_to_no_table() -> Iterator[None]:
    """What changes no row is no commit: nobody notices that a second sink has put a row there since."""
    with patch.object(committer, "_is_told", lambda _table, _result, position: position.dated):
        yield


@contextmanager
def documents_go_elsewhere() -> Iterator[None]:
    """Every document goes to an index of another name."""
    whole = index_naming.index_name
    with patch.object(index_naming, "index_name", lambda *values: f"other-{whole(*values)}"):
        yield


@contextmanager
def rows_of_dropped_tables_are_passed_over() -> Iterator[None]:
    """A batch's rows for a table that somebody dropped are left out, and its offsets are stored."""
    whole = committer.IcebergCommitter._commit_table

    def commit(self: Any, table: Any, name: str, *values: Any) -> Any:
        try:
            return whole(self, table, name, *values)
        except ConnectorError:
            java = self._targets[name].table.java
            if java.now.name in java.server.tables:
                raise
            return None

    with patch.object(committer.IcebergCommitter, "_commit_table", commit):
        yield


@contextmanager
def appended_rows_lose_values() -> Iterator[None]:
    """Where every event gets a row of its own, most columns of it are empty."""
    whole = table_writer.write_append

    def write(writer: Any, part: Any, table: Any) -> None:
        rows, kept = part.rows, ("id", "n", "__op")
        empty = [pa.nulls(len(rows), field.type) for field in rows.schema]
        columns = [rows[at] if name in kept else empty[at] for at, name in enumerate(rows.schema.names)]
        whole(writer, attrs.evolve(part, rows=pa.record_batch(columns, rows.schema)), table)

    with patch.object(table_writer, "write_append", write):
        yield


@contextmanager
def updates_call_themselves_creates() -> Iterator[None]:
    """Rows tell that they were made, where an update was the last that came of them."""
    whole = row_builder._fill_added_columns

    def fill(columns: dict[str, pa.Array], *values: Any) -> None:
        whole(columns, *values)
        told = columns["__op"]
        columns["__op"] = pc.if_else(pc.equal(told, "u"), pa.scalar("c", told.type), told)

    with patch.object(row_builder, "_fill_added_columns", fill):
        yield


def _change_letters(change: Callable[[list[Any]], list[Any]]) -> AbstractContextManager[Any]:
    whole = BatchProcessor._commit

    def commit(self: Any, batch: Any, plan: Any, names: Any, result: Any, position: Any) -> Any:
        result = attrs.evolve(result, dead_letters=change(result.dead_letters))
        return whole(self, batch, plan, names, result, position)

    return patch.object(BatchProcessor, "_commit", commit)


@contextmanager
def letters_give_no_reason() -> Iterator[None]:
    """Dead letters do not say what is wrong with their records."""
    with _change_letters(lambda letters: [attrs.evolve(letter, reason="") for letter in letters]):
        yield


@contextmanager
def letters_come_thrice() -> Iterator[None]:
    """Each dead letter is written three times."""
    with _change_letters(lambda letters: letters * 3):
        yield


WORLD_MUTATIONS: Mapping[str, Callable[[], AbstractContextManager[None]]] = {
    made.__name__: made
    for made in (
        letters_come_behind_commits,
        truncates_take_what_came_later,
        marked_rows_are_emptied,
        dropped_tables_are_made_anew,
        busy_nodes_are_taken_for_done,
        expiry_forgets_readers,
        versions_are_not_raised,
        missing_values_are_not_looked_up,
        grown_topics_are_not_noticed,
        the_last_partition_wins,
        sources_are_where_a_batch_ends,
        partitions_that_appear_are_read_from_where_they_begin,
        documents_go_elsewhere,
        rows_of_dropped_tables_are_passed_over,
        appended_rows_lose_values,
        updates_call_themselves_creates,
        letters_give_no_reason,
        letters_come_thrice,
    )
}
