"""tables, offsets and topics that an earlier commit left <-> tests/fixtures/earlier: packed there, brought back here.

`python -m tests.histories.earlier` runs the sinks and the source of the code as it is and packs what they leave: the
broker's folder, the catalog's database, the objects of the store. What happens next is packed beside it: records that
come later, and the rows that every table must end in. The warehouse is on S3, so that no path of a machine is in a
table.
"""

from __future__ import annotations

import base64
import io
import json
import lzma
import random
import shutil
import sqlite3
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import frozen
from pyarrow.fs import FileSelector, S3FileSystem

from connector.demo.servers.kafka_broker import KafkaBroker
from tests.clients.topics import Topics
from tests.harness.paths import PROJECT
from tests.model.events import Database
from tests.model.life import Life
from tests.model.recordings import Record
from tests.runs.processes import SHORT_LIVED, Run, Sink
from tests.servers.store import KEY, SECRET, Store

FIXTURE = PROJECT / "tests" / "fixtures" / "earlier"
BUCKET = "earlier"
SMALL_LOGS = {"log.index.size.max.bytes": "4096", "offsets.topic.segment.bytes": "1048576"}
"""Index files have their full size from the start."""

Row = dict[str, Any]

SINKS: Mapping[str, Mapping[str, str]] = {
    "hard": {
        "debezium.sink.iceberg.format-version": "2",
        "debezium.sink.iceberg.upsert-keep-deletes": "false",
    },
    "soft": {
        "debezium.sink.iceberg.format-version": "3",
        "debezium.sink.iceberg.upsert-keep-deletes": "true",
    },
    "avro": {
        "debezium.sink.iceberg.write.format.default": "avro",
        "debezium.sink.iceberg.upsert-keep-deletes": "false",
    },
}
"""Each sink by its name; its tables have these names too, and the write mode that the name says."""

TABLES: Mapping[str, tuple[str, ...]] = {
    "hard": ("equality_delete", "position_delete", "copy_on_write", "append", "history"),
    "soft": ("equality_delete", "position_delete", "copy_on_write"),
    "avro": ("equality_delete",),
}


@frozen
class Earlier:
    """A broker, a store and a catalog, brought to where an earlier commit left them; `later` is what follows."""

    home: Path
    broker: KafkaBroker
    store: Store
    later: tuple[Record, ...]
    rows: Mapping[str, list[Row]]
    events: Mapping[str, int]

    @property
    def topics(self) -> Topics:
        """The client of its broker."""
        return Topics(self.broker.bootstrap_servers)

    def sink(self, name: str, *arguments: str) -> Run:
        """Run one of the sinks once."""
        return self._run(name, _sink_properties(name), "debezium.sink.iceberg.", arguments)

    def source(self) -> Run:
        """Run the source of all tables once; its topics are `read.default.<table>`."""
        return self._run("reader", SOURCE, "iceberg.catalog.", ())

    def _run(self, name: str, own: Mapping[str, str], prefix: str, arguments: Iterable[str]) -> Run:
        properties = {
            "name": name,
            "bootstrap.servers": self.broker.bootstrap_servers,
            "spark.master": "local[2]",
            "spark.driver.memory": "1g",
            "spark.driver.extraJavaOptions": SHORT_LIVED,
            f"{prefix}catalog-name": "earlier",
            **{f"{prefix}{key}": value for key, value in {**_catalog(self.home), **self.store.properties}.items()},
            **own,
        }
        path = self.home / f"{name}-{len(list(self.home.glob('*.properties')))}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()).replace("\\", "\\\\"), "utf-8")
        return Sink(path, ("--once", *arguments)).wait(240)


SOURCE = {
    "connector.class": "IcebergSource",
    "topic.prefix": "read",
    "table.include.list": r"default\.(hard|soft|avro)_.*",
    "key.converter.schemas.enable": "false",
    "value.converter.schemas.enable": "false",
}


def _sink_properties(name: str) -> dict[str, str]:
    own = {"topics.regex": rf"{name}\.public\..*", "debezium.sink.type": "iceberg"}
    for table in TABLES[name]:
        place = f"iceberg.table.{name}_public_{table}"
        if table == "history":
            own[f"{place}.scd-type"] = "2"
        else:
            own[f"{place}.write-mode"] = table.replace("_", "-")
    return {**own, **SINKS[name]}


