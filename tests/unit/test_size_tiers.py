"""Files of a steady load, merged by the options that rewrites get: how many stay small, how much is written for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from random import Random

import attrs
import pytest

from connector.maintenance.rewrite_rules import rewrite_options
from connector.maintenance.size_tiers import LEAST_FILES, RATIO, plan_passes, small_file_bytes
from connector.maintenance.table_state import TableState
from connector.settings.iceberg.maintenance.policies import RewritePolicy

pytestmark = pytest.mark.unit

KIB, MIB, TARGET = 1024, 1024**2, 512 * 1024**2
DAY_S = 86_400
AS_BEFORE = RewritePolicy(min_input_files=5)
"""What was the default: all small files of a partition, whatever their sizes."""


@attrs.define
class Files:
    """Sizes of a table's data files by partition, and what was written to make them."""

    sizes: dict[int, list[int]] = attrs.field(factory=dict)
    ingested: int = 0
    rewritten: int = 0

    def append(self, partition: int, sizes: list[int]) -> None:
        self.sizes.setdefault(partition, []).extend(sizes)
        self.ingested += sum(sizes)

    def rewrite(self, policy: RewritePolicy) -> int:
        """Do what Iceberg does by the options of each call, to files without deletes; tells how many files went."""
        before = self.rewritten
        gone = 0
        state = self.state()
        for one in plan_passes(policy, state, TARGET):
            gone += self._rewrite_once(rewrite_options(policy, state, one, by_groups=False))
            if self.rewritten - before >= policy.max_bytes:
                break
        return gone

    def state(self) -> TableState:
        count = sum(map(len, self.sizes.values()))
        return TableState(data_files=count, size_bytes=sum(map(sum, self.sizes.values())))

    def _rewrite_once(self, told: dict[str, str]) -> int:
        least, small, wanted, large, group_bytes, left = (
            int(told[name])
            for name in (
                "min-input-files",
                "min-file-size-bytes",
                "target-file-size-bytes",
                "max-file-size-bytes",
                "max-file-group-size-bytes",
                "max-files-to-rewrite",
            )
        )
        assert small < wanted < large, "Iceberg refuses them"
        whole = left
        for sizes in self.sizes.values():
            stay = [size for size in sizes if small <= size <= large]
            for group in _pack([size for size in sizes if not small <= size <= large], group_bytes):
                total = sum(group)
                if left and (total > large or (len(group) > 1 and (len(group) >= least or total > wanted))):
                    taken, rest = group[:left], group[left:]
                    left -= len(taken)
                    self.rewritten += sum(taken)
                    stay += [*rest, *_cut(sum(taken), wanted, small, large)]
                else:
                    stay += group
            sizes[:] = stay
        return whole - left

    def small(self, policy: RewritePolicy) -> list[int]:
        """How many small files each partition has."""
        bound = small_file_bytes(policy, TARGET)
        return [sum(size < bound for size in sizes) for sizes in self.sizes.values()]


def _pack(sizes: list[int], group_bytes: int) -> Iterator[list[int]]:
    group: list[int] = []
    total = 0
    for size in sizes:
        if group and total + size > group_bytes:
            yield group
            group, total = [], 0
        group.append(size)
        total += size
    if group:
        yield group


