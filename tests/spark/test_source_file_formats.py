"""Changes of tables whose data files are Avro or ORC, written by our own sink's writer and by Spark."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from connector.errors import FatalError
from tests.harness.tiers import crossed
from tests.histories.source_tables import Kind, Subject, use_catalog

pytestmark = pytest.mark.spark
COLUMNS = "id bigint NOT NULL, p string, v string"
FORMATS = ["avro", "orc"]
KINDS = [
    Kind(2, "merge-on-read", partitioned=False, identifiers=True),
    Kind(3, "merge-on-read", partitioned=True, identifiers=False),
    Kind(3, "merge-on-read", partitioned=True, identifiers=False, nested=True),
    Kind(3, "copy-on-write", partitioned=False, identifiers=True),
]


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session with a catalog for these tests."""
    use_catalog(spark, tmp_path_factory.mktemp("avro_files"))
    spark.conf.set("spark.sql.shuffle.partitions", "2")
    return spark


@pytest.mark.parametrize(("kind", "data_format"), crossed(KINDS, FORMATS, [(KINDS[2], "orc")]))
def test_changes_of_files(session: SparkSession, kind: Kind, data_format: str) -> None:
    """Inserts, updates, deletes and deletes over deletes give the events that lead from one snapshot to the next."""
    nested = ", s struct<a: int, l: array<string>>" if kind.nested else ""
    subject = Subject(session, kind, COLUMNS + nested, f", 'write.format.default'='{data_format}'")
    more = ", named_struct('a', 1, 'l', array('x', NULL))" if kind.nested else ""
    rows = ", ".join(f"({key}, '{'ab'[key % 2]}', 'v{key}'{more})" for key in range(8))
    subject.sql(f"INSERT INTO {{t}} VALUES {rows}")
    subject.sql("UPDATE {t} SET v = 'w' WHERE id IN (2, 3)")
    subject.sql("DELETE FROM {t} WHERE id IN (4, 3)")
    subject.sql("DELETE FROM {t} WHERE id = 5")
    if kind.identifiers:
        subject.delete_spec()
        subject.upsert([{"id": 1, "p": "b", "v": "new"}, {"id": 9, "p": "a", "v": None}], [{"id": 6}])
    counts = [len(events) for events in subject.follow()]
    assert counts[0] == 8
    assert counts[2:4] == [2, 1]
    formats = session.sql(f"SELECT DISTINCT file_format FROM {subject.name}.data_files").collect()
    assert [row[0] for row in formats] == [data_format.upper()]


def test_times_in_avro_files_are_refused(session: SparkSession) -> None:
    """Spark reads no Avro file with a time column: the table is refused with the setting to change."""
    kind = Kind(2, "merge-on-read", partitioned=False, identifiers=True)
    subject = Subject(session, kind, COLUMNS, ", 'write.format.default'='avro'")
    types = session._jvm.org.apache.iceberg.types.Types  # type: ignore[union-attr]
    subject.table().java.updateSchema().addColumn("t", types.TimeType.get()).commit()
    subject.upsert([{"id": 1, "p": "a", "v": "x", "t": None}])
    with pytest.raises(FatalError, match=r"columns: t; set write\.format\.default to parquet"):
        subject.events(subject.table().snapshot_id or 0)
