"""schema id -> its texts, asked of a registry once per process; what it does not have, once a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable

import attrs

from serde.wire_format import SchemaTexts, UnknownSchema

UNKNOWN_ID_TTL_S = 60.0
"""How long a registry is not asked again for an id that it does not have: broken messages hold any number."""

_MAX_UNKNOWN_IDS = 10_000


@attrs.define
class KnownSchemas:
    """What a registry has said so far."""

    _known: dict[Hashable, SchemaTexts] = attrs.field(factory=dict, init=False)
    _unknown: dict[Hashable, tuple[float, str]] = attrs.field(factory=dict, init=False)

    def fetch(self, schema_id: Hashable, ask: Callable[[], SchemaTexts]) -> SchemaTexts:
        """Return the texts of a schema; `ask` asks the registry, and raises what it means.

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
            texts = ask()
        except UnknownSchema as unknown:
            if len(self._unknown) >= _MAX_UNKNOWN_IDS:
                self._unknown.clear()
            self._unknown[schema_id] = (time.monotonic(), str(unknown))
            raise
        self._known[schema_id] = texts
        return texts
