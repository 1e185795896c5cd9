"""The tables of a source -> one step of each table that is due, round after round, until stopped.

Each table has its own offset and its own retries: none holds up the others.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Protocol

import attrs
import structlog

from connector.errors import CommitUnknown, ConnectorError, FatalError, RetriableError
from connector.iceberg.catalog.snapshots import NoBranchError
from connector.runtime.lifecycle import describe_error
from connector.runtime.retry import call_with_retries
from connector.runtime.stop_flag import StopFlag
from connector.settings import SourceSettings
from connector.source.destination import ChangePublisher, PublishTarget
from connector.source.snapshots.discovery import DiscoveredTables, missing_table
from connector.source.snapshots.next_step import SnapshotMode
from connector.source.snapshots.table_history import TableGoneError
from connector.source.snapshots.table_schedule import TableSchedule, after_failure, after_success, wait_for_due

DISCOVERY_S = 10.0
"""How often new tables, and named ones that are missing, are looked for, in seconds.

The tables that are known are polled by `poll.interval.ms`, each by itself.
"""
_LOOK_S = 1.0
"""So long a source rests at a time, whatever `poll.interval.ms`: signals, heartbeats and new tables wait no longer."""
_MISSING_AGAIN = "a table that was published before is gone, another one of its name is waited for"


class PolledTable(Protocol):
    """What the loop polls (`table_capture.TableCapture`)."""

    def step(self, *, pinned: bool) -> bool:
        """Do the next thing there is to do; return False when there is nothing."""

    def abandon(self) -> None:
        """Take note that there will be no more steps, because of an error."""


class Signals(Protocol):
    """What users ask for (`signals.processor.SignalProcessor`)."""

    def poll(self, tables: Collection[str]) -> bool:
        """Follow the signals that wait; return whether there may be more at once."""

    def close(self) -> None:
        """Let go of connections."""


@attrs.define(eq=False)
class PollLoop:
    """Polls the tables of a source; `run` returns when it is stopped.

    `find_tables` returns the tables that there are or should be, `open_table` opens one of them, None where it is not
    there; both are calls to the catalog. `beat` is called before each step and while the loop waits, `on_round` after
    every round. `stored_tables` returns those that have a stored offset, `find_in_other_case` the table whose name
    differs from a missing one's by the case of its letters alone: a call to the catalog, once for each. `on_stop` hears
    why a table gets no more steps in this run, and with no reason that its turns begin.
    """

    settings: SourceSettings
    find_tables: Callable[[], DiscoveredTables]
    open_table: Callable[[tuple[str, ...], str], PolledTable | None]
    publisher: ChangePublisher
    signals: Signals | None = None
    beat: Callable[[], None] = lambda: None
    on_round: Callable[[], None] = lambda: None
    stored_tables: Callable[[], Collection[str]] = tuple
    find_in_other_case: Callable[[tuple[str, ...], str], str | None] = lambda _namespace, _name: None
    on_stop: Callable[[str, str], None] = lambda _name, _reason: None
    _missing: set[str] = attrs.field(factory=set)
    _branchless: set[str] = attrs.field(factory=set)
    _names: DiscoveredTables = attrs.field(factory=dict)
    _captures: dict[str, PolledTable] = attrs.field(factory=dict)
    _schedules: dict[str, TableSchedule] = attrs.field(factory=dict)
    _owners: dict[PublishTarget, str] = attrs.field(factory=dict)
    _discovered_at: float | None = None
    _heartbeat_at: float = 0.0
    _stopping: StopFlag = attrs.field(factory=StopFlag)

    def stop(self) -> None:
        """Finish the current snapshot or part, then leave; safe to call from a signal handler."""
        self._stopping.set()

    def run(self, *, once: bool) -> None:
        """Publish until stopped; with `once`, up to the snapshots that the tables have when they are opened.

        Raises:
            ConnectorError: what ended the tables that failed, after the others went on (with `once`: to their end).
        """
        # Opened again: a table that is run to its snapshot of now is not run to that of an earlier run.
        self._captures.clear()
        try:
            self._run(once=once)
        finally:
            if self.signals is not None:
                self.signals.close()
        self._raise_failures()

    def _run(self, *, once: bool) -> None:
        while not self._stopping.is_set():
            self.beat()
            self._discover()
            signalled = self._follow_signals()
            worked = self._poll_all(once=once) or signalled
            self.on_round()
            self._heartbeat()
            if once and not worked and not self._is_waiting():
                break
            if self._schedules and all(schedule.failed for schedule in self._schedules.values()):
                break
            if not worked:
                self._stopping.wait(self._rest_s())

    def _rest_s(self) -> float:
        """Return how long there is nothing to do: no table is due, nor what has an interval of its own."""
        now, capture, every_ms = time.monotonic(), self.settings.capture, self.settings.outgoing.heartbeat_ms
        waits = [_LOOK_S, capture.poll_interval_ms / 1000]
        if self.signals is not None:
            waits.append(self.settings.signals.poll_interval_ms / 1000)
        if every_ms:
            waits.append(self._heartbeat_at + every_ms / 1000 - now)
        return wait_for_due(self._schedules.values(), now, min(waits))

    def _follow_signals(self) -> bool:
        """Follow what users ask for; what cannot be stored now is asked again in the next round."""
        if self.signals is None:
            return False
        try:
            followed = self.signals.poll(self._names.keys())
        except (RetriableError, CommitUnknown) as error:
            structlog.get_logger().warning("signals have to wait", reason=str(error))
            return False
        if followed:
            # A table that rests until its next poll may have been asked for.
            resting = [name for name, one in self._schedules.items() if one.failed is None and not one.tries]
            self._schedules.update(dict.fromkeys(resting, TableSchedule()))
        return followed

    def _discover(self) -> None:
        now = time.monotonic()
        if self._discovered_at is not None and now - self._discovered_at < DISCOVERY_S:
            return
        if self._discovered_at is None:
            tables = call_with_retries(self.find_tables, self.settings.errors)
            self._note_missing(tables)
        else:
            try:
                tables = self.find_tables()
            except (RetriableError, FatalError) as error:
                if isinstance(error, FatalError) and not self._names:
                    raise
                # A namespace that somebody has made since, and whose tables we may not see, stops none that are known.
                structlog.get_logger().warning("cannot look for new tables", reason=str(error))
                tables = self._names
        self._discovered_at = now
        for name in sorted(tables.keys() - self._names.keys()):
            self._schedules[name] = self._admit_table(name)
        self._names = {**self._names, **tables}

    def _note_missing(self, tables: DiscoveredTables) -> None:
        """Say at the start what is not there; a name that is waited for says so itself, an expression cannot."""
        log = structlog.get_logger()
        if not tables:
            log.warning("no table matches table.include.list yet")
        for name in sorted(set(self.stored_tables()) - tables.keys()):
            if self.settings.capture.takes(name):
                log.warning(_MISSING_AGAIN, table=name)

    def _admit_table(self, name: str) -> TableSchedule:
        """Schedule a table, unless its changes would mix with those of another."""
        self.on_stop(name, "")
        target = self.publisher.target(name)
        other = self._owners.setdefault(target, name)
        if other == name:
            return TableSchedule()
        error = FatalError(
            f"table {name}: its {target.kind} {target.name} is also that of table {other}; exclude one of them"
        )
        return self._schedule_retry(name, TableSchedule(), error)

    def _poll_all(self, *, once: bool) -> bool:
        """Take one step of every table that is due; return whether any did something."""
        worked = False
        for name, schedule in list(self._schedules.items()):
            if self._stopping.is_set():
                break
            if schedule.is_due(time.monotonic()):
                worked |= self._poll_table(name, schedule, once=once)
        return worked

    def _poll_table(self, name: str, schedule: TableSchedule, *, once: bool) -> bool:
        self.beat()
        try:
            table = self._open(name)
            if table is None:
                self._schedules[name] = self._await_table(name, once=once)
                return False
            worked = table.step(pinned=once)
            self._branchless.discard(name)
        except TableGoneError as error:
            self._schedules[name] = self._reopen(name, schedule, error, once=once)
            return self._schedules[name].failed is None
        except NoBranchError as error:
            self._schedules[name] = self._await_branch(name, schedule, error, once=once)
            return False
        except ConnectorError as error:
            self._schedules[name] = self._schedule_retry(name, schedule, error)
            return False
        except Exception as error:  # noqa: BLE001
            # Most likely a bug: it may not hold up the other tables. Its message may hold a row's content.
            unexpected = FatalError(f"table {name}: {type(error).__name__} {_code_location(error)}; please report it")
            unexpected.__cause__ = error
            self._schedules[name] = self._schedule_retry(name, schedule, unexpected)
            return False
        idle_until = time.monotonic() + self.settings.capture.poll_interval_ms / 1000
        self._schedules[name] = after_success(0.0 if worked or once else idle_until)
        return worked

    def _open(self, name: str) -> PolledTable | None:
        if name not in self._captures:
            table = self.open_table(*self._names[name])
            if table is None:
                return None
            self._captures[name] = table
            self._missing.discard(name)
            target = self.publisher.target(name)
            structlog.get_logger().info("table found", table=name, **{target.kind: target.name})
        return self._captures[name]

    def _await_table(self, name: str, *, once: bool) -> TableSchedule:
        """Look for a table that is not there again and again, and say so once; a run to now cannot wait."""
        if once:
            error = missing_table(name, self.settings, self.find_in_other_case(*self._names[name]))
            return self._schedule_retry(name, TableSchedule(), error)
        if name not in self._missing:
            self._missing.add(name)
            note = _MISSING_AGAIN if name in self.stored_tables() else "there is no such table yet, it is waited for"
            meant = self.find_in_other_case(*self._names[name])
            structlog.get_logger().warning(note, table=name, **({"did_you_mean": meant} if meant else {}))
        return TableSchedule(time.monotonic() + DISCOVERY_S)

    def _await_branch(self, name: str, schedule: TableSchedule, error: NoBranchError, *, once: bool) -> TableSchedule:
        """Look for a branch that is not there again and again, and say so once: who writes may make it yet."""
        if once:
            return self._schedule_retry(name, schedule, error)
        if name not in self._branchless:
            self._branchless.add(name)
            structlog.get_logger().warning("the branch is waited for", table=name, reason=str(error))
        return TableSchedule(time.monotonic() + DISCOVERY_S)

    def _reopen(self, name: str, schedule: TableSchedule, error: TableGoneError, *, once: bool) -> TableSchedule:
        """Open another table that has the name of one that was dropped; its stored offset decides how it continues."""
        self._captures.pop(name).abandon()
        try:
            found = self._open(name) is not None
        except ConnectorError as refused:
            return self._schedule_retry(name, schedule, refused)
        if found:
            return TableSchedule()
        if once or SnapshotMode(self.settings.capture.snapshot_mode) != SnapshotMode.WHEN_NEEDED:
            return self._schedule_retry(name, schedule, error)
        return self._await_table(name, once=once)

    def _schedule_retry(self, name: str, schedule: TableSchedule, error: ConnectorError) -> TableSchedule:
        errors = self.settings.errors
        timeout_s = None if errors.retry_timeout_ms < 0 else errors.retry_timeout_ms / 1000
        after = after_failure(
            schedule, error, time.monotonic(), timeout_s=timeout_s, longest_s=errors.retry_delay_max_ms / 1000
        )
        log = structlog.get_logger()
        if self._stopping.is_set():
            # Who stops us may have stopped Spark's workers too. The offset is stored when a step is through.
            note = "stopped before the current step was through; it comes again at the next start"
            log.warning(note, table=name, reason=str(error))
            return schedule
        if after.failed:
            log.error("table stopped, the others continue", table=name, kind=type(error).__name__, reason=str(error))
            self.on_stop(name, describe_error(error))
            if name in self._captures:
                self._captures[name].abandon()
        else:
            log.warning("will try again", table=name, attempt=after.tries, reason=str(error))
        return after

    def _is_waiting(self) -> bool:
        return any(schedule.waiting for schedule in self._schedules.values())

    def _heartbeat(self) -> None:
        every_s = self.settings.outgoing.heartbeat_ms / 1000
        now = time.monotonic()
        if not every_s or now - self._heartbeat_at < every_s:
            return
        self._heartbeat_at = now
        try:
            self.publisher.heartbeat(int(time.time() * 1000))
        except ConnectorError as error:
            structlog.get_logger().warning("heartbeat not sent", reason=str(error))

    def _raise_failures(self) -> None:
        failed = {name: schedule.failed for name, schedule in self._schedules.items() if schedule.failed is not None}
        if len(failed) == 1:
            raise next(iter(failed.values()))
        if failed:
            reasons = "; ".join(f"{name}: {error}" for name, error in sorted(failed.items()))
            raise FatalError(f"{len(failed)} tables stopped: {reasons}")


def _code_location(error: Exception) -> str:
    """Return in which line of code an exception was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"in {Path(last.filename).name}, line {last.lineno}"
