"""One commit -> in the table, or refused for good: tried and looked for until catalog and table agree. On the driver.

A catalog may land a commit without saying so, land it after its client has given up, and call one refused that a retry
of its own landed. So no word of it alone decides: after every failure the table itself is read again. A commit that is
not there is tried again with the same files under the same id. Each try demands, as Iceberg does in every catalog, that
the branch is where the try found it; whichever lands first moves the branch, and the others can land no more. While an
unanswered try may still land nothing is deleted, neither files of ours nor manifests, which Iceberg itself would clean
up after a refusal (docs/decisions/0026).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain, tee
from typing import Any

import structlog

from connector.errors import CommitRefused, CommitUnknown, ConnectorError, GapError, RetriableError
from connector.iceberg.catalog.table import Table
from connector.iceberg.commit.commit_summary import COMMIT_ID, LOST_COMMIT_REMEDY
from connector.iceberg.java import iterate, java_exception_name, map_java_errors
from connector.runtime.retry import call_with_retries

CONFLICT_EXCEPTIONS = ("CommitFailedException", "ValidationException")
"""Java's exceptions by which the catalog, or Iceberg before it asked, says that a commit is not to be."""
_BASE_IS_GONE = "is not an ancestor of"
"""How Iceberg says that it cannot look for conflicts: the snapshot that a commit was made of has expired, or the table
was rolled back. What is made of the table as it is now finds which."""

Ancestors = Iterable[Any]
"""Java's snapshots that a commit would land on, newest first."""


def commit_exactly_once(
    table: Table,
    commit_id: str,
    update: Callable[[], Any],
    rule: Callable[[Ancestors], bool] | None = None,
    *,
    few_manifests: bool = False,
) -> None:
    """Bring one snapshot into a table, exactly once.

    Args:
        table: up to date afterwards.
        commit_id: goes into the snapshot's summary; no other commit has it.
        update: makes Iceberg's `SnapshotUpdate` of the table as it is; called for each try.
        rule: whether the snapshots found let the commit in. Those that came since the first try must not have it,
            whatever the rule says.
        few_manifests: whether few of the table's are read for it, as where no file is removed: then they are read in
            this thread. Iceberg waits for threads of its own by sleeping, 10 ms or more for each of several steps.

    Raises:
        CommitRefused: it is in no snapshot and cannot land any more; its files may be deleted. The cause is Java's.
        CommitUnknown: nobody could tell until `errors.retry.timeout`; its files must stay.
        RetriableError: the catalog stayed away before anything was sent.
        GapError: it landed, and the table was rolled back since.
        FatalError: the commit is impossible.
    """
    with table.turn, table.accept_callbacks():
        make = (lambda: _keep_in_thread(table, update())) if few_manifests else update
        _CommitAttempts(table, commit_id, make, rule).settle()


def _keep_in_thread(table: Table, update: Any) -> Any:
    own = table.own_thread
    return update.scanManifestsWith(own).writeManifestsWith(own, 1)


