"""When a commit is refused, unknown or in, as catalog and table tell it; what may be deleted then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, Self, cast

import attrs
import pytest
from py4j.protocol import Py4JJavaError

from connector.errors import CommitRefused, CommitUnknown, GapError, RetriableError
from connector.iceberg.catalog.table import SnapshotEntry
from connector.iceberg.commit.commit_attempts import Ancestors, _AncestryValidator, _CommitAttempts, commit_exactly_once
from connector.iceberg.commit.commit_summary import COMMIT_ID
from connector.settings import ErrorSettings

ERRORS = ErrorSettings("all", "t", -1, 0.1, 1, 5_000, 1)


class _Thrown(Py4JJavaError):
    """What Py4J raises for a Java exception of this name; a message may follow it behind a colon."""

    def __init__(self, told: str) -> None:
        Exception.__init__(self, told)
        self.java_exception = self
        self._name, _, self._message = told.partition(": ")

    def __str__(self) -> str:
        return self._name

    def getClass(self) -> _Thrown:  # noqa: N802 - Java's name
        return self

    def getSimpleName(self) -> str:  # noqa: N802 - Java's name
        return self._name

    def getMessage(self) -> str:  # noqa: N802 - Java's name
        return self._message or "said by Java"

    def getCause(self) -> None:  # noqa: N802 - Java's name
        return None


@attrs.define(slots=False)
class _Snapshot:
    number: int
    commit_id: str = "another"

    def snapshotId(self) -> int:  # noqa: N802 - Java's name
        return self.number

    def summary(self) -> dict[str, str]:
        return {COMMIT_ID: self.commit_id}


@attrs.define(slots=False)
class _Snapshots:
    left: list[_Snapshot]

    def iterator(self) -> _Snapshots:
        return self

    def hasNext(self) -> bool:  # noqa: N802 - Java's name
        return bool(self.left)

    def next(self) -> _Snapshot:
        return self.left.pop(0)


@attrs.define(slots=False)
class _JavaTable:
    """What a table, and an update of it, are to a commit; what its catalog does to each try is its subclasses' own."""

    name: str = attrs.field(default="d.t", kw_only=True)
    errors: ErrorSettings = attrs.field(default=ERRORS, kw_only=True)
    turn: Any = attrs.field(factory=nullcontext, kw_only=True)
    deleted: list[str] = attrs.field(factory=list, init=False)
    said: dict[str, str] = attrs.field(factory=dict, init=False)
    validator: Any = attrs.field(default=None, init=False)
    leftovers: Any = attrs.field(default=None, init=False)

    def accept_callbacks(self) -> Any:
        return nullcontext()

    def refresh(self) -> None:
        pass

    def delete_file(self, path: str) -> None:
        self.deleted.append(path)

    def set(self, name: str, value: str) -> Self:
        self.said[name] = value
        return self

    def validateWith(self, validator: Any) -> Self:  # noqa: N802 - Java's name
        self.validator = validator
        return self

    def deleteWith(self, leftovers: Any) -> Self:  # noqa: N802 - Java's name
        self.leftovers = leftovers
        return self


@attrs.define(slots=False)
class _Table(_JavaTable):
    """A table, and what its catalog says of each try; before each the branch stands at one of `heads`."""

    answers: list[str | None]
    heads: list[int]
    snapshot_id: int = 0

    def set(self, name: str, value: str) -> Self:
        self.snapshot_id = self.heads.pop(0) if self.heads else self.snapshot_id
        return super().set(name, value)

    def commit(self) -> None:
        assert self.validator.validate(_Snapshots([_Snapshot(self.snapshot_id)]))
        answer = self.answers.pop(0)
        if answer is not None:
            if answer == "CommitFailedException":
                self.leftovers.accept(f"manifest-{len(self.answers)}")
            raise _Thrown(answer)


def _attempts(table: _Table, found: Iterator[bool]) -> _CommitAttempts:
    made = _CommitAttempts(table, "id", lambda: table, None)  # type: ignore[arg-type, return-value]
    made._is_committed = lambda: next(found)  # type: ignore[method-assign]
    return made


def _never() -> Iterator[bool]:
    while True:
        yield False


def test_few_manifests_are_read_and_written_by_the_thread_that_commits() -> None:
    """Iceberg's own threads, for which it sleeps, are left to commits that have to read many."""

    @attrs.define(slots=False)
    class Watched(_Table):
        own_thread: str = "own"
        given: list[Any] = attrs.field(factory=list)

        def scanManifestsWith(self, executor: Any) -> Any:  # noqa: N802 - Java's name
            self.given.append(executor)
            return self

        def writeManifestsWith(self, executor: Any, threads: int) -> Any:  # noqa: N802 - Java's name
            self.given.append((executor, threads))
            return self

    for few, given in ((True, ["own", ("own", 1)]), (False, [])):
        table = Watched([None], [1])
        commit_exactly_once(cast("Any", table), "id", lambda table=table: table, few_manifests=few)  # type: ignore[misc]
        assert (table.answers, table.given) == ([], given)


