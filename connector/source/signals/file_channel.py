"""A file with one signal per line -> signals. The file is taken away when it was read, as Debezium empties it.

It is renamed first and removed when what it said is stored: a signal is followed once, whatever is killed when.
"""

from __future__ import annotations

import codecs
import hashlib
from pathlib import Path
from typing import Any

import structlog

from connector.errors import FatalError
from connector.source.signals.channel import ReceivedSignals
from connector.source.snapshots.signal import InvalidSignal, SignalText, read_document

_MAX_BYTES = 16 * 1024**2


class FileChannel:
    """The signals of a file; nothing is there as long as the file is not."""

    name = "file"

    def __init__(self, path: Path) -> None:
        """Remember where the file is."""
        self._path = path
        self._taken = path.with_name(f"{path.name}.taken")
        self._read_bytes = 0

    def read(self, position: Any) -> ReceivedSignals:
        """Return the signals of the file; `position` tells the last one, which may still be there."""
        try:
            if not self._taken.is_file() and not self._take():
                return ReceivedSignals((), position)
            state = self._taken.stat()
            if state.st_size > _MAX_BYTES:
                raise FatalError(f"{self._taken} has more than {_MAX_BYTES} bytes; remove it, and send fewer signals")
            content = self._taken.read_bytes()
            self._read_bytes = len(content)
        except OSError as error:
            raise FatalError(
                f"signals of {self._path} cannot be read: {error.strerror}; check the rights on the file and its folder"
            ) from error
        # The same content written once more is another file.
        digest = hashlib.sha256(b"%d %d " % (state.st_ino, state.st_mtime_ns) + content).hexdigest()
        if digest == position:
            # Followed already, by a process that was ended before it removed the file.
            self.acknowledge()
            return ReceivedSignals((), None)
        lines = [line for line in content.removeprefix(codecs.BOM_UTF8).splitlines() if line.strip()]
        return ReceivedSignals(tuple(_read_line(line, f"{digest[:16]}-{n}") for n, line in enumerate(lines)), digest)

    def acknowledge(self) -> None:
        """Remove the file that was read; one that stays is known by its position.

        What was added by a writer that had it open when it was renamed is read next, as a file of its own.
        """
        try:
            added = self._taken.read_bytes()[self._read_bytes :] if self._taken.is_file() else b""
            if added.strip():
                draft = self._taken.with_name(f"{self._taken.name}.draft")
                draft.write_bytes(added)
                draft.replace(self._taken)
            else:
                self._taken.unlink(missing_ok=True)
        except OSError as error:
            structlog.get_logger().warning(
                "a signal file could not be removed", file=str(self._taken), reason=error.strerror
            )

    def close(self) -> None:
        """Nothing is open."""

    def _take(self) -> bool:
        """Rename the file, so that what is written meanwhile begins a new one; False where there is nothing."""
        if not self._path.is_file() or not self._path.stat().st_size:
            return False
        self._path.replace(self._taken)
        return True


def _read_line(line: bytes, fallback_id: str) -> SignalText | InvalidSignal:
    try:
        return read_document(line, fallback_id)
    except InvalidSignal as error:
        return error
