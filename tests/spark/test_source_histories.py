"""Random histories: every kind of table is followed exactly, and copy-on-write agrees with Spark's changelog view.

ICEBRIDGE_HISTORIES (1) is how many histories each test runs, ICEBRIDGE_STEPS (3) how long each is, ICEBRIDGE_SEED (0)
where they start.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from connector.source import rewritten
from connector.source.keys import KeyKind
from tests.source_tables import CATALOG, Event, Kind, Plain, Subject, plain, use_catalog

pytestmark = pytest.mark.spark

HISTORIES = int(os.environ.get("ICEBRIDGE_HISTORIES", "1"))
SEED = int(os.environ.get("ICEBRIDGE_SEED", "0"))
STEPS = int(os.environ.get("ICEBRIDGE_STEPS", "3"))
COW, MOR = "copy-on-write", "merge-on-read"
FLAT = "id bigint NOT NULL, p string, v string, d double"
NESTED = FLAT + ", m map<string, int>, s struct<a: int, b: array<string>>"
KINDS = [
    Kind(2, COW, partitioned=False, identifiers=True),
    Kind(2, COW, partitioned=True, identifiers=False, nested=True),
    Kind(2, MOR, partitioned=False, identifiers=False),
    Kind(2, MOR, partitioned=True, identifiers=True, nested=True),
    Kind(3, COW, partitioned=True, identifiers=True),
    Kind(3, COW, partitioned=False, identifiers=False),
    Kind(3, MOR, partitioned=True, identifiers=False, nested=True),
    Kind(3, MOR, partitioned=False, identifiers=True),
]
EQUALITY = [
    Kind(2, MOR, partitioned=False, identifiers=True),
    Kind(2, MOR, partitioned=True, identifiers=True),
    Kind(3, MOR, partitioned=True, identifiers=True),
]


@pytest.fixture(scope="module")
def session(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SparkSession:
    """The session with a catalog for these tests."""
    use_catalog(spark, tmp_path_factory.mktemp("histories"))
    return spark


class Story:
    """A random history of one table: statements drawn from a seed."""

    def __init__(self, subject: Subject, seed: int) -> None:
        self.subject, self.random = subject, Random(seed)
        self.columns = 0
        self.settle: Callable[[], Any] = subject.follow
        self.told: list[str] = []

    def begin(self) -> None:
        """Some rows to start with."""
        self._do(f"INSERT INTO {{t}} VALUES {self._values(8)}")

    def step(self) -> None:
        """One random change, some of which change nothing."""
        often = [self.update, self.delete, self.merge] * 2
        self.random.choice(
            (*often, self.insert, self.move, self.rekey, self.drop_partition, self.compact, self.overwrite)
        )()
        if self.random.random() < 0.3:
            self.random.choice((self.evolve, self.respec))()

    def insert(self) -> None:
        self._do(f"INSERT INTO {{t}} VALUES {self._values(3)}")

    def update(self) -> None:
        self._do(f"UPDATE {{t}} SET v = '{self._word()}', d = {self._number()} WHERE id IN ({self._ids()})")

    def move(self) -> None:
        self._do(f"UPDATE {{t}} SET p = {self._part()} WHERE id IN ({self._ids()})")

    def rekey(self) -> None:
        self._do(f"UPDATE {{t}} SET id = id + 20 WHERE id IN ({self._ids()})")

    def delete(self) -> None:
        self._do(f"DELETE FROM {{t}} WHERE id IN ({self._ids()})")

    def drop_partition(self) -> None:
        self._do(f"DELETE FROM {{t}} WHERE p <=> {self._part()}")

    def merge(self) -> None:
        self._do(
            f"MERGE INTO {{t}} t USING (SELECT id, '{self._word()}' v FROM VALUES "
            + ", ".join(f"({i})" for i in sorted({self.random.randrange(14) for _ in range(4)}))
            + " AS s(id)) s ON t.id = s.id WHEN MATCHED AND t.id % 3 = 0 THEN DELETE"
            " WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT (id, p, v) VALUES (s.id, 'a', s.v)"
        )

    def overwrite(self) -> None:
        self._do(f"INSERT OVERWRITE {{t}} SELECT * FROM {{t}} WHERE id % 2 = {self.random.randrange(2)}")

    def compact(self) -> None:
        self.told.append("compact")
        self.subject.call("rewrite_data_files", ", options => map('rewrite-all', 'true')")

    def evolve(self) -> None:
        self.settle()
        self.columns += 1
        self._do(f"ALTER TABLE {{t}} ADD COLUMN x{self.columns} int")
        if self.columns == 2:
            self._do("ALTER TABLE {t} RENAME COLUMN x1 TO y1")
            self._do("ALTER TABLE {t} ALTER COLUMN x2 TYPE bigint")
        if self.columns == 3:
            self._do("ALTER TABLE {t} DROP COLUMN y1")
        self.subject.retyped()

    def respec(self) -> None:
        self.told.append("respec")
        update = self.subject.table().java.updateSpec()
        expressions: Any = self.subject.spark._jvm.org.apache.iceberg.expressions.Expressions
        fields = {str(f.name()) for f in self.subject.table().java.spec().fields()}
        if "id_bucket" in fields:
            update.removeField("id_bucket").commit()
        else:
            update.addField("id_bucket", expressions.bucket("id", 3)).commit()

    def _do(self, statement: str) -> None:
        self.told.append(statement)
        self.subject.sql(statement)

    def _values(self, most: int) -> str:
        return ", ".join(self._row() for _ in range(self.random.randint(1, most)))

    def _row(self) -> str:
        values = [str(self.random.randrange(12)), self._part(), f"'{self._word()}'", self._number()]
        if self.subject.kind.nested:
            values += [
                f"map('k', {self.random.randrange(3)}, 'l', 1)",
                f"named_struct('a', {self._int()}, 'b', array())",
            ]
        names = self.subject.spark.table(self.subject.name).columns
        return f"({', '.join(values + [self._int() for _ in names[len(values) :]])})"

    def _ids(self) -> str:
        return ", ".join(str(self.random.randrange(14)) for _ in range(self.random.randint(1, 4)))

    def _part(self) -> str:
        return self.random.choice(["'a'", "'b'", "CAST(NULL AS string)"])

    def _word(self) -> str:
        return self.random.choice("xyz")

    def _number(self) -> str:
        return self.random.choice(["0D", "-0D", "1.5D", "CAST('NaN' AS double)", "CAST(NULL AS double)"])

    def _int(self) -> str:
        return self.random.choice(["1", "2", "CAST(NULL AS int)"])


def _subject(session: SparkSession, kind: Kind) -> Subject:
    return Subject(session, kind, NESTED if kind.nested else FLAT)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_any_history_is_followed(session: SparkSession, kind: Kind) -> None:
    """Applying the changes to a copy gives the table at each snapshot, whatever was done to it, without idle events."""
    for number in range(HISTORIES):
        story = Story(_subject(session, kind), SEED + number)
        _follow(story)


def _follow(story: Story) -> None:
    story.begin()
    try:
        story.subject.follow()
        for _ in range(STEPS):
            story.step()
            story.subject.follow()
    except Exception as error:
        raise AssertionError(f"{story.subject.kind}: {'; '.join(story.told)}") from error


@pytest.mark.parametrize("kind", EQUALITY, ids=str)
def test_upserts_of_our_sink_are_followed(session: SparkSession, kind: Kind) -> None:
    """Equality deletes as our sink writes them, global ones too, mixed with Spark's own deletes, are read right."""
    for number in range(HISTORIES):
        random = Random(SEED + number)
        subject = Subject(session, kind, FLAT)
        subject.delete_spec()
        story = Story(subject, SEED + number)
        for _ in range(STEPS):
            rows = {random.randrange(8): None for _ in range(4)}
            gone = sorted({random.randrange(8) for _ in range(2)} - rows.keys())
            subject.upsert(
                [{"id": i, "p": random.choice(["a", "b", None]), "v": random.choice("xy"), "d": 1.0} for i in rows],
                [{"id": i} for i in gone],
            )
            events = subject.follow()[0]
            assert len({(after or before)[0] for _, before, after, _ in events}) == len(events), "an id has two events"
            random.choice([story.delete, story.update, lambda: None, lambda: None])()
            subject.follow()


