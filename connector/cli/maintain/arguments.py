"""Texts of arguments -> seconds between rounds, names of tasks (pure)."""

from __future__ import annotations

import threading

from connector.errors import ConfigError
from connector.maintenance.tasks import TASKS

_MOST_DIGITS = 20
"""More than any number of seconds that can be waited for has."""


def parse_duration(text: str) -> int:
    """Read seconds from a text such as 30s, 10m, 2h or 1d.

    Raises:
        ConfigError: it is none.
    """
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    number, unit = text[:-1], text[-1:]
    if unit not in units or not number.isascii() or not number.isdigit() or not number.strip("0"):
        raise ConfigError(f"--every {text}: is not a duration; write 30s, 10m, 2h or 1d")
    # Python reads no number of thousands of digits.
    seconds = int(number.lstrip("0")[:_MOST_DIGITS]) * units[unit]
    if seconds > threading.TIMEOUT_MAX:
        raise ConfigError(f"--every {text}: is too long; write 30s, 10m, 2h or 1d")
    return seconds


def parse_tasks(text: str) -> tuple[str, ...]:
    """Read the names of tasks from a list with commas.

    Raises:
        ConfigError: one is none.
    """
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise ConfigError(f"--task {text}: names no task; write some of {', '.join(TASKS)}")
    wrong = [name for name in names if name not in TASKS]
    if wrong:
        raise ConfigError(f"--task {', '.join(wrong)}: is not known; write {', '.join(TASKS)}")
    return names
