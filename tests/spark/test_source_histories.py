"""Random histories: every kind of table is followed exactly, and copy-on-write agrees with Spark's changelog view.

ICEBRIDGE_HISTORIES (1) is how many histories each test runs, ICEBRIDGE_STEPS (3, in `make test` 2) how long each is,
ICEBRIDGE_SEED (0) where they start.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from random import Random
from typing import Any

import attrs
import pytest
from pyspark.sql import SparkSession

from connector.source.changes.rewrites import file_diff
from connector.source.changes.row_key import KeyKind
from tests.harness.rounds import THOROUGH, seeded
from tests.harness.tiers import tiered
from tests.histories.source_tables import CATALOG, COW, MOR, Event, Kind, Plain, Subject, plain, use_catalog
from tests.histories.stories import FLAT, NESTED, Story

pytestmark = pytest.mark.spark

HISTORIES = int(os.environ.get("ICEBRIDGE_HISTORIES", "1"))
SEED = seeded()
STEPS = int(os.environ.get("ICEBRIDGE_STEPS", "3" if THOROUGH else "2"))
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


def _subject(session: SparkSession, kind: Kind) -> Subject:
    return Subject(session, kind, NESTED if kind.nested else FLAT)


@pytest.mark.parametrize("kind", tiered(KINDS, KINDS[3:6:2], str))
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


@pytest.mark.parametrize("kind", tiered(EQUALITY, EQUALITY[2:], str))
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


@pytest.mark.parametrize("kind", tiered(ORACLE, [], str))
def test_copy_on_write_agrees_with_the_changelog_view(
    session: SparkSession, kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark's own changelog view gives the same changes of each snapshot, also where files are walked side by side."""
    if kind.identifiers:
        monkeypatch.setattr(file_diff, "MIN_REWRITTEN_ROWS", 0)
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
