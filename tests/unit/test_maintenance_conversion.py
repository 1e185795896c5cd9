"""Rules of conversions: which deletes meet which data files, and what may come between plan and commit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from connector.iceberg.commit.commit_summary import CREATED_BY, MANIFEST_REWRITE
from connector.maintenance.conversion.conversion import _choose_oldest
from connector.maintenance.conversion.plan import (
    AffectedDataFile,
    EqualityDeleteFile,
    Scope,
    find_split_deletes,
    find_unconvertible,
    group_deletes,
)
from connector.maintenance.conversion.validation import LaterSnapshot, find_conflict, may_conflict

pytestmark = pytest.mark.unit

NORTH, SOUTH = (1, "[1]"), (1, "[2]")
TYPES = {1: "long", 2: "string", 3: "double", 4: "fixed[8]", 5: "struct", 6: "decimal(9, 2)"}


def _delete(path: str, sequence: int, ids: tuple[int, ...] = (1,), scope: Scope | None = None) -> EqualityDeleteFile:
    return EqualityDeleteFile(path, sequence, ids, 10, 100, scope)


def _file(path: str, *deletes: str, scope: Scope = NORTH) -> AffectedDataFile:
    return AffectedDataFile(path, scope, frozenset(deletes))


def test_a_data_file_meets_its_oldest_delete() -> None:
    """Each data file has the sequence number of the oldest delete that applies to it; untouched files are left out."""
    groups = group_deletes(
        [_delete("d2", 2), _delete("d5", 5), _delete("d9", 9)],
        [_file("a", "d2", "d5", "vector"), _file("b", "d5"), _file("c", "vector")],
    )
    (group,) = groups
    assert [file.path for file in group.data_files] == ["a", "b"]
    assert group.oldest == (2, 5)
    assert [file.path for file in group.deletes] == ["d2", "d5"]
    assert group.scopes is None and group.records == 20


def test_deletes_by_other_columns_are_joined_apart() -> None:
    """Deletes by other columns, and those of a partition, are groups of their own."""
    groups = group_deletes(
        [
            _delete("by1", 2),
            _delete("by12", 3, (1, 2)),
            _delete("north", 4, (1,), NORTH),
            _delete("south", 5, (1,), SOUTH),
        ],
        [_file("a", "by1", "by12", "north"), _file("b", "by1", "south", scope=SOUTH)],
    )
    assert [(group.equality_ids, group.scopes is None, group.oldest) for group in groups] == [
        ((1,), False, (4, 5)),
        ((1,), True, (2, 2)),
        ((1, 2), True, (3,)),
    ]
    assert groups[0].scopes == {NORTH: 0, SOUTH: 1}


def test_deletes_that_apply_to_nothing_need_no_join() -> None:
    """Deletes without a data file are in no group."""
    assert group_deletes([_delete("d", 2)], [_file("a", "vector")]) == ()


def test_listings_of_a_file_that_deletes_tell_apart() -> None:
    """All deletes of a file that is listed twice stay where one listing has others; files listed alike do not count."""
    files = [_file("a", "d2", "d5"), _file("a", "d5"), _file("b", "d7", "vector"), _file("b", "d7", "vector")]
    assert find_split_deletes([*files, _file("c", "d9")]) == {"d2", "d5"}


def _task(path: str, *deletes: str) -> Any:
    """A listing of a data file, as it was planned."""
    return SimpleNamespace(path=path, deletes=frozenset(deletes), place=SimpleNamespace(spec_id=1, partition=(1,)))


@pytest.mark.parametrize(
    ("max_bytes", "chosen", "split", "plans"),
    [
        (100, ["d4"], 2, [["d2"], ["d3"], ["d4"]]),
        (150, ["d4", "d5"], 2, [["d2", "d3"], ["d4", "d5"]]),
        (250, ["d4"], 2, [["d2", "d3", "d4"]]),
        (None, ["d4", "d5"], 2, [["d2", "d3", "d4", "d5"]]),
    ],
)
def test_deletes_that_cannot_go_hold_up_no_newer_ones(
    max_bytes: int | None, chosen: list[str], split: int, plans: list[list[str]]
) -> None:
    """A part of the deletes is taken at a time: where all of it has to stay, the next part has its turn."""
    listings = {"d2": [_task("a", "d2"), _task("a")], "d3": [_task("b", "d3"), _task("b")], "d4": [_task("c", "d4")]}
    asked = list[list[str]]()

    def plan(deletes: Sequence[EqualityDeleteFile]) -> list[Any]:
        asked.append([file.path for file in deletes])
        return [task for file in deletes for task in listings.get(file.path, [])]

    found = [_delete(f"d{number}", number) for number in range(2, 6)]
    taken, planned, count = _choose_oldest(found, max_bytes, plan)
    assert ([file.path for file in taken], count, asked) == (chosen, split, plans)
    assert {task.path for task in planned} >= {"c"}
    assert _choose_oldest(found[:2], max_bytes, plan)[0::2] == ((), 2)


@pytest.mark.parametrize(
    ("ids", "convertible"), [((1, 2), True), ((6,), True), ((1, 3), False), ((4,), False), ((5,), False), ((7,), False)]
)
def test_which_keys_can_be_converted(ids: Iterable[int], convertible: bool) -> None:
    """Keys of floating point, fixed length or within structs stay as they are, with a reason."""
    assert (find_unconvertible(ids, TYPES) is None) == convertible


@pytest.mark.parametrize(
    ("operation", "summary", "wanted"),
    [
        ("append", {"deleted-data-files": "1"}, False),
        ("overwrite", {"added-data-files": "2", "added-delete-files": "1", "added-equality-delete-files": "1"}, False),
        ("delete", {"added-delete-files": "1", "added-equality-delete-files": "1"}, False),
        ("overwrite", {"added-data-files": "2", "added-position-delete-files": "1"}, True),
        ("delete", {"added-delete-files": "1", "added-dvs": "1"}, True),
        ("replace", {"added-data-files": "1", "deleted-data-files": "2"}, True),
        ("overwrite", {"added-data-files": "1", "deleted-data-files": "many"}, True),
        ("replace", {}, True),
    ],
)
def test_which_snapshots_are_looked_at(operation: str, summary: dict[str, str], wanted: bool) -> None:
    """A summary tells whether data files went or rows were deleted by position; one that tells nothing is looked at."""
    assert may_conflict(operation, summary) == wanted


def _later(
    snapshot_id: int, *files: str, operation: str = "replace", own: bool = False, foreign: bool = False
) -> LaterSnapshot:
    summary = {} if foreign else {CREATED_BY: "another"}
    return LaterSnapshot(snapshot_id, operation, summary, lambda: files, own)


def test_what_is_in_the_way() -> None:
    """A conversion lands on its base, and where nobody touched its data files; not beside a rollback or itself."""
    ours = frozenset({"a", "b"})
    assert find_conflict([_later(1)], 1, ours) is None
    assert find_conflict([_later(3, "c"), _later(2, operation="append"), _later(1, "a")], 1, ours) is None
    assert "3" in (find_conflict([_later(3, "c", "b"), _later(1)], 1, ours) or "")
    assert "already" in (find_conflict([_later(3, own=True), _later(1)], 1, ours) or "")
    assert "ancestor" in (find_conflict([_later(7, "c")], 1, ours) or "")
    assert "ancestor" in (find_conflict([], 1, ours) or "")


def test_nothing_stands_upon_a_rewrite_that_was_not_looked_at() -> None:
    """A rewrite of another engine is in the way whatever files it touched: it may have lost deletes; one of manifests
    is not, nor is the one that the conversion was planned on.
    """
    assert "looked at" in (find_conflict([_later(2, "c", foreign=True), _later(1)], 1, frozenset()) or "")
    manifests = LaterSnapshot(2, "replace", {MANIFEST_REWRITE: "9"}, lambda: ())
    assert find_conflict([manifests, _later(1, foreign=True)], 1, frozenset()) is None
