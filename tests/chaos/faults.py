"""A seed -> faults, one after the other, some at the same time: each is done in a thread of its own, and undone.

What happens, for how long and to whom is drawn before; whether a target is there decides whether it happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from tests.chaos.acts import Acts
from tests.chaos.disturbances import Disturbances
from tests.chaos.kills import Kills
from tests.chaos.process import ConnectorProcess
from tests.chaos.world import World


class Faults:
    """What is done to a world and to the connectors of now."""

    def __init__(
        self,
        world: World,
        connectors: Callable[[], list[ConnectorProcess]],
        random: Random,
        pace: float = 1.0,
        *,
        clocks: bool = False,
        fail: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Multiply all waits by `pace`; step clocks of connectors with `clocks`; tell `fail` what is wrong."""
        self.random, self._world = random, world
        self.acts = Acts(pace, fail)
        kills = Kills(world, connectors, random, self.acts)
        others = Disturbances(world, connectors, random, self.acts)
        # What disturbs for seconds keeps connectors from the commits after which they are killed: there is less of it.
        self._kinds: tuple[tuple[Callable[[], None], float], ...] = (
            (kills.kill_connector, 6),
            (kills.kill_at_moment, 8),
            (kills.kill_as_it_stops, 2),
            (kills.kill_driver, 2),
            (kills.kill_jvm, 2),
            (kills.kill_worker, 4),
            (kills.kill_server, 5),
            (kills.kill_everything, 0.7),
            (others.stop, 1.5),
            (others.cut, 2),
            (others.slow, 0.5),
            (others.lose, 2),
            (others.fill, 0.5),
            (others.elect, 1.5 * world.is_cluster),
            (others.step_clock, 1.5 * clocks),
        )

    @property
    def kills(self) -> int:
        """How many processes got SIGKILL while they ran."""
        return self.acts.kills

    @property
    def counts(self) -> Counter[str]:
        """What was done how often."""
        return self.acts.counts

    def is_busy(self, name: str) -> bool:
        """Whether something is done to it right now."""
        return self.acts.is_busy(name)

    def strike(self) -> None:
        """Do one more, unless there are enough of them, or its target has one."""
        weights = [weight for _, weight in self._kinds]
        kind, _ = self.random.choices(self._kinds, weights)[0]
        kind()

    def settle(self, timeout_s: float) -> None:
        """Wait until all that was done is undone."""
        try:
            self.acts.finish(timeout_s)
        finally:
            self._world.heal()
