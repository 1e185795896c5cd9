"""Java's threads that call Python -> their connections, which Py4J keeps for ever: those of ended threads are closed.

Py4J gives each thread of Java that calls back a connection, and this process a thread for it. It keeps both when Java's
thread has ended. Iceberg's actions begin threads of their own each time, and so does each query of Spark: a sink that
maintains its tables would run out of open files within days.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary

from py4j.java_gateway import JavaClass, JavaObject
from py4j.protocol import Py4JError

SWEEP_S = 60.0
"""How long connections of ended threads may stay."""


class CallbackConnections:
    """The connections over which a JVM calls us, and its thread at the other end of each."""

    def __init__(self, gateway: Any, clock: Callable[[], float] = time.monotonic) -> None:
        """Know of none yet. `gateway` is Py4J's."""
        self._client = gateway._gateway_client  # noqa: SLF001 - Py4J has no other door to it
        self._clock, self._swept_at = clock, clock()
        self._callers = dict[Any, Any]()
        self._turn = threading.Lock()

    def note_caller(self) -> None:
        """Remember which thread of Java calls now, the first time it does; cost: a call to Java then, none later.

        A thread of ours that is called back from within its own call keeps its connection until it ends itself: Java's
        thread at the other end waits for just that, so nothing here may hold it.
        """
        own = self._client.get_thread_connection()
        if not own.initiated_from_client and own not in self._callers:
            self._callers[own] = JavaClass("java.lang.Thread", self._client).currentThread()

    def sweep_sometimes(self) -> None:
        """Sweep in a thread of its own, where the last time was long ago: nobody waits for it, no signal ends it."""
        if self._callers and self._clock() - self._swept_at >= SWEEP_S:
            self._swept_at = self._clock()
            threading.Thread(target=self.sweep, name="callback-connections", daemon=True).start()

    def sweep(self) -> int:
        """Close the connections of callers that have ended, at both ends; returns how many there were."""
        with self._turn, suppress(Py4JError, OSError):  # the JVM may end meanwhile
            ended = [own for own, thread in list(self._callers.items()) if not thread.isAlive()]
            if not ended:
                return 0
            ports = set(filter(None, map(_java_port, ended)))
            for one in self._resting():
                socket = None if one is None else one.getSocket()
                if socket is not None and int(socket.getLocalPort()) in ports:
                    one.shutdown()  # our end notices, and ends its thread
            for own in ended:
                del self._callers[own]
            return len(ended)
        return 0

    def _resting(self) -> list[Any]:
        """Return what Java keeps: nobody uses those of ended threads, so its lock is not needed."""
        server = JavaObject("GATEWAY_SERVER", self._client)  # by this name PySpark reaches it too
        field = (
            JavaClass("java.lang.Class", self._client).forName("py4j.CallbackClient").getDeclaredField("connections")
        )
        field.setAccessible(True)
        return list(field.get(server.getCallbackClient()).toArray())


def _java_port(own: Any) -> int | None:
    """Return the port at Java's end of a connection; None where it is closed already."""
    try:
        return None if own.socket is None else int(own.socket.getpeername()[1])
    except OSError:
        return None


_KNOWN = WeakKeyDictionary[Any, CallbackConnections]()
_KNOWN_LOCK = threading.Lock()


def callback_connections(gateway: Any) -> CallbackConnections:
    """Return those of a gateway."""
    with _KNOWN_LOCK:
        if (known := _KNOWN.get(gateway)) is None:
            known = _KNOWN[gateway] = CallbackConnections(gateway)
        return known
