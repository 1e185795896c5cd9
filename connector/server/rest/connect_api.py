"""Routes of Kafka Connect -> calls to the worker, each in a thread where it may take longer than reading memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from importlib.metadata import version
from typing import Any, TypeVar

import attrs
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from connector.errors import ConfigError, ConnectorError
from connector.redaction import redact
from connector.runtime.lifecycle import TargetState, start_call
from connector.server.connectors.port import Connector, ConnectorOffset, Kind
from connector.server.errors import RestError
from connector.server.rest import documents, plugins
from connector.server.rest.loggers import Loggers
from connector.server.rest.requests import check_changes, check_config, check_name, check_text, read_config, read_json
from connector.server.worker import REQUEST_TIMEOUT_S, Worker

T = TypeVar("T")
_TARGETS: Mapping[str, TargetState] = {
    "RUNNING": "STARTED",
    "STARTED": "STARTED",
    "PAUSED": "PAUSED",
    "STOPPED": "STOPPED",
}
_FIELDS = {"name", "config", "initial_state"}


@attrs.frozen
class ConnectApi:
    """The REST interface of one worker; `worker_id` is its address, `complete` adds what its own file says."""

    worker: Worker
    worker_id: str
    cluster_id: Callable[[], str | None] = lambda: None
    complete: Callable[[Mapping[str, str]], Mapping[str, str]] = dict
    loggers: Loggers = attrs.field(factory=Loggers)
    version: str = attrs.field(factory=lambda: version("icebridge"))
    _readings: dict[Connector, Future[list[ConnectorOffset]]] = attrs.field(factory=dict, init=False)

    def routes(self) -> list[Route]:
        """Return all routes."""
        one = "/connectors/{name}"
        return [
            Route("/connectors", self.list_connectors, methods=["GET"]),
            Route("/connectors", self.create, methods=["POST"]),
            Route(one, self.show, methods=["GET"]),
            Route(one, self.delete, methods=["DELETE"]),
            Route(f"{one}/config", self.show_config, methods=["GET"]),
            Route(f"{one}/config", self.put_config, methods=["PUT"]),
            Route(f"{one}/config", self.patch_config, methods=["PATCH"]),
            Route(f"{one}/status", self.show_status, methods=["GET"]),
            Route(f"{one}/tasks", self.show_tasks, methods=["GET"]),
            Route(f"{one}/tasks-config", self.show_task_configs, methods=["GET"]),
            Route(f"{one}/tasks/{{task}}/status", self.show_task_status, methods=["GET"]),
            Route(f"{one}/tasks/{{task}}/restart", self.restart_task, methods=["POST"]),
            Route(f"{one}/topics", self.show_topics, methods=["GET"]),
            Route(f"{one}/topics/reset", self.reset_topics, methods=["PUT"]),
            Route(f"{one}/pause", self.pause, methods=["PUT"]),
            Route(f"{one}/resume", self.resume, methods=["PUT"]),
            Route(f"{one}/stop", self.stop, methods=["PUT"]),
            Route(f"{one}/restart", self.restart, methods=["POST"]),
            Route(f"{one}/offsets", self.show_offsets, methods=["GET"]),
            Route(f"{one}/offsets", self.patch_offsets, methods=["PATCH"]),
            Route(f"{one}/offsets", self.reset_offsets, methods=["DELETE"]),
            Route("/connector-plugins", self.list_plugins, methods=["GET"]),
            Route("/connector-plugins/{plugin}/config", self.show_plugin, methods=["GET"]),
            Route("/connector-plugins/{plugin}/config/validate", self.validate, methods=["PUT"]),
            Route("/admin/loggers", self.list_loggers, methods=["GET"]),
            Route("/admin/loggers/{logger}", self.show_logger, methods=["GET"]),
            Route("/admin/loggers/{logger}", self.set_logger, methods=["PUT"]),
            Route("/health", self.health, methods=["GET"]),
        ]

    def root(self) -> dict[str, Any]:
        """Return what `/` says to those who do not ask for a page."""
        return {"version": self.version, "commit": "", "kafka_cluster_id": self.cluster_id()}

    async def list_connectors(self, request: Request) -> Response:
        """List names, or what is asked for of each connector."""
        wanted = request.query_params.getlist("expand")
        if not wanted:
            return JSONResponse(self.worker.names)
        listed: dict[str, dict[str, Any]] = {}
        for name in self.worker.names:
            connector = self.worker.find(name)
            if connector is not None:
                expand = {"status": self._status, "info": documents.connector_info}
                listed[name] = {what: expand[what](connector) for what in wanted if what in expand}
        return JSONResponse(listed)

    async def create(self, request: Request) -> Response:
        """Create a connector."""
        body = await read_json(request)
        if not isinstance(body, dict) or body.keys() - _FIELDS:
            raise RestError(400, "the body is not an object with name, config and, if wanted, initial_state")
        name, config = check_text("name", body.get("name")).strip(), check_config(body.get("config"))
        state = check_text("initial_state", body.get("initial_state")).upper() or "RUNNING"
        if state not in _TARGETS:
            raise RestError(400, f"initial_state is {state}; it can be RUNNING, PAUSED or STOPPED")
        config = _with_name(name, config)
        plugins.check_class(config)
        connector = await _call(lambda: self.worker.create(name, config, _TARGETS[state]))
        return JSONResponse(documents.connector_info(connector), 201, {"location": f"/connectors/{name}"})

    async def show(self, request: Request) -> Response:
        """Show a connector."""
        return JSONResponse(documents.connector_info(self._connector(request)))

    async def delete(self, request: Request) -> Response:
        """Delete a connector."""
        name = request.path_params["name"]
        await _call(lambda: self.worker.delete(name))
        return Response(status_code=204)

    async def show_config(self, request: Request) -> Response:
        """Show its properties."""
        return JSONResponse(documents.mask_config(self._connector(request).config))

    async def put_config(self, request: Request) -> Response:
        """Replace its properties, or create it."""
        name = request.path_params["name"]
        config = _with_name(name, await read_config(request))
        plugins.check_class(config)
        connector, created = await _call(lambda: self.worker.configure(name, config))
        info = documents.connector_info(connector)
        return JSONResponse(info, 201, {"location": f"/connectors/{name}"}) if created else JSONResponse(info)

    async def patch_config(self, request: Request) -> Response:
        """Change some of its properties."""
        changes, name = check_changes(await read_json(request)), request.path_params["name"]
        if changes.get("name", name) != name:
            raise RestError(400, _other_name(changes["name"], name))
        self.worker.get(name)
        connector = await _call(lambda: self.worker.patch(name, changes))
        return JSONResponse(documents.connector_info(connector))

    async def show_status(self, request: Request) -> Response:
        """Show its state, and its task's."""
        return JSONResponse(self._status(self._connector(request, "No status found for connector {}")))

    async def show_tasks(self, request: Request) -> Response:
        """Show its task."""
        return JSONResponse(documents.task_configs(self._connector(request)))

    async def show_task_configs(self, request: Request) -> Response:
        """Show its task's properties, as older versions of Connect do."""
        tasks = documents.task_configs(self._connector(request))
        return JSONResponse({f"{one['id']['connector']}-{one['id']['task']}": one["config"] for one in tasks})

    async def show_task_status(self, request: Request) -> Response:
        """Show the state of its task."""
        return JSONResponse(documents.task_status(self._task(request), self.worker_id, self.version))

    async def restart_task(self, request: Request) -> Response:
        """Restart its task."""
        name = self._task(request).name
        await _call(lambda: self.worker.restart(name))
        return Response(status_code=204)

    async def show_topics(self, request: Request) -> Response:
        """Show the topics that it reads or writes; none of a connector that there is not, as in Connect."""
        name = request.path_params["name"]
        connector = self.worker.find(name)
        topics = [] if connector is None else await _call(connector.topics)
        return JSONResponse({name: {"topics": topics}})

    async def reset_topics(self, request: Request) -> Response:  # noqa: ARG002 - a route's signature
        """Do nothing: the topics are those of the offsets."""
        return Response(status_code=202)

    async def pause(self, request: Request) -> Response:
        """Pause it."""
        return await self._steer(request, "PAUSED", 202)

    async def resume(self, request: Request) -> Response:
        """Run it again."""
        return await self._steer(request, "STARTED", 202)

    async def stop(self, request: Request) -> Response:
        """Stop it, so that its offsets can be changed."""
        return await self._steer(request, "STOPPED", 204)

    async def restart(self, request: Request) -> Response:
        """Restart it; with a parameter the answer is its state."""
        name = request.path_params["name"]
        tasks, failed = (request.query_params.get(key, "").lower() == "true" for key in ("includeTasks", "onlyFailed"))
        connector = await _call(lambda: self.worker.restart(name, only_failed=failed))
        return JSONResponse(self._status(connector), 202) if tasks or failed else Response(status_code=204)

    async def show_offsets(self, request: Request) -> Response:
        """Show its stored offsets."""
        connector = self._connector(request)
        with _our_errors_as_answers():
            offsets = await self._read_offsets(connector)
        return JSONResponse(documents.offsets_document(offsets))

    async def patch_offsets(self, request: Request) -> Response:
        """Store other offsets."""
        name = request.path_params["name"]
        connector = self.worker.find(name)
        offsets = _parse_offsets(await read_json(request), "sink" if connector is None else connector.kind)
        await _call(lambda: self.worker.alter_offsets(name, offsets))
        self._readings.clear()  # Who asks from now on is told these.
        return JSONResponse({"message": "The offsets for this connector have been altered successfully"})

    async def reset_offsets(self, request: Request) -> Response:
        """Forget its offsets."""
        name = request.path_params["name"]
        await _call(lambda: self.worker.alter_offsets(name, None))
        self._readings.clear()  # Who asks from now on is told these.
        return JSONResponse({"message": "The offsets for this connector have been reset successfully"})

    async def list_plugins(self, request: Request) -> Response:  # noqa: ARG002
        """List the kinds of connectors."""
        return JSONResponse(plugins.list_plugins())

    async def show_plugin(self, request: Request) -> Response:
        """Show the options of a kind."""
        return JSONResponse(plugins.plugin_config(request.path_params["plugin"]))

    async def validate(self, request: Request) -> Response:
        """Say what is wrong with properties."""
        config, name = await read_config(request), request.path_params["plugin"]
        return JSONResponse(await _call(lambda: plugins.validate_config(name, config, self.complete)))

    async def list_loggers(self, request: Request) -> Response:  # noqa: ARG002
        """List the loggers."""
        return JSONResponse(self.loggers.all())

    async def show_logger(self, request: Request) -> Response:
        """Show a logger's level."""
        return JSONResponse(self.loggers.get(request.path_params["logger"]))

    async def set_logger(self, request: Request) -> Response:
        """Set a logger's level."""
        document = await read_json(request)
        if not isinstance(document, dict):
            raise RestError(400, "the body is not an object with a level")
        changed = self.loggers.set(request.path_params["logger"], document)
        return Response(status_code=204) if request.query_params.get("scope") == "cluster" else JSONResponse(changed)

    async def health(self, request: Request) -> Response:  # noqa: ARG002
        """Say that requests are handled, as Connect does of a worker."""
        message = "Worker has completed startup and is ready to handle requests."
        return JSONResponse({"status": "healthy", "message": message})

    async def _read_offsets(self, connector: Connector) -> list[ConnectorOffset]:
        """Have the offsets read in a thread beside the pool, one for each connector, however often they are asked for.

        A catalog that never answers would keep each thread, and steering needs those of the pool.
        """
        reading = self._readings.get(connector)
        if reading is None:
            reading = self._readings[connector] = start_call(connector.offsets, f"offsets-{connector.name}")
            reading.add_done_callback(lambda _: self._readings.pop(connector, None))
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                return await asyncio.shield(asyncio.wrap_future(reading))
        except TimeoutError:
            raise RestError(500, "Request timed out. The catalog has not answered yet") from None

    def _connector(self, request: Request, missing: str = "Connector {} not found") -> Connector:
        return self.worker.get(request.path_params["name"], missing)

    def _task(self, request: Request) -> Connector:
        name, task = request.path_params["name"], request.path_params["task"]
        connector = self.worker.find(name)
        if connector is None or task != "0" or not connector.lifecycle.has_task:
            raise RestError(404, f"No status found for task {name}-{task}")
        return connector

    def _status(self, connector: Connector) -> dict[str, Any]:
        return documents.connector_status(connector, self.worker_id, self.version)

    async def _steer(self, request: Request, target: TargetState, status: int) -> Response:
        name = request.path_params["name"]
        await _call(lambda: self.worker.steer(name, target))
        return Response(status_code=status)


