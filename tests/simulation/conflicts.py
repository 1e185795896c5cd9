"""A snapshot update and the table that it would land on -> Iceberg's refusal, where it finds a conflict itself.

Its validations are `MergingSnapshotProducer`'s, by what an update asked for (`BaseRowDelta.validate`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema

from tests.simulation.catalog_server import LiveFile, Metadata, SnapshotVersion
from tests.simulation.interruptions import CapturedJavaError, JavaError

Expression = Mapping[str, Any]
_ADDING_DELETES = ("overwrite", "delete")
"""Operations of snapshots whose delete files Iceberg looks at (`VALIDATE_ADDED_DELETE_FILES_OPERATIONS`)."""


@attrs.define(eq=False)
class Demands:
    """What an update asks Iceberg to look for in the snapshots behind `since`; None is the beginning."""

    since: int | None = None
    no_new_data: bool = False
    no_new_deletes: bool = False
    deletes_count: bool = False
    exist: set[str] = attrs.field(factory=set)
    where: Expression | None = None


def find_conflict(demands: Demands, base: Metadata, added: Iterable[LiveFile], removed: Iterable[LiveFile]) -> None:
    """Look at what others did since.

    Raises:
        JavaError: Iceberg's ValidationException.
        CapturedJavaError: what it says of a snapshot that it cannot find.
    """
    if base.newest is None:
        return
    if demands.since is not None and all(one.id != demands.since for one in base.ancestors()):
        raise CapturedJavaError(
            "IllegalArgumentException", f"Snapshot {demands.since} is not an ancestor of {base.head}"
        )
    gone = set[str]()
    for one in _history(demands, base):
        before = base.snapshots.get(one.parent) if one.parent is not None else None
        old = set(before.files) if before is not None else set[LiveFile]()
        new = set(one.files)
        if one.operation in ("overwrite", "replace", *(("delete",) if demands.deletes_count else ())):
            gone |= {file.path for file in old - new if file.content == "data"}
        _look_at_files(demands, base.schema, one, new - old, added)
    if gone & demands.exist:
        raise JavaError("ValidationException", "Cannot commit, missing data files")
    if demands.no_new_deletes:
        _check_removed(base, demands, [file for file in removed if file.content == "data"])


def _history(demands: Demands, base: Metadata) -> Iterator[SnapshotVersion]:
    if not (demands.no_new_data or demands.no_new_deletes or demands.exist):
        return
    last = None
    for one in base.ancestors():
        if one.id == demands.since:
            return
        yield one
        last = one
    if last is not None and last.parent != demands.since:
        raise JavaError("ValidationException", "Cannot determine history between starting snapshot and the last known")


def _look_at_files(
    demands: Demands, schema: Schema, one: SnapshotVersion, new: Iterable[LiveFile], added: Iterable[LiveFile]
) -> None:
    vectors = {file.referenced for file in added if file.offset is not None}
    for file in new:
        if file.content == "data":
            if (
                demands.no_new_data
                and one.operation in ("append", "overwrite")
                and may_hold(file, demands.where, schema)
            ):
                raise JavaError("ValidationException", "Found conflicting files that can contain records matching")
            continue
        if file.offset is not None and file.referenced in vectors:
            raise JavaError("ValidationException", "Found concurrently added DV")
        if demands.no_new_deletes and one.operation in ("overwrite", "delete"):
            raise JavaError("ValidationException", "Found new conflicting delete files")


def find_rewrite_conflict(since: int | None, base: Metadata, removed: Iterable[LiveFile], *, by_key: bool) -> None:
    """As `find_conflict`, of files that are written anew (`BaseRewriteFiles.validate`): nothing where none goes.

    `by_key` tells that the new ones are too young for deletes by key that came since.

    Raises:
        JavaError: Iceberg's ValidationException.
    """
    data = [file for file in removed if file.is_data]
    if not data:
        return
    if all(one.id != since for one in base.ancestors()):
        raise JavaError("ValidationException", "Cannot determine history between starting snapshot and the last known")
    _check_removed(base, Demands(since), data, by_key=by_key)


def _check_removed(base: Metadata, demands: Demands, removed: Iterable[LiveFile], *, by_key: bool = True) -> None:
    """Deletes that apply to a file that goes would be lost with it; those of a conversion, which is a rewrite too,
    Iceberg passes over.
    """
    paths = {file.path for file in removed}
    for one in base.ancestors() if paths else ():
        if one.id == demands.since:
            return
        before = base.snapshots.get(one.parent) if one.parent is not None else None
        new = set(one.files) - set(before.files if before is not None else ())
        late = [file for file in new if not file.is_data and one.operation in _ADDING_DELETES]
        if any((by_key and file.content == "equality-deletes") or file.referenced in paths for file in late):
            raise JavaError("ValidationException", "Cannot commit, found new delete for replaced data file")


def may_hold(file: LiveFile, where: Expression | None, schema: Schema) -> bool:
    """Tell by its bounds whether a data file may have such rows; `where` is Iceberg's JSON of an expression."""
    if where is None:
        return True
    if where["type"] in ("and", "or"):
        sides = (may_hold(file, where[side], schema) for side in ("left", "right"))
        return all(sides) if where["type"] == "and" else any(sides)
    field = schema.find_field(where["term"])
    lower, upper = file.description.lower_bounds, file.description.upper_bounds
    if field.field_id not in lower:
        return True
    low, high = (from_bytes(field.field_type, side[field.field_id]) for side in (lower, upper))  # type: ignore[arg-type]
    told = {"eq": low <= where["value"] <= high, "gt-eq": high >= where["value"], "lt-eq": low <= where["value"]}
    return bool(told[where["type"]])
