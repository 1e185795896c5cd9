"""docs/reference/types.md -> the tables in the code, no more and no less."""

from __future__ import annotations

from pathlib import Path

from connector.iceberg.types.schemas.reference import REFERENCE_PAGE, render_markdown
from serde.connect import type_table

ROOT = Path(__file__).parents[2]


def test_the_page_is_not_stale() -> None:
    """The page in docs/ is what the code makes now."""
    assert (ROOT / REFERENCE_PAGE).read_text("utf-8") == render_markdown(), (
        "run python -m connector.iceberg.types.schemas.reference"
    )


def test_every_named_type_is_there() -> None:
    """Each row of the table of types is a row of the page, with its Iceberg type."""
    page = render_markdown()
    assert all(f"| {kind} | `{name}` | " in page for kind, name in type_table.SEMANTIC_TYPES)
    assert all(f"`{name}`" in page for name in type_table.STRUCT_TYPES)
    assert "timestamp_ns (format version 2: timestamp)" in page
