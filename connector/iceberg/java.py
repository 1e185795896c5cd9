"""Iceberg's Java library on the driver -> our errors and plain values.

Only the driver has a JVM beside it; executors never import this.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeAlias

from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import SparkSession

from connector.errors import CommitUnknown, ConnectorError, FatalError, RetriableError
from connector.runtime.failure_causes import Cause, is_permanent, is_transient
from connector.runtime.jvm.callback_connections import callback_connections
from connector.runtime.spark.driver_gateway import DriverGateway

Driver: TypeAlias = SparkSession | DriverGateway
"""The driver's JVM: Spark's, or one without Spark, in which tables can be looked at and changed, but not scanned."""
Jvm = Any
JavaTable = Any
JavaCatalog = Any

_RETRIABLE_EXCEPTIONS = (
    "CommitFailedException",
    "ValidationException",
    "ServiceUnavailableException",
    "ServiceFailureException",
    "RuntimeIOException",
    "UncheckedIOException",
    "UncheckedSQLException",
    "UncheckedInterruptedException",
    "RESTException",
    "IOException",
    "ConnectException",
    "SocketTimeoutException",
)
_MAX_CAUSES = 20
_HADOOP = "hadoop."
_CALLBACK_LOCK = threading.Lock()
_JVM_REMEDY = "give it more memory (spark.driver.memory, the limit of the container), then start again"
_CATALOG_REMEDY = "retrying does not help: check the catalog's properties, its credentials, and the jars given to Spark"


@contextmanager
def map_java_errors(doing: str) -> Iterator[None]:
    """Raise ours instead of Java's exceptions.

    Args:
        doing: what was tried and on which table, for the message.

    Raises:
        CommitUnknown: the commit may or may not be in the table.
        RetriableError: a conflict, or the catalog or store is away, unless what is behind it lasts (see `causes`).
        FatalError: everything else.
    """
    try:
        yield
    except Py4JJavaError as error:
        raise _to_connector_error(error.java_exception, doing) from error
    except CapturedException as error:
        # PySpark makes some of Java's exceptions its own before they get here.
        origin = error._origin  # noqa: SLF001
        raise (FatalError(f"{doing}: {error}") if origin is None else _to_connector_error(origin, doing)) from error
    except Py4JNetworkError as error:
        raise FatalError(f"{doing}: the JVM is gone ({error}); {_JVM_REMEDY}") from error


def _to_connector_error(cause: Any, doing: str) -> ConnectorError:
    causes = tuple(_iter_causes(cause))
    text = f"{doing}: {_describe_causes(causes)}"
    if causes[0].name == "CommitStateUnknownException":
        return CommitUnknown(text)
    if is_permanent(causes):
        return FatalError(f"{text}; {_CATALOG_REMEDY}")
    if causes[0].name in _RETRIABLE_EXCEPTIONS or is_transient(causes):
        return RetriableError(text)
    return FatalError(text)


def _iter_causes(cause: Any) -> Iterator[Cause]:
    for _ in range(_MAX_CAUSES):
        if cause is None:
            return
        name = str(cause.getClass().getSimpleName())
        yield Cause(name, f"{cause.getMessage()}{_sql_state(cause, name)}")
        cause = cause.getCause()


def _sql_state(cause: Any, name: str) -> str:
    """The code that databases give with an exception, whatever language their messages are in."""
    if "SQL" not in name:
        return ""
    try:
        state = cause.getSQLState()
    except Py4JError:
        return ""
    return f" (SQLSTATE {state})" if state else ""


def _describe_causes(causes: Sequence[Cause]) -> str:
    """What was thrown, and what was at the bottom of it unless the same is said already."""
    first, last = causes[0], causes[-1]
    text = f"{first.name}: {first.message}"
    return text if last.message in text else f"{text} (by {last.name}: {last.message})"


def is_retriable_exception(name: str) -> bool:
    """Tell by the simple name of a Java exception whether the same call may succeed later."""
    return name in _RETRIABLE_EXCEPTIONS


def is_transient_java_error(error: BaseException) -> bool:
    """Tell whether what Spark or Java raised has a cause that may be gone later, an unanswered commit among them."""
    cause = _find_java_exception(error)
    while cause is not None:
        name = str(cause.getClass().getSimpleName())
        if is_retriable_exception(name) or name == "CommitStateUnknownException":
            return True
        cause = cause.getCause()
    return False


def java_exception_name(error: BaseException | None) -> str:
    """Return the simple class name of the Java exception behind one of ours; empty when there is none."""
    cause = None if error is None else _find_java_exception(error.__cause__)
    return "" if cause is None else str(cause.getClass().getSimpleName())


def _find_java_exception(error: BaseException | None) -> Any:
    """Return what Java raised; some of its exceptions PySpark makes its own (`IllegalArgumentException`, for one)."""
    return error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)


def is_no_such_table(error: BaseException) -> bool:
    """Tell whether one of ours stands for Iceberg's word that a catalog has no table, or no namespace, of that name."""
    return is_no_such_table_exception(error.__cause__)


def is_no_such_table_exception(error: BaseException | None) -> bool:
    """Tell whether what Py4J raised is that word."""
    names = ("NoSuchTableException", "NoSuchNamespaceException")
    return isinstance(error, Py4JJavaError) and str(error.java_exception.getClass().getSimpleName()) in names


