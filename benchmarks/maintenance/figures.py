"""figures of maintenance -> verdicts and lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import attrs

from benchmarks.verdicts import Verdict

READ, TIME, BYTES, SIZE, DELAY = 1.15, 0.25, 0.05, 1.3, 1.3
"""Limits: each of a ratio."""


@attrs.frozen
class Cost:
    """What a step took by the clock, and of the CPU: that is the same beside other work."""

    wall_s: float
    cpu_s: float

    @property
    def text(self) -> str:
        """Both."""
        return f"{self.wall_s:.2f} s ({self.cpu_s:.2f} of the CPU)"

    def least(self, other: Cost) -> Cost:
        """The lesser of each."""
        return Cost(min(self.wall_s, other.wall_s), min(self.cpu_s, other.cpu_s))


@attrs.frozen
class Maintenance:
    """Costs and bytes of one table of `rows` rows after `batches` batches of `changes` upserts.

    `merged` is the table converted, and its small files merged; `fresh` the one after `rewrite_data_files`; `large` one
    of four times the rows with the same deletes; `again` is a conversion that finds indexes of data files' keys.
    """

    rows: int
    batches: int
    changes: int
    version: int
    read_before: Cost
    read_after: Cost
    read_merged: Cost
    read_fresh: Cost
    convert: Cost
    convert_again: Cost
    convert_large: Cost
    convert_bytes: int
    rewrite: Cost
    rewrite_bytes: int

    @staticmethod
    def parse(document: Mapping[str, Any]) -> Maintenance:
        """Read what `attrs.asdict` made of it."""
        costs: dict[str, Any] = {name: Cost(**one) if isinstance(one, dict) else one for name, one in document.items()}
        return Maintenance(**costs)


def maintenance_verdicts(
    found: Maintenance | None, plain_p95_ms: float | None = None, kept_p95_ms: float | None = None
) -> list[Verdict]:
    """One verdict per target, by the clock and by the CPU; `kept` is the sink that converts while it runs, `plain` the
    one that does not.
    """
    ratios = [
        *_of_costs("read, converted / freshly written", found, "read_after", "read_fresh", READ),
        *_of_costs("read, converted and merged / freshly written", found, "read_merged", "read_fresh", READ),
        *_of_costs("conversion / rewrite_data_files", found, "convert", "rewrite", TIME),
        ("bytes of conversion / rewrite_data_files", _over(found, "convert_bytes", "rewrite_bytes"), BYTES),
        *_of_costs("conversion, 4 times the rows", found, "convert_large", "convert", SIZE),
    ]
    delay = kept_p95_ms / plain_p95_ms if kept_p95_ms and plain_p95_ms else None
    ratios.append(("p95 produced to visible, converting / not", delay, DELAY))
    return [Verdict(name, ratio, limit, "at most", "x") for name, ratio, limit in ratios]


def maintenance_line(found: Maintenance) -> str:
    """What was measured, in one line."""
    return (
        f"{found.rows:,} rows (v{found.version}) after {found.batches} batches of {found.changes:,} upserts: read "
        f"{found.read_before.text}, converted {found.read_after.text}, small files merged {found.read_merged.text}, "
        f"fresh {found.read_fresh.text}; conversion {found.convert.text} and {found.convert_bytes:,} bytes, "
        f"with indexes {found.convert_again.text}, of 4 times the rows {found.convert_large.text}, "
        f"rewrite {found.rewrite.text} and {found.rewrite_bytes:,} bytes"
    )


_Ratio = tuple[str, float | None, float]


def _of_costs(name: str, found: Maintenance | None, one: str, other: str, limit: float) -> Iterator[_Ratio]:
    for kind, label in (("wall_s", ""), ("cpu_s", ", CPU")):
        pair = () if found is None else (getattr(getattr(found, each), kind) for each in (one, other))
        costs = list(pair)
        yield name + label, costs[0] / costs[1] if costs and costs[1] else None, limit


def _over(found: Maintenance | None, one: str, other: str) -> float | None:
    return None if found is None or not getattr(found, other) else getattr(found, one) / getattr(found, other)
