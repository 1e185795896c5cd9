"""A terminal that is closed, a pipe that nobody reads any more -> /dev/null: what is written there ends no work.

Whoever stops a process by closing its terminal, or by Ctrl-C in a pipeline, takes away what its log is written to; the
work in progress is finished all the same.
"""

from __future__ import annotations

import errno
import os

_OUTPUTS = (1, 2)
_GONE = (errno.EIO, errno.EPIPE)


def drop_closed_terminals() -> None:
    """Have nothing come of what is written to terminals that are closed; safe to call from a signal handler."""
    for number in _OUTPUTS:
        try:
            os.write(number, b"")
        except OSError as error:
            drop_output(number, error)


def drop_output(number: int, error: OSError) -> bool:
    """Have nothing come of what is written to an output, if this error of its says that nobody can read it any more.

    False: it does not, and may pass by itself, as that of a full disk.
    """
    if error.errno not in _GONE:
        return False
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
    return True
