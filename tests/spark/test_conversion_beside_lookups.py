"""Equality deletes that are converted while rows of the table are looked up and replaced -> the rows of the model."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from attrs import define
from pyspark.sql import SparkSession

from connector.errors import CommitRefused
from connector.maintenance.conversion.conversion import (
    commit_conversion,
    convert_deletes,
    discard_files,
    write_conversion,
)
from connector.maintenance.tasks import CONVERT, MANIFESTS, REWRITE
from connector.settings.iceberg.new_tables.partition_spec import PartitionTerm
from tests.harness.tiers import crossed, tiered
from tests.histories.workshop import Workshop
from tests.histories.written_tables import Written, summary_of, values_by_iceberg, values_by_spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

LOOKED_UP = ("position-delete", "copy-on-write")
STEPS = 14


@pytest.fixture(scope="module")
def workshop(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """One for all tests; each has a table of its own."""
    return Workshop(spark, tmp_path_factory.mktemp("looked_up"), "looked_up")


def _check(workshop: Workshop, written: Written) -> None:
    """Readers give the model's rows; PyIceberg is asked where there are no deletes but by position."""
    written.table.refresh()
    right = sorted(written.model.values())
    assert values_by_iceberg(workshop.spark, workshop.lake, written.case) == right
    assert values_by_spark(workshop.spark, written.case) == right
    if summary_of(written)["total-equality-deletes"] == "0" and written.table.format_version == 2:
        assert sorted(written.table.metadata().scan().to_arrow()["v"].to_pylist()) == right


