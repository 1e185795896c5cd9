"""Signals of this process (`POST /api/signals`) -> the source; other threads put them in."""

from __future__ import annotations

import queue
import uuid
from typing import Any

from connector.errors import RetriableError
from connector.source.signals.channel import ReceivedSignals
from connector.source.snapshots.signal import SignalText, parse_signal, read_document, read_fields

_CAPACITY = 1000


class SignalQueue:
    """A `SignalChannel` that other threads fill: `put` is what a server calls.

    Signals that were not read yet are lost with the process, as in Debezium: whoever sends one watches what it does.
    """

    name = "in-process"

    def __init__(self) -> None:
        """Begin empty."""
        self._waiting: queue.Queue[SignalText] = queue.Queue(_CAPACITY)
        self._read: list[SignalText] = []

    def put(self, document: object) -> str:
        """Take a signal: a JSON text, or its parsed object with `id`, `type` and `data`. Safe from any thread.

        Returns:
            Its id, one of our own where it had none.

        Raises:
            InvalidSignal: it is no signal, or one of a type that is not known.
            RetriableError: too many wait.
        """
        fallback = uuid.uuid4().hex
        if isinstance(document, str | bytes):
            signal = read_document(document, fallback)
        else:
            signal = read_fields(document, fallback)
        parse_signal(signal)
        try:
            self._waiting.put_nowait(signal)
        except queue.Full:
            raise RetriableError(f"{_CAPACITY} signals wait already; try again later") from None
        return signal.id

    def read(self, position: Any) -> ReceivedSignals:  # noqa: ARG002 - what waits is all there is
        """Return what waits, and what was read and is not stored."""
        while not self._waiting.empty():
            self._read.append(self._waiting.get_nowait())
        return ReceivedSignals(tuple(self._read), None)

    def acknowledge(self) -> None:
        """Forget what was read."""
        self._read.clear()

    def close(self) -> None:
        """Nothing is open."""
