"""Histories of tables that are rolled back, in which the product was wrong: a world, and what happens in it."""

from __future__ import annotations

from typing import Any

from tests.simulation.steps import Batch, SourceStep, TableStep, World

FOUND_ROLLBACKS: dict[str, tuple[World, tuple[Any, ...]]] = {
    # The rows were marked, and the catalog was away when the table was read again: the second try found none to mark.
    # The table was rolled back to before the marks then, which nobody noticed as this try had made none.
    "a table is rolled back behind a truncate's marks, and the catalog is away": (
        World(keep_deletes=True),
        (
            SourceStep("commit", 435),
            Batch(0, 1, whole=True),
            SourceStep("truncate", 852),
            Batch(0, 1, whole=True, during=((11, "away"), (16, TableStep("roll back", 499)))),
        ),
    ),
    # A proxy sent the commit twice, whose second answer was a refusal; the table was rolled back before Iceberg looked.
    # Iceberg made it once more, and what it gave up had the manifests of the one that was rolled back.
    "a commit that is called refused is rolled back before it is made again": (
        World(),
        (
            SourceStep("commit", 435),
            Batch(0, 1, whole=True),
            SourceStep("truncate", 852),
            Batch(0, 1, whole=True, during=((6, "twice"), (7, TableStep("roll back", 499)))),
        ),
    ),
    # The slower one had read the faster one's rows to mark them, which were rolled back before its marks went in: they
    # came back with their marks, beside rows of their keys that the batch took for new ones.
    "what a truncate marks is rolled back before the marks go in": (
        World(keep_deletes=True, clock="seconds"),
        (
            SourceStep("commit", 12),
            Batch(0, 1, whole=True),
            SourceStep("truncate", 31),
            SourceStep("commit", 9),
            Batch(0, 1, whole=True, during=((8, Batch(1, 1, whole=True)), (13, TableStep("roll back", 499)))),
        ),
    ),
}
