"""samples -> endurance.png: a small chart per measure, over the hours of the run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from benchmarks.endurance.samples import MEASURES, Sample

_COLUMNS = 4


def draw(samples: Sequence[Sample], picture: Path) -> None:
    """Draw every measure from zero, so that what looks flat is."""
    rows = -(-len(MEASURES) // _COLUMNS)
    figure = Figure(figsize=(4 * _COLUMNS, 2.4 * rows), layout="constrained")
    minutes = [sample.at_s / 60 for sample in samples]
    places = figure.subplots(rows, _COLUMNS, sharex=True, squeeze=False).flat
    for measure, axes in zip(MEASURES, places, strict=False):
        axes.plot(minutes, [getattr(sample, measure.field) * measure.scale for sample in samples], linewidth=1)
        axes.set_title(measure.title, fontsize=10)
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in places:
        axes.set_axis_off()
    for axes in figure.axes[-_COLUMNS:]:
        axes.set_xlabel("minutes")
    figure.savefig(picture, dpi=100)
