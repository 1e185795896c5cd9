"""Files of deleted keys of documents -> noted once, whoever asks first: what waits for documents, or the commit."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from connector.errors import CommitRefused
from connector.sink.destinations.opensearch.deleted_documents import discard_deleted_keys, remember_deleted_keys
from connector.sink.model.result import JobResult


@attrs.frozen
class File:
    """A file of deleted keys."""

    path: str


@attrs.define
class Remembered:
    """A table of deleted keys: what was added to it, and which files were deleted."""

    refuses: bool = False
    added: list[str] = attrs.field(factory=list)
    deleted: list[str] = attrs.field(factory=list)

    def add(self, files: list[File]) -> None:
        if self.refuses:
            raise CommitRefused("another writer was faster")
        self.added += [file.path for file in files]

    def delete_file(self, path: str) -> None:
        self.deleted.append(path)


def _noted(table: Remembered, result: JobResult) -> None:
    known: Any = table
    remember_deleted_keys(known, result)


def test_deletes_are_noted_once() -> None:
    """A batch that needed them before its documents moved does not note them again, nor are their files deleted."""
    table, result = Remembered(), JobResult(deleted_key_files=[File("a"), File("b")])
    _noted(table, result)
    _noted(table, result)
    known: Any = table
    discard_deleted_keys(known, result)
    assert (table.added, table.deleted) == (["a", "b"], [])


def test_files_of_deletes_that_were_refused_are_deleted() -> None:
    """No snapshot will have them: the batch comes again, and writes others."""
    table = Remembered(refuses=True)
    with pytest.raises(CommitRefused):
        _noted(table, JobResult(deleted_key_files=[File("a"), File("a")]))
    assert table.deleted == ["a"]
