"""The border to Java: names of classes, without a JVM."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError

from connector.errors import FatalError
from connector.iceberg.java import is_transient_java_error, java_exception_name, jvm, vended_credentials


@pytest.mark.parametrize("name", ["java.util.HashMap", "org.apache.iceberg.util.JsonUtil", "java.lang.String"])
def test_a_name_with_a_capital_is_a_class(name: str) -> None:
    """Packages and classes are told apart by Java's custom; the JVM, which would search all jars, is not asked."""
    client = SimpleNamespace(converters=None, gateway_property=SimpleNamespace(auto_field=True, pool=None))
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=SimpleNamespace(_gateway_client=client)))
    found: Any = jvm(spark)
    for part in name.split("."):
        found = getattr(found, part)
    assert isinstance(found, JavaClass)
    assert found._fqn == name


class _Entries(dict[str, str]):
    """A Java map as Py4J shows it."""

    def entrySet(self) -> Any:  # noqa: N802 - Java's name
        pairs = [SimpleNamespace(getKey=lambda k=k: k, getValue=lambda v=v: v) for k, v in self.items()]
        return _Some(pairs)


class _Some:
    """A Java collection as Py4J shows it."""

    def __init__(self, values: list[Any]) -> None:
        self._values = values

    def iterator(self) -> Any:
        rest = list(self._values)
        return SimpleNamespace(hasNext=lambda: bool(rest), next=lambda: rest.pop(0))


def test_vended_credentials_are_those_of_the_longest_prefix() -> None:
    """Of the credentials that a catalog hands out a table's files get the ones meant for them; without any, none."""
    handed = {"s3://b": "wide", "s3://b/w/t": "near", "s3://b/w/t2": "other", "s3://b/w/folder/": "inside"}
    credentials = _Some(
        [
            SimpleNamespace(prefix=lambda p=p: p, config=lambda s=s: _Entries({"s3.session-token": s}))
            for p, s in handed.items()
        ]
    )
    io = SimpleNamespace(credentials=lambda: credentials)
    assert vended_credentials(io, "s3://b/w/t/data") == {"s3.session-token": "near"}
    # A prefix is one of files: that of a folder may end with a slash.
    assert vended_credentials(io, "s3://b/w/folder") == {"s3.session-token": "inside"}
    assert vended_credentials(io, "s3://b/x") == {"s3.session-token": "wide"}
    assert vended_credentials(io, "gs://b/x") == {}

    def refused() -> Any:
        raise Py4JError("Method credentials([]) does not exist")

    assert vended_credentials(SimpleNamespace(credentials=refused), "s3://b") == {}


class _Java:
    """Java's exception, as far as it is asked."""

    def __init__(self, name: str, cause: _Java | None = None) -> None:
        self._name, self._cause = name, cause

    def getClass(self) -> _Java:  # noqa: N802 - Java's name
        return self

    def getSimpleName(self) -> str:  # noqa: N802 - Java's name
        return self._name

    def getCause(self) -> _Java | None:  # noqa: N802 - Java's name
        return self._cause


@pytest.mark.parametrize(
    ("names", "passes"),
    [
        (("SparkException", "CommitStateUnknownException"), True),
        (("SparkException", "CommitFailedException"), True),
        (("SparkException", "RESTException", "SocketTimeoutException"), True),
        (("AnalysisException",), False),
        ((), False),
    ],
)
def test_what_spark_wraps_is_found(names: tuple[str, ...], passes: bool) -> None:
    """A commit that Spark makes fails in Spark's words; what lies behind decides whether it is tried again."""
    java = None
    for name in reversed(names):
        java = _Java(name, java)
    error = RuntimeError()
    error._origin = java  # type: ignore[attr-defined]
    assert is_transient_java_error(error) is passes


@pytest.mark.parametrize("captured", [True, False])
def test_the_exception_behind_ours_has_its_own_name(captured: bool) -> None:
    """PySpark makes some of Java's exceptions its own before anybody sees them: their names are Java's still."""
    behind = RuntimeError() if captured else Py4JJavaError.__new__(Py4JJavaError)
    setattr(behind, "_origin" if captured else "java_exception", _Java("IllegalArgumentException"))
    error = FatalError("committing")
    error.__cause__ = behind
    assert java_exception_name(error) == "IllegalArgumentException"
    assert java_exception_name(FatalError("no cause")) == java_exception_name(None) == ""
