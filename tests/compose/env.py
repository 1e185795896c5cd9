"""docker/.env -> its values."""

from __future__ import annotations

from pathlib import Path

DOCKER = Path(__file__).parents[2] / "docker"


def read_env() -> dict[str, str]:
    """Return what the stack's .env gives."""
    lines = (DOCKER / ".env").read_text("utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
