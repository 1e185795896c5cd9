"""A table's snapshots -> the sink's newest commit there, whether it is gone, and behind which one the next may land."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import pytest
from pyiceberg.table.snapshots import Snapshot

from connector.errors import GapError
from connector.iceberg.commit.ancestry import check_ancestry
from connector.iceberg.commit.commit import expect_last_commit
from connector.iceberg.commit.commit_summary import COMMIT_ID, CONNECTOR_NAME
from connector.iceberg.commit.kafka_offsets import KafkaOffsets
from connector.iceberg.commit.last_commit import LastCommit, find_last_commit, is_rolled_back
from connector.iceberg.commit.stored_commit import StoredCommit
from connector.iceberg.java import iterate
from connector.runtime.topic_partitions import TopicPartition

AT = ("t", 0)


@pytest.mark.parametrize(
    ("parent", "number", "left"),
    [
        (None, 1, True),  # the whole history is there, without ours
        (7, 8, False),  # older ones have expired
        (2, 3, True),  # so they have, but ours was newer than this one, which is there
    ],
)
def test_expired_is_not_rolled_back(parent: int | None, number: int, left: bool) -> None:
    """A snapshot that is no ancestor has expired only where older history is missing, and all that is left is newer."""
    assert is_rolled_back(parent, number, 5) is left


class _Line:
    """A table whose branch has these snapshots, newest first: (number, parent, offset our commit stands at, its id)."""

    name, uuid = "d.t", "u"

    def __init__(self, *snapshots: tuple[int, int | None, int | None, str]) -> None:
        self._snapshots = snapshots

    def ancestors(self) -> Iterator[Snapshot]:
        for number, parent, offset, commit in self._snapshots:
            told = {} if offset is None else KafkaOffsets("c", {}, {AT: offset}).summary("me", commit)
            facts = {"snapshot-id": number, "parent-snapshot-id": parent, "sequence-number": number, "timestamp-ms": 0}
            summary = {"operation": "append", **told}
            yield Snapshot.model_validate({**facts, "manifest-list": "x", "summary": summary})


_OURS = LastCommit(KafkaOffsets("c", {}, {AT: 9}), "b", 6)


@pytest.mark.parametrize(
    ("left", "before", "commit"),
    [
        (_Line((7, 6, None, ""), (6, 5, 9, "b")), _OURS, "b"),
        (_Line((8, 6, 12, "c"), (6, 5, 9, "b")), _OURS, "c"),  # one whose answer was lost
        (_Line((7, 6, None, "")), _OURS, None),  # ours has expired
        (_Line(), LastCommit(), None),
        (_Line((2, 1, None, "")), LastCommit(), None),
        (_Line((2, 1, 9, "b")), attrs.evolve(_OURS, sequence_number=0), "b"),  # made with format version 1
    ],
)
def test_the_newest_commit_is_found(left: _Line, before: LastCommit, commit: str | None) -> None:
    """It is the newest of the connector's that is left; an expired one leaves its offsets."""
    found = find_last_commit(left, "me", before)  # type: ignore[arg-type]
    assert found.commit_id == commit
    assert found.position.offsets[AT] >= 9 if before.position.offsets else not found.position.offsets


@pytest.mark.parametrize(
    ("left", "before"),
    [
        (_Line((4, 3, 5, "a")), _OURS),  # rolled back to an older one of ours, the rest expired
        (_Line((7, 4, None, ""), (4, 3, 5, "a")), _OURS),  # and another wrote since
        (_Line((4, 3, None, "")), _OURS),  # rolled back to another's
        (_Line((7, 4, None, ""), (4, 3, None, "")), _OURS),
        (_Line((1, None, None, "")), _OURS),
        (_Line((0, 7, None, "")), attrs.evolve(_OURS, sequence_number=1)),  # to one of format version 1: without number
        (_Line(), _OURS),
        (_Line(), attrs.evolve(_OURS, commit_id=None)),
        (_Line((4, 3, 5, "a")), attrs.evolve(_OURS, commit_id=None)),
        (_Line((4, 3, 5, "a")), attrs.evolve(_OURS, sequence_number=0)),
    ],
)
def test_a_commit_that_is_gone_stops(left: _Line, before: LastCommit) -> None:
    """A newest commit that was left, and did not expire, is a gap, also where an older one of ours is there."""
    with pytest.raises(GapError, match="rolled back"):
        find_last_commit(left, "me", before)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("left", "noted", "commit", "offsets"),
    [
        (_Line((6, 5, 9, "b")), None, "b", {AT: 9}),
        (_Line((6, 5, None, "")), None, None, {}),  # the connector never wrote there
        (_Line(), None, None, {}),
        (_Line((8, 6, 12, "c")), StoredCommit(_OURS.position, "u", 6, 6), "c", {AT: 12}),
        (_Line((8, 6, None, "")), StoredCommit(_OURS.position, "u", 6, 6), None, {AT: 9}),
        (_Line((8, 6, None, "")), StoredCommit(_OURS.position, "", 6, 6), None, {AT: 9}),  # noted before ids were
    ],
)
def test_where_a_connector_stands_in_a_table(
    left: _Line, noted: StoredCommit | None, commit: str | None, offsets: dict[TopicPartition, int]
) -> None:
    """Its newest snapshot tells, or what was noted of one that expired; without either it stands at the beginning."""
    found = check_ancestry(left, "me", noted)  # type: ignore[arg-type]
    assert (found.commit_id, found.position.offsets) == (commit, offsets)


