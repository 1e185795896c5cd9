"""Offsets of a source's tables, its snapshots on demand <-> the offsets table; a second source is noticed."""

from __future__ import annotations

from collections.abc import Mapping

from connector.errors import CommitRefused, FatalError
from connector.iceberg.state.offset_rows import OffsetRows
from connector.runtime.retry import call_with_retries
from connector.settings import ErrorSettings
from connector.source.snapshots.snapshot_queue import SnapshotQueue
from connector.source.snapshots.table_offset import TableOffset


class TableOffsetStore:
    """The stored offsets of one source, by table name with namespace, and its snapshots on demand."""

    def __init__(self, rows: OffsetRows, name: str, errors: ErrorSettings) -> None:
        """Start with the rows as they were read."""
        self._rows, self._name, self._errors = rows, name, errors
        self._texts = rows.by_table
        self._own = rows.connector_row
        self._queue = SnapshotQueue.parse(self._own)
        self._unconfirmed: dict[str | None, set[str]] = {}
        """Texts by table, those of snapshots on demand by None, that may be stored although nobody said so."""

    @property
    def queue(self) -> SnapshotQueue:
        """The snapshots on demand."""
        return self._queue

    def of(self, table: str) -> TableOffset | None:
        """Return the offset of a table, None when the source has not begun it."""
        text = self._texts.get(table)
        return None if text is None else TableOffset.parse(text)

    def tables(self) -> tuple[str, ...]:
        """Return the tables that have an offset that is not forgotten."""
        return tuple(sorted(name for name, text in self._texts.items() if not TableOffset.parse(text).is_forgotten))

    def put(self, table: str, offset: TableOffset) -> None:
        """Store the offset of a table.

        Retried here and not by the caller, who would publish again what is published already.

        Raises:
            RetriableError: the catalog is away for longer than `errors.retry.timeout`.
            CommitUnknown: nobody could tell for so long whether it is stored.
            FatalError: another process with the same name moved this table.
        """
        self._store(None, {table: offset.json()})

    def check_unmoved(self, table: str) -> None:
        """Read a table's offset again, before something is done that fits this one alone; raises as `put`."""
        call_with_retries(lambda: self._look(table), self._errors)

    def put_queue(self, queue: SnapshotQueue, offsets: Mapping[str, TableOffset] | None = None) -> None:
        """Store the snapshots on demand, and offsets of tables with them, in one commit; raises as `put`."""
        self._store(queue.json(), {table: offset.json() for table, offset in (offsets or {}).items()})
        self._queue = queue

    def _store(self, own: str | None, texts: Mapping[str, str]) -> None:
        given: dict[str | None, str] = {} if own is None else {None: own}
        given.update(texts.items())
        for table, text in given.items():
            self._unconfirmed.setdefault(table, set()).add(text)
        call_with_retries(lambda: self._put(own, texts), self._errors)
        for table in given:
            del self._unconfirmed[table]
        self._texts.update(texts)
        self._own = self._own if own is None else own

    def _look(self, table: str) -> None:
        if self._rows.is_stale():
            self._rows.reload()
        self._check(None, {table: self._texts.get(table, "")})

    def _put(self, own: str | None, texts: Mapping[str, str]) -> None:
        """Store some rows; others' rows may have been stored by others meanwhile, these may not."""
        if self._rows.is_stale():
            self._rows.reload()
            self._check(own, texts)
        try:
            self._rows.put(own, texts)
        except CommitRefused:
            self._rows.reload()
            if not self._check(own, texts):
                raise

    def _check(self, own: str | None, texts: Mapping[str, str]) -> bool:
        """Whether the rows are stored already.

        Raises:
            FatalError: one is neither this text nor one that this process stored before, or may have stored since.
        """
        stored = self._rows.by_table
        texts_of: dict[str | None, tuple[str | None, str | None, str]] = {
            table: (stored.get(table), self._texts.get(table), text) for table, text in texts.items()
        }
        if own is not None:
            texts_of[None] = (self._rows.connector_row, self._own, own)
        for table, (is_present, before, _) in texts_of.items():
            if is_present != before and is_present not in self._unconfirmed.get(table, ()):
                subject = "snapshots on demand" if table is None else f"table {table}"
                raise FatalError(
                    f"{subject}: the stored position is not the one that this process wrote: another source named "
                    f"{self._name} is running; stop it, or give one of them another `name`"
                )
        return all(is_present == text for is_present, _, text in texts_of.values())
