"""Documents that an index did not take -> a stop, a warning, or nothing, as the settings say."""

from __future__ import annotations

import structlog

from connector.errors import FatalError


def apply_policy(rule: str, count: int, fault: str, warning: str, **told: object) -> None:
    """Follow `behavior.on.malformed.documents` or `behavior.on.version.conflict`.

    Args:
        rule: fail, warn, or another word for nothing.
        count: how many documents it is about; none asks for nothing.
        fault: what to stop with.
        warning: what to warn with.
        told: more to log with it.

    Raises:
        FatalError: there are some, and the rule is fail.
    """
    if count and rule == "fail":
        raise FatalError(fault)
    if count and rule == "warn":
        structlog.get_logger().warning(warning, count=count, **told)
