"""The words of a command line -> the command `icebridge`, also as `python -m connector`."""

from connector.runtime.stop_signals import note_signals


def main() -> None:
    """Run the command; a signal that comes while it is imported stops it as a later one does."""
    note_signals()
    from connector.runtime.spark.python_workers import leave_pandas_out

    leave_pandas_out()
    from connector.cli.main import main as run_command

    run_command()


if __name__ == "__main__":
    main()
