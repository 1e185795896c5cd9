"""A schema that a registry does not have -> a second look, now and then; only then is it unknown for a while."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from connector.errors import RetriableError
from connector.kafka.registry import known_schemas
from connector.kafka.registry.known_schemas import UNKNOWN_ID_TTL_S, KnownSchemas
from serde.wire_format import SchemaTexts, UnknownSchema

pytestmark = pytest.mark.unit


class _Clock:
    """Time that passes while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    """The clock of what is known."""
    made = _Clock()
    monkeypatch.setattr(known_schemas, "time", made)
    return made


class _Registry:
    """Has a schema at the looks that are named, counted from 1."""

    def __init__(self, there: Iterable[int]) -> None:
        self.there, self.looks = frozenset(there), 0

    def ask(self) -> SchemaTexts:
        self.looks += 1
        if self.looks not in self.there:
            raise UnknownSchema("the registry does not have it")
        return ('"int"',)


def test_a_schema_that_comes_a_moment_later_is_found(clock: _Clock) -> None:
    """Of a registry with several nodes one has what was registered at another one a little later."""
    known, registry = KnownSchemas(), _Registry([2])
    assert known.fetch(7, registry.ask) == ('"int"',)
    assert (clock.now, registry.looks) == (1_001.0, 2)
    assert known.fetch(7, registry.ask) == ('"int"',)
    assert registry.looks == 2


def test_messages_that_name_any_number_cost_little(clock: _Clock) -> None:
    """Of many ids that are not there one in five seconds is looked for twice, and none again within a minute."""
    known, registry = KnownSchemas(), _Registry([])
    for _ in range(2):
        for number in range(100):
            with pytest.raises(UnknownSchema, match="does not have it"):
                known.fetch(number, registry.ask)
    assert (clock.now, registry.looks) == (1_001.0, 101)
    clock.now += UNKNOWN_ID_TTL_S
    with pytest.raises(UnknownSchema):
        known.fetch(0, registry.ask)
    assert registry.looks == 103


def test_an_absence_that_the_registry_does_not_tell_is_not_kept(clock: _Clock) -> None:
    """Where something else answers, the schema is asked for again at once."""
    known, registry = KnownSchemas(), _Registry([2])

    def refuse(_: UnknownSchema) -> None:
        raise RetriableError("nothing is there")

    with pytest.raises(RetriableError):
        known.fetch(7, registry.ask, refuse)
    assert known.fetch(7, registry.ask, refuse) == ('"int"',)
    assert clock.now == 1_000.0