def gateway_of(driver: Driver) -> Any:
    """Return Py4J's gateway to the driver's JVM."""
    if isinstance(driver, DriverGateway):
        return driver.gateway
    gateway = driver.sparkContext._gateway  # noqa: SLF001 - PySpark's only door to Java
    assert gateway is not None
    return gateway


def jvm(driver: Driver) -> Jvm:
    """Return Java's classes in the driver's JVM, by their full names."""
    return _JavaPackage(gateway_of(driver)._gateway_client)  # noqa: SLF001


class _JavaPackage:
    """A Java package; by Java's custom a name is a class where it begins with a capital, else a package below.

    Py4J's own asks the JVM of each part of a name whether it is a class, and each time the JVM searches all jars for
    one: 5 ms of work for every file of a commit.
    """

    def __init__(self, client: Any, name: str = "") -> None:
        self._client, self._name = client, name

    def __getattr__(self, name: str) -> Any:
        full = f"{self._name}.{name}" if self._name else name
        return JavaClass(full, self._client) if name[:1].isupper() else _JavaPackage(self._client, full)


def load_class(driver: Driver, name: str) -> Any:
    """Return Java's class of that name; `Class.forName` does not know the jars of `spark.jars`."""
    return jvm(driver).java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)


@contextmanager
def accept_callbacks(driver: Driver) -> Iterator[None]:
    """Have Java call back: validators and callbacks of commits are Python's; Java's own exceptions come through.

    Py4J keeps a thread's connection once more for each call whose callback calls Java itself. Then the connection, and
    a thread of Java's, outlive the Python thread: one for each batch. So it is left as it was. It also keeps what
    threads of Java's own have opened to call back (`callback_connections`).
    """
    gateway = gateway_of(driver)
    with _CALLBACK_LOCK:
        gateway.callback_server_parameters.propagate_java_exceptions = True
        ensure_callback_server_started(gateway)
    try:
        yield
    finally:
        client = gateway._gateway_client  # noqa: SLF001 - Py4J has no other door to it
        own, connections = client.get_thread_connection(), client.deque
        for _ in range(connections.count(own) - 1):
            connections.remove(own)
        callback_connections(gateway).sweep_sometimes()


def activate_session(spark: SparkSession) -> None:
    """Make the session this thread's: Spark looks up catalogs, and Iceberg its files, by it; new threads have none."""
    jvm(spark).org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)  # noqa: SLF001


def iceberg_catalog(driver: Driver, name: str) -> JavaCatalog:
    """Return Iceberg's catalog behind a Spark catalog; connects to it on first use."""
    if isinstance(driver, DriverGateway):
        with map_java_errors(f"opening catalog {name}"):
            return _build_catalog(driver, name)
    activate_session(driver)
    with map_java_errors(f"opening catalog {name}"):
        state = driver._jsparkSession.sessionState()  # noqa: SLF001
        return state.catalogManager().catalog(name).icebergCatalog()


def _build_catalog(driver: DriverGateway, name: str) -> JavaCatalog:
    """Open a catalog as Iceberg's SparkCatalog does it, by the same settings."""
    java, base = jvm(driver), f"spark.sql.catalog.{name}."
    settings = java.org.apache.spark.SparkConf(True)  # with what spark-submit read from files
    for key, value in driver.conf.items():
        settings.set(key, value)
    hadoop = java.org.apache.spark.deploy.SparkHadoopUtil.get().newConfiguration(settings)
    options = java.java.util.TreeMap(java.java.lang.String.CASE_INSENSITIVE_ORDER)
    for pair in settings.getAllWithPrefix(base):
        key, value = str(pair.productElement(0)), str(pair.productElement(1))
        options.put(key, value)
        if key.startswith(_HADOOP):
            hadoop.set(key.removeprefix(_HADOOP), value)
    return java.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(name, options, hadoop)


def iterate(iterable: Any) -> Iterator[Any]:
    """Go through a Java Iterable.

    Py4J's own loops, over collections only, end with an exception in Java, which PySpark takes 50 ms to look at.
    """
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()


def to_dict(java_map: Any) -> dict[str, str]:
    """Copy a Java map of strings."""
    return {str(entry.getKey()): str(entry.getValue()) for entry in iterate(java_map.entrySet())}


def vended_credentials(io: Any, location: str) -> dict[str, str]:
    """Return what the catalog handed out for files below a location: the credentials of the longest prefix that fits.

    Prefixes are those of files, so that of a table's folder may end with a slash, which the location does not.
    """
    try:
        found = {str(one.prefix()): one.config() for one in iterate(io.credentials())}
    except Py4JError:
        # A FileIO that takes no credentials has no such method.
        return {}
    fitting = max((prefix for prefix in found if f"{location}/".startswith(prefix)), key=len, default=None)
    return {} if fitting is None else to_dict(found[fitting])


def to_string_array(driver: Driver, values: tuple[str, ...]) -> Any:
    """Copy to a Java array of strings; lists and dicts need no such step, PySpark's gateway copies them by itself."""
    array = gateway_of(driver).new_array(jvm(driver).java.lang.String, len(values))
    for position, value in enumerate(values):
        array[position] = value
    return array
