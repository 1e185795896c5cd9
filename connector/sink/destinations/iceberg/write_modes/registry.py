"""Names of write modes -> the modes. A mode's module has its name: `equality-delete` is in equality_delete.py.

A new mode is one line in `settings.iceberg.write_mode.DECLARED_MODES`, from which the options and their documentation
derive, and one module here with its MODE. `tests/unit/test_sink_write_modes.py` has the suite that every mode passes.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from connector.settings.iceberg.write_mode import DECLARED_MODES
from connector.sink.destinations.iceberg.write_modes.base import WriteMode


def _import_mode(name: str) -> WriteMode:
    mode: WriteMode = import_module(f"{__package__}.{name.replace('-', '_')}").MODE
    return mode


WRITE_MODES: Mapping[str, WriteMode] = {name: _import_mode(name) for name in DECLARED_MODES}