class _CommitAttempts:
    def __init__(
        self,
        table: Table,
        commit_id: str,
        update: Callable[[], Any],
        rule: Callable[[Ancestors], bool] | None,
    ) -> None:
        self._table, self._id, self._make = table, commit_id, update
        self._ancestry = _AncestryValidator(commit_id, rule)
        self._leftovers = _OrphanedFiles()
        self._unanswered: set[int | None] = set()

    def settle(self) -> None:
        """Try and look until it is known what became of the commit."""
        try:
            refusal = call_with_retries(self._attempt, self._table.errors)
        except RetriableError as error:
            if not self._unanswered:
                raise
            raise CommitUnknown(
                f"{error}; whether this commit is in table {self._table.name} could not be determined within "
                "errors.retry.timeout: its files are left as they are, and the next start reads the table again"
            ) from error
        if refusal is not None:
            raise refusal

    def _attempt(self) -> CommitRefused | None:
        """Return the refusal, None when it is in. Raises RetriableError while neither is known."""
        if self._unanswered and self._is_committed():
            return None
        try:
            self._table.refresh()
            with map_java_errors(f"committing to table {self._table.name}"):
                update = self._make().set(COMMIT_ID, self._id)
                update.validateWith(self._ancestry).deleteWith(self._leftovers).commit()
                # Iceberg only logs it where it cannot load the table behind a commit: then this tries again.
                _ = self._table.snapshot_id
        except ConnectorError as error:
            return self._judge(error)
        if self._leftovers and not self._has_landed_before():
            self._leftovers.delete(self._table)
        return None

    def _has_landed_before(self) -> bool:
        """Tell whether another try of this commit is in the table's snapshots, which needs its manifests.

        A catalog may call refused what it has landed. Where the table is rolled back then, Iceberg finds nothing of it.
        """
        return sum(one.summary.get(COMMIT_ID) == self._id for one in self._table.list_snapshots().values()) > 1

    def _judge(self, error: ConnectorError) -> CommitRefused | None:
        refused = is_refusal(error)
        if self._ancestry.asked and not refused:
            self._unanswered.add(self._ancestry.base)
        if self._ancestry.asked and self._is_committed():
            return None
        if refused and self._table.snapshot_id not in self._unanswered:
            self._leftovers.delete(self._table)
            refusal = error if isinstance(error, CommitRefused) else CommitRefused(str(error))
            refusal.__cause__ = error.__cause__
            return refusal
        if refused or isinstance(error, CommitUnknown):
            raise RetriableError(str(error)) from error.__cause__
        raise error

    def _is_committed(self) -> bool:
        """Read the table again, and look for the commit in all of its snapshots."""
        table = self._table
        table.refresh()
        snapshots = table.list_snapshots()
        ours = {at for at, snapshot in snapshots.items() if snapshot.summary.get(COMMIT_ID) == self._id}
        at = table.snapshot_id
        while at is not None and at not in ours:
            at = snapshots[at].parent_id if at in snapshots else None
        if ours and at is None:
            raise GapError(
                f"table {table.name} was rolled back while a commit to it was on its way: snapshot {ours.pop()} is no "
                f"ancestor of the newest one; {LOST_COMMIT_REMEDY}"
            )
        return at is not None


def is_refusal(error: ConnectorError) -> bool:
    """Tell whether another writer was faster: what was made for the table has to be made anew."""
    if isinstance(error, CommitRefused) or java_exception_name(error) in CONFLICT_EXCEPTIONS:
        return True
    return java_exception_name(error) == "IllegalArgumentException" and _BASE_IS_GONE in str(error)


class _AncestryValidator:
    """Iceberg's `SnapshotAncestryValidator`; `asked` once a commit got so far, `base` is what the last try is based on.

    Where Iceberg itself tries again after a refusal that was none, it meets the commit here.
    """

    def __init__(self, commit_id: str, rule: Callable[[Ancestors], bool] | None) -> None:
        self._commit_id, self._rule = commit_id, rule
        self.asked = False
        self.base: int | None = None
        self._first: int | None = None

    def validate(self, ancestors: Any) -> bool:
        """Look at the snapshots that the commit would land on, newest first."""
        found = iterate(ancestors)
        newest = next(found, None)
        self.base = None if newest is None else int(newest.snapshotId())
        if not self.asked:
            self.asked, self._first = True, self.base
        every, again = tee(found if newest is None else chain((newest,), found))
        return self._is_new(every) and (self._rule is None or self._rule(again))

    def _is_new(self, ancestors: Iterator[Any]) -> bool:
        for snapshot in ancestors:
            if int(snapshot.snapshotId()) == self._first:
                return True
            if snapshot.summary().get(COMMIT_ID) == self._commit_id:
                return False
        return True

    def errorMessage(self) -> str:  # noqa: N802 - Java's name
        """Tell what a refusal means."""
        return "another commit came first: one of this connector, or a rewrite of files that has to be looked at"

    class Java:
        """Which Java interface this object stands for (Py4J's convention)."""

        implements = ("org.apache.iceberg.SnapshotAncestryValidator",)


class _OrphanedFiles:
    """Java's `Consumer` of paths: manifests that Iceberg takes for needless, until it is known."""

    def __init__(self) -> None:
        self._paths: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._paths)

    def accept(self, path: Any) -> None:
        """Take note of a file that Iceberg would delete."""
        self._paths.append(str(path))

    def delete(self, table: Table) -> None:
        """Delete what no snapshot has, and none can get; what cannot be deleted is an orphan, and harmless."""
        paths, self._paths = self._paths, []
        for path in dict.fromkeys(paths):
            try:
                table.delete_file(path)
            except ConnectorError as error:
                structlog.get_logger().warning("a file is left behind", reason=str(error))

    class Java:
        """Which Java interface this object stands for (Py4J's convention)."""

        implements = ("java.util.function.Consumer",)
