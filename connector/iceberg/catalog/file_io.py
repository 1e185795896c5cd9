"""properties of a catalog -> PyIceberg's door to the files of a store. On the driver and on executors.

What goes wrong behind the door while the driver reads becomes one of our errors here (`map_read_errors`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from urllib.parse import urlsplit

from pyiceberg.io import FileIO, load_file_io
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.typedef import EMPTY_DICT, Properties

from connector.errors import ConnectorError, FatalError, RetriableError
from connector.runtime.failure_causes import causes_of, is_permanent, is_transient
from connector.settings.iceberg.required_jars import ADLS, S3, needs_remote_signing, store_of, to_pyiceberg

_MAX_CACHED_IOS = 64


def file_io_for(properties: Mapping[str, str], location: str) -> FileIO:
    """Return the door to files at and below a location; one that was opened with the same properties is taken again.

    Cost: that of a client of the store, which keeps its connections. Raises what PyIceberg raises, and FatalError where
    the catalog would have to sign requests.
    """
    parts = urlsplit(location)
    return _open_file_io(tuple(sorted(properties.items())), parts.scheme, parts.netloc)


@contextmanager
def map_read_errors(doing: str) -> Iterator[None]:
    """Raise ours where PyIceberg or Arrow cannot read a file of a table.

    Args:
        doing: what is read, and of which table, for the message.

    Raises:
        RetriableError: the store is away or busy.
        FatalError: a file is gone or is not what it should be, or the store refuses it.
    """
    try:
        yield
    except ConnectorError:
        raise
    except OSError as error:
        raise _error_class_for(error)(f"{doing}: {type(error).__name__}: {error}") from error
    except Exception as error:
        # What a decoder says may have values in it; what a store's client says has none.
        passing = is_transient(causes_of(error))
        reason = f"{type(error).__name__}: {error}" if passing else f"a file cannot be read ({type(error).__name__})"
        raise (RetriableError if passing else FatalError)(f"{doing}: {reason}") from error


def _error_class_for(error: OSError) -> type[ConnectorError]:
    causes = tuple(causes_of(error))
    if isinstance(error, FileNotFoundError) or is_permanent(causes):
        return FatalError
    return FatalError if isinstance(error, PermissionError) and not is_transient(causes) else RetriableError


@lru_cache(_MAX_CACHED_IOS)
def _open_file_io(properties: tuple[tuple[str, str], ...], scheme: str, netloc: str) -> FileIO:
    place = f"{scheme}://{netloc}/" if scheme else "/"
    known = to_pyiceberg(dict(properties), place)
    if store_of(scheme) == S3 and needs_remote_signing(known):
        raise FatalError(
            f"the catalog requires signing every request to {place} (s3.remote-signing-enabled), which the writers of "
            "files cannot ask for; let it vend credentials, or give keys"
        )
    if store_of(scheme) == ADLS and "py-io-impl" not in known:
        return AzureFileIO(known)
    return load_file_io(known, place)


class AzureFileIO(PyArrowFileIO):
    """Arrow's files on Azure: the container stands in the location where Arrow looks for a host."""

    def __init__(self, properties: Properties = EMPTY_DICT) -> None:
        """Take PyIceberg's properties, the account's name among them."""
        super().__init__(properties)

    @staticmethod
    def parse_location(location: str, properties: Properties = EMPTY_DICT) -> tuple[str, str, str]:
        """Split a location into scheme, container@account and the path as Arrow has it: container/path."""
        parts = urlsplit(location)
        if store_of(parts.scheme) != ADLS:
            return PyArrowFileIO.parse_location(location, properties)
        container, at, _ = parts.netloc.partition("@")
        return parts.scheme, parts.netloc, f"{container}{parts.path}" if at else parts.path.lstrip("/")
