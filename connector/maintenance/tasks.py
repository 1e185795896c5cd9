"""Tasks of maintenance -> their names, their order, and how snapshots tell of them. Pure."""

from __future__ import annotations

CONVERT, REWRITE, MANIFESTS, EXPIRE, ORPHANS = "convert", "rewrite", "manifests", "expire", "orphans"
TASKS = (CONVERT, REWRITE, MANIFESTS, EXPIRE, ORPHANS)

MAINTENANCE_TASK = "icebridge.maintenance"
"""Summary property of a snapshot that maintenance made: which task it was."""

CONVERTED_SEQUENCE = "icebridge.maintenance.converted-sequence-number"
"""Summary property: the greatest data sequence number of an equality delete file that was converted."""