def _cut(total: int, wanted: int, small: int, large: int) -> list[int]:
    """Iceberg's `expectedOutputFiles`."""
    if total < wanted:
        return [total]
    count = total // wanted
    if total % wanted > small or (total % wanted and total / count >= min(1.1 * wanted, wanted + (large - wanted) / 2)):
        count += 1
    return [total // count] * count


def _load(policy: RewritePolicy, seconds: int, drawn: Sequence[Mapping[int, list[int]]]) -> tuple[Files, int]:
    """A batch each second, and a rewrite whenever there are enough new files, which are one of those that were `drawn`;
    tells the most small files that a partition had after one.
    """
    files, most = Files(), 0
    for turn in range(seconds // policy.files):
        for partition, sizes in drawn[turn % len(drawn)].items():
            files.append(partition, sizes)
        files.rewrite(policy)
        most = max(most, *files.small(policy))
    return files, most


def _draw(kib: tuple[int, int], partitions: int = 1) -> list[dict[int, list[int]]]:
    """New files between two rewrites, some times over; of many partitions a few have most."""
    rng, drawn = Random(1), []
    for _ in range(50):
        found: dict[int, list[int]] = {}
        for _ in range(100):
            partition = min(partitions, int(rng.paretovariate(0.7)))
            found.setdefault(partition, []).append(rng.randint(*kib) * KIB)
        drawn.append(found)
    return drawn


def test_a_month_of_batches_is_written_a_few_times() -> None:
    """Of 30 days with a batch of about 30 KB each second a byte is written about once for each tier that it goes
    through, and no more small files are left than one fewer than the highest tier asks for.
    """
    files, most = _load(RewritePolicy(), 30 * DAY_S, _draw((10, 50)))
    assert files.rewritten < 5 * files.ingested
    assert most <= plan_passes(RewritePolicy(), TableState(), TARGET)[-1].min_files - 1 == 20


def test_without_tiers_the_large_small_file_is_written_each_time() -> None:
    """The same load merged whatever the sizes: what the default was, and what is asked for by `min-input-files`."""
    files, _ = _load(AS_BEFORE, DAY_S, _draw((10, 50)))
    assert files.rewritten > 40 * files.ingested


@pytest.mark.parametrize(("hours", "times"), [(3, 3.5), (24, 4.5)])
def test_what_is_written_grows_with_the_logarithm_of_the_table(hours: int, times: float) -> None:
    """Eight times the time: one write more for each byte."""
    files, _ = _load(RewritePolicy(), hours * 3600, _draw((30, 30)))
    assert files.rewritten < times * files.ingested


def test_busy_partitions_leave_quiet_ones_alone() -> None:
    """Partitions of which a few take nearly all rows: in each a byte is written about once for each tier."""
    files, most = _load(RewritePolicy(), DAY_S, _draw((20, 20), 100))
    assert files.rewritten < 6 * files.ingested
    assert most <= 20


def test_few_rows_in_tiny_files() -> None:
    """Batches of 2 KB: below the lowest bound files are merged again and again, which is little for all that."""
    files, most = _load(RewritePolicy(), 2 * DAY_S, _draw((2, 2)))
    assert files.rewritten < 7 * files.ingested
    assert most <= 20


def test_a_tier_is_left_by_what_is_merged_of_it() -> None:
    """As many files as a call asks for, fewer than the call before it asked for below its bound: what they become is
    above the bound, however small they were.
    """
    passes = plan_passes(RewritePolicy(), TableState(), TARGET)
    assert [one.small_bytes // MIB for one in passes] == [1, 4, 16, 64, 256]
    for below, one in pairwise(passes):
        of_the_tier = one.min_files - (below.min_files - 1)
        assert of_the_tier == LEAST_FILES > RATIO
        assert of_the_tier * below.small_bytes >= one.small_bytes


def test_merged_files_are_not_small_again() -> None:
    """600 MB are two files of 300 MB, which stay: half of the size aimed at is enough."""
    files = Files({0: [200 * MIB] * 3})
    assert files.rewrite(RewritePolicy()) == 3
    assert files.sizes[0] == [300 * MIB] * 2
    assert files.rewrite(RewritePolicy()) == 0


def test_small_files_of_a_large_table_are_all_merged() -> None:
    """How many are merged at once goes by their own size, not by the mean of files that nobody touches."""
    files = Files({0: [TARGET] * 2000 + [20 * KIB] * 300})
    assert files.rewrite(RewritePolicy()) == 300
    assert Counter(files.sizes[0]) == {TARGET: 2000, 300 * 20 * KIB: 1}


def test_a_small_budget_makes_smaller_files() -> None:
    """Where less is read at a time than a file aims at, files grow to a part of it, and no larger one is cut."""
    policy = RewritePolicy(max_bytes=128 * MIB)
    files = Files({0: [TARGET, *[30 * MIB] * 40, *[KIB] * 7]})
    for _ in range(30):
        files.rewrite(policy)
    assert max(files.sizes[0]) == TARGET
    assert sum(size < 42 * MIB for size in files.sizes[0]) <= 20
    assert files.rewritten < 3 * 40 * 30 * MIB


@pytest.mark.parametrize(
    ("policy", "wanted"),
    [
        (RewritePolicy(min_input_files=2), (384 * MIB, 2, TARGET)),
        (RewritePolicy(min_file_bytes=10 * MIB), (10 * MIB, 5, TARGET)),
        (RewritePolicy(min_file_bytes=10 * MIB, min_input_files=3, target_bytes=20 * MIB), (10 * MIB, 3, 20 * MIB)),
        (RewritePolicy(min_file_bytes=30 * MIB, target_bytes=20 * MIB), (20 * MIB - 1, 5, 20 * MIB)),
    ],
)
def test_what_was_asked_for_is_done_at_once(policy: RewritePolicy, wanted: tuple[int, int, int]) -> None:
    """Who says which files are small, or how many are too many, gets just that, by one call."""
    (one,) = plan_passes(policy, TableState(delete_files=1), TARGET)
    assert (one.small_bytes, one.min_files, one.target_bytes) == wanted
    assert one.by_deletes


def test_files_full_of_deletes_are_rewritten_apart() -> None:
    """A group with one of them is rewritten as a whole, so that they are taken before, and only where there are any."""
    policy, state = RewritePolicy(delete_files=3), TableState(data_files=100, size_bytes=MIB, delete_files=1)
    first, second = plan_passes(policy, state, TARGET)
    told, others = (rewrite_options(policy, state, one, by_groups=False) for one in (first, second))
    assert (told["min-file-size-bytes"], told["delete-ratio-threshold"], told["delete-file-threshold"]) == (
        "0",
        "0.3",
        "3",
    )
    assert others["delete-ratio-threshold"] == "1.0" and "delete-file-threshold" not in others
    assert len(plan_passes(policy, attrs.evolve(state, delete_files=0), TARGET)) == 1


def test_tiers_that_a_table_cannot_have_are_not_looked_for() -> None:
    """A table of a few megabytes is planned once; one whose summaries tell no size, by all tiers."""
    few = TableState(data_files=100, size_bytes=6 * MIB)
    assert [one.small_bytes // MIB for one in plan_passes(RewritePolicy(), few, TARGET)] == [1, 4]
    assert len(plan_passes(RewritePolicy(), TableState(data_files=100), TARGET)) == 5
    assert [one.small_bytes // MIB for one in plan_passes(RewritePolicy(target_bytes=8 * MIB), few, TARGET)] == [1, 4]
