"""Python workers <- forked from one process that has imported what their tasks need: they start warm, and share memory.

Spark starts this module instead of `pyspark.daemon` (`spark.python.daemon.module`) where executors run on this machine.
"""

from __future__ import annotations

from pyspark.daemon import manager

import connector.sink.tasks  # noqa: F401 - imported here, once, for every worker that is forked

if __name__ == "__main__":
    manager()
