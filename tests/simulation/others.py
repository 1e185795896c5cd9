"""Steps of others than the sink -> what they do to tables, to the cluster of indexes, or to the machine."""

from __future__ import annotations

import json
from random import Random

import attrs

from connector.errors import ConnectorError
from connector.iceberg.commit.commit_summary import CONNECTOR_NAME
from connector.settings import SinkSettings
from tests.simulation.catalog_server import Bounds, LiveFile
from tests.simulation.expectations import FOREIGN, FOREIGN_NAME, Expectation, Wrong
from tests.simulation.interruptions import Crash
from tests.simulation.maintenance import maintain
from tests.simulation.other_writers import change_row
from tests.simulation.process import NAME
from tests.simulation.scene import OFFSETS, Over, Scene
from tests.simulation.source import KEYS
from tests.simulation.steps import Maintain, TableStep

OTHER, OTHER_OFFSETS = "other", "_other_offset_storage"
"""A connector that maintains the same tables, and where it stores offsets and leases."""
READER = "reader"
"""A source that reads the tables."""


class Others(Scene):
    """Other writers, maintenance, operators."""

    def _move_table(self, step: TableStep) -> None:
        rng = Random(step.seed)
        name = rng.choice(sorted(set(map(self._place, self.tables))))
        if step.act == "land late commits":
            self._land()
        elif step.act == "forget deletes":
            # A request that comes after all, as late as that, nothing can tell from a new one.
            if not self.calls.late:
                self.search.forget_deletes()
                self.search.starting = rng.choice([0, 1, 1, 2, 4])
        elif step.act == "busy nodes":
            self.search.busy += rng.randint(1, 6)
        elif step.act == "jump of the clock":
            back = 0 if any(isinstance(one, Maintain) for one in self.story.steps) else -3_600_000
            # Leases ask for clocks that differ by less than they last.
            self.server.now_ms += rng.choice([back, 3_600_000, 86_400_000])
        elif name in self.server.tables:
            self._move_one_table(step, rng, name)

    def _maintain(self, step: Maintain, *, calm: bool = False) -> None:
        """Our own maintenance, which may be killed; `calm`: nothing is in its way, so that it has to be done."""
        rng = Random(step.seed)
        name = rng.choice(sorted(set(map(self._place, self.tables))))
        if not self.running:
            self.calls.begin(dict(step.during))
        # Nothing that tells of a rollback may go before the sink has heard of it (docs/guarantees.md).
        tasks = [task for task in step.tasks if task != "expire" or self._unheard_rollback(name) is None]
        self.server.now_ms += 400_000 if calm else rng.choice([1000, 60_000, 400_000])
        needed = self._needed_by_readers(name)
        try:
            for done in maintain(self.server, self.calls, self._whose(step), name, tasks, rng):
                told = f"{dict(done.counts)}" if done.failure is None else done.failure[:300]
                self.events.append(f"     {done.task}: {told}")
                if calm and done.failure is not None:
                    raise Wrong(f"maintenance fails for no reason: {done.task}: {done.failure}")
        except Crash:
            self.events.append("     killed")
        except ConnectorError as error:
            self.events.append(f"     postponed: {type(error).__name__}: {str(error)[:300]}")
        except (Over, Wrong):
            raise
        except Exception as error:
            raise Wrong(f"maintenance fell over: {type(error).__name__}: {error}") from error
        self._check_needed(name, needed)

    def _read_along(self, rng: Random, name: str) -> None:
        """A source has come to one of a table's newest snapshots, and stores it where the sink stores its own."""
        table, place = self.server.tables[name], f"d.{OFFSETS}"
        line = list(table.ancestors())[:3]
        if not line or place not in self.server.tables:
            return
        position = {"table-uuid": table.uuid, "snapshot-id": rng.choice(line).id}
        row = {"id": f"{READER}/{name}", "offset_data": json.dumps(position), "record_insert_ts": None}
        path = f"{place}/data/reader-{self.server.next_id()}"
        self.server.files[path] = [row]
        newest = self.server.tables[place].newest
        before = newest.files if newest is not None else ()
        self.server.commit_foreign(place, "append", [*before, LiveFile(path, "data", Bounds())], added=True)
        self.readers[name] = position["snapshot-id"]

    def _needed_by_readers(self, name: str) -> frozenset[int]:
        """The snapshots that a source has still to read, and the one that it has come to."""
        at = self.readers.get(name)
        line = [one.id for one in self.server.tables[name].ancestors()] if name in self.server.tables else []
        return frozenset(line[: line.index(at) + 1]) if at in line else frozenset()

    def _check_needed(self, name: str, needed: frozenset[int]) -> None:
        """Maintenance left what a source needs, but for what others took meanwhile: where that is the snapshot that the
        source had come to, it cannot go on from there, and needs none of those behind it.
        """
        if self.readers.get(name) in self.server.expired:
            return
        there = self.server.tables[name].snapshots.keys() if name in self.server.tables else needed
        if gone := needed - there - self.server.expired:
            raise Wrong(f"maintenance of {name} took snapshot {min(gone)}, which a source has still to read")

    def _whose(self, step: Maintain) -> SinkSettings:
        """The settings of the connector that does it."""
        if not step.apart:
            return self.settings
        table = attrs.evolve(self.settings.table, offsets_table=OTHER_OFFSETS)
        return attrs.evolve(self.settings, name=OTHER, table=table)

    def _move_one_table(self, step: TableStep, rng: Random, name: str) -> None:
        match step.act:
            case "rewrite files":
                self.server.compact(name)
            case "append rows":
                self._append(rng, name)
            case "change row":
                self._change_row(rng, name)
            case "expire":
                self._expire(name, rng.choice([1, 1, 3]))
            case "drop" | "make again":
                self._drop_table(name, again=step.act == "make again")
            case "read along":
                self._read_along(rng, name)
            case "roll back":
                before = self.server.tables[name].newest
                if before is not None and self.server.roll_back(name, rng.randint(1, 2)):
                    self._put_back(name, before.number)

    def _expire(self, name: str, keep: int) -> None:
        """Expire snapshots; but not the only one that knows where a run that crashed stood, or that another run of the
        sink went on, nor the last that tells of a rollback (docs/guarantees.md).
        """
        left = list(self.server.tables[name].ancestors())[:keep]
        ends = {at: end for one in self._owners(name).values() for at, end in one.ends.items()}
        known = any(one.summary.get(CONNECTOR_NAME) == NAME for one in left)
        overtaken = any(process.has_rival for process in (*self.processes.values(), *self.running))
        known = known or (not overtaken and all(self.saved.get(at, 0) >= end for at, end in ends.items()))
        before = self._unheard_rollback(name)
        if known and (before is None or left[-1].number <= before):
            self.server.expire(name, keep)

    def _unheard_rollback(self, name: str) -> int | None:
        """The newest number that a table had before a rollback which a start has yet to hear of; None without one.

        Where one run went on from there, another that has not looked since may store a commit that is gone.
        """
        if name in self.put_back:
            return self.put_back[name]
        stored = self.latest.get(name, 0)
        numbers = [one.number for one in self.server.tables[name].ancestors()] if name in self.server.tables else []
        return stored if numbers and stored > numbers[-1] and stored not in numbers else None

    def _put_back(self, name: str, number: int) -> None:
        """A table is as it was at a snapshot, and had a `number` before; whoever goes on has to read from there."""
        head = self.server.tables[name].head
        assert head is not None
        self.tables |= {label: expected.copy() for label, expected in self.states[head].items()}
        self.put_back[name] = number
        self.reasons.add("rolled back")
        for process in self.processes.values():
            if process not in self.running:
                process.reads.clear()

    def _drop_table(self, name: str, *, again: bool) -> None:
        """Somebody drops a table, and may make an empty one of its name: only a person can bring its rows back.

        Of a table that no stored offsets tell of nothing is lost: what was in it is read again. Nor is it where a
        process is yet to read what another one of its name has brought: it knows no earlier table, and brings it all.
        """
        if name not in self.noted or name in self.put_back or self._is_unread(name):
            return
        schema, properties = self.server.tables[name].schema, self.server.tables[name].properties
        del self.server.tables[name]
        if again:
            self.server.create(name, schema, properties)
        self.lost |= self._owners(name).keys()
        self.reasons.add("dropped")

    def _is_unread(self, name: str) -> bool:
        """Whether a process that runs has read nothing of a table's topics."""
        topics = {expected.topic for expected in self._owners(name).values()}
        return any(
            not any(end for at, end in process.at.items() if at[0] in topics) for process in self.processes.values()
        )

    def _append(self, rng: Random, name: str) -> None:
        """Another writer adds rows of its own keys, or of one that the table does not have."""
        expected = next(iter(self._owners(name).values()))
        there = {row["id"] for row in self.server.rows(name)}
        key = FOREIGN + rng.randrange(3) if rng.random() < 0.6 else rng.randrange(KEYS)
        if key in there or any(truth.key == key for truth in expected.taken):
            return
        if key < FOREIGN and self.running and self._awaits_truncate(expected):
            # The batch leaves out what came before its truncate, deletes too (docs/guarantees.md).
            return
        row = {field.name: None for field in self.server.tables[name].schema.fields}
        row |= {"id": key, "n": -key - 1, "name": FOREIGN_NAME}
        expected.foreign[key] = row
        self.server.append(name, [row])

    def _awaits_truncate(self, expected: Expectation) -> bool:
        """Whether the source has a truncate that the table has not taken in."""
        truth = self.broker.topics[expected.topic].source.truth
        return any(one.says == "truncate" for one in truth) and len(expected.taken) < len(truth)

    def _change_row(self, rng: Random, name: str) -> None:
        """Another writer changes or deletes a row of its own."""
        expected = next(iter(self._owners(name).values()))
        there = {row["id"]: row for row in self.server.rows(name)}
        key = rng.choice([FOREIGN, FOREIGN + 1, FOREIGN + 2])
        if key not in expected.foreign or key not in there:
            return
        row = {**there[key], "n": -rng.randrange(10_000)} if rng.random() < 0.6 else None
        expected.foreign.pop(key)
        if row is not None:
            expected.foreign[key] = row
        change_row(self.server, name, key, row, rng.choice(["rewrite", "positions"]))  # type: ignore[arg-type]
