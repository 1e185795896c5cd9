"""A story of the source -> what happened, with every invariant looked at; the first that does not hold ends it."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

import attrs
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField

from connector.errors import ConnectorError, GapError, RetriableError
from connector.settings import SourceSettings
from connector.settings.source.settings import load_source
from connector.source.snapshots.next_step import SnapshotOffset
from connector.source.snapshots.table_offset import TableOffset
from connector.source.table_capture import TableCapture
from tests.simulation.capture_process import (
    NAME,
    TABLE,
    CaptureSurroundings,
    Event,
    Published,
    Values,
    compare,
    open_capture,
    reads_in_memory,
)
from tests.simulation.capture_story import CaptureStory, Change, Poll, Stop
from tests.simulation.catalog_server import CatalogServer, SnapshotVersion
from tests.simulation.expectations import Wrong
from tests.simulation.history import Over
from tests.simulation.interruptions import Crash, Interruptions
from tests.simulation.other_writers import change_row
from tests.simulation.process import one_thread, read_settings
from tests.simulation.shrinking import Failure
from tests.simulation.store import STORES

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True), NestedField(2, "n", LongType()), identifier_field_ids=[1]
)
KEYS, MOST_FINAL_STEPS = 6, 80
_NUMBERS = count(2_000_000)


@attrs.define(eq=False, slots=False)
class CaptureHistory:
    """A story that is under way; `states` has the rows of each snapshot that ever was, `parents` the one before it.

    `read_again`: who reads the topic may hold rows that are gone. From `begun` on
    records are of a table that was begun anew. `unsure`: changes were published that were taken back before a
    position said so, which nothing tells afterwards (docs/guarantees.md).
    """

    story: CaptureStory
    folder: str
    events: list[str] = attrs.field(factory=list)

    def __attrs_post_init__(self) -> None:
        self.number = next(_NUMBERS)
        self.calls = Interruptions(act=self._change)
        self.server = CatalogServer(self.story.world.catalog, landed=self._landed, store=self.number)
        self.around = CaptureSurroundings(self.server, self.calls)
        self.settings: SourceSettings = read_settings(load_source, self.story.world.properties, self.folder)
        STORES[self.number] = (self.server, self.calls)
        self.states: dict[int, Values] = {}
        self.parents: dict[int, int | None] = {}
        self.stored: TableOffset | None = None
        self.capture: TableCapture | None = None
        self.starting, self.opened = True, ""
        self.read_again = self.unsure = False
        self.begun: set[int] = set()
        self._make()

    def run(self) -> None:
        """Go through the story, and then on until the source has nothing to do.

        Raises:
            Wrong: an invariant does not hold.
        """
        try:
            with one_thread(lazy=False), reads_in_memory():
                for number, step in enumerate(self.story.steps):
                    self.events.append(f"{number:3d}  {step}")
                    match step:
                        case Change():
                            self._change(step)
                        case Stop():
                            self._leave()
                        case Poll():
                            self._poll(step.steps, dict(step.during))
                    self._check_repeats()
                self._finish()
        except Over as over:
            self.events.append(f"     ends: {over}")
        finally:
            STORES.pop(self.number, None)

    # --- the table -------------------------------------------------------------------------------------------------

    def _make(self) -> None:
        self.server.create(TABLE, SCHEMA, {"format-version": str(self.story.world.version)})

    def _change(self, step: Change) -> None:
        rng, server = Random(step.seed), self.server
        match step.act:
            case "insert" | "update" | "delete":
                self._change_row(rng, step.act)
            case "several":
                for _ in range(3):
                    self._change_row(rng, rng.choice(["insert", "update", "delete"]))
            case "rewrite files":
                server.compact(TABLE)
            case "expire":
                server.expire(TABLE, rng.choice([1, 1, 2, 4]))
            case "roll back":
                server.roll_back(TABLE, rng.randint(1, 2))
                self._doubt_rollbacks()
            case "make again":
                server.tables.pop(TABLE)
                self._make()
            case "jump of the clock":
                server.now_ms += rng.choice([-3_600_000, 3_600_000, 5])

    def _has_published_ahead(self) -> bool:
        """Tell whether changes of snapshots that are taken back were published, and no position says so yet."""
        position = None if self.stored is None else self.stored.position.snapshot_id
        line = {one.id for one in self.server.tables[TABLE].ancestors()}
        sent = {one.snapshot.snapshot_id for one in self.around.topic if not one.read}
        return any(one not in line and one != position and self._follows(one, position) for one in sent)

    def _change_row(self, rng: Random, act: str) -> None:
        there = sorted(row["id"] for row in self.server.rows(TABLE))
        fresh = [key for key in range(KEYS) if key not in there]
        if act == "insert" and fresh:
            count = rng.choice([1, 1, 2])
            self.server.append(TABLE, [{"id": key, "n": rng.randrange(10_000)} for key in fresh[:count]])
        elif act != "insert" and there:
            key = rng.choice(there)
            row = {"id": key, "n": rng.randrange(10_000)} if act == "update" else None
            change_row(self.server, TABLE, key, row, rng.choice(["rewrite", "positions"]))  # type: ignore[arg-type]

    def _landed(self, name: str, snapshot: SnapshotVersion, _: Any) -> None:
        if name == TABLE:
            rows = [row for _, _, row in self.server.live_rows(snapshot)]
            self.states[snapshot.id] = {row["id"]: row["n"] for row in rows}
            self.parents[snapshot.id] = snapshot.parent
            return
        for file in snapshot.files:
            for row in self.server.read(file.path):
                if row["id"] == f"{NAME}/{TABLE}":
                    self._moved(TableOffset.parse(row["offset_data"]))

    # --- the source ------------------------------------------------------------------------------------------------

    def _poll(self, steps: int, during: dict[int, Any]) -> None:
        self.calls.begin(during)
        try:
            for _ in range(steps):
                if not self._step():
                    return
        except Crash:
            self.events.append("     killed")
            self._leave()

    def _leave(self) -> None:
        self._doubt_rollbacks()
        self.capture = None

    def _doubt_rollbacks(self) -> None:
        """Be unsure where a rollback took back what is published. It may have come before that was published: what a
        step had read, which did not end.
        """
        self.unsure = self.unsure or self._has_published_ahead()

    def _step(self) -> bool:
        """Do a step; False where there is nothing to do."""
        try:
            if self.capture is None:
                self.starting, self.opened = True, self.server.tables[TABLE].uuid
                self.capture = open_capture(self.around, self.settings)
            worked = self.capture.step(pinned=False)
            self.starting = False
        except RetriableError as error:
            self.events.append(f"     later: {error}")
            self._doubt_rollbacks()
            return True
        except ConnectorError as error:
            self._stopped(error)
            return True
        except (Wrong, Over):
            raise
        except Exception as error:
            raise Wrong(f"the source fell over: {type(error).__name__}: {error}") from error
        return worked

    def _stopped(self, error: ConnectorError) -> None:
        self.events.append(f"     stops: {type(error).__name__}: {str(error)[:300]}")
        self.capture = None
        if self._has_gap():
            if isinstance(error, GapError) and self.story.world.mode != "when_needed":
                raise Over(str(error)[:160])
            return
        # Nothing is stored, and what it has begun to read was of the table before.
        if self.server.tables[TABLE].uuid == self.opened:
            raise Wrong(f"the source stops for no reason: {error}")

    def _has_gap(self) -> bool:
        """Tell whether what comes behind the stored position is not there, or not any more."""
        if self.stored is None:
            return False
        at, now = self.stored.position, self.server.tables[TABLE]
        if at.table_uuid != now.uuid:
            return True
        if at.reading is not None:
            return at.reading.snapshot_id not in now.snapshots
        line = [one.id for one in now.ancestors()]
        if at.snapshot_id is None:
            return bool(line) and now.snapshots[line[-1]].parent is not None
        return at.snapshot_id not in line

    # --- what has to hold ------------------------------------------------------------------------------------------

    def _moved(self, after: TableOffset) -> None:
        """A position was stored: what lies before it has to be in the topic, and nothing may be left out."""
        before, self.stored = self.stored, after
        if before is not None and before.position == after.position:
            return
        old, new = None if before is None else before.position, after.position
        if new.reading is not None:
            self._check_reading(old, new)
        elif old is not None and old.reading is not None and old.reading.snapshot_id == new.snapshot_id:
            self._check_read(new.snapshot_id)
        elif self._is_start(old, new):
            if old is not None:
                self._begin_anew()
            if self.story.world.mode != "no_data" and new.snapshot_id is not None:
                raise Wrong(f"changes from snapshot {new.snapshot_id} on, and nobody has read what was there")
        elif old is None or self.parents.get(new.snapshot_id or 0, -1) != old.snapshot_id:
            raise Wrong(f"the position moves from {old} to {new.snapshot_id}, which does not follow it")
        else:
            wanted = compare(self.states.get(old.snapshot_id or 0, {}), self.states[new.snapshot_id or 0])
            self._check_durable(wanted, new.snapshot_id, read=False)

    def _is_start(self, old: SnapshotOffset | None, new: SnapshotOffset) -> bool:
        if old is None:
            return True
        again = self.story.world.mode == "when_needed" or (self.story.world.mode == "always" and self.starting)
        return new.snapshot_id is None and again

    def _check_reading(self, old: SnapshotOffset | None, new: SnapshotOffset) -> None:
        assert new.reading is not None
        mode = self.story.world.mode
        if old is not None and old.reading is not None and old.reading.snapshot_id == new.reading.snapshot_id:
            if new.reading.part not in (0, old.reading.part + 1):
                raise Wrong(f"parts {old.reading.part} to {new.reading.part} are left out")
            return
        allowed = old is None or mode == "when_needed" or (mode == "always" and self.starting)
        # Of a table that had no snapshot yet the first one is read.
        if not allowed and not (mode == "initial_only" and old is not None and old.snapshot_id is None):
            raise Wrong(f"snapshot {new.reading.snapshot_id} is read in full, and {old} was stored")
        if old is not None:
            self._begin_anew()

    def _begin_anew(self) -> None:
        self.read_again = True
        self.begun.add(len(self.around.topic))

    def _check_read(self, snapshot: int | None) -> None:
        rows = self.states[snapshot or 0]
        self._check_durable([Event("r", key, n) for key, n in rows.items()], snapshot, read=True)

    def _check_durable(self, wanted: list[Event], snapshot: int | None, *, read: bool) -> None:
        there = {one.event for one in self.around.topic if one.snapshot.snapshot_id == snapshot and one.read == read}
        if missing := [event for event in wanted if event not in there]:
            raise Wrong(f"the position is behind snapshot {snapshot}, and the topic lacks {missing[0]}")

    def _check_repeats(self) -> None:
        """What comes again is the same; what is later has a later time, and comes behind, but for what is repeated."""
        told: dict[tuple[int, int], Published] = {}
        last: Published | None = None
        for place, one in enumerate(self.around.topic):
            if one.read or place in self.begun:
                last = None
            if one.read:
                continue
            known = told.setdefault((one.snapshot.snapshot_id, one.event.key), one)
            if known != one and self.story.world.mode not in ("always", "when_needed"):
                raise Wrong(f"{one} comes again, and was {known}")
            if last is not None and one.snapshot.snapshot_id != last.snapshot.snapshot_id:
                if not self._follows(one.snapshot.snapshot_id, last.snapshot.snapshot_id) and not self.unsure:
                    raise Wrong(f"{one} comes behind {last}")
                if one.snapshot.ts_ns <= last.snapshot.ts_ns and not self.unsure:
                    raise Wrong(f"{one} is not later than {last}")
            last = one

    def _follows(self, later: int, earlier: int | None) -> bool:
        """Tell whether a snapshot is another, or comes behind it; None is the beginning."""
        at: int | None = later
        while at is not None and at != earlier:
            at = self.parents[at]
        return at == earlier

    def _finish(self) -> None:
        """Nothing goes wrong any more: the source comes to the newest snapshot, and the topic tells its rows."""
        self.events.append("     in the end: nothing goes wrong any more")
        self.calls.land()
        for _ in range(MOST_FINAL_STEPS):
            self.calls.begin({})
            if not self._step():
                break
            self._check_repeats()
        else:
            raise Wrong("the source does not get to the end of the table")
        self._check_repeats()
        self._check_topic()

    def _check_topic(self) -> None:
        head = self.server.tables[TABLE].head
        if self.story.world.mode == "initial_only":
            head = self.stored.position.snapshot_id if self.stored is not None else None
        elif self.stored is None or self.stored.position.snapshot_id != head:
            raise Wrong(f"there is nothing to do, the position is {self.stored}, and the newest snapshot {head}")
        rows = self.states[head] if head is not None else {}
        told: dict[int, int | None] = {}
        for one in self.around.topic:
            told[one.event.key] = one.event.n
        live = {key: n for key, n in told.items() if n is not None}
        if self.story.world.mode == "no_data":
            rows = {key: n for key, n in rows.items() if key in told}
        # Who reads anew may hold rows that are gone.
        missing = {key: n for key, n in rows.items() if live.get(key) != n}
        if not self.unsure and (missing or (not self.read_again and live != rows)):
            raise Wrong(f"the topic tells {live}, and the rows are {rows}")


def tell_capture(story: CaptureStory, folder: str) -> Failure | None:
    """Go through a story; None where every invariant holds."""
    history = CaptureHistory(story, folder)
    try:
        history.run()
    except Wrong as wrong:
        return Failure(story, str(wrong), tuple(history.events))  # type: ignore[arg-type]
    return None
