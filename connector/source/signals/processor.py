"""Channels -> signals -> what becomes of them: the queue of snapshots, stored with how far each channel is read.

A signal that cannot be followed is logged and passed over; a channel that is away is asked again later. Neither stops
the source.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

import attrs
import structlog

from connector.errors import ConnectorError
from connector.runtime.lifecycle import describe_error
from connector.runtime.monitoring.listeners import SnapshotListener
from connector.runtime.retry import double_wait_s
from connector.source.signals.channel import ReceivedSignals, SignalChannel
from connector.source.snapshots.offset_store import TableOffsetStore
from connector.source.snapshots.signal import InvalidSignal, LogMessage, SignalText, parse_signal
from connector.source.snapshots.snapshot_queue import Outcome, SnapshotQueue, apply_signal

_LONGEST_WAIT_S = 60.0


@attrs.define
class _Turn:
    """When a channel is read next, in seconds of a monotonic clock."""

    at: float = 0.0
    failures: int = 0


@attrs.define(eq=False)
class SignalProcessor:
    """Reads the channels, each every `poll_interval_ms`, and stores what their signals ask for."""

    channels: Sequence[SignalChannel]
    offsets: TableOffsetStore
    poll_interval_ms: int
    listeners: Sequence[SnapshotListener] = ()
    _turns: dict[str, _Turn] = attrs.field(factory=dict)

    def poll(self, tables: Collection[str]) -> bool:
        """Follow the signals that wait, in the channels that are due; return whether there may be more at once.

        Args:
            tables: the tables that the source reads.

        Raises:
            RetriableError: the catalog, which stores what was asked for, is away.
            FatalError: another process stored the source's offsets.
        """
        moved = False
        for channel in self.channels:
            turn = self._turns.setdefault(channel.name, _Turn())
            if time.monotonic() < turn.at:
                continue
            received = self._read(channel, turn)
            if received is not None:
                self._follow(channel, received, tables)
                moved |= not turn.at
        return moved

    def close(self) -> None:
        """Let go of the channels."""
        for channel in self.channels:
            channel.close()

    def _read(self, channel: SignalChannel, turn: _Turn) -> ReceivedSignals | None:
        interval_s = self.poll_interval_ms / 1000
        before = self.offsets.queue.channels.get(channel.name)
        try:
            texts = channel.read(before)
        except Exception as error:  # noqa: BLE001 - a channel is what others write, and must not stop the source
            turn.failures += 1
            wait_s = double_wait_s(interval_s, turn.failures, max(_LONGEST_WAIT_S, interval_s))
            turn.at = time.monotonic() + wait_s
            if turn.failures == 1:
                reason = str(error) if isinstance(error, ConnectorError) else describe_error(error)
                structlog.get_logger().warning("signals cannot be read", channel=channel.name, reason=reason)
            return None
        turn.failures = 0
        # Where there was something there may be more: no wait before the next look.
        turn.at = 0.0 if texts.signals or texts.position != before else time.monotonic() + interval_s
        return texts

    def _follow(self, channel: SignalChannel, received: ReceivedSignals, tables: Collection[str]) -> None:
        before = self.offsets.queue
        queue, outcomes = before, list[Outcome]()
        for signal in received.signals:
            outcome = self._apply(queue, channel.name, signal, tables)
            if outcome is not None:
                queue = outcome.queue
                outcomes.append(outcome)
        if received.position is not None:
            queue = queue.read_to(channel.name, received.position)
        if queue != before:
            self.offsets.put_queue(queue)
        if received.signals:
            channel.acknowledge()
        for report in (report for outcome in outcomes for report in outcome.reports):
            for listener in self.listeners:
                listener.on_snapshot(report)

    def _apply(
        self, queue: SnapshotQueue, channel: str, text: SignalText | InvalidSignal, tables: Collection[str]
    ) -> Outcome | None:
        log = structlog.get_logger().bind(channel=channel)
        try:
            if isinstance(text, InvalidSignal):
                raise text
            signal = parse_signal(text)
        except InvalidSignal as error:
            log.warning("signal ignored", reason=str(error))
            return None
        except Exception as error:  # noqa: BLE001 - a signal may be anything, and must not stop the source
            log.warning("signal ignored", reason=f"it cannot be read: {type(error).__name__}")
            return None
        log.info("signal", type=text.type, id=signal.id)
        if isinstance(signal, LogMessage):
            log.info(signal.message.replace("{}", self._positions()), id=signal.id)
        outcome = apply_signal(queue, signal, tables)
        for note in outcome.notes:
            log.warning("signal", id=signal.id, note=note)
        return outcome

    def _positions(self) -> str:
        """The newest published snapshot of each table, as text."""
        at = {name: offset.position.snapshot_id for name in self.offsets.tables() if (offset := self.offsets.of(name))}
        return ", ".join(f"{name}={snapshot_id}" for name, snapshot_id in at.items())
