"""The ways in which upserts are written, for tests whose outcome must be the same in all of them."""

from __future__ import annotations

_MODE = "debezium.sink.iceberg.write-mode"

WRITE_MODES: dict[str, dict[str, str]] = {
    "equality-delete": {},
    "position-delete": {_MODE: "position-delete"},
    "copy-on-write": {_MODE: "copy-on-write"},
}
"""Name -> the properties that ask for it."""
