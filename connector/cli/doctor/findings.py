"""What a check saw -> one value that can be printed."""

from __future__ import annotations

from typing import Literal

import attrs


@attrs.frozen
class Finding:
    """What was looked at, how it is, in one sentence, and what to do where it is not good."""

    subject: str
    state: Literal["ok", "warning", "failed", "skipped"]
    text: str
    todo: str = ""
