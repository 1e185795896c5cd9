"""What went wrong on the way to a schema registry -> one of our errors: the same for all kinds of registries."""

from __future__ import annotations

from connector.errors import ConnectorError, FatalError, RetriableError
from connector.runtime.failure_causes import causes_of, is_permanent


def unanswered_error(doing: str, error: Exception) -> ConnectorError:
    """Return our error for a question that a registry did not get, or did not answer: its own text stays out."""
    name = type(error).__name__
    if isinstance(error, FileNotFoundError | PermissionError):
        return FatalError(f"{doing}: {name}: a file that the settings name cannot be read; check them")
    if is_permanent(causes_of(error)):
        return FatalError(
            f"{doing}: {name}: retrying does not help; check the registry's certificate, and the settings for TLS"
        )
    return RetriableError(f"{doing}: the registry does not answer ({name})")
