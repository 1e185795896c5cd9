"""Random histories of a table beside snapshots on demand, with kills -> no stale row, and none is missing.

The table is plain Python: files of rows, deletes by position, commits that append, strike, rewrite and compact. What is
under test decides which files a chunk reads (`snapshots.chunks`) and keeps the queue (`snapshots.snapshot_queue`).
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from attrs import define, evolve, field, frozen
from hypothesis import given
from hypothesis import strategies as st

from connector.source.snapshots.chunks import ChunkProgress, advance, is_done, next_chunk
from connector.source.snapshots.signal import ExecuteSnapshot, PauseSnapshot, ResumeSnapshot, StopSnapshot
from connector.source.snapshots.snapshot_queue import QueuedSnapshot, SnapshotQueue, apply_signal

pytestmark = pytest.mark.laws

Row = tuple[int, int]
KEYS = 12


@frozen
class Snapshot:
    """Files by path: rows (key, value), those that were struck left out as positions."""

    files: dict[str, tuple[Row, ...]]
    struck: dict[str, frozenset[int]] = field(factory=dict)

    def live(self, path: str) -> list[Row]:
        """The rows of a file that are live."""
        gone = self.struck.get(path, frozenset())
        return [row for place, row in enumerate(self.files[path]) if place not in gone]

    def rows(self) -> dict[int, int]:
        """The table's rows by key."""
        return dict(row for path in self.files for row in self.live(path))


@define
class World:
    """A table, its source, and the topic; `stored` survives kills."""

    rng: random.Random
    history: list[Snapshot] = field(factory=lambda: [Snapshot({})])
    value: int = 0
    position: int = 0
    queue: SnapshotQueue = SnapshotQueue()
    topic: list[tuple[int, int | None]] = field(factory=list)

    def commit(self, kind: str) -> None:
        """Make a snapshot."""
        head, rng = self.history[-1], self.rng
        files, struck, rows = dict(head.files), dict(head.struck), head.rows()
        keys = rng.sample(range(KEYS), rng.randint(1, 4))
        self.value += 1
        if kind == "compact":
            gone = rng.sample(sorted(files), min(len(files), rng.randint(1, 4)))
            merged = [row for path in gone for row in head.live(path)]
            for path in gone:
                files.pop(path)
                struck.pop(path, None)
            self.add(files, merged)
        else:
            values = {} if kind == "delete" else {key: self.value * 100 + key for key in keys}
            for path in list(files):
                hit = {row[0] for row in head.live(path)} & set(keys)
                if hit and (kind == "rewrite" or rng.random() < 0.3):
                    kept = [row for row in head.live(path) if row[0] not in hit]
                    files.pop(path)
                    struck.pop(path, None)
                    self.add(files, kept)
                elif hit:
                    places = {place for place, row in enumerate(files[path]) if row[0] in hit}
                    struck[path] = struck.get(path, frozenset()) | places
            self.add(files, list(values.items()))
            assert Snapshot(files, struck).rows() == {**{k: v for k, v in rows.items() if k not in keys}, **values}
        self.history.append(Snapshot(files, struck))

    def add(self, files: dict[str, tuple[Row, ...]], rows: list[Row]) -> None:
        """Write rows into new files."""
        while rows:
            cut = self.rng.randint(1, 3)
            files[f"f{len(self.history)}-{len(files)}-{self.rng.random()}"] = tuple(rows[:cut])
            rows = rows[cut:]

    def publish_changes(self, *, killed: bool) -> None:
        """Publish the changes of the next snapshot; a kill comes before the position is stored."""
        before, after = self.history[self.position].rows(), self.history[self.position + 1].rows()
        keys = [key for key in before.keys() | after.keys() if before.get(key) != after.get(key)]
        sent: list[tuple[int, int | None]] = [(key, after.get(key)) for key in keys]
        self.topic += sent[: self.rng.randint(0, len(sent))] if killed else sent
        self.position += not killed

    def publish_chunk(self, snapshot: QueuedSnapshot, *, killed: bool) -> None:
        """Publish a chunk as of the position; a kill comes before its progress is stored."""
        if snapshot.progress is None:
            if not killed:
                self.queue = self.queue.advance(snapshot, ChunkProgress("t", self.position, 0, self.rng.randint(1, 3)))
            return
        progress = snapshot.progress
        pinned, now = self.history[progress.snapshot_id], self.history[self.position]
        paths = sorted(pinned.files)
        parts = [paths[i : i + progress.chunk_bytes] for i in range(0, len(paths), progress.chunk_bytes)]
        chunk = next_chunk(parts, now.files.keys(), progress)
        if chunk is None:
            self.queue = self.queue.without(snapshot)
            return
        if chunk.live:
            rows = [row for path in chunk.live for row in now.live(path)]
        else:
            wanted = {row[0] for path in chunk.removed_files for row in pinned.live(path)}
            newer = [path for path in now.files if path not in pinned.files]
            rows = [row for path in newer for row in now.live(path) if row[0] in wanted]
        self.topic += rows[: self.rng.randint(0, len(rows))] if killed else rows
        if not killed:
            after = advance(progress, chunk, len(rows))
            done = is_done(len(parts), after)
            self.queue = self.queue.without(snapshot) if done else self.queue.advance(snapshot, after)

    def step(self, *, killed: bool) -> bool:
        """Take a turn of changes or of a chunk; return whether there was one."""
        self.queue = SnapshotQueue.parse(self.queue.json())
        snapshot, changed = self.queue.first("t"), self.position + 1 < len(self.history)
        if snapshot is not None and (not changed or self.rng.random() < 0.5):
            self.publish_chunk(snapshot, killed=killed)
        elif changed:
            self.publish_changes(killed=killed)
        return snapshot is not None or changed

    def held(self, since: int = 0) -> dict[int, int]:
        """What a consumer holds that read the topic from an offset on."""
        rows: dict[int, int] = {}
        for key, value in self.topic[since:]:
            if value is None:
                rows.pop(key, None)
            else:
                rows[key] = value
        return rows


