"""A JVM that does not start, and a Spark that does not fit -> what a person is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from connector.errors import FatalError
from connector.runtime.jvm.gateway import StartingJvm
from connector.runtime.spark.spark_home import require_spark_home


def _make_spark(home: Path, *jars: str, script: str = "#!/bin/sh\n") -> Path:
    (home / "jars").mkdir(parents=True)
    (home / "bin").mkdir()
    for jar in jars:
        (home / "jars" / jar).touch()
    submit = home / "bin" / "spark-submit"
    submit.write_text(script)
    submit.chmod(0o755)
    return home


def test_a_jvm_that_ends_at_its_start_is_told(tmp_path: Path) -> None:
    """A JVM that ends before it is up is an error that says what to check, and leaves no settings behind."""
    spark = _make_spark(tmp_path / "spark", script="#!/bin/sh\nexit 7\n")
    with StartingJvm(spark, {}) as starting, pytest.raises(FatalError, match=r"exit code 7.*spark\.driver\.memory"):
        starting.connect()


@pytest.mark.parametrize(
    ("jars", "told"),
    [
        ((), "is none"),
        (("spark-core_2.12-3.5.6.jar",), "is 3.5.6"),
        (("spark-core_2.13-4.1.0.jar",), ""),
    ],
)
def test_spark_home_has_our_spark(
    jars: tuple[str, ...], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of another Spark, which a profile names, is an error that says so; one of the same line is taken."""
    home = _make_spark(tmp_path / "spark", *jars)
    monkeypatch.setenv("SPARK_HOME", str(home))
    if told:
        with pytest.raises(FatalError, match=f"{told}.*unset SPARK_HOME"):
            require_spark_home()
    else:
        assert require_spark_home() == home


def test_sparks_package_has_our_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without SPARK_HOME the Spark of the pyspark package is taken."""
    monkeypatch.delenv("SPARK_HOME", raising=False)
    assert require_spark_home().name == "pyspark"
