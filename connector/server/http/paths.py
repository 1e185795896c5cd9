"""Paths as clients write them -> paths of routes: a slash at the end says nothing, as in Kafka Connect.

Debezium's tutorials and many scripts post to `/connectors/`, by clients that follow no redirection.
"""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send


class PathMiddleware:
    """Takes slashes at the end off each request's path."""

    def __init__(self, app: ASGIApp) -> None:
        """Stand before an application."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand one request on."""
        if scope["type"] == "http":
            scope = {**scope, "path": strip_slashes(scope["path"], scope["raw_path"])}
        await self._app(scope, receive, send)


def strip_slashes(path: str, raw_path: bytes) -> str:
    """Return a path without slashes at its end, but for those that are encoded (`%2F`): they are of a name."""
    surplus = len(raw_path) - len(raw_path.rstrip(b"/"))
    return path[: len(path) - surplus] or "/"
