"""Parts of a pinned snapshot + the files that are live now -> what the next chunk reads (pure).

A chunk is read as of the newest snapshot that is published, never as of the pinned one: its rows are the table's rows
of that moment, and what changes them later is published later. So no row of a chunk can be older than what consumers
have (docs/decisions/0039-snapshots-on-demand.md).

A file of the pinned snapshot that is still live has such rows, less those that deletes have struck since. A file that
is gone was rewritten: its rows are in other files, those that changed are published, the others are not. They come
last, in one chunk: rows of files that are newer than the pinned snapshot, whose keys are in files that are gone.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import Generic, TypeVar

import attrs

File = TypeVar("File", bound=Hashable)
"""What tells a file of a table from its others, in any snapshot."""


@attrs.frozen
class ChunkProgress:
    """How far a snapshot on demand is: chunks before `chunk` are published, of about `chunk_bytes` each.

    `rows` counts the rows of the files that were read. `left` is the first chunk that had files that are gone, None
    while there is none.
    """

    table_uuid: str
    snapshot_id: int
    chunk: int
    chunk_bytes: int
    rows: int = 0
    left: int | None = None


@attrs.frozen
class Chunk(Generic[File]):
    """What to read next: `live` files as they are now, or rows of newer files by the keys of `removed_files`.

    `number` is its number; `left` as in the progress, when it is published.
    """

    number: int
    live: tuple[File, ...]
    removed_files: tuple[File, ...]
    left: int | None


def next_chunk(parts: Sequence[Sequence[File]], now: Collection[File], progress: ChunkProgress) -> Chunk[File] | None:
    """Return the next chunk, None when all is published.

    Args:
        parts: the pinned snapshot's files, part by part.
        now: the files of the newest snapshot that is published.
        progress: how far the snapshot is.
    """
    remaining = progress.left
    for number in range(progress.chunk, len(parts)):
        live = tuple(file for file in parts[number] if file in now)
        if len(live) < len(parts[number]) and remaining is None:
            remaining = number
        if live:
            return Chunk(number, live, (), remaining)
    if remaining is None or progress.chunk > len(parts):
        return None
    missing = tuple(file for part in parts[remaining:] for file in part if file not in now)
    return Chunk(len(parts), (), missing, remaining)


def advance(progress: ChunkProgress, chunk: Chunk[File], rows: int) -> ChunkProgress:
    """Return the progress when a chunk is published that read so many rows."""
    return attrs.evolve(progress, chunk=chunk.number + 1, rows=progress.rows + rows, left=chunk.left)


def is_done(parts: int, progress: ChunkProgress) -> bool:
    """Whether nothing is left: all parts are published, and what was in files that are gone."""
    return progress.chunk > parts or (progress.chunk == parts and progress.left is None)
