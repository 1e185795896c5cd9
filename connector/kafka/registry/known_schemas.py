"""schema id -> its texts, asked of a registry once per process; for what it does not have, again after a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

import attrs

from connector.errors import FatalError, RetriableError
from connector.kafka.registry.refusals import NO_REGISTRY
from serde.wire_format import SchemaTexts, UnknownSchema

UNKNOWN_ID_TTL_S = 60.0
"""How long a registry is not asked again for an id that it does not have: broken messages hold any number."""

_MAX_UNKNOWN_IDS = 10_000
_SECOND_LOOK_S, _SECOND_LOOK_EVERY_S = 1.0, 5.0
"""How long after the first look the second comes, and how often there is one: broken messages are not to cost more."""


def check_presence(where: str, ask: Callable[[], object]) -> None:
    """Raise RetriableError where another than the registry says that a schema is not there.

    Args:
        where: the registry's URL.
        ask: asks it for what every registry has; raises UnknownSchema where that is not there.
    """
    try:
        ask()
    except UnknownSchema as unknown:
        raise RetriableError(f"registry {where}: {NO_REGISTRY}") from unknown
    except FatalError:
        # Who may read schemas need not be allowed to read what the registry is.
        return


@attrs.define
class KnownSchemas:
    """What a registry has said so far.

    A node of a registry has a schema that was registered at another one a moment later only; a message that was written
    meanwhile is as good as others. So what is not there is looked for twice.
    """

    _known: dict[Hashable, SchemaTexts] = attrs.field(factory=dict, init=False)
    _unknown: dict[Hashable, tuple[float, str]] = attrs.field(factory=dict, init=False)
    _looked_twice: float = attrs.field(default=-_SECOND_LOOK_EVERY_S, init=False)

    def fetch(
        self,
        schema_id: Hashable,
        ask: Callable[[], SchemaTexts],
        check_presence: Callable[[UnknownSchema], None] = lambda _: None,
    ) -> SchemaTexts:
        """Return the texts of a schema. Cost: a second for one that is not there, every five seconds.

        Args:
            schema_id: what it is known by.
            ask: asks the registry, and raises what it means.
            check_presence: is called before an absence counts, and raises where it is not the registry that answers.

        Raises:
            UnknownSchema: the registry has said so, now or within the last minute.
        """
        known = self._known.get(schema_id)
        if known is not None:
            return known
        since, reason = self._unknown.get(schema_id, (-UNKNOWN_ID_TTL_S, ""))
        if time.monotonic() - since < UNKNOWN_ID_TTL_S:
            raise UnknownSchema(reason)
        try:
            texts = self._ask_twice(ask, check_presence)
        except UnknownSchema as unknown:
            if len(self._unknown) >= _MAX_UNKNOWN_IDS:
                self._unknown.clear()
            self._unknown[schema_id] = (time.monotonic(), str(unknown))
            raise
        self._known[schema_id] = texts
        return texts

    def _ask_twice(
        self, ask: Callable[[], SchemaTexts], check_presence: Callable[[UnknownSchema], None]
    ) -> SchemaTexts:
        try:
            return ask()
        except UnknownSchema as unknown:
            check_presence(unknown)
            if time.monotonic() - self._looked_twice < _SECOND_LOOK_EVERY_S:
                raise
        self._looked_twice = time.monotonic()
        time.sleep(_SECOND_LOOK_S)
        return ask()
