"""Names of Python's loggers and levels -> Kafka Connect's `/admin/loggers`.

Ours is `connector`; libraries have their own, and `root` is above all.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

import structlog

from connector.server.errors import RestError

ROOT, OURS = "root", "connector"
_LEVELS = {
    "TRACE": logging.DEBUG,
    "DEBUG": logging.DEBUG,
    "INFO": logging.INFO,
    "WARN": logging.WARNING,
    "ERROR": logging.ERROR,
    "FATAL": logging.CRITICAL,
    "OFF": logging.CRITICAL + 10,
}
_WITH_CONTENT = ("py4j", "opensearch")
"""Loggers whose lines hold what rows hold; they stay as quiet as they are set at the start."""
_NAMES = {number: name for name, number in _LEVELS.items() if name != "TRACE"}


class Loggers:
    """The levels of this process's loggers, and when they were changed."""

    def __init__(self) -> None:
        """Begin with what is."""
        self._modified_ms: dict[str, int] = {}
        self._own_level = logging.INFO

    def all(self) -> dict[str, dict[str, Any]]:
        """Return every logger that has a level of its own, `root` and ours."""
        loggers = {
            name: logger
            for name, logger in logging.Logger.manager.loggerDict.items()
            if isinstance(logger, logging.Logger) and logger.level
        }
        return {name: self.get(name) for name in sorted({*loggers, ROOT, OURS})}

    def get(self, name: str) -> dict[str, Any]:
        """Return the level of a logger; RestError 404 where there is none of that name."""
        if name != OURS and name.lower() != ROOT and name not in logging.Logger.manager.loggerDict:
            raise RestError(404, f"Logger {name} not found.")
        level = self._own_level if name == OURS else self._logger(name).getEffectiveLevel()
        return {"level": _NAMES.get(level, logging.getLevelName(level)), "last_modified": self._modified_ms.get(name)}

    def set(self, name: str, document: Mapping[str, Any]) -> list[str]:
        """Set the level of a logger; return which were changed. RestError for a level that there is not."""
        wanted = document.get("level")
        if not isinstance(wanted, str):
            raise RestError(400, "Desired 'level' parameter was not specified in request.")
        level = _LEVELS.get(wanted.upper())
        if level is None:
            raise RestError(404, f"invalid log level '{wanted}'.")
        if name.partition(".")[0] in _WITH_CONTENT and level < logging.ERROR:
            raise RestError(400, f"lines of {name} would hold the content of rows: its least level is ERROR")
        if name == OURS:
            self._own_level = level
            structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(min(level, logging.CRITICAL)))
        else:
            self._logger(name).setLevel(level)
        self._modified_ms[name] = int(time.time() * 1000)
        return [name]

    def _logger(self, name: str) -> logging.Logger:
        return logging.getLogger(None if name.lower() == ROOT else name)