async def _call(work: Callable[[], T]) -> T:
    """Do something that takes a while in a thread; our own errors become answers."""
    with _our_errors_as_answers():
        return await run_in_threadpool(work)


@contextmanager
def _our_errors_as_answers() -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise plugins.refuse_invalid(error) from error
    except ConnectorError as error:
        raise RestError(500, redact(str(error))) from error


def _with_name(name: str, config: dict[str, str]) -> dict[str, str]:
    """Return properties with the connector's name; RestError 400 where they have another, or it is no name."""
    check_name(name)
    if config.get("name", name) != name:
        raise RestError(400, _other_name(config["name"], name))
    return {**config, "name": name}


def _other_name(included: str | None, name: str) -> str:
    return f"Connector name configuration ({included}) doesn't match connector name in the URL ({name})"


def _parse_offsets(body: Any, kind: Kind) -> list[ConnectorOffset]:
    given = body.get("offsets") if isinstance(body, dict) else None
    if not given:
        raise RestError(400, "Partitions / offsets need to be provided for an alter offsets request")
    if not isinstance(given, list):
        raise RestError(400, "the offsets are not a list")
    parsed = []
    for one in given:
        partition = one.get("partition") if isinstance(one, dict) else None
        if isinstance(one, dict) and partition is None:
            raise RestError(400, f"The partition for a {kind} connector offset cannot be null or missing")
        if not isinstance(partition, dict) or not isinstance(one.get("offset"), dict | None):
            raise RestError(400, "an offset is not an object with partition and offset")
        parsed.append(ConnectorOffset(partition, one.get("offset")))
    return parsed
