"""A page of Markdown -> its code blocks, those within lists too, and the text without them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import dedent

_FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.M | re.S)


def iter_blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield the kind of each code block, empty for none, and what is in it."""
    for _, kind, block in _FENCED.findall(text):
        yield kind, dedent(block)


def strip_blocks(text: str) -> str:
    """Return a page without its code blocks."""
    return _FENCED.sub("", text)
