"""Servers and connectors that do nothing, or what a test wants -> a scene in which `make chaos` kills them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from attrs import Factory, define

from connector.demo.servers.process import ChildProcess
from tests.chaos.acts import Acts
from tests.chaos.kills import Kills
from tests.chaos.moments import Moment
from tests.chaos.process import ConnectorProcess
from tests.servers.relay import Relay

SLEEP = "import time; time.sleep(600)"
Start = Callable[[ConnectorProcess], ConnectorProcess]


class Sleeper:
    """A server that does nothing."""

    def __init__(self, log: Path) -> None:
        self._log, self._child = log, None
        self.start()

    @property
    def pid(self) -> int | None:
        return self._child.pid if self._child is not None and self._child.returncode is None else None

    def start(self) -> None:
        self._child = ChildProcess(("/bin/sleep", "600"), self._log)

    def kill(self) -> None:
        if self._child is not None:
            self._child.kill()
            self._child = None


@define
class Disk:
    """A disk that is only said to be full."""

    is_mounted: bool = True
    filled: int = 0
    freed: int = 0

    def fill(self) -> None:
        self.filled += 1

    def free(self) -> None:
        self.freed += 1


@define
class Servers:
    """What faults are done to."""

    killable: dict[str, Sleeper]
    relays: dict[str, list[Relay]]
    disk: Disk = Factory(Disk)
    is_cluster: bool = False
    elections: int = 0

    def elect(self) -> None:
        self.elections += 1

    def heal(self) -> None:
        for relay in self.relays.get("catalog", ()):
            relay.come_back()


class Script(ConnectorProcess):
    """A connector that is a program of these lines."""

    def __init__(self, home: Path, program: str, name: str = "one", moments: Sequence[Moment] = ()) -> None:
        super().__init__(name, {}, home, moments=moments)
        self._program = program
        self.patience_s = 0.0

    def await_end(self, timeout_s: float) -> int | None:
        return super().await_end(max(timeout_s, self.patience_s))

    def _command(self) -> tuple[str, ...]:
        return (sys.executable, "-I", "-S", "-c", self._program, self.name)

    def say(self) -> str:
        """What its process of now has written."""
        return self.log.read_text(encoding="utf-8") if self.log.exists() else ""


@define
class Scene:
    """Connectors and servers, what is done to them, and what was said to be wrong."""

    connectors: list[ConnectorProcess]
    world: Any = Factory(lambda: Servers({}, {}))
    failures: list[str] = Factory(list)
    acts: Acts = Factory(lambda scene: Acts(0.1, scene.failures.append), takes_self=True)

    def kills(self) -> Kills:
        return Kills(self.world, lambda: self.connectors, Random(5), self.acts)

    def do(self, kill: Callable[[], None]) -> dict[str, int]:
        """Do it, wait until it is done, and give all counts."""
        kill()
        self.acts.finish(60)
        return dict(self.acts.counts)


def start_and_kill() -> Iterator[Start]:
    """Give what starts connectors; kill them afterwards."""
    there: list[ConnectorProcess] = []

    def start(one: ConnectorProcess) -> ConnectorProcess:
        one.start()
        there.append(one)
        return one

    yield start
    for one in there:
        one.kill()
