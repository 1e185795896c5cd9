"""Connectors and servers of now -> SIGKILL: to one of them, to a part of one, to everything; and a start after it.

A kill counts once the process has ended by it: one that had ended by itself is a failure, and no kill. Nobody tells
how a JVM or a worker ended, whose parent is another: it counts if it ran right before.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from random import Random

import psutil
from attrs import define, field

from tests.chaos.acts import KILL, Acts
from tests.chaos.moments import Moment
from tests.chaos.process import ConnectorProcess, family_of, is_alive, send, spent
from tests.chaos.world import Killable, World

_LIMIT_S = 600.0
_MOMENT_S = 10.0
"""So long a moment is waited for: some come only where there is something to do."""
_END_S = 120.0
"""So long what depends on a process that was killed may live on, on a machine with other work."""
_SERVED_S = 15.0
"""So long a server has served the load and Debezium, too, when it is killed though no connector has committed."""
_LOOKS, _LOOK_S = 20, 0.05
_STOPPED_BY_ERROR = 1
"""A connector's exit code."""
_DEEPEST = 4
_SERVERS = {"postgres": 3, "connect": 1, "opensearch": 1}
"""How often each is chosen; a broker twice. Some take a second to come back, some ten."""


@define(eq=False)
class Kills:
    """Each method draws one, and begins it where its target is there."""

    world: World
    connectors: Callable[[], list[ConnectorProcess]]
    random: Random
    acts: Acts
    _depths: dict[tuple[str, int], int] = field(factory=dict)
    _progress: dict[str, int] = field(factory=dict)
    _served: dict[str, float] = field(factory=dict)

    def kill_connector(self) -> None:
        """Kill one with all of its processes, some time after its start, or after so many commits."""
        rest_s, pause_s = self._rest_s(), self._pause_s()

        def act(one: ConnectorProcess) -> None:
            self.acts.rest(rest_s)
            self._kill(one, "" if one.steps() else "as it starts")
            self._start(one, pause_s)

        self._on_connector(f"{KILL} of", act)

    def kill_at_moment(self) -> None:
        """Kill one as its commit passes, which then comes from a process that is no more, or soon after it."""
        rest_s = self.random.choice((0.0, 0.0, self.random.uniform(0, 0.3), self.random.uniform(0, 1.0)))
        pause_s, chosen, passes = self._pause_s(), self.random.random(), self.random.choice((1, 1, 1, 2, 3))

        def act(one: ConnectorProcess) -> None:
            moment = one.moments[int(chosen * len(one.moments))]
            at_once = (lambda: None) if rest_s else (lambda: self._kill(one, moment.name))
            if not self._listen(_Listener(moment, passes, at_once)):
                return
            if rest_s:
                self.acts.rest(rest_s)
                self._kill(one, f"soon after: {moment.name}")
            self._start(one, pause_s)

        self._on_connector("moment of", act, sooner=1)

    def kill_as_it_stops(self) -> None:
        """SIGTERM, and SIGKILL some time later; what has ended in between is only counted as stopped."""
        rest_s, pause_s, for_s = self._rest_s(), self._pause_s(), self.random.uniform(0, 2.5)

        def act(one: ConnectorProcess) -> None:
            self.acts.rest(rest_s)
            one.ask_to_stop()
            self.acts.rest(for_s)
            code = one.await_end(0)
            if code is None:
                self._kill(one, "as it stops", fine=0)
            elif code:
                self.acts.fail(f"{one.name} stopped with code {code}:\n{one.log_end()}")
            else:
                self.acts.count(f"SIGTERM {one.name}")
            one.kill()
            self._start(one, pause_s)

        self._on_connector("SIGTERM to", act)

    def kill_jvm(self) -> None:
        """Kill the JVM alone: Python ends by itself, and tells with its exit code that something was wrong."""
        rest_s, pause_s = self._rest_s(), self._pause_s()

        def act(one: ConnectorProcess) -> None:
            self.acts.rest(rest_s)
            jvm = one.jvm()
            if jvm is None or not is_alive(jvm) or not send([jvm], signal.SIGKILL):
                return
            self.acts.count(f"{KILL} the JVM of {one.name}")
            code = one.await_end(_END_S)
            if code is None:
                self.acts.fail(f"{one.name} still runs {_END_S:.0f} s after its JVM was killed:\n{one.log_end()}")
            elif code != _STOPPED_BY_ERROR:
                self.acts.fail(f"{one.name} ended with code {code} after its JVM was killed:\n{one.log_end()}")
            one.kill()
            self._start(one, pause_s)

        self._on_connector(f"{KILL} of the JVM of", act)

    def kill_driver(self) -> None:
        """Kill the first Python process alone: the next start may find its JVM still at work, which has to end."""
        rest_s, pause_s = self._rest_s(), self.random.choice((0.0, self._pause_s()))

        def act(one: ConnectorProcess) -> None:
            self.acts.rest(rest_s)
            left = one.family()[1:]
            self._note(one, f"{KILL} {one.name} without its JVM", one.kill_driver())
            self._start(one, pause_s)
            limit = time.monotonic() + _END_S
            while (alive := [part for part in left if is_alive(part)]) and time.monotonic() < limit:
                time.sleep(_LOOK_S)
            if alive:
                self.acts.fail(f"{len(alive)} processes of {one.name} outlived the first of them by {_END_S:.0f} s")
                send(alive, signal.SIGKILL)

        self._on_connector(f"{KILL} of the driver of", act)

    def kill_worker(self) -> None:
        """Kill one of Python's workers that is at a task, or the process that it comes from.

        The batch is tried again: with the next such kill only after a commit it comes through some time.
        """
        wants_parent = self.random.random() < 0.3

        def act(one: ConnectorProcess) -> None:
            progress, name = one.all_steps(), f"workers of {one.name}"
            if progress == self._progress.get(name, -1):
                return
            workers = one.workers()
            worker = _find_busy(workers)
            victim = worker.parent() if worker is not None and wants_parent else worker
            if victim in workers and is_alive(victim) and send([victim], signal.SIGKILL):
                self._progress[name] = progress
                self.acts.count(f"{KILL} {'the workers' if wants_parent else 'a worker'} of {one.name}")

        self._on_connector(f"{KILL} of a worker of", act, sooner=_DEEPEST)

    def kill_server(self) -> None:
        """Kill a server that something was committed with since it was killed last, or that ran for a while."""
        servers, pause_s = self.world.killable, self.random.uniform(0, 3)
        names = sorted(servers)
        name = self.random.choices(names, [_SERVERS.get(one, 2) for one in names])[0]
        progress = sum(one.all_steps() for one in self.connectors())
        if progress == self._progress.get(name, 0) and time.monotonic() < self._served.get(name, 0):
            return

        def act() -> None:
            if _is_up(servers[name]):
                self._progress[name] = progress
                self._kill_server(name, servers[name], "")
                self.acts.rest(pause_s)
                servers[name].start()
                self._served[name] = time.monotonic() + _SERVED_S

        self.acts.do([name], f"{KILL} of {name}", act)

    def kill_everything(self) -> None:
        """Kill all connectors and servers at once, when all of them are at work, and start them as a machine does."""
        pause_s = self.random.uniform(0, 5)
        if not all(one.is_running and one.steps() for one in self.connectors()):
            return
        self.acts.finish(_LIMIT_S)
        connectors = {one.name: one for one in self.connectors() if one.is_running and one.steps()}
        servers = {name: one for name, one in self.world.killable.items() if _is_up(one)}

        def act() -> None:
            families = [one.family() for one in connectors.values()]
            families += [family_of(one.pid) for one in servers.values() if one.pid is not None]
            send([part for family in families for part in family], signal.SIGKILL)
            self.acts.count("everything at once")
            for one in connectors.values():
                self._kill(one, "with everything")
            for name, server in servers.items():
                self._kill_server(name, server, "with everything")
            with ThreadPoolExecutor(len(servers)) as pool:
                starts = [pool.submit(server.start) for server in servers.values()]
                self.acts.rest(pause_s)
                for one in connectors.values():
                    one.start()
                for start in starts:
                    start.result()

        if connectors and servers:
            self.acts.do([*connectors, *servers], f"{KILL} of everything", act)

    def _on_connector(self, what: str, act: Callable[[ConnectorProcess], object], sooner: int = 0) -> None:
        """Begin it at one that has come as far as it was to come, but for so many steps, and has nothing else done."""
        there = [one for one in self.connectors() if one.is_running and not self.acts.is_busy(one.name)]
        ready = [one for one in there if one.steps() >= self._depth(one) - sooner]
        if ready:
            one = self.random.choice(ready)
            self.acts.do([one.name], f"{what} {one.name}", lambda: act(one))

    def _depth(self, one: ConnectorProcess) -> int:
        """How often it is to commit after this start, drawn once for each, so that this is so on any machine.

        Some are killed while they start, most after their first batch, some have time for maintenance.
        """
        life = one.name, one.starts
        if life not in self._depths:
            self._depths[life] = self.random.choice((0, 1, 1, 1, 2, _DEEPEST))
        return self._depths[life]

    def _listen(self, listener: _Listener) -> bool:
        with ExitStack() as stack:
            for relay in self.world.relays[listener.moment.relay]:
                stack.enter_context(relay.heard_by(listener.hear))
            listener.seen.wait(self.acts.pace * _MOMENT_S)
        return listener.leave()

    def _kill(self, one: ConnectorProcess, when: str, fine: int | None = None) -> None:
        self._note(one, f"{KILL} {one.name} {when}".rstrip(), one.kill(), fine)

    def _kill_server(self, name: str, server: Killable, when: str) -> None:
        child = server._child
        server.kill()
        code = None if child is None else child.returncode
        if code == -signal.SIGKILL:
            self.acts.count(f"{KILL} {name} {when}".rstrip())
        else:
            self.acts.fail(f"{name} had ended by itself with code {code} when it was to be killed")

    def _note(self, one: ConnectorProcess, what: str, code: int | None, fine: int | None = None) -> None:
        """Count a kill, unless the process had ended before, which is wrong but with the code that is fine."""
        if code == -signal.SIGKILL:
            self.acts.count(what)
        elif code is None or code != fine:
            self.acts.fail(
                f"{one.name} had ended by itself with code {code} when it was to be killed:\n{one.log_end()}"
            )

    def _start(self, one: ConnectorProcess, pause_s: float) -> None:
        self.acts.rest(pause_s)
        one.start()

    def _rest_s(self) -> float:
        return self.random.uniform(0, 1.0)

    def _pause_s(self) -> float:
        return self.random.uniform(0, 2.0)


