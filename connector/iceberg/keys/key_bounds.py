"""The bounds of a table's key columns -> which keys it may hold.

A key outside the bounds is provably new, so it needs no equality delete: first loads and growing keys leave no delete
files. A key inside them is merely possible.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs


@attrs.frozen
class KeyBounds:
    """Which keys a table may hold: between lowest and highest of each key column, by column name.

    `is_complete` false: nothing is known, every key may be there. Complete and without bounds: the table holds no row.
    """

    is_complete: bool = False
    bounds: Mapping[str, tuple[Any, Any]] = attrs.field(factory=dict)

    @staticmethod
    def nothing() -> KeyBounds:
        """What an empty table holds."""
        return KeyBounds(is_complete=True)
