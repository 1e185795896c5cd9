"""Commits of Iceberg's own Spark code, and expiry -> settled by looking, before that code hears of them. On the driver.

Deleting rows, merging files and expiring snapshots are Iceberg's, and it believes the catalog: after a refusal it
deletes what it wrote. It gets a table whose commits go through here. A commit that failed is looked for in the table,
and tried again until catalog and table agree, as in `commit.commit_attempts`; Iceberg hears of a refusal only when
the commit is not in and can land no more, and cleans up rightly then. What stays unknown is told so: nothing is
deleted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import Any, TypeVar

import attrs
from py4j.protocol import Py4JJavaError

from connector.errors import CommitRefused, CommitUnknown, ConnectorError, RetriableError
from connector.iceberg.catalog.table import Table
from connector.iceberg.catalog.table_layout import DATA_PATH_PROPERTY
from connector.iceberg.commit.commit_attempts import CONFLICT_EXCEPTIONS
from connector.iceberg.commit.commit_summary import REMOVED_EQUALITY_DELETES
from connector.iceberg.java import JavaTable, gateway_of, iterate, java_exception_name, jvm, map_java_errors, to_dict
from connector.runtime.retry import call_with_retries

T = TypeVar("T")

JavaMetadata = Any
"""Java's `TableMetadata`."""
_LOCATION_PROVIDER = "write.location-provider.impl"


@attrs.frozen
class SnapshotChange:
    """What a snapshot says of itself.

    Of one that is to be committed, `revives_rows` says that it takes equality deletes away which are newer than data
    files that it adds: rows in these would no longer be deleted.
    """

    operation: str
    summary: Mapping[str, str]
    revives_rows: bool = False


Acceptance = Callable[[SnapshotChange, Sequence[SnapshotChange]], bool]
"""Tells whether a new snapshot may land on those that came since the caller last read the table, newest first."""


@contextmanager
def settle_commits(
    table: Table, doing: str, accepts: Acceptance | None = None, data_path: str | None = None
) -> Iterator[JavaTable]:
    """Return Java's table with commits that are settled; `table` is up to date afterwards.

    Args:
        table: whose table it is.
        doing: what is done to it, for messages.
        accepts: tells whether a new snapshot may be committed; all may by default.
        data_path: where files are written below; the table's own by default.

    Raises:
        CommitUnknown: nobody could tell until `errors.retry.timeout`; nothing was deleted.
        RetriableError: it was refused each time; it is not in, and what was written for it is gone.
        FatalError: the catalog says that the commit is impossible.
    """
    seen = table.snapshot_id
    table.refresh()
    operations = _SettlingOperations(table, doing, accepts, seen, data_path)
    try:
        with table.accept_callbacks():
            yield jvm(table.driver).org.apache.iceberg.BaseTable(operations, str(table.java.name()))
    except Exception as error:
        if operations.failure is not None:
            raise operations.failure from error
        raise
    finally:
        operations.leave_turn()
    table.refresh()
    if (failure := operations.unknown or operations.failure) is not None:
        # Iceberg goes on where it commits in parts.
        raise failure


@attrs.define
class _CommitAttempt:
    """One commit on its way: what it adds and takes away, and whether a try of it was left without an answer."""

    base: JavaMetadata
    made: JavaMetadata
    unanswered: ConnectorError | None = None

    def is_in(self, now: JavaMetadata) -> bool:
        """Tell by snapshots whether the table has it; other changes are harmless when they are made again."""
        before, after, found = _snapshot_ids(self.base), _snapshot_ids(self.made), _snapshot_ids(now)
        added, removed = after - before, before - after
        return bool(added or removed) and added <= found and not removed & found

    def can_land(self, now: JavaMetadata, branch: str) -> bool:
        """Tell whether a try without an answer may still come: each demands the branch where it found it."""
        return self.unanswered is not None and _newest_snapshot_id(self.base, branch) == _newest_snapshot_id(
            now, branch
        )


def _from_java(method: Callable[..., T]) -> Callable[..., T]:
    """Have a method note which thread of Java's calls it: Iceberg's actions call from threads that end with them."""

    @wraps(method)
    def noted(operations: _SettlingOperations, *arguments: Any) -> T:
        operations.table.note_caller()
        return method(operations, *arguments)

    return noted


