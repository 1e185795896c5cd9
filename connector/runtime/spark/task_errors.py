"""Spark's report of a failed task -> the error of ours that the task raised (a registry that is away, say)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from connector.errors import ConnectorError, FatalError, GapError, RetriableError
from connector.runtime.failure_causes import causes_in, find_missing_file, is_permanent, is_transient

_OURS = re.compile(r"^(?:.*\s)?connector\.errors\.(RetriableError|GapError|FatalError): (.+)$", re.MULTILINE)
_NO_RESULT = "[CANNOT_OPEN_SOCKET]"
"""PySpark fetches what a job tells through a socket of its own; on a machine that is very busy the JVM gives it up."""

_LOST_WORKER = re.compile(
    r"""Python\ worker\ (?:exited\ unexpectedly|failed\ to\ connect\ back)[^\n]*
    | Python\ daemon\ failed\ to\ launch\ [^\n]*
    | EOFException\ occurred\ while\ reading\ the\ port\ number
      (?!.*\ terminated\ with\ code:\ (?:\d\d?|1[01]\d|12[0-7])\b)[^\n]*""",
    re.VERBOSE,
)
"""Signals end a process with codes above 127; one that ends with a lower code lacks something, and always will.
With `local` masters Spark does no task a second time."""

_LOST_EXECUTOR = re.compile(
    r"ExecutorLostFailure \([^\n]*|ShuffleMapStage [^\n]* failed the maximum allowable number of times[^\n]*"
)
"""Spark does a task of a lost executor again, some times: at the last one, and of a shuffle, its report ends so."""

_CLASSES = {"RetriableError": RetriableError, "GapError": GapError, "FatalError": FatalError}


@contextmanager
def raise_task_errors() -> Iterator[None]:
    """Raise what a task raised, when it is one of ours or of a store; other errors go through."""
    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        match = _OURS.search(text)
        ours = _CLASSES[match[1]](match[2].strip()) if match else classify_failure(text, "a task failed")
        if ours is None and text.startswith(_NO_RESULT):
            ours = RetriableError(
                f"a job's results did not come from Spark's JVM: {text.removeprefix(_NO_RESULT).strip()}"
            )
        if ours is None:
            raise
        raise ours from error


def classify_failure(text: str, where: str) -> ConnectorError | None:
    """Tell what a store's refusal or absence, a missing file, or the end of a Python worker or an executor means, None
    when Spark's report tells of none of these; `where` begins it.
    """
    causes = tuple(causes_in(text))
    if is_permanent(causes):
        last = next(cause for cause in reversed(causes) if is_permanent((cause,)))
        return FatalError(f"{where}: {last.name}: {last.message}; retrying does not help: check rights and settings")
    if lost := _LOST_WORKER.search(text):
        return RetriableError(
            f"{where}: a Python worker ended, or could not be started (out of memory, or killed): {lost[0].strip()}; "
            "if it comes again, give the process or container more memory, or use fewer cores (spark.master=local[2])"
        )
    if lost := _LOST_EXECUTOR.search(text):
        return RetriableError(
            f"{where}: executors of the cluster were lost: {lost[0].strip()}; if it comes again, see their logs, and "
            "give them more memory (spark.executor.memory, spark.executor.memoryOverhead) or fewer cores"
        )
    if is_transient(causes):
        last = next(cause for cause in reversed(causes) if is_transient((cause,)))
        return RetriableError(f"{where}: {last.name}: {last.message}")
    if missing := find_missing_file(causes):
        return FatalError(f"{where}: a file is gone while it is needed: {missing.name}: {missing.message}")
    return None