def test_a_refusal_counts_when_no_other_try_may_land() -> None:
    """A conflict is said while an unanswered try could still land on the same snapshot: nothing is deleted before the
    branch has moved on without it.
    """
    table = _Table(["RESTException", "CommitFailedException", "CommitFailedException"], [1, 1, 2])
    with pytest.raises(CommitRefused):
        _attempts(table, _never()).settle()
    assert table.answers == []
    assert table.deleted == ["manifest-1", "manifest-0"]


def test_a_commit_whose_base_has_expired_is_refused_at_once() -> None:
    """Iceberg cannot look for conflicts since a snapshot that is gone: no later try of the same commit could."""
    table = _Table([], [1, 1, 1])
    gone = "IllegalArgumentException: Snapshot 7 is not an ancestor of 8"
    table.validateWith = lambda _: (_ for _ in ()).throw(_Thrown(gone))  # type: ignore[method-assign]
    with pytest.raises(CommitRefused, match="not an ancestor"):
        _attempts(table, _never()).settle()
    assert table.heads == [1, 1]


@pytest.mark.parametrize("rule", [None, lambda ancestors: len(list(ancestors)) > 0], ids=["no rule", "a rule"])
def test_a_commit_does_not_land_on_itself(rule: Callable[[Ancestors], bool] | None) -> None:
    """A try that the catalog lands late, after it was looked for, keeps the next one out, whatever the rule says."""
    validator = _AncestryValidator("id", rule)
    assert validator.validate(_Snapshots([_Snapshot(1)]))
    assert validator.validate(_Snapshots([_Snapshot(2), _Snapshot(1)]))
    assert not validator.validate(_Snapshots([_Snapshot(3), _Snapshot(2, "id"), _Snapshot(1)]))


def test_a_refusal_of_what_landed_deletes_nothing() -> None:
    """Iceberg would take away the manifests of a commit that it was told was refused; it is in the table."""
    table = _Table(["CommitFailedException"], [1])
    _attempts(table, iter([True])).settle()
    assert table.deleted == []


@pytest.mark.parametrize(("others", "deleted"), [([], ["manifest"]), ([7], ["manifest"]), ([8], [])])
def test_manifests_of_a_try_that_landed_and_was_rolled_back_stay(others: list[int], deleted: list[str]) -> None:
    """The catalog called it refused, and Iceberg made another: snapshot 8 is in the table, which may go back to it."""
    snapshots = {7: SnapshotEntry(None, {COMMIT_ID: "another"}), 8: SnapshotEntry(7, {COMMIT_ID: "id"})}

    @attrs.define(slots=False)
    class Retried(_Table):
        def commit(self) -> None:
            super().commit()
            self.leftovers.accept("manifest")

        def list_snapshots(self) -> dict[int, SnapshotEntry]:
            return {one: snapshots[one] for one in others} | {9: SnapshotEntry(7, {COMMIT_ID: "id"})}

    table = Retried([None], [7])
    _attempts(table, _never()).settle()
    assert table.deleted == deleted


def test_what_nobody_answers_ends_as_unknown() -> None:
    """After `errors.retry.timeout` nobody knows, and nothing is deleted; where nothing was sent, that is known."""
    short = attrs.evolve(ERRORS, retry_timeout_ms=1)
    table = _Table(["CommitStateUnknownException"] * 9, [1], errors=short)
    with pytest.raises(CommitUnknown, match="left as they are"):
        _attempts(table, _never()).settle()
    assert table.deleted == []
    unsent = _Table([], [1], errors=short)
    unsent.validateWith = lambda _: (_ for _ in ()).throw(_Thrown("RESTException"))  # type: ignore[method-assign]
    with pytest.raises(RetriableError) as caught:
        _attempts(unsent, _never()).settle()
    assert not isinstance(caught.value, CommitRefused)


@attrs.define(slots=False)
class _Found:
    """A table as it is found after a try: its newest snapshot, and all of any branch."""

    snapshot_id: int | None
    snapshots: dict[int, SnapshotEntry]
    name: str = "d.t"
    refreshed: bool = False

    def refresh(self) -> None:
        self.refreshed = True

    def list_snapshots(self) -> dict[int, SnapshotEntry]:
        assert self.refreshed
        return self.snapshots


def _line(**commits: str) -> dict[int, SnapshotEntry]:
    """Snapshots of these commits, each upon the one before; the first names a parent that has expired."""
    return {
        number: SnapshotEntry(number - 1, {COMMIT_ID: commit, "operation": "append"})
        for number, commit in enumerate(commits.values(), 1)
    }


