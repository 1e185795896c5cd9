"""Events of a run -> lines on stderr: JSON for machines, short text on a terminal. Standard logging joins them."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import Processor


def configure(*, terminal: bool, level: str = "INFO") -> None:
    """Set logging up for this process.

    Args:
        terminal: short lines for people instead of JSON.
        level: least level of our own lines; libraries show from WARNING on.
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    renderer: Processor = (
        structlog.dev.ConsoleRenderer(colors=True) if terminal else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[*shared, structlog.processors.format_exc_info, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processor=renderer))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    # A broken gateway is reported by whoever called it; Py4J's own lines only repeat the call's arguments.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    # An index that is not there yet is asked for on purpose.
    logging.getLogger("opensearch").setLevel(logging.ERROR)
