"""Names of topics and tables -> names that OpenSearch allows for indexes (pure)."""

from __future__ import annotations

import re

_MAX_NAME_BYTES = 255


def to_index_name(name: str) -> str:
    """Give a name in small letters, its dots kept; what no index name may have, or begin with, becomes or loses `_`."""
    made = re.sub(r'[\\/*?"<>| ,#:]', "_", name.lower())
    made = re.sub(r"^[-_+]+", "", made) or "index"
    return made.encode()[:_MAX_NAME_BYTES].decode(errors="ignore")
