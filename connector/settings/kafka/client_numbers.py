"""Numbers among Java's client settings -> problems with those that Java refuses, or with which nothing ever works.

Source: Kafka's client configuration reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from connector.settings.configdef.reader import PropertyProblem

_INT, _LONG = 2**31 - 1, 2**63 - 1
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_SIZES_AND_COUNTS = (
    *("batch.size", "fetch.max.bytes", "fetch.max.wait.ms", "fetch.min.bytes", "max.partition.fetch.bytes"),
    *("default.api.timeout.ms", "delivery.timeout.ms", "max.request.size", "retries"),
)
_TIMES = (
    *("buffer.memory", "linger.ms", "max.block.ms", "metadata.max.age.ms", "reconnect.backoff.max.ms"),
    *("reconnect.backoff.ms", "retry.backoff.max.ms", "retry.backoff.ms"),
)
_BOUNDS: Mapping[str, tuple[int, int]] = {
    **dict.fromkeys(_SIZES_AND_COUNTS, (0, _INT)),
    **dict.fromkeys(_TIMES, (0, _LONG)),
    **dict.fromkeys(("max.in.flight.requests.per.connection", "max.poll.interval.ms", "max.poll.records"), (1, _INT)),
    # -1 stands for what the system has.
    **dict.fromkeys(("receive.buffer.bytes", "send.buffer.bytes"), (-1, _INT)),
    # Java takes 0 as well, and then no broker ever answers in time.
    "request.timeout.ms": (1, _INT),
    "socket.connection.setup.timeout.ms": (1, _LONG),
}
_ANY_NUMBER = (-_LONG - 1, _LONG)


def find_wrong_numbers(java: Mapping[str, str]) -> list[PropertyProblem]:
    """Name times, sizes and counts that are no whole numbers, or outside of their bounds."""
    problems = []
    for key, text in sorted(java.items()):
        if key not in _BOUNDS and not key.endswith((".ms", ".bytes")):
            continue
        least, most = _BOUNDS.get(key, _ANY_NUMBER)
        if not _WHOLE_NUMBER.fullmatch(text):
            problems.append(PropertyProblem(key, "is not a whole number", "write digits only"))
        elif not least <= int(text) <= most:
            problems.append(PropertyProblem(key, f"is outside {least} to {most}", "write a number in that range"))
    return problems
