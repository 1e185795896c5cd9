"""Names of row look-ups -> the searches. A search's module has its name: `key-index` is in key_index.py.

A new one is a name in `settings.iceberg.row_lookup.DECLARED_LOOKUPS`, and one module here with its SEARCH.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from connector.settings.iceberg.row_lookup import DECLARED_LOOKUPS
from connector.sink.destinations.iceberg.row_search.base import RowSearch


def _import_search(name: str) -> RowSearch:
    search: RowSearch = import_module(f"{__package__}.{name.replace('-', '_')}").SEARCH
    return search


ROW_SEARCHES: Mapping[str, RowSearch] = {name: _import_search(name) for name in DECLARED_LOOKUPS}
