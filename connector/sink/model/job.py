"""The port of the job: plan of a batch -> its tasks run -> what they told. Spark runs it (`job.spark_job`)."""

from __future__ import annotations

from typing import Protocol

from connector.sink.model.destination import Lookups, WriterFactory
from connector.sink.model.plan import BatchPlan
from connector.sink.model.result import JobResult


class Job(Protocol):
    """Runs the map and reduce tasks of a batch (`job.map_task`, `job.reduce_task`)."""

    @property
    def parallelism(self) -> int:
        """How many tasks run at once."""

    def run(self, plan: BatchPlan, writers: WriterFactory, lookups: Lookups | None = None) -> JobResult:
        """Run one batch: its rows are written, nothing is committed.

        Only descriptions come back to the driver: of files, schemas and unusable records, the last at most
        `plan.max_letters` + 1 per task.

        Raises:
            RetriableError, GapError, FatalError: a task raised it (the broker, the schema registry).
        """
