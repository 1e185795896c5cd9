"""When a commit is refused, unknown or in, as catalog and table tell it; what may be deleted then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any, cast

import attrs
import pytest
from py4j.protocol import Py4JJavaError

from connector.errors import CommitRefused, CommitUnknown, RetriableError
from connector.iceberg.commit.commit_attempts import Ancestors, _AncestryValidator, _CommitAttempts, commit_exactly_once
from connector.iceberg.commit.commit_summary import COMMIT_ID
from connector.settings import ErrorSettings

ERRORS = ErrorSettings("all", "t", -1, 0.1, 1, 5_000, 1)


class _Thrown(Py4JJavaError):
    """What Py4J raises for a Java exception of this name."""

    def __init__(self, name: str) -> None:
        Exception.__init__(self, name)
        self.java_exception = self
        self._name = name

    def __str__(self) -> str:
        return self._name

    def getClass(self) -> _Thrown:  # noqa: N802 - Java's name
        return self

    def getSimpleName(self) -> str:  # noqa: N802 - Java's name
        return self._name

    def getMessage(self) -> str:  # noqa: N802 - Java's name
        return "said by Java"

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
class _Table:
    """A table, and what its catalog says of each try; before each the branch stands at one of `heads`."""

    answers: list[str | None]
    heads: list[int]
    name: str = "d.t"
    errors: ErrorSettings = ERRORS
    deleted: list[str] = attrs.field(factory=list)
    snapshot_id: int = 0
    validator: Any = None
    leftovers: Any = None

    def refresh(self) -> None:
        pass

    def delete_file(self, path: str) -> None:
        self.deleted.append(path)

    def set(self, *_: str) -> _Table:
        self.snapshot_id = self.heads.pop(0) if self.heads else self.snapshot_id
        return self

    def validateWith(self, validator: Any) -> _Table:  # noqa: N802 - Java's name
        self.validator = validator
        return self

    def deleteWith(self, leftovers: Any) -> _Table:  # noqa: N802 - Java's name
        self.leftovers = leftovers
        return self

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
        turn: Any = attrs.field(factory=nullcontext)
        given: list[Any] = attrs.field(factory=list)

        def accept_callbacks(self) -> Any:
            return nullcontext()

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
