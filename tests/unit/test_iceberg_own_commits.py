"""Snapshots of a table since a look at it -> whether anybody else changed its rows."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from pyiceberg.table.snapshots import Operation, Snapshot, Summary

from connector.errors import CommitRefused, FatalError
from connector.iceberg.catalog.table import SnapshotEntry, Table
from connector.iceberg.commit.commit import PendingCommit, check_no_rollback, check_own_commits, commit_files
from connector.iceberg.commit.commit_summary import COMMIT_ID, CONNECTOR_NAME, CREATED_BY
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import LastCommit

OURS = {CREATED_BY: "sink"}
EMPTIED = (Operation.DELETE, OURS)
MARKED = (Operation.OVERWRITE, OURS)
REWRITTEN = (Operation.REPLACE, {})
APPENDED = (Operation.APPEND, {})
OF_ANOTHER_SINK = (Operation.DELETE, {CREATED_BY: "other"})
OF_A_TWIN = (Operation.OVERWRITE, {CREATED_BY: "sink", CONNECTOR_NAME: "sink", COMMIT_ID: "theirs"})


def _table(*since: tuple[Operation, dict[str, str]]) -> Any:
    """A table with a snapshot 1 that was looked at, and these after it."""
    made = [
        Snapshot(**{"snapshot-id": number, "timestamp-ms": 0, "manifest-list": "m", "summary": Summary(kind, **more)})
        for number, (kind, more) in enumerate([(Operation.APPEND, {}), *since], 1)
    ]
    return SimpleNamespace(name="d.t", ancestors=lambda: reversed(made), snapshot_id=len(made))


@pytest.mark.parametrize("since", [(), (EMPTIED,), (EMPTIED, MARKED), (REWRITTEN, EMPTIED)])
def test_own_commits_and_files_written_anew(since: tuple[Any, ...]) -> None:
    """What the connector's own truncates did, and rewrites that leave rows as they are, change nothing for a batch."""
    check_own_commits(_table(*since), 1, LastCommit(), "sink")


@pytest.mark.parametrize("other", [APPENDED, OF_ANOTHER_SINK])
@pytest.mark.parametrize("place", [0, 1])
def test_another_writer(other: Any, place: int) -> None:
    """A snapshot of anybody else, before or after the truncate's, has the batch made again."""
    since = [EMPTIED]
    since.insert(place, other)
    with pytest.raises(CommitRefused, match=r"^table d\.t was changed by another writer while a truncate emptied it$"):
        check_own_commits(_table(*since), 1, LastCommit(), "sink")


def test_a_snapshot_that_expired() -> None:
    """Where the snapshot that was looked at is gone nobody knows what came since."""
    with pytest.raises(CommitRefused):
        check_own_commits(_table(EMPTIED), 7, LastCommit(), "sink")


def test_another_sink_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit with offsets under the connector's name that it did not make is another sink's: it stops."""
    found = LastCommit(commit_id="theirs")
    monkeypatch.setattr("connector.iceberg.commit.commit.find_last_commit", lambda *_: found)
    with pytest.raises(FatalError, match="another sink with the same name is running"):
        check_own_commits(_table(OF_A_TWIN, EMPTIED), 1, LastCommit(commit_id="ours"), "sink")


@pytest.mark.parametrize(
    ("parents", "newest", "gone"),
    [
        ({1: None, 2: 1}, 2, False),
        ({1: None, 2: 1, 3: 2}, 3, False),
        ({1: None, 2: 1}, 1, True),
        ({1: None, 2: 1, 3: 1}, 3, True),  # another wrote where it was rolled back to
        ({1: None, 2: 1}, None, True),
        ({2: 1}, 2, False),  # what was before has expired
        ({1: None}, 1, False),  # there was nothing to delete
    ],
)
def test_a_truncates_snapshot_must_be_in_the_branch(
    parents: dict[int, int | None], newest: int | None, gone: bool
) -> None:
    """A table that is rolled back while a truncate empties it has the batch made again."""
    told = {2: OURS}
    snapshots = {one: SnapshotEntry(parent, told.get(one, {})) for one, parent in parents.items()}
    table: Any = SimpleNamespace(name="d.t", snapshot_id=newest, list_snapshots=lambda: snapshots)
    with pytest.raises(CommitRefused, match=r"^table d\.t was rolled back while") if gone else nullcontext():
        check_no_rollback(table, [1], None, "sink")
    check_no_rollback(table, [1, 2], None, "sink")
    check_no_rollback(table, [1], None, "other")


@pytest.mark.parametrize(("newest", "gone"), [(3, False), (2, False), (1, True), (None, True)])
def test_a_snapshot_with_nothing_left_to_mark_must_be_in_the_branch(newest: int | None, gone: bool) -> None:
    """The rows had gone in a try before, whose snapshot was there: what is known of it may be rolled back too."""
    snapshots = {1: SnapshotEntry(None, {}), 2: SnapshotEntry(1, OURS), 3: SnapshotEntry(2, {})}
    table: Any = SimpleNamespace(name="d.t", snapshot_id=newest, list_snapshots=lambda: snapshots)
    with pytest.raises(CommitRefused, match=r"^table d\.t was rolled back while") if gone else nullcontext():
        check_no_rollback(table, [1, 2, 3], 2, "sink")


def _land(monkeypatch: pytest.MonkeyPatch, *ids: str) -> Any:
    """A table whose Java has snapshots of these commits, oldest first, `ours` for the one that is made now.

    Its metadata file cannot be read.
    """
    summaries = dict(enumerate(ids, 1))

    def settle(_: Any, commit_id: str, *__: Any, few_manifests: bool) -> None:
        summaries.update({number: commit_id for number, one in summaries.items() if one == "ours"})

    def snapshot(which: int | str) -> Any:
        number = len(ids) if which == "main" else int(which)
        return SimpleNamespace(
            snapshotId=lambda: number,
            parentId=lambda: number - 1 or None,
            sequenceNumber=lambda: number + 10,
            summary=lambda: {COMMIT_ID: summaries[number]},
        )

    monkeypatch.setattr("connector.iceberg.commit.commit.commit_exactly_once", settle)
    table = SimpleNamespace(name="d.t", branch="main", java=SimpleNamespace(snapshot=snapshot))
    table.java_ancestors = lambda: Table.java_ancestors(table)  # type: ignore[arg-type]
    return table


_PENDING = PendingCommit([], KafkaOffsets("c", {}, {}), LastCommit(), None, guarded=False, replaces=True)


@pytest.mark.parametrize("since", [(), ("theirs",), ("theirs", "others")])
def test_the_place_of_a_commit_is_told_without_the_metadata_file(
    since: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a commit became is asked of Java, however many have committed since: the metadata file is not read."""
    done = commit_files(_land(monkeypatch, "before", "ours", *since), _PENDING, "sink")
    assert (done.snapshot_id, done.sequence_number, done.stored.sequence_number) == (2, 12, 12)


def test_a_commit_that_is_gone_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that landed and that no snapshot of the branch has was rolled back: the sink stops."""
    with pytest.raises(FatalError, match="does not have the snapshot of a commit that was just made"):
        commit_files(_land(monkeypatch, "before", "theirs"), _PENDING, "sink")
