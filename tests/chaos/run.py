"""Minutes, or kills -> rounds of load and faults, each with a quiet point at its end, and a report.

round: start a group of connectors; load and faults; stop both; wait for the ends; compare; stop the group
at the end every group comes to the ends of the topics once more, without faults
cut off: load and faults stop; the group of now is compared if it comes to the end soon
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from random import Random

from attrs import frozen

from connector.errors import FatalError
from tests.chaos.clock import Clock, build_library
from tests.chaos.comparison import Difference, compare_events, compare_marked, compare_rows
from tests.chaos.connectors import GROUPS, Connector, Kind, properties_of
from tests.chaos.faults import Faults
from tests.chaos.load import Load
from tests.chaos.moments import moments_of
from tests.chaos.process import ConnectorProcess
from tests.chaos.quiet import QuietPoint, Stalled
from tests.chaos.reading import Reader, open_reader, read_documents, split_marked
from tests.chaos.report import Report, tell_kills
from tests.chaos.sent import read_sent, repeats, sent_keys
from tests.chaos.tables import TABLES, Table
from tests.chaos.world import World
from tests.harness.spark_home import share_spark_home
from tests.runs.processes import quick_settings

_LIMIT_S = 600.0
"""For each step of a quiet point, on a machine with other work."""
_STOP_S = 120.0
_CUT_OFF_S = 180.0
"""For all steps of the quiet point of a run that is cut off."""
_WATCH_S = 5.0


@frozen
class Plan:
    """How long, and how much."""

    seed: int
    minutes: float | None
    kills: int | None
    brokers: int = 1
    round_s: float = 240.0
    pace: float = 1.0
    pause_s: float = 0.8
    transactions_per_s: float = 6.0
    clocks: bool = False


class Run:
    """One run in a folder."""

    def __init__(self, plan: Plan, home: Path) -> None:
        """Describe it; nothing runs yet."""
        self._plan, self._home = plan, home
        self.report = Report(plan.seed, plan.brokers)
        self._world = World(home, plan.brokers)
        self._load = Load(plan.seed)
        self._processes: dict[str, ConnectorProcess] = {}
        self._group: list[ConnectorProcess] = []
        random = Random(plan.seed + 1)
        self._faults = Faults(self._world, lambda: self._group, random, plan.pace, clocks=plan.clocks, fail=self._fail)
        self._quiet = QuietPoint(self._world, self._watch, _LIMIT_S)
        self._watched = 0.0
        self._stop, self._changes = threading.Event(), Future[None]()
        self._began = time.monotonic()

    def run(self) -> Report:
        """Run all of it; whatever is wrong is in the report."""
        share_spark_home()
        quick = quick_settings()
        try:
            with ExitStack() as stack:
                stack.enter_context(self._world)
                stack.callback(self._end_group)
                reader = stack.enter_context(open_reader(self._home, self._world.postgres.port, quick))
                self._describe_connectors(quick)
                self._began = time.monotonic()
                try:
                    self._go_through(reader)
                except KeyboardInterrupt:
                    self.report.is_cut_off = True
        except KeyboardInterrupt:
            self.report.is_cut_off = True
        except (Stalled, TimeoutError, FatalError) as error:
            self._fail(f"{error}")
        except Exception:  # noqa: BLE001 - whatever it is, what was counted is not lost
            self._fail(traceback.format_exc())
        self._sum_up()
        _say(f"{self._elapsed()} {'cut off' if self.report.is_cut_off else 'over'}; {self._counts()}")
        return self.report

    def _describe_connectors(self, quick: dict[str, str]) -> None:
        at, library = self._world.addresses, build_library(self._home) if self._plan.clocks else None
        for one in (one for group in GROUPS for one in group):
            properties = properties_of(one, self._home, at, quick)
            clock = None if library is None else Clock(self._home / f"{one.name}.clock", library)
            self._processes[one.name] = ConnectorProcess(one.name, properties, self._home, clock, moments_of(one))

    def _go_through(self, reader: Reader) -> None:
        number = 0
        while not self._is_over(number):
            self._round(GROUPS[(self._plan.seed + number) % len(GROUPS)], reader, self._plan.round_s)
            number += 1
        for group in () if self.report.differences else GROUPS:
            self._round(group, reader, 0)
        sent = read_sent(self._world.servers)
        self.report.events, self.report.repeated_events = sum(sent.values()), repeats(sent)

    def _is_over(self, rounds: int) -> bool:
        if self.report.differences:
            return True
        if self._plan.kills is not None:
            return rounds >= len(GROUPS) and self.report.kills_compared >= self._plan.kills
        return time.monotonic() - self._began >= 60 * (self._plan.minutes or 0)

    def _round(self, group: Sequence[Connector], reader: Reader, for_s: float) -> None:
        names = ", ".join(one.name for one in group)
        _say(f"{self._elapsed()} {names}: {'load and faults' if for_s else 'to the end'}")
        self._world.is_searched = any(one.kind is Kind.INDEX for one in group)
        self._group = [self._processes[one.name] for one in group]
        for process in self._group:
            process.start()
            self.report.restarts[process.name] -= 1
        try:
            if for_s:
                self._disturb(for_s)
            self._compare(group, reader)
        except KeyboardInterrupt:
            self._cut_off(group, reader)
            raise
        self._end_group()
        _say(f"{self._elapsed()} {names}: compared; so far {self._counts()}")

    def _cut_off(self, group: Sequence[Connector], reader: Reader) -> None:
        """Compare all the same where kills were not compared yet; what is in the way then is no failure.

        By a thread with its own connection to Spark: the signal may have cut off a call on ours, whose answer is yet to
        come.
        """
        self.report.is_cut_off = True
        if self.report.kills_compared == self._faults.kills:
            return
        _say(f"{self._elapsed()} cut off; {_CUT_OFF_S:.0f} s for a last comparison")
        try:
            self._settle(_CUT_OFF_S)
            self._quiet.hurry(_CUT_OFF_S)
            with ThreadPoolExecutor(1) as pool:
                try:
                    pool.submit(self._compare, group, reader).result()
                finally:
                    self._quiet.hurry(0)
        except Exception as error:  # noqa: BLE001 - the signal may have reached all that is needed
            _say(f"{self._elapsed()} not compared: {error!r}")

    def _disturb(self, for_s: float) -> None:
        self._stop.clear()
        limit = time.monotonic() + for_s
        with ThreadPoolExecutor(1) as pool:
            try:
                self._changes = pool.submit(self._change_rows, self._stop)
                while time.monotonic() < limit and not self._has_kills() and not self._changes.done():
                    self._faults.strike()
                    self._watch()
                    time.sleep(self._plan.pace * self._faults.random.uniform(0.1, 2 * self._plan.pause_s))
            finally:
                self._settle(_LIMIT_S)
        self._changes.result()

    def _settle(self, limit_s: float) -> None:
        """End the load, and undo what was done."""
        self._stop.set()
        wait([self._changes])
        self._faults.settle(limit_s)

    def _has_kills(self) -> bool:
        return self._plan.kills is not None and self._faults.kills >= self._plan.kills

    def _change_rows(self, stop: threading.Event) -> None:
        """Run transactions; while PostgreSQL is away they are drawn all the same."""
        random = Random(self._plan.seed + 2)
        while not stop.is_set():
            count = random.randint(1, max(int(2 * self._plan.transactions_per_s), 1))
            try:
                self._world.postgres.run_script("".join(self._load.transaction() for _ in range(count)))
            except (FatalError, subprocess.TimeoutExpired):
                stop.wait(0.5)
            else:
                self.report.transactions += count
            stop.wait(1.0)

    def _watch(self) -> None:
        """Start again what ended by itself, and say so; once in a while, as each look costs something."""
        if time.monotonic() - self._watched < _WATCH_S:
            return
        self._watched = time.monotonic()
        for process in self._group:
            code = process.ended()
            if code is not None and not self._faults.is_busy(process.name):
                self._tell_end(f"{process.name} ended by itself with code {code}:\n{process.log_end()}")
                process.start()
        for name, server in self._world.killable.items():
            if server.pid is None and not self._faults.is_busy(name):
                self._tell_end(f"{name} ended by itself")
                server.start()
        if not self._faults.is_busy("connect") and self._world.worker.restart_failed():
            self.report.restarts["Debezium's task"] += 1

    def _tell_end(self, what: str) -> None:
        """It is a failure; or the signal that cut the run off reached it, too, and there is nothing to wait for."""
        if self.report.is_cut_off:
            raise Stalled(what)
        self._fail(what)

    def _compare(self, group: Sequence[Connector], reader: Reader) -> None:
        ends = self._quiet.ends()
        self._quiet.wait_for(group, ends)
        expected = {table.name: self._world.postgres.rows(table.name) for table in TABLES}
        for one in group:
            if one.kind is Kind.EVENTS:
                found = reader.events(one)
                self.report.rows_compared += sum(found.values())
                self._note(compare_events(one.name, read_sent(self._world.servers), found))
            elif one.kind is Kind.REPLICA:
                self._await_replica(one, reader, expected)
            if one.kind in (Kind.TABLES, Kind.INDEX, Kind.REPLICA):
                for table in TABLES:
                    where, rows = f"{one.name}, {table.name}", self._rows(one, reader, table)
                    self.report.rows_compared += len(rows)
                    if one.keeps_deleted:
                        rows, marked = split_marked(rows)
                        keys = sent_keys(read_sent(self._world.servers), table)
                        self._note(compare_marked(where, table, keys, rows, marked))
                    self._note(compare_rows(where, table, expected[table.name], rows))
        self.report.quiet_points += 1
        self.report.kills_compared = self._faults.kills

    def _await_replica(self, one: Connector, reader: Reader, expected: dict[str, list[dict[str, object]]]) -> None:
        """Nobody tells how far a source has to come: its replica is looked at until it is what it should be."""

        def is_there() -> bool:
            return all(
                compare_rows("", table, expected[table.name], reader.rows(one, table)) is None for table in TABLES
            )

        try:
            self._quiet.wait_until(one.name, is_there)
        except Stalled as stalled:
            if self.report.is_cut_off:
                raise
            self._fail(str(stalled))

    def _rows(self, one: Connector, reader: Reader, table: Table) -> list[dict[str, object]]:
        if one.kind is Kind.INDEX:
            return read_documents(self._world.search.url, one.table(table.name))
        return reader.rows(one, table)

    def _end_group(self) -> None:
        group, self._group = self._group, []
        with ThreadPoolExecutor(max(len(group), 1)) as pool:
            codes = list(pool.map(lambda process: process.stop(_STOP_S), group))
        for process, code in zip(group, codes, strict=True):
            if self.report.is_cut_off:
                continue  # a terminal's signal reached it, too
            if code is None:
                self._fail(f"{process.name} did not stop within {_STOP_S:.0f} s:\n{process.log_end()}")
            elif code:
                self._fail(f"{process.name} stopped with code {code}:\n{process.log_end()}")

    def _sum_up(self) -> None:
        self.report.seconds = time.monotonic() - self._began
        self.report.faults = Counter(self._faults.counts)
        if lost := self._world.lost_answers():
            self.report.faults["answers of the catalog lost after its commit"] = lost
        for process in self._processes.values():
            self.report.restarts[process.name] += process.starts
            self.report.commits += process.all_steps()
        self.report.restarts = +self.report.restarts

    def _note(self, difference: Difference | None) -> None:
        if difference is not None and difference not in self.report.differences:
            self.report.differences.append(difference)
            _say(f"{self._elapsed()} DIFFERENCE (seed {self._plan.seed}) {difference}")

    def _fail(self, what: str) -> None:
        self.report.failures.append(what)
        _say(f"{self._elapsed()} FAILURE (seed {self._plan.seed}) {what}")

    def _counts(self) -> str:
        differences = sum(one.count for one in self.report.differences)
        kills = tell_kills(self._faults.kills, self.report.kills_compared)
        return f"{kills}, {differences} differences, {len(self.report.failures)} failures"

    def _elapsed(self) -> str:
        seconds = int(time.monotonic() - self._began)
        return f"{seconds // 60:3}:{seconds % 60:02}"


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()
