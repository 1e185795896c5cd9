"""docker/.env -> its values, with free ports of this host where its own are taken."""

from __future__ import annotations

import socket
from pathlib import Path

DOCKER = Path(__file__).parents[2] / "docker"


def read_env() -> dict[str, str]:
    """Return what the stack's .env gives."""
    lines = (DOCKER / ".env").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def choose_ports() -> dict[str, str]:
    """Return a free port for each of .env that is taken on this host: variables of the shell win over it."""
    taken = {key: port for key, port in read_env().items() if key.endswith("_PORT") and not _is_free(int(port))}
    return {key: str(_find_free()) for key in taken}


def _is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def _find_free() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
    return port
