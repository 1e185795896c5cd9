"""What went wrong -> an error that is classed by what the caller does next.

ConnectorError
  x ConfigError      stop with exit code 3; lists every fault of the configuration at once
  x RetriableError   try the same again, with back-off (broker away, commit conflict)
    x CommitRefused  a commit that is in no snapshot and can land no more: its files may be deleted
      x OutdatedFiles  its files do not fit the table any more: new ones have to be written
    x TimeOver       it was tried again until errors.retry.timeout: nobody tries again
  x DataFault        this record goes to the dead letters, the batch goes on
  x GapError         history is gone or belongs to another cluster: stop, never skip
  x CommitUnknown    read the table again before deciding anything
  x FatalError       everything else that must end the run

Messages say what happened, where (table, snapshot, topic-partition-offset) and what to do; never a row's content.
"""

from functools import partial
from typing import Any


class ConnectorError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(ConnectorError):
    """The configuration cannot be used; `faults` holds one line per fault, each with where and what to do.

    `notes` are what else was seen in the files, such as a name that is nearly an option's: often they explain a fault.
    """

    def __init__(self, *faults: str, notes: tuple[str, ...] = ()) -> None:
        super().__init__("\n".join(faults))
        self.faults, self.notes = faults, notes

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(type(self), notes=self.notes), self.faults


class RetriableError(ConnectorError):
    """Something outside is away or was faster; the same call may succeed later."""


class CommitRefused(RetriableError):
    """A commit lost against another one: no snapshot has it, and none will; its files may be deleted."""


class OutdatedFiles(CommitRefused):
    """A commit whose files do not fit their table any more: they have to be written anew."""


class TimeOver(RetriableError):
    """A call that was tried again until `errors.retry.timeout` was over."""


class DataFault(ConnectorError):
    """One record cannot be decoded, routed or converted."""


class GapError(ConnectorError):
    """The position that was stored does not exist any more where it points to."""


class CommitUnknown(ConnectorError):
    """A commit may or may not have happened."""


class FatalError(ConnectorError):
    """The run must end; a person has to look."""
