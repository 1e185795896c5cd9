"""Outputs of map tasks -> those of the reduce tasks: folded once, and told again where all that they see is the same.

What is written is written each time: files have names of their own, and each write is a call that may fail.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

import attrs

from connector.iceberg.catalog.file_description import FileDescription
from connector.iceberg.catalog.table_layout import TableLayout
from connector.iceberg.write.partitioning import Partition
from connector.iceberg.write.rolling_file import FileKind
from connector.iceberg.write.table_writer import OpenFile
from connector.sink.model.driver_output import DeletedKeysWritten, Written
from connector.sink.model.task_output import OutputKind, TaskOutput, unpack_value
from tests.simulation.answers import Answers
from tests.simulation.store import FileRows, MemoryFile

FOLDS = Answers()

Told = TaskOutput | int | tuple[Written | DeletedKeysWritten, FileRows]
"""What reduce tasks told: an output, one that they only passed on, by its place, or what is to be in a file."""


@attrs.frozen(eq=False)
class FoldInput:
    """What reduce tasks get: outputs, `seen` is all else that they look at; `run` runs them with other files."""

    outputs: Sequence[TaskOutput]
    seen: Hashable
    run: Callable[[Sequence[TaskOutput], OpenFile], Iterable[TaskOutput]]

    @property
    def question(self) -> Hashable:
        """What decides what comes of it."""
        return tuple((one.kind, one.table, one.bucket, _seen_payload(one)) for one in self.outputs), self.seen


def fold_once(work: FoldInput, store: int) -> Iterator[TaskOutput]:
    """Return what reduce tasks tell of an input; files are written to a store."""
    for told in FOLDS.of(work.question, lambda: fold(work)):
        if isinstance(told, int):
            yield work.outputs[told]
        elif isinstance(told, TaskOutput):
            yield told
        else:
            yield TaskOutput.of(attrs.evolve(told[0], description=told[1].write(store)))


def _seen_payload(output: TaskOutput) -> bytes | None:
    """What is for the driver reduce tasks do not look at; it tells how long things took."""
    return None if output.kind == OutputKind.DRIVER else output.payload


def fold(work: FoldInput) -> tuple[Told, ...]:
    """Run the tasks; outputs for the driver have their places as payloads meanwhile."""
    files = NotedFiles([])
    given = [
        attrs.evolve(one, payload=str(at).encode()) if one.kind == OutputKind.DRIVER else one
        for at, one in enumerate(work.outputs)
    ]
    return tuple(_note(one, files.noted) for one in work.run(given, files))


def _note(output: TaskOutput, noted: Sequence[FileRows]) -> Told:
    if output.kind != OutputKind.DRIVER:
        return output
    if output.payload.isdigit():
        return int(output.payload)
    value = unpack_value(output.payload)
    if isinstance(value, Written | DeletedKeysWritten) and isinstance(value.description, FileDescription):
        return value, noted[int(value.description.path)]
    return output


@attrs.frozen
class NotedFiles:
    """Opens files of which is only noted what they are to have; their paths are numbers."""

    noted: list[FileRows]

    def __call__(self, layout: TableLayout, kind: FileKind, partition: Partition, label: str) -> NotedFile:
        return NotedFile(-1, layout, kind, noted=self.noted)


@attrs.define(eq=False)
class NotedFile(MemoryFile):
    """A file that is not written yet."""

    noted: list[FileRows] = attrs.field(kw_only=True)

    def put(self, rows: FileRows) -> FileDescription:
        """Note it."""
        self.noted.append(rows)
        return rows.describe(str(len(self.noted) - 1))
