"""What holds for every unit test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connector import redaction


@pytest.fixture(autouse=True)
def forget_secrets() -> Iterator[None]:
    """Masks of one test's secrets, which may be ordinary words, are none of the next one's."""
    yield
    redaction._known.clear()