@define(eq=False)
class _Listener:
    """Acts when a moment has been seen so often, and not after `leave`."""

    moment: Moment
    left: int
    act: Callable[[], object]
    seen: threading.Event = field(factory=threading.Event)
    _lock: threading.Lock = field(factory=threading.Lock)

    def hear(self, data: bytes) -> None:
        if self.moment.is_seen_in(data):
            with self._lock:
                self.left -= 1
                if self.left == 0:
                    self.act()
                    self.seen.set()

    def leave(self) -> bool:
        """Hear nothing from now on; tell whether the moment was there."""
        with self._lock:
            self.left = 0
            return self.seen.is_set()


def _is_up(server: Killable) -> bool:
    """Whether its process runs; what has ended by itself is told by who watches it."""
    return server.pid is not None and any(map(is_alive, family_of(server.pid)[:1]))


def _find_busy(workers: list[psutil.Process]) -> psutil.Process | None:
    """A worker that takes CPU between two looks, thus one with a task."""
    before = [spent(one) for one in workers]
    for _ in range(_LOOKS):
        time.sleep(_LOOK_S)
        now = [spent(one) for one in workers]
        busy = [one for one, first, then in zip(workers, before, now, strict=True) if then > first]
        if busy:
            return busy[-1]
        before = now
    return None
