"""A REST catalog in front of a JDBC one, whose answers to commits the tests choose: what landed, and what was said.

    Iceberg's REST client (in the sink) -> HTTP -> a fate -> Iceberg's own `CatalogHandlers` -> `JdbcCatalog` on SQLite
Requests are read, carried out and answered by Iceberg's own server-side code, in the tests' JVM; this module only moves
bytes, and decides for single commits whether they are carried out, when, and what the client hears.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import orjson
from attrs import define, field
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from connector.iceberg.java import jvm
from tests.clients.lake import Lake
from tests.runs.processes import catalog

REFUSALS, REFUSALS_OF_OWN = 2, 5
"""So often a commit is refused that Iceberg, which tries again by itself (once; four times with the connector's own
tables), tells its caller."""
ABSENCE = 2
"""So many requests in a row find nobody when the catalog is away."""
BUSY = 0.2
"""The share of reads that find the catalog too busy, where all goes by chance."""


class Fate(Enum):
    """What becomes of a commit, and what its sender hears."""

    LANDED = "landed and said so"
    SILENT = "landed and silent"
    UNKNOWN = "landed, and the answer is a gateway's time-out"
    LATE = "landed late: the next try of it finds it there"
    LATER = "comes after the next try of it: too late to land"
    REFUSED = "refused"
    REFUSED_BUT_LANDED = "refused, but landed"
    AWAY = "away"


class _Silence(Exception):
    """The connection ends without an answer."""


@define(eq=False, slots=False)
class RestCatalog:
    """The server; `fates` holds, by kind of commit and table, what becomes of the next one.

    With a `chance` any commit whose fate is not told meets any, and some reads find the catalog too busy.

    Kinds: create, schema, snapshot (rows), replace (the same rows in other files), expire, other.
    """

    spark: SparkSession
    home: Path
    name: str
    config: Callable[[], dict[str, str]] = dict
    fates: dict[tuple[str, str], Fate] = field(factory=dict)
    chance: random.Random | None = None
    met: list[tuple[str, str, Fate]] = field(factory=list)
    _refusing: dict[tuple[str, str], int] = field(factory=dict)
    _parked: dict[str, list[tuple[Fate, bytes]]] = field(factory=dict)
    _away: int = 0
    _lock: threading.RLock = field(factory=threading.RLock)
    url: str = ""

    def __attrs_post_init__(self) -> None:
        self._jvm = jvm(self.spark)
        (self.home / "warehouse").mkdir(exist_ok=True)
        hadoop = self.spark._jsparkSession.sparkContext().hadoopConfiguration()
        self._catalog = self._jvm.org.apache.iceberg.CatalogUtil.buildIcebergCatalog(
            self.name, _backing(self.home), hadoop
        )
        self._mapper = self._made_mapper()

    @contextmanager
    def serving(self) -> Iterator[RestCatalog]:
        """Answer requests until the end of the block."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield self
        finally:
            server.shutdown()
            server.server_close()

    @property
    def properties(self) -> dict[str, str]:
        """Iceberg's properties of this catalog, for a client."""
        return {"type": "rest", "uri": self.url, "rest.client.max-retries": "1"}

    @property
    def behind(self) -> dict[str, str]:
        """Iceberg's properties of the catalog behind it, for whoever looks at what is true."""
        return _backing(self.home)

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Give status and body of an answer; `_Silence` for none."""
        with self._lock:
            if self._away:
                self._away -= 1
                raise _Silence
            if method == "GET" and self.chance is not None and self.chance.random() < BUSY:
                return 503, _error(503, "ServiceUnavailable", "too busy")
            try:
                return self._answered(method, [unquote(part) for part in path.strip("/").split("/")[1:]], body)
            except Py4JJavaError as error:
                return _refusal(error)

    def end(self) -> None:
        """Carry out what is still parked: it must find that it is too late."""
        with self._lock:
            for table, parked in self._parked.items():
                for _, body in parked:
                    self._late(table, body)
            self._parked.clear()

    def _answered(self, method: str, parts: list[str], body: bytes) -> tuple[int, bytes]:  # noqa: PLR0911 - its routes
        handlers = self._jvm.org.apache.iceberg.rest.CatalogHandlers
        match method, parts:
            case _, ["config"]:
                return 200, b'{"defaults":{},"overrides":{}}'
            case "POST", ["namespaces"]:
                wanted = self._read("CreateNamespaceRequest", body)
                return self._said(handlers.createNamespace(self._catalog, wanted))
            case _, ["namespaces"]:
                return self._said(handlers.listNamespaces(self._catalog, self._namespace("")))
            case _, ["namespaces", name]:
                return self._said(handlers.loadNamespace(self._catalog, self._namespace(name)))
            case "POST", ["namespaces", name, "tables"]:
                staged = orjson.loads(body).get("stage-create")
                make = handlers.stageTableCreate if staged else handlers.createTable
                wanted = self._read("CreateTableRequest", body)
                return self._with_config(make(self._catalog, self._namespace(name), wanted))
            case _, ["namespaces", name, "tables"]:
                return self._said(handlers.listTables(self._catalog, self._namespace(name)))
            case "POST", ["namespaces", name, "tables", table]:
                return self._commit(name, table, body)
            case _, ["namespaces", name, "tables", table]:
                where = self._jvm.org.apache.iceberg.catalog.TableIdentifier.of(self._namespace(name), table)
                every = self._jvm.java.lang.Enum.valueOf(self._class("RESTCatalogProperties$SnapshotMode"), "ALL")
                return self._with_config(handlers.loadTable(self._catalog, where, every))
        return 204, b""  # what clients measured, and the like

    def _commit(self, namespace: str, table: str, body: bytes) -> tuple[int, bytes]:
        place = f"{namespace}.{table}"
        kind = _kind(orjson.loads(body))
        parked = self._parked.pop(place, [])
        for _, late in (one for one in parked if one[0] is Fate.LATE):
            self._late(place, late)
        try:
            return self._fated(place, kind, body)
        finally:
            for _, late in (one for one in parked if one[0] is Fate.LATER):
                self._late(place, late)

    def _fated(self, place: str, kind: str, body: bytes) -> tuple[int, bytes]:
        table = place.rpartition(".")[2]
        if self._refusing.get((kind, table)):
            self._refusing[kind, table] -= 1
            return 409, _error(409, "CommitFailedException", "refused by the test")
        by_chance = Fate.LANDED if self.chance is None else self.chance.choice([*Fate, *[Fate.LANDED] * len(Fate)])
        fate = self.fates.pop((kind, table), by_chance)
        self.met.append((kind, table, fate))
        match fate:
            case Fate.LANDED:
                return self._carried_out(place, body)
            case Fate.SILENT:
                self._carried_out(place, body)
                raise _Silence
            case Fate.UNKNOWN:
                self._carried_out(place, body)
                return 504, _error(504, "GatewayTimeout", "time is over")
            case Fate.LATE | Fate.LATER:
                self._parked.setdefault(place, []).append((fate, body))
                raise _Silence
            case Fate.REFUSED:
                often = REFUSALS_OF_OWN if table.startswith("_") else REFUSALS
                self._refusing[kind, table] = often - 1
                return 409, _error(409, "CommitFailedException", "refused by the test")
            case Fate.REFUSED_BUT_LANDED:
                self._carried_out(place, body)
                return 409, _error(409, "CommitFailedException", "refused by the test, but it landed")
            case Fate.AWAY:
                self._away = ABSENCE - 1
                raise _Silence

    def _late(self, place: str, body: bytes) -> None:
        try:
            self._carried_out(place, body)
        except Py4JJavaError as error:
            if _refusal(error)[0] != 409:
                raise

    def _carried_out(self, place: str, body: bytes) -> tuple[int, bytes]:
        namespace, _, table = place.rpartition(".")
        where = self._jvm.org.apache.iceberg.catalog.TableIdentifier.of(self._namespace(namespace), table)
        request = self._read("UpdateTableRequest", body)
        handlers = self._jvm.org.apache.iceberg.rest.CatalogHandlers
        return self._said(handlers.updateTable(self._catalog, where, request))

    def _said(self, response: Any) -> tuple[int, bytes]:
        return 200, str(self._mapper.writeValueAsString(response)).encode()

    def _with_config(self, response: Any) -> tuple[int, bytes]:
        status, body = self._said(response)
        config = self.config()
        if not config:
            return status, body
        document = orjson.loads(body)
        document["config"] = {**(document.get("config") or {}), **config}
        return status, orjson.dumps(document)

    def _namespace(self, name: str) -> Any:
        levels = self._array("String", *name.split("\x1f")) if name else self._array("String")
        return self._jvm.org.apache.iceberg.catalog.Namespace.of(levels)

    def _read(self, kind: str, body: bytes) -> Any:
        return self._mapper.readValue(body.decode(), self._class(f"requests.{kind}"))

    def _made_mapper(self) -> Any:
        """Jackson as Iceberg's REST client has it."""
        made = self._class("RESTObjectMapper").getDeclaredMethod("mapper", self._array("Class"))
        made.setAccessible(True)
        return made.invoke(None, self._array("Object"))

    def _class(self, name: str) -> Any:
        loader = self._jvm.java.lang.Thread.currentThread().getContextClassLoader()
        return loader.loadClass(f"org.apache.iceberg.rest.{name}")

    def _array(self, kind: str, *values: Any) -> Any:
        gateway = self.spark.sparkContext._gateway
        assert gateway is not None
        array = gateway.new_array(getattr(self._jvm.java.lang, kind), len(values))
        for place, value in enumerate(values):
            array[place] = value
        return array


