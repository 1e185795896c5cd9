"""Reports of a run -> OpenLineage's run events: START, RUNNING with the datasets, COMPLETE or FAIL.

Events are handed to a client in a thread of its own: a backend that is slow or away holds up no batch. What it does not
take is logged once and dropped.
"""

from __future__ import annotations

import queue
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, Literal
from urllib.parse import urlsplit

import attrs
import structlog

from connector.errors import ConfigError
from connector.runtime.monitoring.listeners import BatchReport, StepReport
from connector.settings.lineage import LineageSettings

RunState = Literal["START", "RUNNING", "COMPLETE", "FAIL"]
PRODUCER = "https://github.com/icebridge/icebridge"
EVERY_S = 60.0
"""How often a run is told to be running when it has no new dataset."""
_ORACLE = "oracle:"
_HOST = re.compile(r"[\w.:-]*")
_WAITING = 100
_CLOSE_S = 10.0

Columns = Callable[[str], Sequence[tuple[str, str]]]
"""A table's name -> names and types of its columns; none where they are not known."""


def no_columns(_: str) -> Sequence[tuple[str, str]]:
    """Return none: nobody asks for columns, or a dataset has none."""
    return ()


@attrs.frozen
class Dataset:
    """A topic, table or index by OpenLineage's names; `columns` are names and types."""

    namespace: str
    name: str
    columns: tuple[tuple[str, str], ...] = ()


@attrs.frozen
class LineageEvent:
    """What is told of a run; `error` is why it failed, without the content of rows."""

    state: RunState
    time: str
    run: str
    inputs: tuple[Dataset, ...] = ()
    outputs: tuple[Dataset, ...] = ()
    error: str = ""


@attrs.frozen
class DatasetNames:
    """How a connector's tables and their counterparts are named.

    `tables` is OpenLineage's namespace of all tables, `describe_other` returns the dataset that a table comes from or
    goes to; `namespace` is the catalog's, for names of tables without one.
    """

    tables: str
    describe_other: Callable[[str], Dataset]
    columns: Columns
    namespace: tuple[str, ...] = ()

    def table(self, name: str) -> Dataset:
        """Return the dataset of a table; one without namespace is in the connector's own."""
        full = name if "." in name else ".".join((*self.namespace, name))
        return Dataset(self.tables, full, tuple(self.columns(full)))


def catalog_namespace(name: str, properties: Mapping[str, str]) -> str:
    """Return the namespace of a catalog's tables: where it is, without login and parameters (pure).

    A place that is not written as URLs are, in which a password may stand anywhere, is not told.
    """
    where = properties.get("uri") or properties.get("warehouse") or ""
    first = re.split("[,;]", where)[0].removeprefix("jdbc:")
    if first.startswith(_ORACLE):  # oracle:thin:user/password@//host:port/service
        first = f"{_ORACLE}//{first.rpartition('@')[2].rpartition('//')[2]}"
    elif "@" in where and "@" not in first:
        return f"iceberg://{name}"  # It was the password that has been cut.
    parts = urlsplit(first)
    try:
        place = f"{parts.hostname or ''}:{parts.port}" if parts.port else parts.hostname or ""
    except ValueError:
        return f"iceberg://{name}"
    is_url = parts.scheme and _HOST.fullmatch(place)
    return f"{parts.scheme}://{place}{parts.path.rstrip('/')}" if is_url else f"iceberg://{name}"


def kafka_namespace(servers: str) -> str:
    """Return the namespace of topics: the first broker (pure)."""
    return f"kafka://{servers.split(',', maxsplit=1)[0].rpartition('://')[2]}"


@attrs.define(eq=False)
class LineageListener:
    """A `SinkListener` and `SourceListener` that tells of a run; usable as a context manager around it.

    A sink's tables are outputs, a source's are inputs.
    """

    names: DatasetNames
    emit: Callable[[LineageEvent], None]
    now_s: Callable[[], float] = time.time
    _run: str = attrs.field(factory=lambda: str(uuid.uuid4()))
    _inputs: dict[str, Dataset] = attrs.field(factory=dict)
    _outputs: dict[str, Dataset] = attrs.field(factory=dict)
    _told_at: float = 0.0

    def __enter__(self) -> LineageListener:
        self._tell("START")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: object) -> None:
        self._tell("COMPLETE" if error is None else "FAIL", "" if error is None else type(error).__name__)

    def on_batch(self, report: BatchReport) -> None:
        """Tell of topics and tables that were not told of, and once in a while that the run continues."""
        topics = {topic for topic, _ in report.end}
        fresh = self._add(self._inputs, topics, self.names.describe_other) | self._add(
            self._outputs, report.tables, self.names.table
        )
        self._tell_running(fresh=fresh)

    def on_step(self, report: StepReport) -> None:
        """Tell of a table that was not told of, and once in a while that the run continues."""
        fresh = self._add(self._inputs, [report.table], self.names.table)
        fresh |= self._add(self._outputs, [report.table], self.names.describe_other)
        self._tell_running(fresh=fresh)

    @staticmethod
    def _add(known: dict[str, Dataset], names: Any, describe: Callable[[str], Dataset]) -> bool:
        fresh = sorted(name for name in names if name not in known)
        known.update((name, describe(name)) for name in fresh)
        return bool(fresh)

    def _tell_running(self, *, fresh: bool) -> None:
        if fresh or self.now_s() - self._told_at >= EVERY_S:
            self._tell("RUNNING")

    def _tell(self, state: RunState, error: str = "") -> None:
        self._told_at = self.now_s()
        at = datetime.fromtimestamp(self._told_at, UTC).isoformat(timespec="milliseconds")
        inputs, outputs = tuple(self._inputs.values()), tuple(self._outputs.values())
        self.emit(LineageEvent(state, at, self._run, inputs, outputs, error))


