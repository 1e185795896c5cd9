"""A lease of a table's maintenance <-> a row of the offsets table, renewed while work continues. On the driver."""

from __future__ import annotations

import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import attrs
import structlog

from connector.errors import CommitRefused, ConnectorError
from connector.iceberg.catalog.catalog import Catalog
from connector.iceberg.state.offset_rows import MAINTAINER, OffsetRows
from connector.maintenance.file_counts import FileCounts
from connector.maintenance.lease_rules import LEASE_MS, Lease, UnfinishedRun

_ROWS_NAME = "_maintenance"
"""The connector by whose name leases are stored."""

_ATTEMPTS = 3


def owner_name() -> str:
    """Return a name for this process that no other has."""
    return f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


@attrs.define(eq=False)
class MaintenanceRun:
    """A run under a table's lease.

    `name` is part of the paths of its files; `left` are unfinished runs before it. Whoever does it says whether it has
    `failed`, whether it `is_alone`: the connector commits nothing to the table meanwhile; and what it has counted.
    """

    name: str
    left: tuple[UnfinishedRun, ...]
    _now_ms: Callable[[], int]
    until_ms: int
    failed: bool = False
    is_alone: bool = False
    counts: FileCounts | None = None

    def is_held(self) -> bool:
        """Tell whether the lease lasts: without it nothing may be committed, as another may remove the run's files."""
        return self._now_ms() < self.until_ms


@attrs.define(eq=False)
class LeaseTable:
    """The leases of one process, which has a name that no other has."""

    _rows: OffsetRows
    _owner: str
    _now_ms: Callable[[], int]
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    @staticmethod
    def open(catalog: Catalog, offsets_table: str, owner: str) -> LeaseTable:
        """Open the rows.

        Raises:
            RetriableError: the catalog is away.
        """
        rows = OffsetRows(catalog, offsets_table, _ROWS_NAME, MAINTAINER)
        return LeaseTable(rows, owner, lambda: time.time_ns() // 1_000_000)

    def read(self, table: str) -> Lease:
        """Return a table's lease as it is stored now."""
        with self._lock:
            if self._rows.is_stale():
                self._rows.reload()
            return Lease.parse(self._rows.by_table.get(table))

    def recall(self, table: str) -> Lease:
        """Return a table's lease as it was last read or stored here; asks nobody."""
        with self._lock:
            return Lease.parse(self._rows.by_table.get(table))

    def take(self, table: str, run: str = "") -> bool:
        """Take a table's lease for a run; tell whether this process has it.

        Raises:
            RetriableError, CommitUnknown: the catalog is away.
        """
        return self._change(table, lambda lease: lease.take(self._owner, self._now_ms(), run))

    def release(
        self, table: str, run: str | None = None, *, failed: bool = False, counts: FileCounts | None = None
    ) -> None:
        """Give a table's lease back, if it is still that of the run; where that fails it ends by itself."""
        try:
            self._change(table, lambda lease: lease.release(failed=failed, counts=counts), run)
        except ConnectorError as error:
            structlog.get_logger().warning(
                "a lease could not be released, and expires by itself", table=table, reason=str(error)
            )

    def hand_over(self, table: str, task: str) -> None:
        """Ask the sink to do a task of a table."""
        self._change(table, lambda lease: attrs.evolve(lease, handed=tuple(sorted({*lease.handed, task}))))

    def accept(self, table: str, task: str) -> None:
        """Note that a task that was handed over is done."""
        if task in self.read(table).handed:
            left = [name for name in self.read(table).handed if name != task]
            self._change(table, lambda lease: attrs.evolve(lease, handed=tuple(left)))

    def forget_runs(self, table: str, runs: Collection[str]) -> None:
        """Note that the files of unfinished runs are removed."""
        self._change(table, lambda lease: lease.without(runs))

    @contextmanager
    def hold(self, table: str) -> Iterator[MaintenanceRun | None]:
        """Hold a table's lease for a run meanwhile, if it is free; gives the run, None where it is not held."""
        name, until_ms = uuid.uuid4().hex[:12], self._now_ms() + LEASE_MS
        if not self.take(table, name):
            yield None
            return
        run = MaintenanceRun(name, self.read(table).left, self._now_ms, until_ms)
        stop = threading.Event()
        renewing = threading.Thread(target=self._renew, args=(table, run, stop), daemon=True)
        renewing.start()
        try:
            yield run
        except BaseException:
            run.failed = True
            raise
        finally:
            stop.set()
            renewing.join()
            self.release(table, name, failed=run.failed, counts=run.counts)

    def _renew(self, table: str, run: MaintenanceRun, stop: threading.Event) -> None:
        while not stop.wait(LEASE_MS / 3000):
            until_ms = self._now_ms() + LEASE_MS
            try:
                if self._change(table, lambda lease: lease.renew(self._owner, self._now_ms()), run.name):
                    run.until_ms = until_ms
            except ConnectorError as error:
                structlog.get_logger().warning("a lease could not be renewed", table=table, reason=str(error))

    def _change(self, table: str, change: Callable[[Lease], Lease], run: str | None = None) -> bool:
        """Store a changed lease if it is free for this process, and still that of a run where one is named."""
        with self._lock:
            for left in reversed(range(_ATTEMPTS)):
                if self._rows.is_stale():
                    self._rows.reload()
                lease = Lease.parse(self._rows.by_table.get(table))
                if not lease.is_free(self._owner, self._now_ms()) or run not in (None, lease.run):
                    return False
                try:
                    self._rows.put(None, {table: change(lease).json()})
                except CommitRefused:
                    self._rows.reload()
                    if not left:
                        raise
                else:
                    return True
        return False
