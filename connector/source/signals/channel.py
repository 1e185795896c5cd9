"""The port of signal channels: what a channel has + how far it was read -> signals, and how far it is read then."""

from __future__ import annotations

from typing import Any, Protocol

import attrs

from connector.source.snapshots.signal import InvalidSignal, SignalText


@attrs.frozen
class ReceivedSignals:
    """What a channel had: signals, or why one is none. `position` is stored with what becomes of them."""

    signals: tuple[SignalText | InvalidSignal, ...] = ()
    position: Any = None


class SignalChannel(Protocol):
    """A place that users write signals to."""

    name: str

    def read(self, position: Any) -> ReceivedSignals:
        """Return the signals after a position that `ReceivedSignals` had before, None at the first start.

        Raises:
            RetriableError: the channel cannot be reached now.
            FatalError: it cannot be read; a person has to look, and the source continues.
        """

    def acknowledge(self) -> None:
        """Take note that what was read last is stored."""

    def close(self) -> None:
        """Let go of connections."""