class BackgroundEmitter:
    """Hands events on in a thread of its own; usable as a context manager, whose end waits a little for the last."""

    def __init__(self, send: Callable[[LineageEvent], None]) -> None:
        """Begin."""
        self._send = send
        self._events: queue.Queue[LineageEvent | None] = queue.Queue(_WAITING)
        self._failed = False
        self._thread = threading.Thread(target=self._work, name="lineage", daemon=True)
        self._thread.start()

    def __enter__(self) -> BackgroundEmitter:
        return self

    def __exit__(self, *_: object) -> None:
        self.emit(None)
        self._thread.join(_CLOSE_S)

    def emit(self, event: LineageEvent | None) -> None:
        """Take an event; one that finds no room is dropped."""
        try:
            self._events.put_nowait(event)
        except queue.Full:
            self._note("too many events wait")

    def _work(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                self._send(event)
                self._failed = False
            except Exception as error:  # noqa: BLE001 - whatever a transport raises, the run continues
                self._note(type(error).__name__)

    def _note(self, reason: str) -> None:
        if not self._failed:
            structlog.get_logger().warning("lineage not sent", reason=reason)
        self._failed = True


def open_client(settings: LineageSettings, namespace: str, job: str) -> Callable[[LineageEvent], None]:
    """Return what sends events by openlineage-python.

    Raises:
        ConfigError: the package is not installed, or its configuration cannot be used.
    """
    try:
        from openlineage.client import OpenLineageClient
    except ImportError as error:
        raise ConfigError(
            "openlineage.integration.enabled: the package is not installed; pip install 'icebridge[lineage]'"
        ) from error
    try:
        client = OpenLineageClient(config=_read_config(settings)) if settings.config_file else OpenLineageClient()
    except Exception as error:
        raise ConfigError(
            f"openlineage.integration.config.file.path: {type(error).__name__}; check the file"
        ) from error
    return lambda event: client.emit(to_run_event(event, settings, namespace, job))


def _read_config(settings: LineageSettings) -> dict[str, Any]:
    import yaml

    assert settings.config_file is not None
    config: dict[str, Any] = yaml.safe_load(settings.config_file.read_text(encoding="utf-8"))
    return config


def to_run_event(event: LineageEvent, settings: LineageSettings, namespace: str, job: str) -> Any:
    """Return the client's value of an event; raises ImportError where the package is not installed."""
    from openlineage.client import event_v2
    from openlineage.client.facet_v2 import error_message_run, processing_engine_run

    engine = processing_engine_run.ProcessingEngineRunFacet(version("pyspark"), "spark", None)
    facets: dict[str, Any] = {"processing_engine": engine}
    if event.error:
        facets["errorMessage"] = error_message_run.ErrorMessageRunFacet(event.error, "python")
    return event_v2.RunEvent(
        eventTime=event.time,
        producer=PRODUCER,
        run=event_v2.Run(event.run, facets),
        job=event_v2.Job(namespace, job, _job_facets(settings)),
        eventType=event_v2.RunState[event.state],
        inputs=[event_v2.InputDataset(one.namespace, one.name, facets=_dataset_facets(one)) for one in event.inputs],
        outputs=[event_v2.OutputDataset(one.namespace, one.name, facets=_dataset_facets(one)) for one in event.outputs],
    )


def _job_facets(settings: LineageSettings) -> dict[str, Any]:
    from openlineage.client.facet_v2 import documentation_job, job_type_job, ownership_job, tags_job

    facets: dict[str, Any] = {"jobType": job_type_job.JobTypeJobFacet("STREAMING", "ICEBRIDGE", "JOB")}
    if settings.description:
        facets["documentation"] = documentation_job.DocumentationJobFacet(settings.description)
    if settings.owners:
        owners = [ownership_job.Owner(name, kind) for name, kind in settings.owners]
        facets["ownership"] = ownership_job.OwnershipJobFacet(owners)
    if settings.tags:
        tags = [tags_job.TagsJobFacetFields(key, value, "CONFIG") for key, value in settings.tags]
        facets["tags"] = tags_job.TagsJobFacet(tags)
    return facets


def _dataset_facets(dataset: Dataset) -> dict[str, Any]:
    from openlineage.client.facet_v2 import schema_dataset

    if not dataset.columns:
        return {}
    fields = [schema_dataset.SchemaDatasetFacetFields(name, kind) for name, kind in dataset.columns]
    return {"schema": schema_dataset.SchemaDatasetFacet(fields)}
