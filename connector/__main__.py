"""The words of a command line -> the command `icebridge`, also as `python -m connector`."""

import sys

from connector.runtime.spark.python_workers import leave_pandas_out
from connector.runtime.stop_signals import note_signals

_UNTIL_STOPPED = ("run", "serve", "maintain")


def main() -> None:
    """Run the command; a signal that comes while it is imported stops it as a later one does."""
    if sys.argv[1:2] and sys.argv[1] in _UNTIL_STOPPED:
        note_signals()
    leave_pandas_out()
    from connector.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()
