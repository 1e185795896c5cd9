"""figures -> benchmark.png: a row of charts for events per second, another for changes of a snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import attrs
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.figures import Run
from benchmarks.source.figures import Source
from benchmarks.source.plan import PUBLISH

_COLOURS = {
    "ours": "#1f77b4",
    "merge-mor": "#d4a017",
    "merge-cow": "#c0504d",
    "flink": "#e07a9b",
    "connect": "#5a9367",
}
_OTHER = "#999999"


@attrs.frozen
class Bars:
    """Two charts side by side: titles and label formats, and per bar its name, contender and both values."""

    titles: tuple[str, str]
    shapes: tuple[str, str]
    bars: tuple[tuple[str, str, float, float], ...]


def draw(runs: Sequence[Run], picture: Path, source: Source | None = None) -> None:
    """Draw what was measured, a colour per contender."""
    draw_rows([of_events(runs, source), of_changes(source)], picture)


def draw_rows(rows: Sequence[Bars], picture: Path) -> None:
    """Draw the rows that have bars."""
    shown = [bars for bars in rows if bars.bars]
    counts = [len(bars.bars) + 1.5 for bars in shown]
    figure = Figure(figsize=(12, max(2.0, 0.5 * sum(counts))), layout="constrained")
    if shown:
        places = figure.subplots(len(shown), 2, sharey="row", height_ratios=counts, squeeze=False)
        for axes, bars in zip(places, shown, strict=True):
            fill(axes, bars)
    figure.savefig(picture, dpi=120)


def fill(axes: Sequence[Axes], bars: Bars) -> None:
    """Draw one row."""
    names, contenders, *values = zip(*reversed(bars.bars), strict=True)
    colours = [_COLOURS.get(contender, _OTHER) for contender in contenders]
    for place, title, shape, lengths in zip(axes, bars.titles, bars.shapes, values, strict=True):
        place.bar_label(place.barh(names, lengths, color=colours), fmt=shape, padding=3)
        place.set_title(title)
        place.margins(x=0.15)
        place.spines[["top", "right"]].set_visible(False)


def of_events(runs: Sequence[Run], source: Source | None) -> Bars:
    """Events per second and CPU seconds per million, of the sink's cases and of the initial read."""
    bars = [
        (run.case.name, run.case.contender, run.warm.events_per_s, run.warm.cpu_s_per_million)
        for run in runs
        if run.warm
    ]
    published = source.publishing if source else None
    if published and published.envelopes_per_s and published.cpu_s_per_million:
        bars.append((PUBLISH, "ours", published.envelopes_per_s, published.cpu_s_per_million))
    titles = ("events per second, warm", "CPU seconds per million events, broker included")
    return Bars(titles, ("{:,.0f}", "{:,.1f}"), tuple(bars))


def of_changes(source: Source | None) -> Bars:
    """Seconds and CPU seconds for the changes of one snapshot."""
    bars = [
        (f"{case.name}-{who}", who, found.wall_s, found.median_cpu_s)
        for case in (source.changes if source else ())
        for who, found in (("ours", case.ours), ("view", case.view))
        if found
    ]
    titles = ("seconds for the changes of one snapshot", "CPU seconds for them")
    return Bars(titles, ("{:,.2f}", "{:,.1f}"), tuple(bars))
