"""Java's threads that have called Python -> their connections, which Py4J keeps for ever: those of no use are closed.

Py4J gives each thread of Java that calls back a connection, and this process a thread for it. It keeps both when Java's
thread has ended. Iceberg's actions begin threads of their own each time, so a sink that maintains its tables would run
out of open files within days.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from py4j.java_gateway import JavaClass, JavaObject

SWEEP_S = 60.0
"""How long connections of no use may stay."""


class CallbackConnections:
    """The connections over which a JVM calls us."""

    def __init__(self, gateway: Any, clock: Callable[[], float] = time.monotonic) -> None:
        """Close nothing yet. `gateway` is Py4J's, with a callback server that has started."""
        self._client = gateway._gateway_client  # noqa: SLF001 - Py4J has no other door to it
        self._clock, self._swept_at = clock, clock()
        self._turn = threading.Lock()

    def sweep_sometimes(self) -> None:
        """Sweep where the last time was long ago; cost: some tens of milliseconds a minute."""
        if self._clock() - self._swept_at < SWEEP_S or not self._turn.acquire(blocking=False):
            return
        try:
            self._swept_at = self._clock()
            self.sweep()
        finally:
            self._turn.release()

    def sweep(self) -> int:
        """Close what Java opened and does not use now; have it forget what is closed. Returns how many went.

        Only connections that rest are in Java's list, and it is changed under Java's own lock: one that a thread is
        about to use is not in it any more. A thread that lives, and whose connection is closed here, opens another.
        """
        server = JavaObject("GATEWAY_SERVER", self._client)  # by this name PySpark reaches it too
        caller = server.getCallbackClient()
        resting, lock = self._field(caller, "connections"), self._field(caller, "lock")
        gone = 0
        lock.lock()
        try:
            for one in list(resting.toArray()):
                if one.getSocket() is not None:
                    if not one.isInitiatedFromClient():
                        continue
                    one.shutdown()
                resting.remove(one)
                gone += 1
        finally:
            lock.unlock()
        return gone

    def _field(self, caller: Any, name: str) -> Any:
        field = JavaClass("java.lang.Class", self._client).forName("py4j.CallbackClient").getDeclaredField(name)
        field.setAccessible(True)
        return field.get(caller)
