"""Vended credentials: when a table is loaded again."""

from __future__ import annotations

import pytest

from connector.iceberg.catalog.credentials import DEFAULT_LIFETIME_MS, renewal_time_ms

OWN = {"s3.endpoint": "http://s3", "s3.access-key-id": "own"}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (OWN, None),
        ({**OWN, "write.object-storage.enabled": "true"}, None),
        ({**OWN, "s3.session-token": "x", "s3.session-token-expires-at-ms": "3000"}, 2000),
        ({**OWN, "gcs.oauth2.token": "x", "gcs.oauth2.token-expires-at": "5000"}, 3000),
        ({"adls.sas-token.a": "x", "adls.sas-token-expires-at-ms.a": "9000"}, 5000),
        ({"adls.sas-token-expires-at-ms.a": "9000", "s3.session-token-expires-at-ms": "1400"}, 1200),
        ({**OWN, "s3.access-key-id": "vended"}, 1000 + DEFAULT_LIFETIME_MS),
        ({**OWN, "s3.session-token-expires-at-ms": "10"}, 1000),
    ],
)  # fmt: skip
def test_tables_are_loaded_again_before_their_credentials_end(given: dict[str, str], expected: int | None) -> None:
    """Half way to the first end; after a while where no end is told; never where the catalog vends none."""
    assert renewal_time_ms(given, OWN, 1000) == expected
