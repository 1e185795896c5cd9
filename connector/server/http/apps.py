"""A worker's connectors -> two HTTP applications: health and metrics alone, and everything."""

from __future__ import annotations

from collections.abc import Callable
from importlib.resources import files

import attrs
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from connector.runtime.monitoring.prometheus.exposition import CONTENT_TYPE, MetricsRegistry
from connector.server import health
from connector.server.connectors.port import Check, Connector
from connector.server.errors import RestError
from connector.server.http.paths import PathMiddleware
from connector.server.rest.connect_api import ConnectApi
from connector.server.rest.security import AccessRules, LoginMiddleware, OriginMiddleware
from connector.server.rest.signals_api import SignalsApi
from connector.server.worker import Worker

_NO_SUCH_METHOD = 405
_METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE"]
_PAGE_HEADERS = {
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; img-src data:; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
}


@attrs.frozen
class HealthApi:
    """Health and metrics of one worker: every answer comes from memory."""

    worker: Worker
    metrics: MetricsRegistry

    def routes(self) -> list[Route]:
        """Return all routes."""
        return [
            Route("/q/health", self.all),
            Route("/q/health/live", self.live),
            Route("/q/health/ready", self.ready),
            Route("/q/health/started", self.started),
            Route("/metrics", self.scrape),
            Route("/q/metrics", self.scrape),
        ]

    async def all(self, request: Request) -> Response:  # noqa: ARG002 - a route's signature
        """Answer with all checks."""
        found = self._connectors()
        return _answer([*self._check_live(found), *health.check_ready(found), *health.check_started(found)])

    async def live(self, request: Request) -> Response:  # noqa: ARG002
        """Tell whether the loops move."""
        return _answer(self._check_live(self._connectors()))

    async def ready(self, request: Request) -> Response:  # noqa: ARG002
        """Tell whether work can be done."""
        return _answer(health.check_ready(self._connectors()))

    async def started(self, request: Request) -> Response:  # noqa: ARG002
        """Tell whether the start is over."""
        return _answer(health.check_started(self._connectors()))

    async def scrape(self, request: Request) -> Response:  # noqa: ARG002
        """Answer a scrape of Prometheus."""
        # Some milliseconds, and not in a thread: those may all be waiting for a catalog.
        return Response(self.metrics.render(), media_type=CONTENT_TYPE)

    def _check_live(self, found: list[Connector]) -> list[Check]:
        return health.check_live(found, is_shared=self.worker.takes_connectors)

    def _connectors(self) -> list[Connector]:
        return [one for name in self.worker.names if (one := self.worker.find(name)) is not None]


def build_health_app(worker: Worker, metrics: MetricsRegistry) -> Starlette:
    """Return the application of the port that probes and Prometheus ask."""
    return _build(HealthApi(worker, metrics).routes())


def build_app(api: ConnectApi, metrics: MetricsRegistry, rules: AccessRules, *, takes_signals: bool = True) -> ASGIApp:
    """Return the application of the listeners: Connect's REST interface, the page, health and metrics.

    Args:
        api: the REST interface.
        metrics: of the process.
        rules: who may come in.
        takes_signals: whether `POST /api/signals` is answered.
    """
    page = files("connector.server").joinpath("page/index.html").read_text("utf-8")

    async def root(request: Request) -> Response:
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(page, headers=_PAGE_HEADERS)
        return JSONResponse(api.root())

    async def overview(request: Request) -> Response:  # noqa: ARG001
        # From memory, and not in a thread: those may all be waiting for a catalog, which is when somebody looks.
        return JSONResponse(_overview(api.worker))

    routes = [
        Route("/", root),
        Route("/api/overview", overview),
        *api.routes(),
        *SignalsApi(api.worker, takes_signals).routes(),
        *HealthApi(api.worker, metrics).routes(),
    ]
    app: ASGIApp = LoginMiddleware(_build(routes), rules)
    if rules.origins:
        # Around all answers, those to who has no login and to what fails too: a browser shows its page no other.
        app = CORSMiddleware(app, allow_origins=list(rules.origins), allow_methods=_METHODS, allow_headers=["*"])
    return OriginMiddleware(app, rules)


def _build(routes: list[Route]) -> Starlette:
    app = Starlette(routes=routes, middleware=[Middleware(PathMiddleware)], exception_handlers=_handlers())
    app.router.redirect_slashes = False
    return app


def _overview(worker: Worker) -> dict[str, object]:
    connectors = [one for name in worker.names if (one := worker.find(name)) is not None]
    return {"connectors": [_with_state(one) for one in connectors]}


def _with_state(connector: Connector) -> dict[str, object]:
    lifecycle = connector.lifecycle
    checks = [attrs.asdict(one) for one in connector.checks()]
    document = {"name": connector.name, "kind": connector.kind, "state": lifecycle.state, "checks": checks}
    return {**document, "reason": lifecycle.error if lifecycle.state == "FAILED" else "", **connector.overview()}


def _answer(checks: list[Check]) -> Response:
    status, document = health.health_document(checks)
    return JSONResponse(document, status, {"cache-control": "no-store"})


def _handlers() -> dict[object, Callable[[Request, Exception], Response]]:
    return {RestError: _refuse, HTTPException: _refuse_http, Exception: _fail}


def _refuse(_: Request, error: Exception) -> Response:
    assert isinstance(error, RestError)
    return JSONResponse({"error_code": error.status, "message": error.message}, error.status)


def _refuse_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == _NO_SUCH_METHOD:
        # Not those of the first route with this path alone, as Starlette tells.
        path, routes = request.scope["path"], [one for one in request.app.routes if isinstance(one, Route)]
        methods = {method for one in routes if one.path_regex.match(path) for method in one.methods or ()}
        error.headers = {"allow": ", ".join(sorted(methods))}
        if request.method == "OPTIONS":
            return Response(headers=error.headers)
    message = f"HTTP {error.status_code} {error.detail}"
    return JSONResponse({"error_code": error.status_code, "message": message}, error.status_code, error.headers)


def _fail(_: Request, error: Exception) -> Response:
    return JSONResponse({"error_code": 500, "message": f"{type(error).__name__}; the log says more"}, 500)
