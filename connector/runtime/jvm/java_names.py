"""PySpark's gateway -> the same, which asks Java once for each package, class and static method.

Py4J asks each time, and to find that `org` is no class Java looks into each jar of the class path, once more for each
import of PySpark's: milliseconds. PySpark names `org.apache.spark.sql.functions` for each column of an expression, and
two dozen classes to tell what an exception of Java's is. Our own calls name classes by `iceberg.java.jvm`.
"""

from __future__ import annotations

from typing import Any

from py4j.java_gateway import JavaClass, JavaMember, JavaPackage, JVMView


def remember_java_names(gateway: Any) -> None:
    """Have `gateway.jvm` remember what it was asked for; before others take that view over."""
    view = gateway.jvm
    gateway.jvm = _RememberingJvm(view._gateway_client, view._jvm_name, id=view._id)  # noqa: SLF001 - Py4J tells no other way


class _RememberingJvm(JVMView):
    def __getattr__(self, name: str) -> Any:
        return _remember(self, name, super().__getattr__(name))


class _RememberingPackage(JavaPackage):
    def __getattr__(self, name: str) -> Any:
        return _remember(self, name, super().__getattr__(name))


class _RememberingClass(JavaClass):
    def __getattr__(self, name: str) -> Any:
        return _remember(self, name, super().__getattr__(name))


def _remember(owner: object, name: str, member: Any) -> Any:
    """Keep what never changes: a static field may, and a class that was not found may come with another jar."""
    if isinstance(member, JavaPackage):
        member = _RememberingPackage(member._fqn, member._gateway_client, member._jvm_id)  # noqa: SLF001
        if not name.rpartition(".")[2][:1].islower():
            return member
    elif isinstance(member, JavaClass):
        member = _RememberingClass(member._fqn, member._gateway_client)  # noqa: SLF001
    elif not isinstance(member, JavaMember):
        return member
    vars(owner)[name] = member
    return member
