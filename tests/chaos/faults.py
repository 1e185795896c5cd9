"""A seed -> faults, one after the other, some at the same time: each is done in a thread of its own, and undone.

What happens, for how long and to whom is drawn before; whether a target is there decides whether it happens.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from random import Random

import psutil
from attrs import define, field

from tests.chaos.process import ConnectorProcess, family_of, send
from tests.chaos.world import World
from tests.relay import Relay

KILL = "SIGKILL"
_METADATA = b".metadata.json"
"""What a client of the catalog sends only when it commits."""
_AT_ONCE = 3
_FARTHEST_S = 50
"""Clocks of processes that maintain one table may differ by less than two minutes (docs/guarantees.md)."""


@define(eq=False)
class Faults:
    """What is done to a world and to the connectors of now."""

    world: World
    connectors: Callable[[], list[ConnectorProcess]]
    random: Random
    pace: float = 1.0
    """What all waits are multiplied by."""
    clocks: bool = False
    """Whether clocks of connectors are stepped."""
    counts: Counter[str] = field(factory=Counter)
    _busy: set[str] = field(factory=set)
    _threads: list[threading.Thread] = field(factory=list)
    _lock: threading.Lock = field(factory=threading.Lock)

    @property
    def kills(self) -> int:
        """How many processes, or families of them, got SIGKILL."""
        return sum(count for name, count in self.counts.items() if name.startswith(KILL))

    def is_busy(self, name: str) -> bool:
        """Whether something is done to it right now."""
        with self._lock:
            return name in self._busy

    def strike(self) -> None:
        """Do one more, unless there are enough of them, or its target has one."""
        kind = self.random.choices(
            (self._kill_connector, self._kill_part, self._kill_server, self._stop, self._cut, self._slow, self._lose,
             self._fill, self._elect, self._step_clock),
            (10, 2, 4, 3, 3, 1, 2, 1, 2 * self.world.is_cluster, 2 * self.clocks),
        )[0]  # fmt: skip
        kind()

    def settle(self, timeout_s: float) -> None:
        """Wait until all that was done is undone."""
        limit = time.monotonic() + timeout_s
        for thread in self._threads:
            thread.join(max(limit - time.monotonic(), 0))
        alive = [thread.name for thread in self._threads if thread.is_alive()]
        self._threads.clear()
        self.world.heal()
        if alive:
            raise TimeoutError(f"after {timeout_s:.0f} s this was not undone: {', '.join(alive)}")

    def _rest(self, seconds: float) -> None:
        time.sleep(self.pace * seconds)

    def _do(self, target: str, what: str, act: Callable[[], object]) -> None:
        self._threads = [one for one in self._threads if one.is_alive()]
        with self._lock:
            if target in self._busy or len(self._busy) >= _AT_ONCE:
                return
            self._busy.add(target)
        self.counts[what] += 1

        def run() -> None:
            try:
                act()
            finally:
                with self._lock:
                    self._busy.discard(target)

        thread = threading.Thread(target=run, name=what, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _kill_connector(self) -> None:
        """Kill one: mostly when it has done something since its start, at times while it starts."""
        pause_s, rest_s = self.random.uniform(0, 2.5), self.random.uniform(0, 1.0)
        early = self.random.random() < 0.2
        ready = [one for one in self.connectors() if one.is_running and not self.is_busy(one.name)]
        wanted = [one for one in ready if early or one.steps() > 0]
        if not wanted:
            return
        one = self.random.choice(wanted)

        def act() -> None:
            self._rest(rest_s)
            one.kill()
            self._rest(pause_s)
            one.start()

        self._do(one.name, f"{KILL} {one.name}", act)

    def _kill_part(self) -> None:
        """Kill one of Python's workers, or the process that they come from: the batch or the part that it was at is
        tried again.
        """
        ready = [one for one in self.connectors() if one.is_running and not self.is_busy(one.name)]
        one = self.random.choice(ready) if ready else None
        workers = [] if one is None else [part for part in one.family()[1:] if "worker_daemon" in _command(part)]
        if one is not None and workers:
            victim = self.random.choice(workers)
            self._do(one.name, f"{KILL} a worker of {one.name}", lambda: send([victim], signal.SIGKILL))

    def _kill_server(self) -> None:
        servers = self.world.killable
        name, pause_s = self.random.choice(sorted(servers)), self.random.uniform(0, 4)
        server = servers[name]

        def act() -> None:
            server.kill()
            self._rest(pause_s)
            server.start()

        if server.pid is not None:
            self._do(name, f"{KILL} {name}", act)

    def _stop(self) -> None:
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
                self._rest(for_s)
            finally:
                send(family, signal.SIGCONT)

        self._do(name, f"SIGSTOP {name}", act)

    def _relay(self) -> tuple[str, Relay]:
        name = self.random.choice(sorted(self.world.relays))
        return name, self.random.choice(self.world.relays[name])

    def _cut(self) -> None:
        (name, relay), for_s = self._relay(), self.random.choice((0.0, self.random.uniform(0.2, 6)))

        def act() -> None:
            relay.leave()
            self._rest(for_s)
            relay.come_back()

        self._do(f"to {name}", f"connections to {name} cut", act)

    def _slow(self) -> None:
        (name, relay), for_s, delay_s = self._relay(), self.random.uniform(3, 10), self.random.uniform(0.02, 0.15)

        def act() -> None:
            relay.delay_s = delay_s
            self._rest(for_s)
            relay.delay_s = 0.0

        self._do(f"to {name}", f"connections to {name} slow", act)

    def _lose(self) -> None:
        """Lose the answer to the next commit to the catalog; it counts when one was lost."""
        self.world.relays["catalog"][0].lose_answer(_METADATA)

    def _fill(self) -> None:
        for_s = self.random.uniform(1, 6)

        def act() -> None:
            self.world.disk.fill()
            self._rest(for_s)
            self.world.disk.free()

        if self.world.disk.is_mounted:
            self._do("disk", "disk full", act)

    def _elect(self) -> None:
        """Have brokers lead what they are to lead, which others do since they were away."""
        self._do("leaders", "leaders elected", self.world.elect)

    def _step_clock(self) -> None:
        """Step a connector's clock, back or forth, and put it right later; it may be killed meanwhile."""
        seconds, for_s = self.random.choice((-1, 1)) * self.random.randint(5, _FARTHEST_S), self.random.uniform(3, 20)
        ready = [(one.name, one.clock) for one in self.connectors() if one.clock is not None]
        if not ready:
            return
        name, clock = self.random.choice(ready)

        def act() -> None:
            clock.shift(seconds)
            try:
                self._rest(for_s)
            finally:
                clock.shift(0)

        self._do(f"clock of {name}", f"clock of {name} stepped", act)


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
