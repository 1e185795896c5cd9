"""Processes, connections, the disk and clocks of now -> stopped, cut, slow, full or wrong for a while."""

from __future__ import annotations

import signal
from collections.abc import Callable
from random import Random

from attrs import define

from tests.chaos.acts import Acts
from tests.chaos.process import ConnectorProcess, family_of, send
from tests.chaos.world import World
from tests.servers.relay import Relay

_METADATA = b".metadata.json"
"""What a client of the catalog sends only when it commits."""
_FARTHEST_S = 50
"""Clocks of processes that maintain one table may differ by less than two minutes (docs/guarantees.md)."""


@define(eq=False)
class Disturbances:
    """Each method draws one, and begins it where its target is there."""

    world: World
    connectors: Callable[[], list[ConnectorProcess]]
    random: Random
    acts: Acts

    def stop(self) -> None:
        """SIGSTOP, and SIGCONT some seconds later, as a long pause of garbage collection or a frozen machine."""
        connectors = {one.name: one for one in self.connectors() if one.is_running}
        servers = {name: one for name, one in self.world.killable.items() if one.pid is not None}
        there, for_s = sorted([*connectors, *servers]), self.random.uniform(1, 12)
        if not there:
            return
        name = self.random.choice(there)

        def act() -> None:
            pid = None if name in connectors else servers[name].pid
            family = connectors[name].family() if pid is None else family_of(pid)
            send(family, signal.SIGSTOP)
            try:
                self.acts.rest(for_s)
            finally:
                send(family, signal.SIGCONT)

        self._do(name, f"SIGSTOP {name}", act)

    def cut(self) -> None:
        """End connections, and refuse new ones for a while."""
        (name, relay), for_s = self._relay(), self.random.choice((0.0, self.random.uniform(0.2, 6)))

        def act() -> None:
            relay.leave()
            self.acts.rest(for_s)
            relay.come_back()

        self._do(f"to {name}", f"connections to {name} cut", act)

    def slow(self) -> None:
        """Hold data of connections back."""
        (name, relay), for_s, delay_s = self._relay(), self.random.uniform(3, 10), self.random.uniform(0.02, 0.15)

        def act() -> None:
            relay.delay_s = delay_s
            self.acts.rest(for_s)
            relay.delay_s = 0.0

        self._do(f"to {name}", f"connections to {name} slow", act)

    def lose(self) -> None:
        """Lose the answer to the next commit to the catalog; it counts when one was lost."""
        self.world.relays["catalog"][0].lose_answer(_METADATA)

    def fill(self) -> None:
        """Leave no room on the disk."""
        for_s = self.random.uniform(1, 6)

        def act() -> None:
            self.world.disk.fill()
            self.acts.rest(for_s)
            self.world.disk.free()

        if self.world.disk.is_mounted:
            self._do("disk", "disk full", act)

    def elect(self) -> None:
        """Have brokers lead what they are to lead, which others do since they were away."""
        self._do("leaders", "leaders elected", self.world.elect)

    def step_clock(self) -> None:
        """Step a connector's clock, back or forth, and put it right later; it may be killed meanwhile."""
        seconds, for_s = self.random.choice((-1, 1)) * self.random.randint(5, _FARTHEST_S), self.random.uniform(3, 20)
        ready = [(one.name, one.clock) for one in self.connectors() if one.clock is not None]
        if not ready:
            return
        name, clock = self.random.choice(ready)

        def act() -> None:
            clock.shift(seconds)
            try:
                self.acts.rest(for_s)
            finally:
                clock.shift(0)

        self._do(f"clock of {name}", f"clock of {name} stepped", act)

    def _relay(self) -> tuple[str, Relay]:
        name = self.random.choice(sorted(self.world.relays))
        return name, self.random.choice(self.world.relays[name])

    def _do(self, target: str, what: str, act: Callable[[], object]) -> None:
        def run() -> None:
            self.acts.count(what)
            act()

        self.acts.do([target], what, run)
