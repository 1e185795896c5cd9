"""What tasks tell the driver -> the result of their job: one class for each thing to tell, small and bounded.

They are `DriverOutput`s, and travel as pickles in a `TaskOutput` of kind DRIVER.
"""

from __future__ import annotations

import attrs

from connector.iceberg.keys.key_ranges import KeyRanges
from connector.runtime.monitoring.metrics import TaskMetrics
from connector.sink.model.plan import DeadLetterRef, SchemaChange
from connector.sink.model.result import JobResult, SourceProgress
from connector.sink.model.truncates import Truncate


@attrs.frozen(eq=False)
class Written:
    """What a writer wrote into a table, as the destination's committer wants it: a file, counts of documents."""

    table: int
    description: object

    def add_to(self, result: JobResult) -> None:
        """Add it to the table's."""
        result.written.setdefault(self.table, []).append(self.description)


@attrs.frozen(eq=False)
class DeletedKeysWritten:
    """A file of deleted keys."""

    description: object

    def add_to(self, result: JobResult) -> None:
        """Add it to the files of all tables."""
        result.deleted_key_files.append(self.description)


@attrs.frozen(eq=False)
class SchemaChangeNeeded:
    """A shape of events that a table is not ready for."""

    change: SchemaChange

    def add_to(self, result: JobResult) -> None:
        """Add it: the job will run again."""
        result.schema_changes.append(self.change)


@attrs.frozen(eq=False)
class UnavailableValuesSeen:
    """Events of a table leave values out that it may hold, and the plan did not say so."""

    table: int

    def add_to(self, result: JobResult) -> None:
        """Add the table: the job will run again."""
        result.tables_lacking_values.add(self.table)


@attrs.frozen(eq=False)
class TruncatesSeen:
    """Truncate events of a table."""

    table: int
    truncates: tuple[Truncate, ...]

    def add_to(self, result: JobResult) -> None:
        """Add them to the table's."""
        result.truncates[self.table] = (*result.truncates.get(self.table, ()), *self.truncates)


@attrs.frozen(eq=False)
class DeadLettersFound:
    """Records that cannot be used."""

    letters: tuple[DeadLetterRef, ...]

    def add_to(self, result: JobResult) -> None:
        """Add them."""
        result.dead_letters.extend(self.letters)


@attrs.frozen(eq=False)
class RecordsCounted:
    """What a task counted."""

    metrics: TaskMetrics

    def add_to(self, result: JobResult) -> None:
        """Add the counts up."""
        result.metrics += self.metrics


@attrs.frozen(eq=False)
class ProgressMade:
    """How far sources came in what a map task read, and the upserted tables that its changes are for."""

    progress: tuple[SourceProgress, ...]
    tables: frozenset[int] = frozenset()

    def add_to(self, result: JobResult) -> None:
        """Add it; topic-partitions that several tasks read come several times."""
        result.progress = (*result.progress, *self.progress)
        result.tables_changed |= self.tables


@attrs.frozen(eq=False)
class LateCandidatesFound:
    """Where the keys of a table's late candidates lie."""

    table: int
    ranges: KeyRanges

    def add_to(self, result: JobResult) -> None:
        """Join the ranges with the table's."""
        known = result.late_ranges.get(self.table)
        result.late_ranges[self.table] = KeyRanges.join([self.ranges] if known is None else [known, self.ranges])


@attrs.frozen(eq=False)
class KeysToReplace:
    """Where keys lie whose rows have to be found in the table before the commit."""

    table: int
    ranges: KeyRanges

    def add_to(self, result: JobResult) -> None:
        """Add them to the table's."""
        result.key_ranges.setdefault(self.table, []).append(self.ranges)


@attrs.frozen(eq=False)
class KeysWaiting:
    """Some keys of a table are written once all tasks are through."""

    table: int

    def add_to(self, result: JobResult) -> None:
        """Name the table."""
        result.tables_waiting.add(self.table)


@attrs.frozen(eq=False)
class DeletesWanted:
    """A task goes on once it knows the remembered deletes of so many keys of a table."""

    table: int
    count: int

    def add_to(self, result: JobResult) -> None:
        """Add them to the table's."""
        result.deletes_wanted[self.table] = result.deletes_wanted.get(self.table, 0) + self.count


@attrs.frozen(eq=False)
class VersionsWritten:
    """Where keys and times of new versions lie, in a table that keeps history."""

    table: int
    ranges: KeyRanges

    def add_to(self, result: JobResult) -> None:
        """Add them to the table's."""
        result.version_ranges.setdefault(self.table, []).append(self.ranges)


@attrs.frozen(eq=False)
class FilesFound:
    """Data files of a table that have rows of the keys that were looked up."""

    table: int
    paths: tuple[str, ...]

    def add_to(self, result: JobResult) -> None:
        """Add them."""
        result.files_found.extend(self.paths)


@attrs.frozen(eq=False)
class FilesUnindexed:
    """Data files of a table whose keys have no index: they have to be looked into in another way."""

    table: int
    paths: tuple[str, ...]

    def add_to(self, result: JobResult) -> None:
        """Add them."""
        result.files_unindexed.extend(self.paths)


@attrs.frozen(eq=False)
class OutputsLeft:
    """Which outputs stay on executors, for look-ups: pairs of a table and a kind of output."""

    kinds: frozenset[tuple[int, str]]

    def add_to(self, result: JobResult) -> None:
        """Add the kinds to each table's."""
        for table, kind in self.kinds:
            result.kinds_left.setdefault(table, set()).add(kind)
