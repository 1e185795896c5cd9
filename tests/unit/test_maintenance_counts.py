"""What maintenance counted of a table, and snapshots since -> its files by kind; sizes of files."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import attrs
import pytest

from connector.maintenance import file_sizes
from connector.maintenance.file_counts import FileCounts, count_up_to
from connector.maintenance.file_sizes import FileSizes
from connector.maintenance.known_counts import KnownCounts
from connector.maintenance.lease_rules import Lease
from connector.maintenance.table_state import SnapshotSummary

pytestmark = pytest.mark.unit

KINDS = {
    "equality_delete_files": "equality-delete-files",
    "position_delete_files": "position-delete-files",
    "deletion_vectors": "dvs",
}


@attrs.define
class DeleteFiles:
    """The delete files of a table, and its snapshots, newest first, whose summaries tell what Iceberg's do."""

    there: dict[str, int] = attrs.field(factory=lambda: dict.fromkeys(KINDS, 0))
    snapshots: list[SnapshotSummary] = attrs.field(factory=list)

    def commit(self, rng: Random, *, tells: bool = True) -> None:
        """Add and remove some of each kind."""
        told = dict[str, str]()
        for name, kind in KINDS.items():
            added, removed = rng.choice((0, 0, 1, 7)), rng.randint(0, self.there[name])
            self.there[name] += added - removed
            told |= {f"{what}-{kind}": str(count) for what, count in (("added", added), ("removed", removed)) if count}
        total = {"total-delete-files": str(sum(self.there.values()))}
        number = len(self.snapshots) + 1
        made = SnapshotSummary(number, number, "overwrite", {**(told if tells else {}), **total}, number == 1)
        self.snapshots.insert(0, made)

    def counted(self) -> FileCounts:
        """As somebody counts them who reads the manifests."""
        return FileCounts(self.snapshots[0].snapshot_id, **self.there, small_files=5, orphan_bytes=70)


def test_delete_files_are_followed_by_summaries() -> None:
    """From the first snapshot on, or from one at which they were counted, the counts are those of the newest one."""
    for seed in range(200):
        rng, files = Random(seed), DeleteFiles()
        for _ in range(rng.randint(1, 12)):
            files.commit(rng)
        begun = files.counted()
        for _ in range(rng.randint(0, 6)):
            files.commit(rng)
        now = files.counted()
        assert count_up_to(begun, files.snapshots) == now
        assert count_up_to(FileCounts(small_files=5, orphan_bytes=70), files.snapshots) == now


def test_delete_files_are_unknown_where_snapshots_do_not_tell() -> None:
    """Where what was counted has expired, or a writer left out what it did; none are none in any case."""
    rng, files = Random(3), DeleteFiles()
    while sum(files.there.values()) < 3:
        files.commit(rng)
    old = files.counted()
    while sum(files.there.values()) < 3 or files.counted() == old:
        files.commit(rng)
    kept = files.snapshots[:1]
    assert count_up_to(old, kept) is None
    files.there["equality_delete_files"] += 1
    silent = attrs.evolve(files.snapshots[0], snapshot_id=99, summary={"total-delete-files": str(1000)})
    assert count_up_to(files.counted(), [silent, *files.snapshots]) is None
    assert count_up_to(old, [attrs.evolve(silent, summary={}), *files.snapshots]) is None
    empty = count_up_to(old, [attrs.evolve(silent, summary={"total-delete-files": "0"})])
    assert empty == FileCounts(99, small_files=5, orphan_bytes=70)
    assert count_up_to(old, []) == FileCounts(small_files=5, orphan_bytes=70)


def test_counts_are_stored_with_the_lease() -> None:
    """Whoever looks next finds them, also through later leases; a lease of an earlier version has none."""
    counts = FileCounts(7, 1, 2, 3, 4, 5)
    stored = Lease.parse(Lease().take("one", 0, "run").release(counts=counts).json())
    assert stored.counts == counts
    assert Lease.parse(stored.take("two", 9, "next").release(failed=True).json()).counts == counts
    assert Lease.parse('{"owner": "", "until-ms": 0, "counts": {"snapshot_id": 3, "later": 1}}').counts == FileCounts(3)
    assert Lease.parse('{"owner": "", "until-ms": 0}').counts == FileCounts()


def _known(lease: Lease) -> KnownCounts:
    leases: Any = SimpleNamespace(recall=lambda _: lease)
    return KnownCounts(leases)


def test_what_this_process_counted_comes_before_what_is_stored() -> None:
    """And stays known when the snapshot that it began at has expired; orphans are those of whoever looked for them."""
    rng, files = Random(5), DeleteFiles()
    while not all(files.there.values()):
        files.commit(rng)
    known = _known(Lease(counts=attrs.evolve(files.counted(), small_files=1)))
    table: Any = SimpleNamespace(name="db.t", metadata_files=2)
    state = known.describe(table, files.snapshots)
    assert (state.small_files, state.orphan_bytes, state.metadata_files) == (1, 70, 2)
    for _ in range(20):
        files.commit(rng)
        state = known.describe(table, files.snapshots[:2])
        assert {name: getattr(state, name) for name in KINDS} == files.there
    known.note("db.t", attrs.evolve(files.counted(), small_files=9, orphan_bytes=None))
    assert known.describe(table, files.snapshots[:1]).figures.items() >= {"small_files": 9, "orphan_bytes": 70}.items()
    known.note("db.t", files.counted(), orphan_bytes=0)
    assert known.describe(table, files.snapshots[:1]).orphan_bytes == 0
    files.commit(rng)
    files.commit(rng)
    lost = known.describe(table, files.snapshots[:1])
    assert not KINDS.keys() & lost.figures.keys() or not any(files.there.values())


def test_orphans_that_another_process_found_are_told() -> None:
    """Of a table that this process has counted, and has not looked through for orphans."""
    stored = [Lease()]
    leases: Any = SimpleNamespace(recall=lambda _: stored[-1])
    known = KnownCounts(leases)
    known.note("db.t", FileCounts(1, small_files=2))
    assert known.of("db.t") == FileCounts(1, small_files=2)
    stored.append(Lease(counts=FileCounts(9, small_files=7, orphan_bytes=70)))
    assert known.of("db.t") == FileCounts(1, small_files=2, orphan_bytes=70)


def test_sizes_are_added_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In portions, those that are gone meanwhile as nothing; where the store does not answer nobody knows."""
    monkeypatch.setattr(file_sizes, "_PORTION", 2)
    for number in range(5):
        (tmp_path / str(number)).write_bytes(b"x" * number)
    sizes = FileSizes({}, "db.t")
    for name in ("1", "2", "3", "gone", "4"):
        sizes.accept(f"file:{tmp_path / name}")
    assert sizes.total() == 10
    assert FileSizes({}, "db.t").total() == 0

    def fail(*_: object) -> None:
        raise OSError(503, "SlowDown")

    monkeypatch.setattr(file_sizes, "file_io_for", fail)
    for name in ("1", "2", "3"):
        sizes.accept(f"file:{tmp_path / name}")
    assert sizes.total() is None