ORACLE = [kind for kind in KINDS if kind.mode == COW and not kind.nested] + [
    Kind(2, COW, partitioned=True, identifiers=True)
]


@pytest.mark.parametrize("kind", ORACLE, ids=str)
def test_copy_on_write_agrees_with_the_changelog_view(
    session: SparkSession, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own changelog view gives the same changes of each snapshot, also where files are walked side by side."""
    if kind.identifiers:
        monkeypatch.setattr(rewritten, "SMALLEST_ROWS", 0)
    for number in range(HISTORIES):
        story = Story(_subject(session, kind), 1000 + SEED + number)
        story.settle = partial(_agree, story)
        story.begin()
        for _ in range(STEPS):
            _agree(story)
            story.step()
        _agree(story)


def _agree(story: Story) -> None:
    subject = story.subject
    step = subject.next()
    while step is not None:
        snapshot = step.snapshot
        if snapshot.operation != "replace":
            table = subject.table()
            keys = subject.keys(table, snapshot.snapshot_id)
            ours = _sides(subject.events(snapshot.snapshot_id, keys))
            theirs = _view(subject, snapshot.parent_id, snapshot.snapshot_id)
            if keys.kind == KeyKind.ROW_ID:
                # Rows written anew have new row ids: they are other rows here, and the same ones for the view.
                same = ours[0] & ours[1]
                ours = (ours[0] - same, ours[1] - same)
            assert ours == theirs, story.told
        subject.position = attrs.evolve(subject.position, snapshot_id=snapshot.snapshot_id)
        step = subject.next()


def _sides(events: list[Event]) -> tuple[Counter[Plain], Counter[Plain]]:
    """What went and what came, updates included."""
    gone = Counter(before for _, before, _, _ in events if before is not None)
    return gone, Counter(after for _, _, after, _ in events if after is not None)


def _view(subject: Subject, parent: int | None, snapshot_id: int) -> Any:
    start = f"'start-snapshot-id', '{parent}', " if parent is not None else ""
    subject.spark.sql(
        f"CALL {CATALOG}.system.create_changelog_view(table => '{subject.short}', changelog_view => 'seen', "
        f"options => map({start}'end-snapshot-id', '{snapshot_id}'))"
    )
    rows = subject.spark.table("seen").drop("_change_ordinal", "_commit_snapshot_id").collect()
    gone: Counter[Plain] = Counter()
    new: Counter[Plain] = Counter()
    for row in rows:
        side = gone if row["_change_type"] == "DELETE" else new
        side[plain(row[:-1])] += 1
    return gone, new
