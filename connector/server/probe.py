"""A cluster or a catalog -> whether it answered at the last look, and since when. Looks are taken on a schedule."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import structlog

from connector.errors import ConnectorError
from connector.redaction import redact
from connector.runtime.lifecycle import start_thread
from connector.runtime.monitoring.prometheus.jvm_metrics import JvmMetrics, read_jvm
from connector.server.connectors.port import Check, Connector

T = TypeVar("T")
PERIOD_S = 5.0
TIMEOUT_S = 3.0


class Probe:
    """One thing that is looked at; `check` tells what the last look found."""

    def __init__(self, name: str) -> None:
        """Begin with no look taken, which counts as down."""
        self._name, self._is_up, self._reason = name, False, "not looked at yet"
        self._at: float | None = None

    def look(self, ask: Callable[[], T]) -> T | None:
        """Ask; None where there was no answer."""
        try:
            answer = ask()
        except Exception as error:  # noqa: BLE001 - whatever it is, there was no answer
            reason = str(error) if isinstance(error, ConnectorError) else type(error).__name__
            self._is_up, self._reason = False, redact(" ".join(reason.split()))
            self._at = time.monotonic()
            return None
        self._is_up, self._reason, self._at = True, "", time.monotonic()
        return answer

    @property
    def check(self) -> Check:
        """Return what the last look found, and how long ago it was."""
        age = {} if self._at is None else {"seconds_ago": round(time.monotonic() - self._at, 1)}
        return Check(self._name, self._is_up, {**age, **({"reason": self._reason} if self._reason else {})})


class Sampler:
    """Looks at clusters and catalogs, and reads the JVM, every few seconds, each in a thread of its own."""

    def __init__(self, connectors: Callable[[], Sequence[Connector]], period_s: float = PERIOD_S) -> None:
        """Begin when `start` says; `connectors` returns those of now."""
        self._connectors, self._period_s = connectors, period_s
        self.jvm = JvmMetrics()
        self._java: object | None = None
        self._busy: set[Connector] = set()
        self._is_reading_jvm = self._closed = False

    def read_java(self, java: object) -> None:
        """Read this JVM from now on."""
        self._java = java

    def start(self) -> None:
        """Begin to look."""
        start_thread(self._run, "sampler")

    def close(self) -> None:
        """Look no more."""
        self._closed = True

    def _run(self) -> None:
        while not self._closed:
            for connector in self._connectors():
                # A look that hangs holds up no other, not even that of a connector that took the name over, and is not
                # doubled.
                if connector not in self._busy:
                    self._busy.add(connector)
                    start_thread(lambda one=connector: self._sample(one), f"look-{connector.name}")  # type: ignore[misc]
            if self._java is not None and not self._is_reading_jvm:
                self._is_reading_jvm = True
                start_thread(self._read_jvm, "look-jvm")
            time.sleep(self._period_s)

    def _sample(self, connector: Connector) -> None:
        try:
            connector.sample()
        except Exception as error:  # noqa: BLE001 - the next look may succeed
            structlog.get_logger().debug("a look failed", connector=connector.name, reason=type(error).__name__)
        finally:
            self._busy.discard(connector)

    def _read_jvm(self) -> None:
        try:
            self.jvm.state = read_jvm(self._java)
        except Exception as error:  # noqa: BLE001 - Py4J raises many; a JVM that is gone has no figures
            self.jvm.state = None
            structlog.get_logger().debug("the JVM cannot be read", reason=type(error).__name__)
        finally:
            self._is_reading_jvm = False
