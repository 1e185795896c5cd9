"""The driver's JVM -> SIGTERM is this process's, which finishes the work in progress; the JVM ends with it."""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

from connector.runtime.spark.submitted import is_submitted


def leave_sigterm(jvm: Any) -> None:
    """Have the JVM leave it to this process, which is told of it if the JVM alone is."""
    if is_submitted():
        pass_sigterm_on(jvm)
    else:
        ignore_sigterm(jvm)


def ignore_sigterm(jvm: Any) -> None:
    """Have the JVM take no notice of it.

    Supervisors send the signal to every process of a group at once, and a JVM that heeds it is gone first.
    """
    _handle_sigterm(jvm, jvm.sun.misc.SignalHandler.SIG_IGN)


def pass_sigterm_on(jvm: Any) -> None:
    """Have the JVM send it to this process.

    Of a container only the first process gets the signal: under spark-submit that is the JVM.
    """
    _handle_sigterm(jvm, _make_sender(jvm, os.getpid()))


def _make_sender(jvm: Any, pid: int) -> Any:
    """Return a handler that sends SIGTERM to a process: Java alone makes it, as PySpark lets Java call no Python."""
    find, methods = jvm.java.lang.Class.forName, jvm.java.lang.invoke.MethodHandles
    kind = jvm.java.lang.invoke.MethodType.methodType(jvm.java.lang.Boolean.TYPE)
    destroy = methods.publicLookup().findVirtual(find("java.lang.ProcessHandle"), "destroy", kind)
    given = jvm.java.util.ArrayList()
    given.add(find("sun.misc.Signal"))
    send = methods.dropArguments(destroy.bindTo(jvm.java.lang.ProcessHandle.of(pid).get()), 0, given)
    return jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(find("sun.misc.SignalHandler"), send)


def _handle_sigterm(jvm: Any, handler: Any) -> None:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import IllegalArgumentException

    # A JVM that was told to leave signals alone (-Xrs); beside a session PySpark makes Java's exception its own.
    with suppress(Py4JJavaError, IllegalArgumentException):
        jvm.sun.misc.Signal.handle(jvm.sun.misc.Signal("TERM"), handler)
