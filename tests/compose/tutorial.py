"""docs/tutorial.md -> its commands, and what each must say."""

from __future__ import annotations

import re
from pathlib import Path

import attrs

from tests.harness.markdown import iter_blocks

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
START = "docker compose --file docker/compose.yaml up --build --wait"
"""The command that starts the stack: stand-ins start the services that they have."""
STOP = "docker compose --file docker/compose.yaml --profile '*' down"


@attrs.frozen
class Step:
    """One command of the tutorial."""

    command: str
    """A line for the shell, comments and continuations resolved."""
    tells: str = ""
    """A text that its output has in the end; empty: its exit code is enough."""


TELLS = {
    "icebridge-start status": "committed",
    "curl 'http://localhost:9200": '"first_name" : "Anne',
    "UPDATE inventory.customers": "UPDATE 1",
    "kafka-console-consumer.sh": '"Anne Marie"',
    "DELETE FROM inventory.orders": "DELETE 1",
    "FROM lake.inventory.customers": '"1004","Anne Marie","u"',
}
"""Part of a command -> what it tells."""


def read_steps() -> list[Step]:
    """Return the tutorial's commands in their order."""
    steps = []
    for block in (block for kind, block in iter_blocks(TUTORIAL.read_text("utf-8")) if kind == "sh"):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            if command := re.sub(r"\s+# .*$", "", line).strip():
                steps.append(_step(command))
    return steps


def _step(command: str) -> Step:
    return Step(command, next((tells for part, tells in TELLS.items() if part in command), ""))
