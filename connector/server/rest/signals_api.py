"""Signals by HTTP, as Debezium Server takes them -> the source that they are for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

import attrs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from connector.errors import RetriableError
from connector.server.errors import RestError
from connector.server.rest.requests import read_json
from connector.server.worker import Worker
from connector.source.signals.queue_channel import SignalQueue
from connector.source.snapshots.signal import InvalidSignal


@runtime_checkable
class SignalTarget(Protocol):
    """A connector that signals are for."""

    signals: SignalQueue


@attrs.frozen
class SignalsApi:
    """`POST /api/signals` of a worker; `?connector=NAME` says which source, where there are several."""

    worker: Worker
    is_enabled: bool = True

    def routes(self) -> list[Route]:
        """Return all routes."""
        return [Route("/api/signals", self.send, methods=["POST"])]

    async def send(self, request: Request) -> Response:
        """Hand a signal on; the source reads it within `signal.poll.interval.ms`."""
        if not self.is_enabled:
            raise RestError(503, "signals are not taken here: debezium.api.enabled is false")
        document, target = await read_json(request), self._find(request.query_params.get("connector"))
        try:
            target.signals.put(document)
        except InvalidSignal as error:
            raise RestError(400, str(error)) from error
        except RetriableError as error:
            raise RestError(503, str(error)) from error
        return Response(status_code=202)

    def _find(self, name: str | None) -> SignalTarget:
        if name is not None:
            connector = self.worker.get(name)
            if not isinstance(connector, SignalTarget):
                raise RestError(400, f"connector {name} is no source: it takes no signals")
            return connector
        sources = list(self._sources())
        if len(sources) != 1:
            raise RestError(400, f"there are {len(sources)} sources here; name one with ?connector=NAME")
        return sources[0]

    def _sources(self) -> Iterator[SignalTarget]:
        for name in self.worker.names:
            connector = self.worker.find(name)
            if isinstance(connector, SignalTarget):
                yield connector
