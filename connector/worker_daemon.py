"""One process that has imported what tasks need -> Python workers forked from it: they start warm, and share memory.

Spark starts this module instead of `pyspark.daemon` (`spark.python.daemon.module`) where executors run on this machine.
"""

from __future__ import annotations

from connector.runtime.spark.python_workers import WorkerReports, configure_worker, leave_pandas_out

leave_pandas_out()

# Imported here, once, for every worker that is forked.
from pyspark import daemon  # noqa: E402

import connector.sink.job.map_task  # noqa: E402
import connector.sink.job.reduce_task  # noqa: E402
import connector.source.changes.rewrites.file_diff  # noqa: E402, F401

if __name__ == "__main__":
    configure_worker()
    daemon.traceback = WorkerReports
    daemon.manager()
