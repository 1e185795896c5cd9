"""Which equality deletes a rewrite of files has taken from rows that they had to delete, by what manifests tell."""

from __future__ import annotations

import struct
from typing import Any

import attrs
import pytest
from pyiceberg.types import LongType, StringType, UUIDType

from connector.iceberg.guard.delete_reach import (
    ContentFile,
    ForeignRewrite,
    LostDelete,
    applies,
    find_escaped,
    find_lost_deletes,
    find_outrun_deletes,
    find_undone_conversions,
)

TYPES = {1: LongType(), 2: StringType(), 3: UUIDType()}


def _bounds(low: int, high: int) -> dict[str, dict[int, bytes]]:
    return {"lower": {1: struct.pack("<q", low)}, "upper": {1: struct.pack("<q", high)}}


def _data(path: str, number: int, keys: tuple[int, int] = (0, 9), came: int | None = None, **more: Any) -> ContentFile:
    return ContentFile(path, number, number if came is None else came, 0, (), **{**_bounds(*keys), **more})


def _delete(path: str, number: int, keys: tuple[int, int] = (0, 9), **more: Any) -> ContentFile:
    return _data(path, number, keys, **{"equality_ids": (1,), "everywhere": True, **more})


DELETE = _delete("d", 5)


@pytest.mark.parametrize(
    ("delete", "file", "told"),
    [
        (DELETE, _data("f", 4), True),
        (DELETE, _data("f", 5), False),  # rows that came with it
        (DELETE, _data("f", 4, came=6), True),  # rewritten since, under its number
        (DELETE, _data("f", 4, (10, 12)), False),
        (DELETE, _data("f", 4, (9, 12)), True),
        (DELETE, _data("f", 4, lower={}), True),  # no bounds tell nothing
        (_delete("d", 5, equality_ids=(1, 3)), _data("f", 4), True),  # no order that bounds keep
        (_delete("d", 5, equality_ids=(1, 3)), _data("f", 4, (10, 12)), False),
        (_delete("d", 5, equality_ids=(77,)), _data("f", 4), True),  # a column that is gone
        (_delete("d", 5, everywhere=False), _data("f", 4), True),
        (_delete("d", 5, everywhere=False), attrs.evolve(_data("f", 4), partition=("a",)), False),
        (_delete("d", 5, everywhere=False), attrs.evolve(_data("f", 4), spec_id=1), False),
        (DELETE, attrs.evolve(_data("f", 4), spec_id=1, partition=("a",)), True),
    ],
)
def test_where_a_delete_applies(delete: ContentFile, file: ContentFile, told: bool) -> None:
    """To older files, in any partition if it is global, that may hold its keys by their bounds."""
    assert applies(delete, file, TYPES) is told


def test_a_lost_delete_is_one_that_older_files_were_left_for() -> None:
    """What went with all the rows that it deletes is no loss."""
    kept, fresh = _data("old", 1), _data("new", 6)
    lost = ForeignRewrite(9, 7, lost=(DELETE, _delete("far", 5, (50, 60))), older=(kept,), added=(fresh,))
    assert find_lost_deletes(lost, TYPES) == [LostDelete(DELETE, (kept,))]
    assert find_lost_deletes(attrs.evolve(lost, older=()), TYPES) == []
    assert find_lost_deletes(attrs.evolve(lost, converts=True), TYPES)[0].converted


def test_rows_outrun_deletes_that_came_after_they_were_read() -> None:
    """Only under a number of the rewrite's own snapshot, and only deletes since the newest of the replaced files."""
    before, since, far = _delete("before", 2), _delete("since", 4), _delete("far", 4, (50, 60))
    rewrite = ForeignRewrite(
        9, 7, added=(_data("n", 7),), removed=(_data("a", 1), _data("b", 1, came=3)), deletes=(before, since, far)
    )
    (found,) = find_outrun_deletes(rewrite, TYPES)
    assert (found.file.path, found.deletes, rewrite.replaced_until) == ("n", (since,), 3)
    numbered = attrs.evolve(rewrite, added=(_data("n", 6, came=7),))  # told which snapshot was read
    assert find_outrun_deletes(numbered, TYPES) == []
    assert find_outrun_deletes(attrs.evolve(rewrite, removed=()), TYPES) == []  # rows that are new


def test_conversions_that_a_rewrite_undoes() -> None:
    """A converted delete is needed again where the rewrite was read under an older number, or no one knows when."""
    rewrite = ForeignRewrite(9, 7, added=(_data("n", 4, came=7),), removed=(_data("a", 1),), converted=(DELETE,))
    assert find_undone_conversions(rewrite, TYPES) == [LostDelete(DELETE, rewrite.added, converted=True)]
    assert find_outrun_deletes(rewrite, TYPES) == []
    later = attrs.evolve(rewrite, added=(_data("n", 5, came=7),))
    assert find_undone_conversions(later, TYPES) == []
    far = attrs.evolve(rewrite, added=(_data("n", 4, (50, 60), came=7),))
    assert find_undone_conversions(far, TYPES) == []
    fresh = attrs.evolve(rewrite, added=(_data("n", 7),))
    assert find_undone_conversions(fresh, TYPES) == []
    assert [one.deletes for one in find_outrun_deletes(fresh, TYPES)] == [(DELETE,)]


def test_rows_that_were_written_anew_have_escaped() -> None:
    """Their deletes came back in vain; not so under a number that is still smaller, or gone with no successor."""
    lost = [LostDelete(DELETE, (_data("old", 1),))]
    gone = ForeignRewrite(10, 8, removed=(_data("old", 1),))
    assert find_escaped(lost, [attrs.evolve(gone, added=(_data("n", 8),))], TYPES) == lost
    assert find_escaped(lost, [attrs.evolve(gone, added=(_data("n", 4, came=8),))], TYPES) == []
    assert find_escaped(lost, [attrs.evolve(gone, added=(_data("n", 8, (50, 60)),))], TYPES) == []
    assert find_escaped(lost, [gone], TYPES) == []
    again = ForeignRewrite(11, 9, removed=(_data("n", 4),), added=(_data("m", 9),))
    assert find_escaped(lost, [attrs.evolve(gone, added=(_data("n", 4, came=8),)), again], TYPES) == lost
    assert find_escaped(lost, [attrs.evolve(gone, removed=(), added=(_data("n", 8),))], TYPES) == []
