"""Offsets of a source's tables <-> the offsets table; a second source with the same name is noticed."""

from __future__ import annotations

from connector.errors import CommitRefused, FatalError
from connector.iceberg.state.offset_rows import OffsetRows
from connector.runtime.retry import call_with_retries
from connector.settings import ErrorSettings
from connector.source.snapshots.table_offset import TableOffset


class TableOffsetStore:
    """The stored offsets of one source, by table name with namespace."""

    def __init__(self, rows: OffsetRows, name: str, errors: ErrorSettings) -> None:
        """Start with the rows as they were read."""
        self._rows, self._name, self._errors = rows, name, errors
        self._texts = rows.by_table

    def of(self, table: str) -> TableOffset | None:
        """Return the offset of a table, None when the source has not begun it."""
        text = self._texts.get(table)
        return None if text is None else TableOffset.parse(text)

    def tables(self) -> tuple[str, ...]:
        """Return the tables that have an offset."""
        return tuple(sorted(self._texts))

    def put(self, table: str, offset: TableOffset) -> None:
        """Store the offset of a table.

        Retried here and not by the caller, who would publish again what is published already.

        Raises:
            RetriableError: the catalog is away for longer than `errors.retry.timeout`.
            CommitUnknown: nobody could tell for so long whether it is stored.
            FatalError: another process with the same name moved this table.
        """
        text = offset.json()
        call_with_retries(lambda: self._put(table, text), self._errors)
        self._texts[table] = text

    def _put(self, table: str, text: str) -> None:
        """Store one row; other tables' rows may have been stored by others meanwhile, this one's may not."""
        if self._rows.is_stale():
            self._rows.reload()
            self._check(table, text)
        try:
            self._rows.put(None, {table: text})
        except CommitRefused:
            self._rows.reload()
            if not self._check(table, text):
                raise

    def _check(self, table: str, text: str) -> bool:
        """Whether the row is stored already.

        Raises:
            FatalError: it is neither this text nor the one that this process stored before.
        """
        found = self._rows.by_table.get(table)
        if found not in (text, self._texts.get(table)):
            raise FatalError(
                f"table {table}: its stored position is not the one that this process wrote: another source named "
                f"{self._name} is running; stop it, or give one of them another `name`"
            )
        return found == text
