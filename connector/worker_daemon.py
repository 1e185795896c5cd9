"""Python workers <- forked from one process that has imported what their tasks need: they start warm, and share memory.

Spark starts this module instead of `pyspark.daemon` (`spark.python.daemon.module`) where executors run on this machine.
"""

from __future__ import annotations

from pyspark.daemon import manager

# Imported here, once, for every worker that is forked.
import connector.sink.job.map_task
import connector.sink.job.reduce_task
import connector.source.changes.rewrites.file_diff  # noqa: F401
from connector.runtime.spark.python_workers import configure_worker

if __name__ == "__main__":
    configure_worker()
    manager()
