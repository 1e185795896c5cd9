"""Entries of `spark.` -> Spark's settings, passed on as they are, and faults that would end its JVM without a word."""

from __future__ import annotations

import shlex

from connector.settings.configdef.common import SPARK_PREFIX
from connector.settings.configdef.reader import ConfigReader

_JAVA_OPTIONS = ("extraJavaOptions", "defaultJavaOptions")


def read_spark(reader: ConfigReader) -> dict[str, str]:
    """Return what is set for Spark; options of a JVM that cannot be told apart are faults."""
    for entry in reader.members(SPARK_PREFIX):
        text = reader.text(entry, literal=True) if entry.key.endswith(_JAVA_OPTIONS) else None
        if text is not None and not _is_closed(text):
            reader.add_fault(entry, "has a quote that is not closed", "close it, or write \\ in front of it")
    return {SPARK_PREFIX.name + key: text for key, text in reader.under(SPARK_PREFIX).items()}


def _is_closed(text: str) -> bool:
    try:
        shlex.split(text)
    except ValueError:
        return False
    return True
