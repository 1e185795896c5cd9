"""The stored positions of a source, shown and set anew (`icebridge offsets`)."""

from __future__ import annotations

from connector.settings import SourceSettings


def show(settings: SourceSettings) -> None:
    """Print where the source stands in each table, and how far the table is."""
    raise NotImplementedError


def reset(settings: SourceSettings, *, to: str, tables: tuple[str, ...], execute: bool) -> None:
    """Set the positions of tables anew."""
    raise NotImplementedError