class _SettlingOperations:
    """Iceberg's `TableOperations`: the table's own, but for `commit`."""

    def __init__(
        self, table: Table, doing: str, accepts: Acceptance | None, seen: int | None, data_path: str | None
    ) -> None:
        self.table, self._doing, self._own = table, doing, table.java.operations()
        self._accepts, self._seen, self._data_path = accepts, seen, data_path
        self._thread, self._has_turn = threading.get_ident(), False
        self.failure: ConnectorError | None = None
        self.unknown: ConnectorError | None = None

    @_from_java
    def commit(self, base: JavaMetadata, metadata: JavaMetadata) -> None:
        """Commit; Java's exception says that it is refused for good, or that nobody knows."""
        one, self.failure = _CommitAttempt(base, metadata), None
        self._check(one)
        try:
            with self.table.turn:
                refusal = call_with_retries(partial(self._attempt, one), self.table.errors)
        except ConnectorError as error:
            raise self._report_unknown(error) from error
        if refusal is not None:
            # Iceberg may try again; where it gives up, its own error seldom says so.
            self.failure = CommitRefused(f"{self._doing}: {refusal.java_exception.getMessage()}")
            self._keep_turn()
            raise refusal

    def _keep_turn(self) -> None:
        """Let others of this process wait: each try makes the commit anew, which takes longer than their next one."""
        # Iceberg commits parts in a thread of its own, which could not leave it.
        if not self._has_turn and threading.get_ident() == self._thread:
            self.table.turn.__enter__()
            self._has_turn = True

    def leave_turn(self) -> None:
        """Let others go on."""
        if self._has_turn:
            self._has_turn = False
            self.table.turn.__exit__(None, None, None)

    def _check(self, one: _CommitAttempt) -> None:
        """Refuse, as Iceberg's own validation does, what is not to be committed: Iceberg then cleans up."""
        if self._accepts is None:
            return
        later = list(self._iter_later(one.base))
        for snapshot in self._iter_made(one):
            change = attrs.evolve(_describe(snapshot), revives_rows=self._revives_rows(snapshot))
            if not self._accepts(change, later):
                refusal = f"{self._doing}: others changed meanwhile which deletes apply to the files"
                self.failure = CommitRefused(refusal)
                java = jvm(self.table.driver)
                raise Py4JJavaError(
                    refusal, java.org.apache.iceberg.exceptions.ValidationException(refusal, self._no_values())
                )

    def _iter_made(self, one: _CommitAttempt) -> Iterator[Any]:
        """Yield the snapshots that a commit adds to the branch; a table may have thousands, and others are faster."""
        at = _newest_snapshot_id(one.made, self.table.branch)
        while at is not None and one.base.snapshot(at) is None:
            snapshot = one.made.snapshot(at)
            yield snapshot
            at = None if snapshot.parentId() is None else int(snapshot.parentId())

    def _iter_later(self, base: JavaMetadata) -> Iterator[SnapshotChange]:
        """Yield what came since the table was last read before, newest first."""
        at = _newest_snapshot_id(base, self.table.branch)
        while at is not None and at != self._seen:
            snapshot = base.snapshot(at)
            if snapshot is None:
                return
            yield _describe(snapshot)
            at = None if snapshot.parentId() is None else int(snapshot.parentId())

    def _revives_rows(self, snapshot: Any) -> bool:
        """Tell whether it takes deletes away that its files still need, which have the number of what they replace.

        Iceberg drops deletes that are older than each file which stays, and does not count those that are added.
        Reads the manifests that it made, where it takes equality deletes away at all.
        """
        if to_dict(snapshot.summary()).get(REMOVED_EQUALITY_DELETES, "0") == "0":
            return False
        changes = jvm(self.table.driver).org.apache.iceberg.SnapshotChanges.builderFor(self.table.java)
        found = changes.snapshot(snapshot).build()
        added = [file.dataSequenceNumber() for file in iterate(found.addedDataFiles())]
        removed_deletes = [
            file.dataSequenceNumber() for file in iterate(found.removedDeleteFiles()) if _is_by_equality(file)
        ]
        oldest = min((int(number) for number in added if number is not None), default=None)
        return oldest is not None and any(number is None or int(number) > oldest for number in removed_deletes)

    def _no_values(self) -> Any:
        """Give Java's empty array of format arguments."""
        driver = self.table.driver
        return gateway_of(driver).new_array(jvm(driver).java.lang.Object, 0)

    def _attempt(self, one: _CommitAttempt) -> Py4JJavaError | None:
        """Return the refusal, None when it is in. Raises RetriableError while neither is known."""
        if one.unanswered is not None and self._is_committed(one):
            return None
        try:
            with map_java_errors(self._doing):
                self._own.commit(one.base, one.made)
        except ConnectorError as error:
            return self._judge(one, error)
        return None

    def _judge(self, one: _CommitAttempt, error: ConnectorError) -> Py4JJavaError | None:
        refused = java_exception_name(error) in CONFLICT_EXCEPTIONS
        if not refused:
            one.unanswered = error
        if self._is_committed(one):
            return None
        cause = error.__cause__
        if refused and isinstance(cause, Py4JJavaError) and not one.can_land(self._own.current(), self.table.branch):
            return cause
        if refused or isinstance(error, CommitUnknown):
            raise RetriableError(str(error)) from cause
        raise error

    def _is_committed(self, one: _CommitAttempt) -> bool:
        with map_java_errors(f"{self._doing}: looking for the commit"):
            return one.is_in(self._own.refresh())

    def _report_unknown(self, error: ConnectorError) -> Py4JJavaError:
        """Say in Java that nobody knows: Iceberg then deletes nothing."""
        self.failure = error
        if isinstance(error, RetriableError):
            self.failure = CommitUnknown(
                f"{error}; whether this commit is in table {self.table.name} could not be determined within "
                "errors.retry.timeout"
            )
        self.unknown = self.failure
        java = jvm(self.table.driver)
        cause = java.java.lang.RuntimeException(str(error))
        unknown = java.org.apache.iceberg.exceptions.CommitStateUnknownException(cause)
        return Py4JJavaError(str(error), unknown)

    @_from_java
    def current(self) -> JavaMetadata:
        """Return the metadata as it was last read."""
        return self._own.current()

    @_from_java
    def refresh(self) -> JavaMetadata:
        """Read the metadata."""
        return self._own.refresh()

    @_from_java
    def io(self) -> Any:
        """Return the table's files."""
        return self._own.io()

    @_from_java
    def encryption(self) -> Any:
        """Return how files are encrypted."""
        return self._own.encryption()

    @_from_java
    def metadataFileLocation(self, name: str) -> str:  # noqa: N802 - Java's name
        """Name a file of metadata."""
        return str(self._own.metadataFileLocation(name))

    @_from_java
    def locationProvider(self) -> Any:  # noqa: N802 - Java's name
        """Return what names data files."""
        metadata = self._own.current()
        if self._data_path is None or metadata.properties().get(_LOCATION_PROVIDER) is not None:
            return self._own.locationProvider()
        java = jvm(self.table.driver)
        properties = java.java.util.HashMap(metadata.properties())
        properties.put(DATA_PATH_PROPERTY, self._data_path)
        return java.org.apache.iceberg.LocationProviders.locationsFor(metadata.location(), properties)

    @_from_java
    def temp(self, metadata: JavaMetadata) -> Any:
        """Return operations on metadata that nobody commits."""
        return self._own.temp(metadata)

    @_from_java
    def newSnapshotId(self) -> int:  # noqa: N802 - Java's name
        """Draw a snapshot's id."""
        return int(self._own.newSnapshotId())

    @_from_java
    def requireStrictCleanup(self) -> bool:  # noqa: N802 - Java's name
        """Let Iceberg clean up only where an exception says that it may."""
        return True

    class Java:
        """Which Java interface this object stands for (Py4J's convention)."""

        implements = ("org.apache.iceberg.TableOperations",)


def _describe(snapshot: Any) -> SnapshotChange:
    return SnapshotChange(str(snapshot.operation()), to_dict(snapshot.summary()))


def _is_by_equality(file: Any) -> bool:
    return str(file.content()) == "EQUALITY_DELETES"


def _snapshot_ids(metadata: JavaMetadata) -> set[int]:
    return {int(one.snapshotId()) for one in iterate(metadata.snapshots())}


def _newest_snapshot_id(metadata: JavaMetadata, branch: str) -> int | None:
    found = metadata.ref(branch)
    return None if found is None else int(found.snapshotId())
