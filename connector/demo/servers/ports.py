"""nothing -> free loopback ports for servers that have to come back on the same port.

Ports are taken from below the range that the kernel hands out to outgoing connections (Linux 32768, IANA 49152): while
a server restarts, a client that keeps reconnecting could otherwise be given the very port as its own and hold it.
"""

from __future__ import annotations

import random
import socket
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from connector.errors import FatalError

_LOW, _HIGH = 20_000, 30_000
_TRIES = 200
_ANSWER_S = 0.2
LOOPBACK = "127.0.0.1"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Asks servers of this machine, without the proxy of the environment, which knows none of them."""


def is_free(port: int) -> bool:
    """Tell whether a server could listen on the loopback port now."""
    with socket.socket() as probe:
        return _bind(probe, port)


def free_ports(count: int) -> tuple[int, ...]:
    """Choose `count` different free loopback ports. FatalError when none can be found."""
    chosen: list[int] = []
    with ExitStack() as held:
        for port in random.sample(range(_LOW, _HIGH), _TRIES):
            probe = held.enter_context(socket.socket())
            if _bind(probe, port):
                chosen.append(port)
            if len(chosen) == count:
                return tuple(chosen)
    raise FatalError(f"no {count} free ports on {LOOPBACK} between {_LOW} and {_HIGH}; stop what holds them")


def keep_ports(file: Path, wanted: int | None = None) -> tuple[int, int]:
    """Choose two ports, those of the last start where they are free, and keep them in `file`; `wanted` is the first."""
    old = tuple(map(int, file.read_text(encoding="utf-8").split())) if file.exists() else ()
    fresh = iter(free_ports(2))
    first = wanted or next((port for port in old[:1] if is_free(port)), 0) or next(fresh)
    second = next((port for port in old[1:] if is_free(port)), 0) or next(fresh)
    file.write_text(f"{first} {second}\n", encoding="utf-8")
    return first, second


def is_answering(port: int) -> bool:
    """Tell whether something accepts connections on the loopback port."""
    with socket.socket() as probe:
        probe.settimeout(_ANSWER_S)
        return probe.connect_ex((LOOPBACK, port)) == 0


def _bind(probe: socket.socket, port: int) -> bool:
    # As Java does it: a port whose old connections are in TIME_WAIT is free.
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind((LOOPBACK, port))
        probe.listen()
    except OSError:
        return False
    return True
