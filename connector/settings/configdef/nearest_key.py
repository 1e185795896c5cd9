"""mistyped key -> the name that was probably meant (difflib's ratio over what differs, not over a shared prefix)."""

from __future__ import annotations

import difflib
from collections.abc import Collection

# From trying: catches one or two slips of the pen in a name, and keeps write.delete.format.default apart from
# write.format.default (0.85), which are both Iceberg's.
_NEAR = 0.86
_NEAR_PREFIX = 0.8
_LIKELY = 0.6


def normalize_key(key: str) -> str:
    """A key without what is most often mistaken: case, underscores."""
    return key.lower().replace("_", "-")


def find_near_miss(key: str, names: Collection[str]) -> str | None:
    """A name so close that the key is likely a slip; None when it may well be meant as it is."""
    return _find_closest(key, names, _NEAR)


def find_nearest(key: str, names: Collection[str], prefixes: Collection[str]) -> str | None:
    """The best guess for an unknown key: a mistyped prefix, a name without its prefix, or the most similar name."""
    close = find_near_miss(key, names)
    return close or _with_prefix(key, prefixes) or _without_prefix(key, names) or _find_closest(key, names, _LIKELY)


def _with_prefix(key: str, prefixes: Collection[str]) -> str | None:
    parts = key.split(".")
    for prefix in prefixes:
        depth = prefix.count(".")
        start = ".".join(parts[:depth]) + "."
        if len(parts) > depth and _find_closest(start, [prefix], _NEAR_PREFIX):
            return prefix + ".".join(parts[depth:])
    return None


def _without_prefix(key: str, names: Collection[str]) -> str | None:
    return next((name for name in names if name.endswith(f".{normalize_key(key)}")), None)


def _find_closest(key: str, names: Collection[str], cutoff: float) -> str | None:
    by_plain = {normalize_key(name): name for name in names}
    found = difflib.get_close_matches(normalize_key(key), by_plain, n=1, cutoff=cutoff)
    return by_plain[found[0]] if found else None
