"""Errors of requests -> Kafka Connect's JSON (`error_code`, `message`) with a status."""

from __future__ import annotations


class RestError(Exception):
    """A request that is refused: nothing was changed."""

    def __init__(self, status: int, message: str) -> None:
        """Keep the HTTP status and what the answer says."""
        super().__init__(message)
        self.status, self.message = status, message
