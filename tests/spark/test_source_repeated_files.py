"""Tables that list one data file more than once -> the changes of every copy of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from connector.source.changes.row_key import RowKey
from tests.source_tables import CATALOG, Event, Kind, Subject, use_catalog

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session with a catalog for these tests."""
    use_catalog(spark, tmp_path_factory.mktemp("repeated"))
    return spark


@pytest.fixture
def add(session: SparkSession, tmp_path: Path) -> Callable[[Subject], object]:
    """add(subject) adds a file of four rows to its table, the same each time."""
    place = tmp_path / "files"
    session.sql("SELECT id, concat('v', id) v FROM range(4)").coalesce(1).write.parquet(str(place))

    def run(subject: Subject) -> object:
        source = f"source_table => '`parquet`.`{place}`', check_duplicate_files => false"
        return session.sql(f"CALL {CATALOG}.system.add_files(table => '{subject.short}', {source})").collect()

    return run


def _merge_on_read(session: SparkSession, version: int) -> Subject:
    return Subject(session, Kind(version, "merge-on-read", partitioned=False, identifiers=False), "id bigint, v string")


def _count_operations(events: Sequence[Event]) -> dict[str, int]:
    kinds = [event[0] for event in events]
    return {kind: kinds.count(kind) for kind in kinds}


@pytest.mark.parametrize("version", [2, 3])
def test_deletes_in_a_file_that_is_listed_twice(
    session: SparkSession, add: Callable[[Subject], object], version: int
) -> None:
    """A delete in a data file that a table lists twice takes away both rows, each with its own event."""
    subject = _merge_on_read(session, version)
    add(subject)
    add(subject)
    subject.follow(RowKey())
    subject.sql("UPDATE {t} SET v = 'n' WHERE id = 1")
    (updated,) = subject.follow(RowKey())
    assert _count_operations(updated) == {"d": 2, "c": 2}
    subject.sql("DELETE FROM {t} WHERE id = 2")
    (deleted,) = subject.follow(RowKey())
    assert _count_operations(deleted) == {"d": 2}


def test_a_file_that_is_listed_again_after_a_delete(session: SparkSession, add: Callable[[Subject], object]) -> None:
    """A delete from before a file was listed again is not one of the later copy, whose rows go with the next delete."""
    subject = _merge_on_read(session, 2)
    add(subject)
    subject.sql("DELETE FROM {t} WHERE id = 1")
    add(subject)
    subject.follow(RowKey())
    subject.sql("DELETE FROM {t} WHERE id = 1")
    (deleted,) = subject.follow(RowKey())
    assert [event[:2] for event in deleted] == [("d", (1, "v1"))]
    subject.sql("DELETE FROM {t} WHERE id = 2")
    (deleted,) = subject.follow(RowKey())
    assert _count_operations(deleted) == {"d": 2}
