"""Failures while a source's frame runs -> our errors, with table, snapshot and file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from connector.errors import ConnectorError, FatalError, RetriableError
from connector.iceberg.java import is_retriable_exception
from connector.runtime.failure_causes import Cause, find_missing_file, is_transient
from connector.runtime.spark.task_errors import classify_failure

_FRAME = re.compile(r"^\s*(?:at |\.\.\. \d+ more|Suppressed: ).*$\n?", re.MULTILINE)
"""A stack's frames name files of code, and classes that are called like formats."""
_FILE = re.compile(r"[^\s'\",;()\[\]]*/[^\s'\",;()\[\]]+\.(?:parquet|orc|avro|puffin|json)\b")
_CAUSE = re.compile(r"(?:Caused by: |: )((?:[a-z]\w*\.)+([A-Z]\w+))(?:: ([^\n]*)|(?=\s*$))", re.MULTILINE)
_UNFIT_VALUE = re.compile(r"serde\.faults\.Unfit: ([^\n]*)")
_REFUSED = re.compile(
    r"(?:\[USER_RAISED_EXCEPTION\]|connector\.errors\.FatalError:) ([^\n]*?)(?: SQLSTATE: \w+)?$", re.MULTILINE
)
_TOO_FAR = "[ARITHMETIC_OVERFLOW]"
"""Of what is computed for events only nanoseconds since 1970 may not fit their 64 bits."""
_LOST_ROWS = "[CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND]"
"""What is kept for a second use (`localCheckpoint`) is on one executor, and goes with it."""


@contextmanager
def translate_read_errors(table: str, snapshot_id: int) -> Iterator[None]:
    """Run a frame of this table and snapshot; what Spark raises becomes ours.

    Raises:
        FatalError: a data or delete file is gone or cannot be read (names it), a value does not fit its schema,
            or time.precision.mode, or a row's key has a null.
        RetriableError: the store is away, or an executor was lost.
    """
    try:
        yield
    except (Py4JJavaError, PySparkException) as error:
        raise _translate(str(error), f"table {table}, snapshot {snapshot_id}") from error


def _translate(text: str, where: str) -> ConnectorError:
    refused = _REFUSED.search(text)
    if refused:
        return FatalError(f"{where}: {refused[1]}")
    text = _FRAME.sub("", text)
    causes = _CAUSE.findall(text)
    file = next(iter(_FILE.findall(text)), None)
    unfit = _UNFIT_VALUE.search(text)
    if unfit:
        return FatalError(
            f"{where}: a row cannot be written as Avro: {unfit[1]}; correct the row, leave the column out "
            "(column.exclude.list), or write JSON"
        )
    if _TOO_FAR in text:
        return FatalError(
            f"{where}: a timestamp is before 1677 or after 2262, of which 64 bits hold no nanoseconds since 1970; set "
            "time.precision.mode=adaptive or another one, or leave the column out (column.exclude.list)"
        )
    name, message = (causes[-1][1], causes[-1][2]) if causes else ("", text.splitlines()[0] if text else "")
    store = classify_failure(text, where)
    if store is None and _LOST_ROWS in text:
        store = RetriableError(f"{where}: an executor was lost with rows that it had kept; they are read again")
    # A file that cannot be opened now is a missing one to Java, whatever the system says of it.
    if not isinstance(store, RetriableError) and find_missing_file(Cause(*cause[1:]) for cause in causes):
        return FatalError(f"{where}: file {file} is gone; restore it, or read the table again in full")
    if store is None and (
        any(is_transient([Cause(cause[1], cause[2])]) for cause in causes) or is_retriable_exception(name)
    ):
        return RetriableError(f"{where}: {name}: {message}")
    return store or FatalError(
        f"{where}: file {file or 'unknown'} cannot be read: {name}: {message}; see whether a query "
        "reads the table, restore the file, or reset the offset of the table to read it again in full"
    )