def _catalog(home: Path) -> dict[str, str]:
    return {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{home / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        "warehouse": f"s3://{BUCKET}/warehouse",
    }


def restore(home: Path) -> Earlier:
    """Bring everything back in a folder; the caller starts `broker` and `store`, and `fill` puts the objects there."""
    with tarfile.open(FIXTURE / "broker.tar.xz") as packed:
        packed.extractall(home / "broker", filter="data")
    with sqlite3.connect(home / "catalog.db") as database:
        database.executescript((FIXTURE / "catalog.sql").read_text("utf-8"))
    told = json.loads(lzma.decompress((FIXTURE / "later.json.xz").read_bytes()))
    later = tuple(
        Record(each["topic"], each["partition"], each["offset"], _bytes(each["key"]), _bytes(each["value"]))
        for each in told["records"]
    )
    broker, store = KafkaBroker(home / "broker", properties=SMALL_LOGS), Store(home / "store")
    return Earlier(home, broker, store, later, told["rows"], told["events"])


def fill(store: Store) -> None:
    """Put the objects into a store that runs."""
    store.make_bucket(BUCKET)
    files = _files(store)
    with tarfile.open(FIXTURE / "objects.tar.xz") as packed:
        for member in packed:
            content = packed.extractfile(member)
            assert content is not None
            with files.open_output_stream(f"{BUCKET}/{member.name}") as out:
                out.write(content.read())


def _files(store: Store) -> S3FileSystem:
    return S3FileSystem(endpoint_override=store.url, access_key=KEY, secret_key=SECRET, region="eu-west-1")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def pack() -> None:
    """Make the fixture anew with the code as it is."""
    shutil.rmtree(FIXTURE, ignore_errors=True)
    FIXTURE.mkdir(parents=True)
    home = Path(tempfile.mkdtemp())
    databases = {
        f"{name}.public.{table}": Database(f"{name}.public.{table}", 2) for name in SINKS for table in TABLES[name]
    }
    with KafkaBroker(home / "broker", properties=SMALL_LOGS) as broker, Store(home / "store") as store:
        store.make_bucket(BUCKET)
        world = Earlier(home, broker, store, (), {}, {})
        world.topics.create(dict.fromkeys(databases, 2))
        rng, life = random.Random(7), Life(30, updated=0.6, moved=0.4, again=0.4, brief=0.2)
        for _ in range(2):  # two batches: the second one has rows to replace
            for db in databases.values():
                start = len(db.log)
                life.live(rng, db, 60)
                world.topics.replay(db.log[start:], create=False)
            for name in SINKS:
                run = world.sink(name)
                assert run.code == 0, run.text[-6000:]
            run = world.source()
            assert run.code == 0, run.text[-6000:]
        _pack_objects(store)
    later: list[Record] = []
    for topic, db in databases.items():
        start = len(db.log)
        if not topic.endswith(".append"):
            db.again(start - 25)  # the source starts anew, and sends its last events again
        life.live(rng, db, 60)
        later += db.log[start:]
    told = {
        "records": [
            {
                "topic": r.topic,
                "partition": r.partition,
                "offset": r.offset,
                "key": _text(r.key),
                "value": _text(r.value),
            }
            for r in later
        ],
        "rows": {topic.replace(".", "_"): [db.rows[key] for key in sorted(db.rows)] for topic, db in databases.items()},
        "events": {
            topic.replace(".", "_"): sum(record.value is not None for record in db.log)
            for topic, db in databases.items()
        },
    }
    (FIXTURE / "later.json.xz").write_bytes(lzma.compress(json.dumps(told).encode()))
    with tarfile.open(FIXTURE / "broker.tar.xz", "w:xz") as packed:
        packed.add(home / "broker" / "data", "data")
    with sqlite3.connect(home / "catalog.db") as database:
        (FIXTURE / "catalog.sql").write_text("\n".join(database.iterdump()), "utf-8")
    shutil.rmtree(home)


def _pack_objects(store: Store) -> None:
    files = _files(store)
    with tarfile.open(FIXTURE / "objects.tar.xz", "w:xz") as packed:
        for each in files.get_file_info(FileSelector(BUCKET, recursive=True)):
            if each.is_file:
                content = files.open_input_stream(each.path).read()
                member = tarfile.TarInfo(each.path.removeprefix(f"{BUCKET}/"))
                member.size = len(content)
                packed.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    pack()
    sys.stdout.write(f"{FIXTURE}\n")