@pytest.mark.parametrize(
    ("table", "there"),
    [
        (_Found(3, _line(a="x", b="y", c="id")), True),
        (_Found(3, _line(a="x", b="id", c="y")), True),
        (_Found(3, _line(a="id", b="x", c="y")), True),
        (_Found(2, _line(a="x", b="y")), False),
        (_Found(1, {1: SnapshotEntry(None, {})}), False),
        (_Found(None, {}), False),
    ],
)
def test_a_commit_is_looked_for_in_what_the_table_has_by_now(table: _Found, there: bool) -> None:
    """It is in if the newest snapshot or any of its ancestors has its id; older ones may have expired."""
    assert _CommitAttempts(cast("Any", table), "id", lambda: None, None)._is_committed() is there


@pytest.mark.parametrize("newest", [None, 1])
def test_a_commit_that_was_rolled_back_meanwhile_stops(newest: int | None) -> None:
    """A snapshot that has it, and is no ancestor of the newest one, is neither in nor to be made once more."""
    table = _Found(newest, _line(a="x", b="id"))
    with pytest.raises(
        GapError, match=r"^table d\.t was rolled back .*: snapshot 2 is no ancestor of the newest one; "
    ):
        _CommitAttempts(cast("Any", table), "id", lambda: None, None)._is_committed()


@attrs.define(slots=False)
class _Branch(_JavaTable):
    """A table whose branch has snapshots of these commits, and what its catalog does to each try: lands it, answers."""

    line: list[str]
    tries: list[tuple[bool, str | None]]
    late: bool = False
    unread: bool = False

    def refresh(self) -> None:
        self.unread = False

    @property
    def snapshot_id(self) -> int | None:
        if self.unread:
            raise RetriableError("the metadata file is away")
        return len(self.line) or None

    def list_snapshots(self) -> dict[int, SnapshotEntry]:
        return _line(**{str(at): commit for at, commit in enumerate(self.line)})

    def commit(self) -> None:
        if self.late and not self.tries[1:]:
            self.line.append("id")  # the try before this one arrives only now
        self.leftovers.accept(f"manifest-{len(self.line)}")
        ancestors = [_Snapshot(at, commit) for at, commit in enumerate(self.line, 1)]
        if not self.validator.validate(_Snapshots(ancestors[::-1])):
            raise _Thrown("ValidationException")
        lands, answer = self.tries.pop(0)
        if lands:
            self.line.append(self.said[COMMIT_ID])
        self.unread = answer == "unread"
        if answer not in {None, "unread"}:
            raise _Thrown(str(answer))


UNKNOWN = "CommitStateUnknownException"


@pytest.mark.parametrize(
    ("tries", "late", "deleted"),
    [
        ([(True, None)], False, ["manifest-1"]),
        ([(True, UNKNOWN)], False, []),  # its answer was lost
        ([(True, "unread")], False, []),  # Iceberg cannot read the table behind it, and only logs that
        ([(True, "CommitFailedException")], False, []),  # the catalog refused a retry of its own
        ([(False, UNKNOWN), (True, None)], False, ["manifest-1"]),
        ([(False, UNKNOWN), (False, "CommitFailedException"), (True, None)], False, ["manifest-1"]),
        ([(False, UNKNOWN), (True, None)], True, []),  # the first lands when nobody expects it
    ],
)
def test_a_commit_is_in_once_whatever_its_catalog_says(
    tries: list[tuple[bool, str | None]], late: bool, deleted: list[str]
) -> None:
    """One snapshot has its id in the end; what Iceberg takes for needless is deleted where a try is known to be in."""
    table = _Branch(["x"], tries, late)
    commit_exactly_once(cast("Any", table), "id", lambda: table, lambda _: True)
    assert (table.line, table.snapshot_id, table.deleted) == (["x", "id"], 2, deleted)


def test_the_first_commit_to_a_table() -> None:
    """A branch without a snapshot lets a commit in, also where its answer is lost at first."""
    table = _Branch([], [(False, UNKNOWN), (True, None)])
    commit_exactly_once(cast("Any", table), "id", lambda: table, lambda found: not list(found))
    assert table.line == ["id"]


def test_a_rule_keeps_a_commit_out() -> None:
    """What the snapshots since do not let in is refused, and its files may go."""
    table = _Branch(["x", "y"], [(True, None)])
    with pytest.raises(CommitRefused, match=r"^committing to table d\.t: ") as caught:
        commit_exactly_once(cast("Any", table), "id", lambda: table, lambda found: len(list(found)) == 3)
    assert isinstance(caught.value.__cause__, _Thrown)
    assert (table.line, table.deleted) == (["x", "y"], ["manifest-2"])
    commit_exactly_once(cast("Any", table), "id", lambda: table, lambda found: len(list(found)) == 2)
    assert (table.line, table.deleted) == (["x", "y", "id"], ["manifest-2", "manifest-2"])
