"""What a rewrite did to files, by manifests -> equality deletes that it took from rows they had to delete. Pure.

An equality delete applies to data files with smaller sequence numbers (spec, "Scan Planning"). A rewrite can break that
in two ways. It may take a delete file out of the table while such data files stay, or come with it: Iceberg 1.12 does
when deletes were committed while `rewrite_data_files` ran. Or it may give rewritten rows a sequence number that is not
smaller any more, though it read them before the delete came.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
from pyiceberg.types import PrimitiveType

from connector.iceberg.keys.intervals import ORDERED_TYPES, parse_interval

Bounds = Mapping[int, bytes]
"""A column's lowest or highest value by field id, in Iceberg's binary form."""
FieldTypes = Mapping[int, Any]
"""Iceberg types by field id."""


@attrs.frozen
class ContentFile:
    """A data file, or an equality delete file, of a manifest, as far as it matters which deletes apply to which rows.

    `sequence_number` is the data sequence number, `file_sequence_number` that of the snapshot that the file came with.
    `everywhere` is set of deletes under an unpartitioned spec. `equality_ids` are empty for data files.
    """

    path: str
    sequence_number: int
    file_sequence_number: int
    spec_id: int
    partition: tuple[Any, ...]
    lower: Bounds = attrs.field(factory=dict)
    upper: Bounds = attrs.field(factory=dict)
    equality_ids: tuple[int, ...] = ()
    everywhere: bool = False


@attrs.frozen
class ForeignRewrite:
    """What one snapshot of another engine did.

    `lost` are equality deletes that it took out; `older` are the data files after it that are older than the newest of
    those. `added` and `removed` are data files; `deletes` are the equality deletes that were there before it.
    `new_deletes` are the paths of equality deletes that came with it. `converts` tells that it wrote position deletes,
    as whoever puts them in the place of equality deletes does. `converted` are equality deletes that this program took
    out before, with position deletes in their place: those went with the files that the rewrite replaced.
    """

    snapshot_id: int
    sequence_number: int
    lost: tuple[ContentFile, ...] = ()
    older: tuple[ContentFile, ...] = ()
    added: tuple[ContentFile, ...] = ()
    removed: tuple[ContentFile, ...] = ()
    deletes: tuple[ContentFile, ...] = ()
    new_deletes: frozenset[str] = frozenset()
    converts: bool = False
    converted: tuple[ContentFile, ...] = ()

    @property
    def replaced_until(self) -> int:
        """The newest sequence number with which a replaced file came: it was read then, or later; 0 without."""
        return max((file.file_sequence_number for file in self.removed), default=0)


@attrs.frozen
class LostDelete:
    """An equality delete that went although data files were left that it applies to; `converted` as in the rewrite."""

    delete: ContentFile
    files: tuple[ContentFile, ...]
    converted: bool = False


@attrs.frozen
class OutrunDeletes:
    """Equality deletes that came after a rewrite's rows were there, and that its new file has outrun by its number."""

    file: ContentFile
    deletes: tuple[ContentFile, ...]


def find_lost_deletes(rewrite: ForeignRewrite, types: FieldTypes) -> list[LostDelete]:
    """Return the deletes that went with the rewrite and still had rows to delete, by what manifests can tell."""
    found = (
        LostDelete(delete, tuple(file for file in rewrite.older if applies(delete, file, types)), rewrite.converts)
        for delete in rewrite.lost
    )
    return [one for one in found if one.files]


def find_undone_conversions(rewrite: ForeignRewrite, types: FieldTypes) -> list[LostDelete]:
    """Return the converted deletes that came after the rewrite began, with the files of it whose rows they may hit.

    A file that keeps a number was read under it: what is newer was not applied.
    """
    kept = [file for file in rewrite.added if file.sequence_number < rewrite.sequence_number]
    found = (
        LostDelete(delete, tuple(file for file in kept if applies(delete, file, types)), converted=True)
        for delete in rewrite.converted
    )
    return [one for one in found if one.files]


def find_outrun_deletes(rewrite: ForeignRewrite, types: FieldTypes) -> list[OutrunDeletes]:
    """Return the rewrite's files whose rows may have escaped deletes.

    All rows of these files come from files that were there by `replaced_until`; deletes since then apply to all of
    them. A file with a number of its own was given it on purpose: that of the snapshot that was read.
    """
    every = (*rewrite.deletes, *rewrite.converted)
    since = [delete for delete in every if delete.sequence_number > rewrite.replaced_until]
    if not rewrite.removed or not since:
        return []
    found = (
        OutrunDeletes(
            file, tuple(d for d in since if d.sequence_number <= file.sequence_number and meets(d, file, types))
        )
        for file in rewrite.added
        if file.sequence_number == rewrite.sequence_number
    )
    return [one for one in found if one.deletes]


def find_escaped(lost: Iterable[LostDelete], later: Sequence[ForeignRewrite], types: FieldTypes) -> list[LostDelete]:
    """Return the lost deletes that cannot be restored: rows of theirs were rewritten since, among newer ones."""
    return [one for one in lost if _has_escaped(one, later, types)]


def _has_escaped(lost: LostDelete, later: Iterable[ForeignRewrite], types: FieldTypes) -> bool:
    holders = {file.path for file in lost.files}
    for change in later:
        if not any(file.path in holders for file in change.removed):
            continue
        heirs = [file for file in change.added if meets(lost.delete, file, types)]
        if any(file.sequence_number >= lost.delete.sequence_number for file in heirs):
            return True
        holders |= {file.path for file in heirs}
    return False


def applies(delete: ContentFile, file: ContentFile, types: FieldTypes) -> bool:
    """Tell whether an equality delete may delete rows of a data file."""
    return file.sequence_number < delete.sequence_number and meets(delete, file, types)


def meets(delete: ContentFile, file: ContentFile, types: FieldTypes) -> bool:
    """Tell the same whatever their sequence numbers: by partition, and by the bounds of the key columns."""
    if not delete.everywhere and (delete.spec_id, delete.partition) != (file.spec_id, file.partition):
        return False
    return all(_overlap(types.get(field_id), field_id, delete, file) for field_id in delete.equality_ids)


def _overlap(kind: object, field_id: int, one: ContentFile, other: ContentFile) -> bool:
    if not isinstance(kind, PrimitiveType) or not isinstance(kind, ORDERED_TYPES):
        return True
    spans = [parse_interval(kind, file.lower.get(field_id), file.upper.get(field_id)) for file in (one, other)]
    first, second = spans
    return first is None or second is None or (first[0] <= second[1] and second[0] <= first[1])
