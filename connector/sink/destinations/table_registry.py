"""Shapes of events -> tables, or indexes, that are ready for them, by name: what both have in common. On the driver."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ClassVar, Generic, TypeVar

import structlog

from connector.errors import DataFault, FatalError, RetriableError
from connector.settings import SinkSettings
from connector.sink.model.plan import SchemaChange

T = TypeVar("T")
R = TypeVar("R")

MAX_CONCURRENCY = 8


class BaseTableRegistry(ABC, Generic[T]):
    """What a sink writes to: loaded on first sight, made and evolved on need, refused where events cannot have it.

    `refused` says of topics, and `refused_tables` of names that events gave, why they have none; `drift` which fields
    of events differed; `schema_changes` how many were "created" and "altered".
    """

    KIND: ClassVar[str]
    """What it is called in the log."""

    def __init__(self, settings: SinkSettings) -> None:
        """Start with nothing known."""
        self._settings = settings
        self._known: dict[str, T] = {}
        self.refused: dict[str, str] = {}
        self.refused_tables: dict[str, str] = {}
        self.drift: dict[str, set[str]] = {}
        self.schema_changes = Counter[str]()
        self._log = structlog.get_logger()

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    @contextmanager
    def detect_expired_reads(self, *names: str) -> Iterator[None]:
        """Have what fails because it expired meanwhile tried again.

        Raises:
            RetriableError: what plans were true of is gone from one of `names`, which is seen as it is now.
        """
        try:
            yield
        except FatalError as error:
            expired = [name for name in names if self._refresh_if_expired(name)]
            if not expired:
                raise
            raise RetriableError(
                f"the snapshot that the batch was planned on expired meanwhile, in {', '.join(expired)}: "
                "keep snapshots for longer than a batch takes"
            ) from error

    def _refresh_if_expired(self, name: str) -> bool:  # noqa: ARG002 - for what has snapshots
        """Look whether what plans of it were true of is gone; if so see it as it is now."""
        return False

    @abstractmethod
    def name(self, topic: str) -> str:
        """Return the name of what a topic's events go to."""

    @abstractmethod
    def _load_existing(self, name: str) -> T | None:
        """Look at one that may be there."""

    @abstractmethod
    def _create(self, name: str, needs: list[SchemaChange]) -> T:
        """Make one, or take one over that events name themselves and that no batch has met yet."""

    @abstractmethod
    def _evolve(self, name: str, known: T, needs: list[SchemaChange]) -> T:
        """Make one ready for more shapes."""

    def find(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the names of those topics that have one, loading what is new; none where events decide."""
        if self._settings.table.routes is not None:
            return {}
        names = {topic: self.name(topic) for topic in topics}
        self._load(names.values())
        return {topic: name for topic, name in names.items() if name in self._known}

    def list_routed(self) -> list[str]:
        """Return those known that events name themselves: the configured ones, and those met so far."""
        rule = self._settings.table.routes
        if rule is not None:
            self._load(name for name, _ in rule.tables)
        return [] if rule is None else sorted(self._known)

    def apply_schema_changes(self, needs: Iterable[SchemaChange]) -> None:
        """Make and evolve what shapes of events were not ready for."""
        by_name: dict[str, list[SchemaChange]] = {}
        for need in needs:
            by_name.setdefault(need.table or self.name(need.topic), []).append(need)
        run_concurrently(lambda name: self._apply_changes(name, by_name[name]), by_name)

    def find_other_sources(self, name: str) -> frozenset[str]:  # noqa: ARG002 - for what tells who wrote to it
        """Return the names of sources whose rows other connectors brought into a table."""
        return frozenset()

    def record_drift(self, name: str, fields: Iterable[str]) -> None:
        """Take note of fields whose events differed: added, widened, or left out."""
        self.drift.setdefault(name, set()).update(fields)

    def _load(self, names: Iterable[str]) -> None:
        unknown = [name for name in dict.fromkeys(names) if name not in self._known]
        loaded = zip(unknown, run_concurrently(self._load_existing, unknown), strict=True)
        self._known.update((name, table) for name, table in loaded if table is not None)

    def _apply_changes(self, name: str, needs: list[SchemaChange]) -> None:
        try:
            known = self._known.get(name)
            self._known[name] = self._create(name, needs) if known is None else self._evolve(name, known, needs)
            self.schema_changes["created" if known is None else "altered"] += 1
        except DataFault as fault:
            if needs[0].table is not None:
                self.refused_tables[name] = str(fault)
            else:
                self.refused.update(dict.fromkeys((need.topic for need in needs), str(fault)))
            log_fields = {self.KIND: name, "topics": sorted({need.topic for need in needs})}
            self._log.warning(f"no {self.KIND}", **log_fields, reason=str(fault))


def run_concurrently(work: Callable[[str], R], names: Iterable[str]) -> list[R]:
    """Do the same for several names at once: each waits for a catalog, store or cluster most of the time."""
    with ThreadPoolExecutor(MAX_CONCURRENCY) as pool:
        return list(pool.map(work, names))
