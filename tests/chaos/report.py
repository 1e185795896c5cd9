"""A finished run -> a line of the tally, and a page that tells what happened."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from attrs import define, field

from tests.chaos.acts import KILL
from tests.chaos.comparison import Difference

_OF_SERVERS = tuple(f"{KILL} {server}" for server in ("broker", "connect", "opensearch", "postgres"))
"""What kills of servers begin with; the others are of connectors, their JVMs and workers."""


@define
class Report:
    """What is counted of a run; everything that must not be stands in `differences` and `failures`."""

    seed: int
    brokers: int
    seconds: float = 0.0
    faults: Counter[str] = field(factory=Counter)
    restarts: Counter[str] = field(factory=Counter)
    transactions: int = 0
    events: int = 0
    repeated_events: int = 0
    kills_compared: int = 0
    """Behind them the group of their round was compared; kills of servers harm no other, as no other ran."""
    quiet_points: int = 0
    rows_compared: int = 0
    commits: int = 0
    differences: list[Difference] = field(factory=list)
    failures: list[str] = field(factory=list)
    is_cut_off: bool = False
    """Somebody ended it before its time: what is counted at the end of a run is not."""

    @property
    def kills(self) -> int:
        """How often something got SIGKILL."""
        return self._count(KILL)

    @property
    def kills_of_servers(self) -> int:
        """How often PostgreSQL, a broker, the Connect worker or OpenSearch got it."""
        return self._count(*_OF_SERVERS)

    @property
    def is_wrong(self) -> bool:
        """Whether a replica is not its source, or a process ended by itself."""
        return bool(self.differences or self.failures)

    def line(self) -> dict[str, object]:
        """The run's line of the tally."""
        return {
            "seed": self.seed,
            "minutes": round(self.seconds / 60, 1),
            "brokers": self.brokers,
            "kills": self.kills,
            "kills_compared": self.kills_compared,
            "kills_of_connectors": self.kills - self.kills_of_servers,
            "kills_of_servers": self.kills_of_servers,
            "faults": dict(sorted(self.faults.items())),
            "restarts": dict(sorted(self.restarts.items())),
            "transactions": self.transactions,
            "events": self.events,
            "repeated_events": self.repeated_events,
            "commits": self.commits,
            "quiet_points": self.quiet_points,
            "rows_compared": self.rows_compared,
            "differences": sum(one.count for one in self.differences),
            "failures": len(self.failures),
            **({"cut_off": True} if self.is_cut_off else {}),
        }

    def page(self) -> str:
        """The run as Markdown."""
        told = self.line()
        numbers = {name.replace("_", " "): value for name, value in told.items() if not isinstance(value, dict)}
        kills = tell_kills(self.kills, self.kills_compared)
        parts = [f"# {kills} in {self.seconds / 60:.0f} minutes", _table(("count", ""), numbers)]
        parts += ["## Faults", _table(("what", "times"), dict(sorted(self.faults.items())))]
        parts += ["## Starts after them", _table(("process", "times"), dict(sorted(self.restarts.items())))]
        if self.differences:
            parts += ["## Differences", "\n".join(f"- {one}" for one in self.differences)]
        if self.failures:
            parts += ["## Processes that ended by themselves, or stalled"]
            parts += [f"```\n{one}\n```" for one in self.failures]
        return "\n\n".join(parts) + "\n"

    def write_page(self, file: Path) -> None:
        """Write the page."""
        file.write_text(self.page(), encoding="utf-8")

    def _count(self, *begins: str) -> int:
        return sum(count for name, count in self.faults.items() if name.startswith(begins))


def tell_kills(kills: int, compared: int) -> str:
    """Tell how many there were, and how many of them were compared where these are not all."""
    return f"{kills} kills" + (f" ({compared} compared)" if compared != kills else "")


def _table(head: tuple[str, str], rows: dict[str, object] | dict[str, int]) -> str:
    lines = [f"| {head[0]} | {head[1]} |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())]
    return "\n".join(lines)