@given(st.integers(0, 2**32 - 1))
def test_no_stale_row_and_none_missing(seed: int) -> None:
    """After each turn a consumer has the table as published; who begins at the signal has all of it in the end."""
    rng = random.Random(seed)
    world = World(rng)
    for _ in range(rng.randint(1, 6)):
        world.commit(rng.choice(["append", "update", "rewrite"]))
    while world.step(killed=False):
        pass
    signal = ExecuteSnapshot("1", ("t",))
    asked, began = apply_signal(world.queue, signal, ["t"]).queue, len(world.topic)
    world.queue = asked
    for _ in range(rng.randint(5, 40)):
        if rng.random() < 0.4:
            world.commit(rng.choice(["append", "update", "delete", "rewrite", "compact"]))
        if rng.random() < 0.15:
            command = rng.choice([PauseSnapshot("p"), ResumeSnapshot("r")])
            world.queue = apply_signal(world.queue, command, ["t"]).queue
        killed = rng.random() < 0.25
        world.step(killed=killed)
        if not killed:
            _assert_published(world)
    world.queue = apply_signal(world.queue, ResumeSnapshot("r"), ["t"]).queue
    for _ in range(10_000):
        if not world.step(killed=False):
            break
        _assert_published(world)
    assert world.queue.snapshots == ()
    assert world.held(began) == world.history[-1].rows() == world.held()


def _assert_published(world: World) -> None:
    """A kill in the midst of changes may have told some of the next snapshot's; they come again, nothing older does."""
    published = world.history[world.position].rows()
    ahead = world.history[min(world.position + 1, len(world.history) - 1)].rows()
    held = world.held()
    for key in held.keys() | published.keys():
        assert held.get(key) in (published.get(key), ahead.get(key))


@given(st.integers(0, 2**32 - 1))
def test_a_snapshot_that_is_stopped_leaves_nothing_behind(seed: int) -> None:
    """Stopped at any time, changes go on, and a later signal reads the whole table."""
    rng = random.Random(seed)
    world = World(rng)
    world.commit("append")
    began = 0
    for number in range(3):
        world.queue = apply_signal(world.queue, ExecuteSnapshot(str(number), ("t",)), ["t"]).queue
        began = len(world.topic)
        for _ in range(rng.randint(0, 6)):
            world.commit(rng.choice(["append", "update", "rewrite", "compact"]))
            world.step(killed=rng.random() < 0.2)
        if number < 2:
            world.queue = apply_signal(world.queue, StopSnapshot("s"), ["t"]).queue
            assert world.queue == evolve(SnapshotQueue(), channels=world.queue.channels)
    while world.step(killed=False):
        pass
    assert world.held(began) == world.history[-1].rows()


def test_a_chunk_of_files_that_are_gone_comes_last() -> None:
    """Files that are live are read part by part; rows of those that are gone come in one chunk, by their keys."""
    parts: list[list[Any]] = [["a", "b"], ["c"], ["d"]]
    progress = ChunkProgress("t", 1, 0, 2)
    first = next_chunk(parts, {"b", "d", "new"}, progress)
    assert first is not None
    assert (first.number, first.live, first.left) == (0, ("b",), 0)
    second = next_chunk(parts, {"b", "d", "new"}, advance(progress, first, 1))
    assert second is not None
    assert (second.number, second.live) == (2, ("d",))
    after = advance(advance(progress, first, 1), second, 1)
    assert not is_done(3, after)
    last = next_chunk(parts, {"b", "new"}, after)
    assert last is not None
    assert (last.number, last.live, last.removed_files) == (3, (), ("a", "c", "d"))
    assert is_done(3, advance(after, last, 1))
    assert next_chunk(parts, {"b"}, advance(after, last, 1)) is None
