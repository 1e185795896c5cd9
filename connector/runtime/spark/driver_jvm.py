"""settings + jars -> how the driver's JVM is started on this machine: class path, and an archive of its classes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import javaproperties
import structlog
from attrs import frozen

from connector.runtime.jvm.class_data import ClassData, check_use, find_class_data
from connector.runtime.jvm.collector import EVERY_JAVA
from connector.runtime.jvm.gateway import (
    DEFAULT_JAVA_OPTIONS,
    EXTRA_CLASS_PATH,
    JAVA_OPTIONS,
    MORE_JARS,
    StartingJvm,
    is_changed_by_environment,
)
from connector.runtime.jvm.java import JavaRuntime

_ADDS_JARS = ("spark.jars", "spark.jars.packages", "spark.driver.userClassPathFirst")
_ADDED_TO = ("spark.jars", "spark.sql.extensions", JAVA_OPTIONS)
"""Settings of the user's to which ours are added."""
_OPTIONS = (*EVERY_JAVA, "SPARK_SUBMIT_OPTS")
"""Environment variables whose options the JVM gets too."""
FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR")
"""Environment variables with folders that Spark's scripts put on the class path."""


@frozen
class DriverJvm:
    """The starting JVM, and the archive that it was given; None where there was none yet."""

    starting: StartingJvm
    class_data: ClassData | None

    def connect(self) -> object:
        """Wait until it is up; return PySpark's gateway to it. FatalError: it ended."""
        gateway = self.starting.connect()
        if self.class_data is not None:
            check_use(self.class_data, self.starting.process.pid)
        return gateway


def fits_class_path(spark: Mapping[str, str], spark_home: Path) -> bool:
    """Tell whether our jars can stand on the JVM's class path, where classes are found and archived faster.

    Not beside jars that Spark adds to the running JVM: classes on the class path do not see theirs (a store's, a
    driver's). Nor where a script of the user's makes the environment of Spark's scripts, in which they are told.
    """
    given = {**_read_defaults(spark_home), **spark}
    is_scripted = (_conf_folder(spark_home) / "spark-env.sh").is_file()
    return not is_scripted and not any(given.get(name, "").strip() for name in _ADDS_JARS)


def find_other_options(spark: Mapping[str, str], spark_home: Path) -> str:
    """Return the options that the JVM gets beside those of `spark.driver.extraJavaOptions`: two collectors end it."""
    given = {**_read_defaults(spark_home), **spark}
    return " ".join([given.get(DEFAULT_JAVA_OPTIONS, ""), *(os.environ.get(name, "") for name in _OPTIONS)])


def add_defaults(spark: Mapping[str, str], spark_home: Path) -> dict[str, str]:
    """Return the user's settings with those of Spark's own file of defaults that ours are added to, and would hide."""
    hidden = {key: text for key, text in _read_defaults(spark_home).items() if key in _ADDED_TO}
    return {**hidden, **spark}


def _read_defaults(spark_home: Path) -> dict[str, str]:
    """Return what Spark's own file of defaults says, which its scripts read beside our settings."""
    file = _conf_folder(spark_home) / "spark-defaults.conf"
    return dict(javaproperties.loads(file.read_text("utf-8"))) if file.is_file() else {}


def _conf_folder(spark_home: Path) -> Path:
    return Path(os.environ.get("SPARK_CONF_DIR") or spark_home / "conf")


def start_driver_jvm(
    java: JavaRuntime,
    conf: Mapping[str, str],
    class_path: Sequence[Path],
    spark_home: Path,
    *,
    lists_classes: bool = False,
    without_spark: bool = False,
) -> DriverJvm:
    """Start a JVM with these settings and jars, from archived classes where that is possible.

    With `lists_classes` it lists its classes where there is no archive of them; `without_spark` no Spark context will
    be made in it.
    OSError: no room for its settings.
    """
    class_data, options = None, conf.get(JAVA_OPTIONS, "")
    try:
        class_data = locate_class_data(java, conf, class_path, spark_home)
        if class_data is not None:
            of_classes = class_data.options(lists_classes=lists_classes)
            options = " ".join([*of_classes, options])
            class_data = class_data if class_data.is_given(of_classes) else None
    except OSError as error:
        class_data = None
        structlog.get_logger().info("classes are not archived: starts stay slow", reason=str(error))
    settings = {**conf, JAVA_OPTIONS: options}
    if without_spark and class_path and not has_folders(conf, spark_home) and not is_changed_by_environment():
        # Should it not take the archive, that says nothing of those that Spark's scripts start.
        return DriverJvm(StartingJvm(spark_home, settings, class_path, java.home / "bin" / "java"), None)
    return DriverJvm(StartingJvm(spark_home, settings, class_path), class_data)


def locate_class_data(
    java: JavaRuntime, conf: Mapping[str, str], class_path: Sequence[Path], spark_home: Path
) -> ClassData | None:
    """Return where the archive is for a JVM with these settings and jars; None where there can be none.

    OSError: as `find_class_data`.
    """
    if not class_path or has_folders(conf, spark_home):
        return None
    jars = [*sorted((spark_home / "jars").glob("*.jar")), *class_path, *_split_path(conf)]
    return find_class_data(java, jars, conf.get(JAVA_OPTIONS, ""))


def has_folders(conf: Mapping[str, str], spark_home: Path) -> bool:
    """Tell whether the class path has folders or patterns: Java archives classes of jars alone."""
    folders = (
        spark_home / "conf",
        *(Path(text) for name in FOLDERS if (text := os.environ.get(name))),
    )
    if os.environ.get(MORE_JARS) or any(folder.is_dir() for folder in folders):
        return True
    return not all(entry.is_file() for entry in _split_path(conf))


def _split_path(conf: Mapping[str, str]) -> list[Path]:
    return [Path(text) for text in conf.get(EXTRA_CLASS_PATH, "").split(os.pathsep) if text]
