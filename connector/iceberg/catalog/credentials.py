"""What a catalog handed out with a table -> when it has to be renewed (pure).

REST catalogs vend credentials of a store that end after minutes or hours; executors get them with the table's layout.
"""

from __future__ import annotations

from collections.abc import Mapping

_EXPIRES_AT = "expires-at"
"""Iceberg has s3.session-token-expires-at-ms, gcs.oauth2.token-expires-at, adls.sas-token-expires-at-ms.<account>."""
_SECRET_PREFIXES = ("s3.access-key-id", "s3.session-token", "gcs.oauth2.token", "adls.sas-token", "adls.token")
DEFAULT_LIFETIME_MS = 300_000
"""Credentials that do not say when they end are taken for so long: no store's live shorter."""


def renewal_time_ms(
    io_properties: Mapping[str, str], catalog_properties: Mapping[str, str], loaded_ms: int
) -> int | None:
    """Return when to load a table again (epoch milliseconds): half way through the life of its credentials.

    A batch that begins before then has the other half for its work. None where the catalog vended none.

    Args:
        io_properties: the properties of the table's FileIO.
        catalog_properties: those that the catalog was opened with.
        loaded_ms: when the table was loaded.
    """
    vended = {key: value for key, value in io_properties.items() if catalog_properties.get(key) != value}
    ends = [int(value) for key, value in vended.items() if _EXPIRES_AT in key and value.isdigit()]
    if ends:
        return loaded_ms + max(0, min(ends) - loaded_ms) // 2
    return loaded_ms + DEFAULT_LIFETIME_MS if any(key.startswith(_SECRET_PREFIXES) for key in vended) else None