@pytest.mark.parametrize(
    ("left", "uuid", "says"),
    [
        (_Line((6, 5, 9, "b")), "another", r"^table d\.t was dropped and made again since connector me wrote to it"),
        (_Line((4, 3, None, "")), "u", r"^table d\.t does not have the newest commit of connector me any more"),
    ],
)
def test_a_table_that_lost_what_was_noted_stops(left: _Line, uuid: str, says: str) -> None:
    """A table of another id was made again, one whose snapshots are older than the noted one was rolled back."""
    with pytest.raises(GapError, match=says):
        check_ancestry(left, "me", StoredCommit(_OURS.position, uuid, 6, 6))  # type: ignore[arg-type]


class _Java:
    """A snapshot, or an Iterable of them, as Iceberg hands it to the validator."""

    def __init__(
        self,
        name: str = "",
        commit: str = "",
        parent: int | None = None,
        operation: str = "append",
        number: int = 7,
        sequence: int = 9,
    ) -> None:
        self._summary = {CONNECTOR_NAME: name, COMMIT_ID: commit} if name else {}
        self._parent, self._operation, self._number, self._sequence = parent, operation, number, sequence

    def operation(self) -> str:
        return self._operation

    def snapshotId(self) -> int:  # noqa: N802 - Java's name
        return self._number

    def sequenceNumber(self) -> int:  # noqa: N802 - Java's name
        return self._sequence

    def summary(self) -> dict[str, str]:
        return self._summary

    def parentId(self) -> int | None:  # noqa: N802 - Java's name
        return self._parent


class _Iterable:
    def __init__(self, *snapshots: _Java) -> None:
        self._left = list(snapshots)

    def iterator(self) -> _Iterable:
        return self

    def hasNext(self) -> bool:  # noqa: N802 - Java's name
        return bool(self._left)

    def next(self) -> _Java:
        return self._left.pop(0)


@pytest.mark.parametrize(
    ("snapshots", "expected", "allowed"),
    [
        ((_Java("me", "1", 5),), "1", True),
        ((_Java("other", "9", 5), _Java("me", "1", 4)), "1", True),
        ((_Java("me", "2", 5),), "1", False),  # a second sink
        ((_Java("me", "2", 5),), None, False),
        ((), None, True),
        ((), "1", False),  # the table was emptied of all history
        ((_Java("other", "9", 5),), "1", True),  # ours has expired
        ((_Java("other", "9", None),), "1", False),  # nothing has expired: the table was replaced
        ((_Java("other", "9", 5, sequence=3),), "1", False),  # what is left is older than ours: it was rolled back
        ((_Java("other", "9", 5), _Java("other", "9", 5, sequence=3)), "1", False),  # and another wrote since
        ((_Java("", "", 5, "replace"), _Java("me", "1", 4)), "1", False),  # a rewrite that nobody looked at
        ((_Java("other", "9", 5, "replace"), _Java("me", "1", 4)), "1", True),  # one of another connector
        ((_Java("", "", 5), _Java("", "", 5, "replace", 8), _Java("me", "1", 4)), "1", True),  # it was looked at
        ((_Java("", "", 5, "replace"), _Java("", "", 5, "append", 8), _Java("me", "1", 4)), "1", False),
        ((_Java("me", "1", 5), _Java("", "", 5, "replace")), "1", True),  # it was, before our commit
    ],
)
def test_a_commit_lands_only_behind_the_expected_one(
    snapshots: tuple[_Java, ...],
    expected: str | None,
    allowed: bool,
) -> None:
    """Behind this process's newest commit, or where that has expired; never behind another process's, never on less,
    and not on a rewrite of another engine since the snapshot (8) that was looked at.
    """
    before = LastCommit() if expected is None else LastCommit(KafkaOffsets(), expected, 4)
    assert expect_last_commit("me", before, 8)(iterate(_Iterable(*snapshots))) is allowed


@pytest.mark.parametrize(
    ("snapshots", "allowed"),
    [
        ((_Java("", "", 5, "delete", 8), _Java("me", "1", 4)), True),
        ((_Java("", "", 5), _Java("", "", 5, "delete", 8), _Java("me", "1", 4)), True),
        ((_Java("me", "1", 5, "append", 8),), True),  # the truncate found nothing, and committed nothing
        ((_Java("me", "1", 4),), False),
        ((_Java("", "", 5), _Java("me", "1", 4)), False),
        ((_Java("me", "1", 5), _Java("", "", 4, "delete", 8)), False),  # it is older than the newest commit
        ((_Java("other", "9", 5),), False),  # gone, or expired: the batch is made again
        ((), False),
    ],
)
def test_a_commit_behind_a_truncate_lands_only_where_its_rows_are_gone(
    snapshots: tuple[_Java, ...], allowed: bool
) -> None:
    """Where a table is rolled back to before the truncate's own commit, the batch must not land: it is made again."""
    before = LastCommit(KafkaOffsets(), "1", 4)
    assert expect_last_commit("me", before, 8, 8)(iterate(_Iterable(*snapshots))) is allowed
