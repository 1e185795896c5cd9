"""Names of Java's packages and classes: Java is asked once for what cannot change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from attrs import define, field
from py4j.java_gateway import GatewayProperty, JavaClass, JavaPackage, JVMView
from py4j.protocol import Py4JError

from connector.runtime.jvm.java_names import remember_java_names

CLASSES = {"org.lake.Schema", "org.lake.Later", "java.util.HashMap"}
MEMBERS = {("org.lake.Schema", "parse"): "ym", ("org.lake.Schema", "count"): "yi"}


@define(eq=False)
class ReflectionServer:
    """Answers as Py4J's server does, and keeps what it was asked."""

    classes: set[str]
    asked: list[str] = field(factory=list)
    counted: int = 0
    converters: tuple[()] = ()
    gateway_property: GatewayProperty = field(factory=lambda: GatewayProperty(True, {}))

    def send_command(self, command: str, *_: object, **__: object) -> str:
        """One request of reflection."""
        _, kind, name, *rest = command.split("\n")
        self.asked.append(f"{name}.{rest[0]}" if kind == "m" else name)
        if kind == "u":
            return f"yc{name}" if name in self.classes else "yp"
        if (answer := MEMBERS.get((name, rest[0]))) == "yi":
            self.counted += 1
            return f"yi{self.counted}"
        return answer or "x"


@pytest.fixture
def java() -> ReflectionServer:
    """A JVM with some classes."""
    return ReflectionServer(set(CLASSES))


@pytest.fixture
def jvm(java: ReflectionServer) -> Any:
    """PySpark's view of it."""
    gateway = SimpleNamespace(jvm=JVMView(java, "default", id="rj"))
    remember_java_names(gateway)
    return gateway.jvm


def test_packages_classes_and_static_methods_are_asked_for_once(jvm: Any, java: ReflectionServer) -> None:
    """However often they are named, part by part or whole."""
    for _ in range(3):
        assert callable(jvm.org.lake.Schema.parse)
        assert isinstance(jvm.org.lake.Schema, JavaClass)
        assert isinstance(jvm.org.lake, JavaPackage)
        assert isinstance(getattr(jvm, "java.util.HashMap"), JavaClass)
    assert java.asked == ["org", "org.lake", "org.lake.Schema", "org.lake.Schema.parse", "java.util.HashMap"]


def test_a_static_field_is_read_each_time(jvm: Any) -> None:
    """It may have changed."""
    assert [jvm.org.lake.Schema.count for _ in range(3)] == [1, 2, 3]


def test_a_class_that_was_not_there_is_looked_for_again(jvm: Any, java: ReflectionServer) -> None:
    """Jars come to a running JVM; what is not there is an error each time, as Py4J's own."""
    java.classes.discard("org.lake.Later")
    assert isinstance(jvm.org.lake.Later, JavaPackage)
    java.classes.add("org.lake.Later")
    assert isinstance(jvm.org.lake.Later, JavaClass)
    for _ in range(2):
        with pytest.raises(Py4JError):
            jvm.org.lake.Schema.nothing  # noqa: B018 - asked for, as by a caller who errs
