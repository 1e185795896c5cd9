"""Options of a JVM, and what the environment gives to each -> one garbage collector: two end it at its start."""

from __future__ import annotations

import os
from collections.abc import Iterable

EVERY_JAVA = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""Environment variables whose options every Java takes."""


def names_collector(words: Iterable[str]) -> bool:
    """Tell whether one of the options chooses a collector."""
    return any(word.startswith("-XX:+Use") and word.endswith("GC") for word in words)


def collector_options(option: str) -> tuple[str, ...]:
    """Return the option, or nothing where the environment chooses a collector."""
    said = (word for name in EVERY_JAVA for word in os.environ.get(name, "").split())
    return () if names_collector(said) else (option,)
