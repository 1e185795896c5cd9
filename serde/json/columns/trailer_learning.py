"""A few messages -> the layouts of the last fields that most of them have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from serde.byte_windows import ByteWindows
from serde.json.columns.trailer_layout import Member, TrailerLayout, build_layout, fits, read_members

_MIN_TRAILER_BYTES, _MAX_TRAILER_BYTES = 48, 4096
"""Of shorter fields not enough is to be had; wider matrices would take memory."""

_SAMPLE = 48
_MAX_SAMPLE_LAYOUTS = 8
"""Fields whose layouts vary more are read with what is in front of them."""


def learn_layouts(texts: ByteWindows, kind: pa.StructType, *, strict: bool) -> list[TrailerLayout]:
    """Return the layouts of the most last fields that few layouts do for, as a sample shows; those first that most
    messages have.
    """
    sample = np.unique(np.linspace(0, len(texts) - 1, min(_SAMPLE, len(texts))).astype(np.int64))
    read = [(text, read_members(text)) for text in (texts.text(int(at)) for at in sample)]
    names = Counter(tuple(member.name for member in members) for _, members in read if members)
    if not names:
        return []
    usual, often = names.most_common(1)[0]
    alike = [
        layout
        for text, members in read
        if tuple(member.name for member in members) == usual
        and (layout := _longest_layout(text, members, kind, strict=strict)) is not None
    ]
    for first in range(1, len(usual)):
        counts = Counter(layout.last(len(usual) - first) for layout in alike if len(layout.names) >= len(usual) - first)
        if 4 * counts.total() >= 3 * often and len(counts) <= _MAX_SAMPLE_LAYOUTS:
            chosen = [layout for layout, _ in counts.most_common()]
            return chosen if len(chosen[0]) >= _MIN_TRAILER_BYTES else []
    return []


def _longest_layout(
    text: bytes, members: Sequence[Member], kind: pa.StructType, *, strict: bool
) -> TrailerLayout | None:
    """Return the layout of as many of the last fields as it can have; never of the first."""
    first = len(members)
    while (
        first > 1
        and len(text) - members[first - 1].start <= _MAX_TRAILER_BYTES
        and fits(members[first - 1], text, kind, strict=strict)
    ):
        first -= 1
    return build_layout(text, members[first:]) if first < len(members) else None
