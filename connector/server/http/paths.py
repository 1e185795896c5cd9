"""Paths as clients write them -> paths of routes: a slash at the end says nothing, as in Kafka Connect.

Debezium's tutorials and many scripts post to `/connectors/`, by clients that follow no redirection. A slash that is
encoded (`%2F`) is of a name, and parts no path: who watches the paths that go by, such as a proxy, reads the same.
"""

from __future__ import annotations

from urllib.parse import unquote

from starlette.types import ASGIApp, Receive, Scope, Send


class PathMiddleware:
    """Reads each request's path by its parts, without slashes at the end."""

    def __init__(self, app: ASGIApp) -> None:
        """Stand before an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand one request on."""
        if scope["type"] == "http":
            scope = {**scope, "path": read_path(scope["raw_path"])}
        await self._app(scope, receive, send)


def read_path(raw_path: bytes) -> str:
    """Return a path without slashes at its end; those that are encoded stay so."""
    parts = raw_path.decode("ascii", "replace").rstrip("/").split("/")
    return "/".join(unquote(part).replace("/", "%2F") for part in parts) or "/"