_KINDS = {"snapshot": "add-snapshot", "schema": "add-schema", "expire": "remove-snapshots"}


def _kind(request: dict[str, Any]) -> str:
    if any(one["type"] == "assert-create" for one in request["requirements"]):
        return "create"
    actions = {one["action"] for one in request["updates"]}
    added = [one["snapshot"]["summary"]["operation"] for one in request["updates"] if one["action"] == "add-snapshot"]
    if added == ["replace"]:
        return "replace"
    return next((kind for kind, action in _KINDS.items() if action in actions), "other")


def see_whole(lake: Lake, table: str) -> None:
    """See that every file of every snapshot of a table is there, and that no commit added one twice."""
    java = lake.java(table)
    for snapshot in java.snapshots():
        assert _is_there(snapshot.manifestListLocation()), f"{table}: manifest list of {snapshot.toString()}"
        gone = [str(m.path()) for m in snapshot.allManifests(java.io()) if not _is_there(m.path())]
        assert not gone, f"{table}: manifests {gone} of {snapshot.toString()}"
    full = f"{lake._name}.`default`.`{table}`"
    for kind in ("all_data_files", "all_delete_files"):
        found = [r["file_path"] for r in lake._spark.sql(f"SELECT DISTINCT file_path FROM {full}.{kind}").collect()]
        assert [path for path in found if not _is_there(path)] == [], table
    live = Counter(r["file_path"] for r in lake._spark.sql(f"SELECT file_path FROM {full}.data_files").collect())
    assert all(count == 1 for count in live.values()), table
    ids = [s.summary().get("icebridge.commit-id") for s in java.snapshots()]
    said = [one for one in ids if one is not None]
    assert len(set(said)) == len(said), table


def _is_there(path: Any) -> bool:
    return Path(str(path).removeprefix("file:")).exists()


def _backing(home: Path) -> dict[str, str]:
    return catalog(home)


def _refusal(error: Py4JJavaError) -> tuple[int, bytes]:
    name = str(error.java_exception.getClass().getSimpleName())
    codes = {"AlreadyExistsException": 409, "CommitFailedException": 409, "ValidationException": 400}
    status = 404 if name.startswith("NoSuch") else codes.get(name, 500)
    return status, _error(status, name, str(error.java_exception.getMessage()))


def _error(status: int, kind: str, message: str) -> bytes:
    return orjson.dumps({"error": {"message": message, "type": kind, "code": status}})


def _handler(catalog_: RestCatalog) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                status, answer = catalog_.answer(self.command, urlsplit(self.path).path, body)
            except _Silence:
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(answer)

        do_GET = do_POST = do_HEAD = do_DELETE = _serve  # noqa: N815 - http.server's names

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    return Handler
