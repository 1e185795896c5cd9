"""Where the project is."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).parents[2]