def _changes(written: Written, rng: Random, number: int) -> dict[int, int | None]:
    """Other values for some keys that are there, an end for others, and a new key."""
    found = rng.sample(sorted(written.model), len(written.model) // 2)
    changed = {key: None if rng.random() < 0.3 else 1000 * number + turn for turn, key in enumerate(found)}
    return {**changed, 10_000_000 + number: 1000 * number + 999}


@pytest.mark.parametrize(("how", "version"), crossed(LOOKED_UP, (2, 3), [("position-delete", 3)]))
def test_a_batch_whose_rows_a_conversion_touched(workshop: Workshop, how: str, version: int) -> None:
    """A conversion between a look-up and its commit: what both delete stays deleted, if the batch has to look again or
    not; it looks at rows that only equality deletes had taken out, too.
    """
    written, rng = workshop.written(10 * LOOKED_UP.index(how) + version, version), Random(version)
    changes = _changes(written, rng, 7)

    def convert() -> None:
        written.table.refresh()
        done = convert_deletes(workshop.spark, written.table, "test")
        assert done.converted and done.written_bytes

    try:
        written.batch(changes, rng, how, meanwhile=convert)
    except CommitRefused:
        written.table.refresh()
        written.batch(changes, rng, how)
    assert summary_of(written)["total-equality-deletes"] == "0"
    _check(workshop, written)
    written.batch(_changes(written, rng, 8), rng, how)
    _check(workshop, written)


@pytest.mark.parametrize(("how", "version"), crossed(LOOKED_UP, (2, 3), [("position-delete", 3)]))
def test_a_conversion_whose_files_a_batch_touched(workshop: Workshop, how: str, version: int) -> None:
    """A batch that replaced rows by their place, between a conversion and its commit: neither undoes the other."""
    written, rng = workshop.written(10 * LOOKED_UP.index(how) + 5 + version, version), Random(version)
    made = write_conversion(workshop.spark, written.table, written.table.layout())
    assert made is not None and made.written
    written.batch(_changes(written, rng, 7), rng, how)
    try:
        commit_conversion(workshop.spark, written.table, made, "test")
    except CommitRefused:
        discard_files(written.table, made.written)
        _check(workshop, written)
        written.table.refresh()
        convert_deletes(workshop.spark, written.table, "test")
    assert summary_of(written)["total-equality-deletes"] == "0"
    _check(workshop, written)


@define(eq=False)
class _Life:
    """A table that is written in every mode, converted, rewritten, and changed by others, in any order."""

    workshop: Workshop
    written: Written
    rng: Random
    number: int = 0

    def batch(self) -> None:
        """A batch in any write mode, which finds rows in any way; half of them are overtaken by something else."""
        self.number += 1
        how = self.rng.choice(("equality-delete", *LOOKED_UP, "position-delete"))
        lookup = self.rng.choice(("key-index", "key-index", "join"))
        changes = _changes(self.written, self.rng, self.number)
        meanwhile = self.rng.choice((self.convert, self.maintain, self.compact, self.upgrade, *(_nothing,) * 4))
        while True:
            self.written.table.refresh()
            try:
                self.written.batch(changes, self.rng, how, lookup, meanwhile)
            except CommitRefused:
                meanwhile = _nothing
            else:
                return

    def convert(self) -> None:
        """Convert, undisturbed."""
        self.written.table.refresh()
        convert_deletes(self.workshop.spark, self.written.table, "test")

    def convert_late(self) -> None:
        """Convert, with a batch before the commit."""
        self.written.table.refresh()
        made = write_conversion(self.workshop.spark, self.written.table, self.written.table.layout())
        self.batch()
        if made is None or not made.equality_deletes:
            return
        try:
            commit_conversion(self.workshop.spark, self.written.table, made, "test")
        except CommitRefused:
            discard_files(self.written.table, made.written)

    def maintain(self) -> None:
        """Do tasks as `maintain` does."""
        outcomes = self.workshop.maintainer(f"one{self.number}").run(self.written.table, [CONVERT, REWRITE, MANIFESTS])
        assert [one.failure for one in outcomes] == [None] * len(outcomes)

    def compact(self) -> None:
        """Merge files as other engines do."""
        self.workshop.spark.sql(
            f"CALL {self.written.case.catalog}.system.rewrite_data_files(table => 'default.{self.written.case.name}', "
            "options => map('rewrite-all', 'true', 'use-starting-sequence-number', 'false'))"
        )

    def upgrade(self) -> None:
        """Go over to vectors."""
        table = self.written.case.table
        self.workshop.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('format-version'='3')")

    def delete(self) -> None:
        """Delete rows as other engines do, by position or by writing files anew."""
        gone = self.rng.sample(sorted(self.written.model), 2)
        mode = self.rng.choice(("merge-on-read", "copy-on-write"))
        table = self.written.case.table
        self.workshop.spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.delete.mode'='{mode}')")
        self.workshop.spark.sql(f"DELETE FROM {table} WHERE k IN ({', '.join(map(str, gone))})")
        self.written.model = {key: value for key, value in self.written.model.items() if key not in gone}


def _nothing() -> None:
    pass


LIVES = [(seed, version, by) for seed in range(4) for version in (2, 3) for by in ("", "p")]


@pytest.mark.parametrize(
    ("seed", "version", "by"), tiered(LIVES, [], lambda case: f"seed{case[0]}_v{case[1]}_{case[2] or 'none'}")
)
def test_rows_are_those_of_the_model_in_any_order(workshop: Workshop, seed: int, version: int, by: str) -> None:
    """Batches in each write mode, conversions, compaction and deletes of others, also between look-up and commit."""
    term = PartitionTerm("p", "identity") if by else None
    life = _Life(workshop, workshop.written(100 + seed, version, term), Random(f"{seed}{version}{by}"))
    steps: list[Callable[[], None]] = [life.convert, life.convert_late, life.maintain, life.compact, life.delete]
    for step in range(STEPS):
        if step == STEPS // 2:
            life.upgrade()
        life.rng.choice([*steps, life.batch, life.batch, life.batch])()
        _check(workshop, life.written)
    life.maintain()
    assert summary_of(life.written)["total-equality-deletes"] == "0"
    _check(workshop, life.written)
