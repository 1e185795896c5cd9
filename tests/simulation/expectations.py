"""What is acknowledged, by commits and stored offsets -> the rows that a table must have now.

Every record that a commit's offsets cover, or those in the offsets table, has to be in the table, once, and a row is
what the newest of its key says, by the source's own order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from connector.runtime.topic_partitions import TopicPartition
from serde.events.images.unavailable_value import PLACEHOLDER
from tests.simulation.catalog_server import Rows
from tests.simulation.columns import DELETED, VALUES, differing
from tests.simulation.moves import LARGE
from tests.simulation.reads_left_behind import ReadsLeftBehind
from tests.simulation.source import Truth

FOREIGN = 1000
"""Keys from here on are those of other writers."""

FOREIGN_NAME = "foreign"
"""The large value of their rows."""

Reads = Mapping[TopicPartition, Mapping[int, Truth]]
Documents = Mapping[str, tuple[int, Mapping[str, Any]]]


class Wrong(AssertionError):
    """An invariant does not hold."""


@attrs.define(eq=False)
class Expectation:
    """Of one table. `exact` tells that each change proves its age to the table, so that no state of it is older than it
    may be; `precise` that dates are more than whole seconds, `alone` that one partition has all. Keys are above `base`.
    `together`: batches take whole transactions. `keeps`: a row that is deleted, or that a truncate took, stays, and is
    marked. `rewrites`: deletes write data files anew, without the rows that they take. `documents`: it is an index.
    `metadata` are the columns that tell of each row's event.
    """

    topic: str
    upsert: bool
    exact: bool
    precise: bool
    alone: bool = True
    base: int = 0
    keeps: bool = False
    together: bool = False
    rewrites: bool = False
    documents: bool = False
    metadata: tuple[str, ...] = ()
    ends: dict[TopicPartition, int] = attrs.field(factory=dict)
    taken: list[Truth] = attrs.field(factory=list)
    foreign: dict[int, Mapping[str, Any]] = attrs.field(factory=dict)
    poison: set[tuple[str, int, int]] = attrs.field(factory=set)
    partial: bool = False
    """Whether records went before anybody may have read them: nobody knows then what updates left out."""

    early_cut: int = 0
    """Up to here rows may be gone: a truncate takes them in a commit of its own, before its batch's."""

    parted: set[int] = attrs.field(factory=set)
    """Keys of rows whose old key went in the batch before, with changes that no table has seen (decision 0074)."""

    late: dict[int, set[int]] = attrs.field(factory=dict)
    """What late requests put into an index, by key: dates of whole seconds do not tell it from what comes behind a
    truncate (docs/guarantees.md)."""

    left_behind: ReadsLeftBehind = attrs.field(factory=ReadsLeftBehind)
    held: tuple[Any, ...] = ()
    """All that the last comparison saw: where nothing of it is another by now, it holds again."""

    def copy(self) -> Expectation:
        """Return the same, to go back to."""
        return attrs.evolve(
            self,
            ends=dict(self.ends),
            taken=list(self.taken),
            foreign=dict(self.foreign),
            poison=set(self.poison),
            parted=set(self.parted),
            late={key: set(told) for key, told in self.late.items()},
            left_behind=self.left_behind.copy(),
        )

    def advance(self, ends: Mapping[TopicPartition, int], reads: Reads, there: Reads, why: str) -> None:
        """Take in what lies before new ends.

        Args:
            ends: the offsets that are durable now.
            reads: what the process had read.
            there: what can be read now.
            why: what made it durable, for messages.
        """
        self.left_behind.begin_batch()
        for at, end in ends.items():
            if at[0] != self.topic:
                continue
            start = self.ends.setdefault(at, 0)
            if end <= start:
                continue
            seen, now = reads.get(at, {}), there.get(at, {})
            skipped = [offset for offset in range(start, end) if offset in now and offset not in seen]
            if skipped:
                raise Wrong(f"{why}: {at[0]}-{at[1]} stands at {end}, but offset {skipped[0]} was never read")
            self.left_behind.take(at, (seen[offset] for offset in range(start, end) if offset in seen))
            for offset in range(start, end):
                truth = seen.get(offset)
                if truth is None:
                    continue
                if truth.says == "poison":
                    self.poison.add((*at, offset))
                else:
                    self.taken.append(truth)
                    if truth.came_from is not None and self._is_parted(truth, truth.came_from):
                        self.parted.add(truth.key)
                    if truth.key in self.foreign and self.upsert:
                        self.foreign.pop(truth.key)
            self.ends[at] = end

    def _is_parted(self, made: Truth, old: int) -> bool:
        """Tell whether a row's values came and went, under its old key, in one batch, or went with a data file, and the
        row itself came later.
        """
        batches = self.left_behind.changes
        gone, come = batches.get(made.serial - 1), batches[made.serial]
        if old in self.parted or gone is None or gone[0] == come[0]:
            return old in self.parted
        if self.rewrites:
            return True
        before = (one for one in self.taken if one.key == old and one.row is not None and one.serial < made.serial)
        return any(one.says == "change" and batches[one.serial][0] == gone[0] for one in before)

    def brings_rows(self, there: Reads) -> bool:
        """Tell whether what is behind the offsets has rows for the table: of what comes again, or is deleted at once,
        one with keys gets none.
        """
        behind = [
            truth
            for at, known in there.items()
            for offset, truth in known.items()
            if at[0] == self.topic and offset >= self.ends.get(at, 0) and not truth.tombstone
        ]
        known, last = (
            {truth.key: truth.serial for truth in sorted(some, key=lambda one: one.serial)}
            for some in (self.taken, behind)
        )
        rows = (truth for truth in behind if truth.says in ("change", "read") and truth.row is not None)
        cut = max((truth.serial for truth in behind if truth.says == "truncate"), default=0)
        return any(
            not self.upsert or truth.serial == last[truth.key] > max(cut, known.get(truth.key, 0)) for truth in rows
        )

    def has(self, key: int) -> bool:
        """Tell whether a key is of this topic, where several share a table; the first has those of other writers."""
        return self.base <= key < self.base + 100 or (key >= FOREIGN and not self.base)

    def empty(self, reads: Reads) -> None:
        """Take note that rows from before a truncate go, which the process has read and nothing acknowledges yet."""
        read = [truth for at, known in reads.items() if at[0] == self.topic for truth in known.values()]
        self.early_cut = max([self.early_cut, *(truth.serial for truth in read if truth.says == "truncate")])

    def note_late_rows(self, before: Documents, after: Documents) -> None:
        """Take note of what requests that came late changed in an index."""
        for key, document in after.items():
            if before.get(key) != document:
                row = document[1]
                self.late.setdefault(row["id"], set()).add(row["n"])

    def check(self, rows: Rows, *, complete: bool) -> None:
        """Compare the table; `complete` tells that all there is was taken in, so that nothing is on its way."""
        doubts = self.early_cut, self.partial, self.alone, self.left_behind.counts, sum(map(len, self.late.values()))
        known = list(self.taken), dict(self.foreign), *doubts
        seen = complete, list(rows), *known
        if seen != self.held:
            self._check(rows, complete=complete)
            self.held = seen

    def _check(self, rows: Rows, *, complete: bool) -> None:
        if not self.upsert:
            self._check_appended(rows)
            return
        found: dict[int, Any] = {}
        for row in rows:
            if row["id"] in found:
                raise Wrong(f"key {row['id']} has two rows: n={found[row['id']]['n']} and n={row['n']}")
            found[row["id"]] = row
        live = {key: row["n"] for key, row in found.items() if row.get(DELETED) != "true"}
        for key, allowed, row in self._allowed(complete=complete):
            if live.get(key) not in allowed:
                raise Wrong(f"key {key} is {_told(live.get(key))}, and must be {' or '.join(map(_told, allowed))}")
            if row is not None and live.get(key) == row["n"]:
                self._check_large(key, found[key], row)
                self._check_metadata(found[key], DELETED, *self.metadata)
        if complete and self.keeps:
            self._check_marked(found)
        if complete and self.keeps and (gone := self._with_rows() - found.keys()):
            raise Wrong(f"rows of keys {sorted(gone)} are not there, and deletes and truncates keep them")
        known = {truth.key for truth in self.taken} | self.foreign.keys()
        if self.partial:
            # The create under the new key went, and the row of the old one is there.
            known |= {truth.went_to for truth in self.taken if truth.went_to is not None}
        if strange := live.keys() - known:
            raise Wrong(f"keys {sorted(strange)} are there, and no record has them")

    def _check_metadata(self, row: Mapping[str, Any], *names: str) -> None:
        """Compare a row with the events that have its number."""
        events = (truth.told for truth in self.taken if truth.key == row["id"] and truth.told)
        if wrong := differing(row, (told for told in events if told["n"] == row["n"]), names):
            raise Wrong(f"key {row['id']} has other values of {', '.join(wrong)} than its event: {row}")

    def _check_large(self, key: int, found: Mapping[str, Any], row: Mapping[str, Any]) -> None:
        """Compare what updates, and changes of the key, may have left out."""
        wrong = [name for name in LARGE if name in row and found.get(name) != row[name]]
        if not wrong or key in self.parted or (not self.alone and not self.together and self._moves(key)):
            return  # of an old key in another partition the last updates may come with a later batch
        if self._was_hidden(key) or self._moved_behind_read(key) or self._was_emptied_before(key):
            return
        for name in wrong:
            # Where nobody knows the value, a row of others under the key may have been taken for its row.
            if found.get(name) not in (PLACEHOLDER, FOREIGN_NAME) or not self.partial:
                raise Wrong(f"the {name} of key {key} is {found.get(name)}, and must be {row[name]}")

    def _was_hidden(self, key: int) -> bool:
        """Tell whether a read that came before a change of its key may have stood in its place: then changes behind
        that took values from it.
        """
        changes = (truth for truth in self.taken if truth.key == key and truth.says == "change")
        return any(True for truth in changes for _ in self.left_behind.rivals(truth))

    def _was_emptied_before(self, key: int) -> bool:
        """Tell whether a truncate took the row that has the value before changes from before it were applied: it is in
        a commit of its own, which another process may follow.
        """
        last = max((truth.serial for truth in self.taken if truth.key == key), default=self.early_cut)
        return last < self.early_cut

    def _moved_behind_read(self, key: int) -> bool:
        """Tell whether the change that brought the row to this key came again behind a read of it, which tells no age
        and is not asked (docs/guarantees.md).
        """
        read = 0
        for truth in self.taken:
            if truth.key == key and truth.says == "read":
                read = max(read, truth.serial)
            elif truth.key == key and truth.came_from is not None and truth.serial < read:
                return True
        return False

    def _allowed(self, *, complete: bool) -> Iterator[tuple[int, list[int | None], Mapping[str, Any] | None]]:
        """The values that a key may have, None for no row; and its row, if it has one."""
        by_key: dict[int, list[Truth]] = defaultdict(list)
        cut = max((truth.serial for truth in self.taken if truth.says == "truncate"), default=0)
        for truth in self.taken:
            if truth.says != "truncate":
                by_key[truth.key].append(truth)
        for key, truths in by_key.items():
            last = max(truths, key=lambda truth: truth.serial)
            read = any(truth.says == "read" for truth in truths)
            if cut and not self.alone and (read or not self.precise):
                continue  # whether it is from before the truncate, in another partition, nobody can tell
            events = {truth.serial for truth in truths if not truth.tombstone}
            # Of a delete that was compacted the tombstone is left, which tells no age.
            proven = self.exact and not read and all(truth.serial in events for truth in truths)
            if complete or proven:
                early = [None] if last.serial < self.early_cut else []
                reads = [_n(one, cut) for one in self.left_behind.rivals(last) if one.serial > cut]
                late = self.late.get(key, ()) if last.serial < cut and not self.precise else ()
                moved = self._find_moved(key) if self.documents and self.partial and not self.precise else ()
                yield key, [_n(last, cut), *early, *reads, *late, *moved], last.row
        # A truncate takes the rows of others that were there; one that comes again may, or may not, take later ones.
        for key, row in self.foreign.items() if not cut and not self.early_cut else ():
            yield key, [row["n"]], row

    def _find_moved(self, key: int) -> Iterator[int]:
        """What documents say that moved to a key, by the delete of their old one, where retention took the create: its
        date may be later than that of a change behind it (docs/guarantees.md).
        """
        creates = {truth.serial for truth in self.taken if truth.came_from is not None}
        for gone in self.taken:
            if gone.went_to == key and gone.serial + 1 not in creates:
                before = (truth for truth in self.taken if truth.key == gone.key and truth.serial < gone.serial)
                rows = [truth.row["n"] for truth in sorted(before, key=lambda one: one.serial) if truth.row is not None]
                yield from rows[-1:]

    def _with_rows(self) -> set[int]:
        """Keys that have had a row; of another partition than a truncate's they may have come too late for a mark."""
        if not self.alone and any(truth.says == "truncate" for truth in self.taken):
            return set()
        return {truth.key for truth in self.taken if truth.says in ("change", "read") and truth.row is not None}

    def _check_marked(self, found: Mapping[int, Mapping[str, Any]]) -> None:
        """Rows that are marked tell of the delete, and those that a truncate took stay as they were."""
        for row in found.values():
            if row.get(DELETED) == "true":
                self._check_metadata(row, *self.metadata)
        cut = max((truth.serial for truth in self.taken if truth.says == "truncate"), default=0)
        if not cut or not self.alone or self.partial:
            return
        last = {truth.key: truth for truth in sorted(self.taken, key=lambda one: one.serial) if truth.says == "change"}
        for key, truth in last.items():
            row = found.get(key)
            if truth.row is None or truth.serial > cut or row is None or row.get(DELETED) != "true":
                continue
            if row["n"] != truth.row["n"]:
                raise Wrong(f"the marked row of key {key} has n={row['n']}, and must have {_told(truth.row['n'])}")

    def _moves(self, key: int) -> list[Truth]:
        """The creates that a change of key made."""
        return [truth for truth in self.taken if truth.key == key and truth.came_from is not None]

    def _check_appended(self, rows: Rows) -> None:
        names = ("id", *VALUES, DELETED, *self.metadata)
        whole = [truth.told for truth in self.taken if truth.told], list(self.foreign.values()), rows
        told, foreign, found = (Counter(tuple(map(row.get, names)) for row in some) for some in whole)
        wanted = told + foreign
        if found != wanted:
            missing, extra = wanted - found, found - wanted
            raise Wrong(f"appended rows: missing {dict(missing)}, not expected {dict(extra)}")


def _n(truth: Truth, cut: int) -> int | None:
    return None if truth.row is None or truth.serial < cut else truth.row["n"]


def _told(value: int | None) -> str:
    return "not there" if value is None else f"n={value}"
