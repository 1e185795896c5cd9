"""Events of a run -> lines on stderr: JSON for machines, short text on a terminal. Standard logging joins them.

No line shows a secret, and no traceback the values of variables, not even one of an error that nobody caught.
"""

from __future__ import annotations

import logging
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TextIO, cast

import attrs
import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from connector.redaction import redact, redact_all
from connector.runtime.closed_outputs import drop_output


@attrs.frozen(eq=False)
class _LogOutput:
    """Standard error, as long as somebody reads it: lines that nobody does end no batch.

    A live line stands in front of it while there is one (`status_line`), and has what is written appear above itself.
    """

    stream: TextIO

    def write(self, text: str) -> None:
        self._try((sys.stderr or self.stream).write, text)

    def flush(self) -> None:
        self._try((sys.stderr or self.stream).flush)

    def _try(self, call: Callable[..., object], *arguments: str) -> None:
        try:
            call(*arguments)
        except OSError as error:
            if not drop_output(self.stream.fileno(), error):
                raise


def configure_logging(*, terminal: bool, level: str = "INFO") -> None:
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
        structlog.dev.ConsoleRenderer(colors=True, exception_formatter=structlog.dev.plain_traceback)
        if terminal
        else structlog.processors.JSONRenderer()
    )
    output = cast("TextIO", _LogOutput(sys.stderr))
    last: list[Processor] = [structlog.processors.format_exc_info, _redact, renderer]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.PrintLoggerFactory(output),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(output)
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=shared, processors=[_drop_meta, *last]))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    # A broken gateway is reported by its caller. Py4J's own lines, some of the root logger, repeat the call's arguments
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    handler.addFilter(_is_not_py4j)
    # An index that is not there yet is asked for on purpose.
    logging.getLogger("opensearch").setLevel(logging.ERROR)
    logging.captureWarnings(True)  # Python prints them as text beside the lines.
    show = _print_uncaught if terminal else _log_uncaught
    sys.excepthook = show
    threading.excepthook = lambda args: show(args.exc_type, args.exc_value, args.exc_traceback)


def _is_not_py4j(record: logging.LogRecord) -> bool:
    return Path(record.pathname).parent.name != "py4j"


def _redact(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Mask secrets in every value; keys, such as names of topics, stay."""
    return {key: redact_all(value) for key, value in event.items()}


def _drop_meta(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    return structlog.stdlib.ProcessorFormatter.remove_processors_meta(logger, method, event)


def _print_uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    """Print an error that nobody caught as Python does, without its secrets."""
    sys.stderr.write(redact("".join(traceback.format_exception(kind, error, trace))))


def _log_uncaught(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    """Log the same as one line: what collects lines takes each of a traceback for one."""
    fault = error if error is not None else kind()
    structlog.get_logger().critical("uncaught error", kind=kind.__name__, exc_info=(kind, fault, trace))
