"""A location of a store -> its scheme, as Iceberg's file systems tell it from a path."""

from __future__ import annotations

SCHEME = r"[A-Za-z][A-Za-z0-9+.-]+"
"""A scheme, as an expression; one letter is a drive of Windows."""
