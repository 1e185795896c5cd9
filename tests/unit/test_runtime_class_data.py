"""Java, jars and options -> an archive of classes: which, when it is used, and what its absence means."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from connector.runtime.jvm.class_data import (
    KEPT,
    NEWEST,
    TO_WRITE,
    ClassData,
    check_use,
    find_class_data,
    write_class_data,
)
from connector.runtime.jvm.gateway import JAVA_OPTIONS, MORE_JARS
from connector.runtime.jvm.java import JavaRuntime
from connector.runtime.spark import driver_jvm
from connector.runtime.spark.driver_jvm import FOLDERS, fits_class_path, has_folders

HEAD = b"\xa2\xab\x0b\xf0"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, and no options of Java's in the environment."""
    monkeypatch.setenv("ICEBRIDGE_CACHE", str(tmp_path / "cache"))
    for name in ("JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS", *FOLDERS, MORE_JARS):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "cache" / "classes"


@pytest.fixture
def java(tmp_path: Path) -> JavaRuntime:
    """A Java of some release."""
    (tmp_path / "java").mkdir()
    (tmp_path / "java" / "release").write_text('JAVA_VERSION="17.0.1"', encoding="utf-8")
    return JavaRuntime(tmp_path / "java", 17, frozenset())


@pytest.fixture
def jar(tmp_path: Path) -> Path:
    """A jar."""
    file = tmp_path / "a.jar"
    file.write_bytes(b"jar")
    return file


def found(java: JavaRuntime, jar: Path, options: str = "") -> ClassData:
    """The archive; there is one."""
    data = find_class_data(java, [jar], options)
    assert data is not None
    return data


def test_another_jar_java_or_option_is_another_archive(java: JavaRuntime, jar: Path, cache: Path) -> None:
    """An archive serves one Java, the very same jars and the same options of the JVM; properties do not matter."""
    first = found(java, jar, "-Xss4m -Da=b")
    assert first.archive.parent == cache
    assert found(java, jar, "-Da=c -Xss4m") == first
    assert found(java, jar, "-Xss8m") != first
    jar.write_bytes(b"another")
    assert found(java, jar, "-Xss4m") != first
    jar.write_bytes(b"jar")
    os.utime(jar, ns=(0, 0))
    second = found(java, jar, "-Xss4m")
    (java.home / "release").write_text('JAVA_VERSION="17.0.2"', encoding="utf-8")
    assert len({first, second, found(java, jar, "-Xss4m")}) == 3


@pytest.mark.parametrize("option", ["-Xshare:off", "-XX:SharedArchiveFile=x", "-XX:ArchiveClassesAtExit=x"])
def test_users_archive_is_left_alone(
    java: JavaRuntime, jar: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the options, or Java's or Spark's in the environment, say something of archives, there is none of ours."""
    assert find_class_data(java, [jar], f"-Xss4m {option}") is None
    for variable in ("JAVA_TOOL_OPTIONS", "SPARK_SUBMIT_OPTS"):
        monkeypatch.setenv(variable, option)
        assert find_class_data(java, [jar], "") is None
        monkeypatch.delenv(variable)


def test_a_java_that_takes_no_such_archive_gets_none(java: JavaRuntime, jar: Path) -> None:
    """Nothing is listed and written in vain."""
    assert find_class_data(JavaRuntime(java.home, NEWEST + 1, frozenset()), [jar], "") is None


def test_an_archive_is_used_when_it_is_whole(java: JavaRuntime, jar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an archive a run's JVM lists its classes; a torn file is removed; a whole one is used."""
    data = found(java, jar)
    monkeypatch.setattr("connector.runtime.jvm.class_data.make_token", lambda: "mine")
    listing = data.archive.with_suffix(".mine.list")
    assert data.options(lists_classes=False) == ()
    assert data.options(lists_classes=True)[-2:] == (f"-XX:DumpLoadedClassList={listing}", f"-D{TO_WRITE}={listing}")
    for torn in (b"", b"\0" * 4096, HEAD[:3]):
        data.archive.write_bytes(torn)
        assert data.options(lists_classes=True)[-1].startswith(f"-D{TO_WRITE}")
        assert not data.archive.exists()
    data.archive.write_bytes(HEAD + b"classes")
    assert data.options(lists_classes=True)[-1] == f"-XX:SharedArchiveFile={data.archive}"


class Jvm:
    """A JVM that lists its classes to a file, and the Java that it runs on."""

    def __init__(self, java: JavaRuntime, classes: Path | None) -> None:
        self.properties = {"java.home": str(java.home), "java.class.path": "/a.jar:/b.jar"}
        if classes is not None:
            self.properties[TO_WRITE] = str(classes)
        self.java, self.lang, self.System = self, self, self

    def getProperty(self, name: str) -> str | None:  # noqa: N802 - Java's name
        """As `java.lang.System`."""
        return self.properties.get(name)

    def clearProperty(self, name: str) -> None:  # noqa: N802
        """As `java.lang.System`."""
        del self.properties[name]


def dumping(java: JavaRuntime, script: str) -> None:
    """Let `java` run a script of the shell."""
    program = java.home / "bin" / "java"
    program.parent.mkdir(exist_ok=True)
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)


def write(java: JavaRuntime, data: ClassData) -> None:
    """End a run whose JVM has listed classes, twice, and wait for what that begins."""
    listing = Path(data.options(lists_classes=True)[-1].partition("=")[2])
    listing.write_bytes(b"java/lang/Object\norg/x/Spark\norg/x/Cu")
    jvm = Jvm(java, listing)
    writing = write_class_data(jvm)
    assert writing is not None
    assert writing.wait(20) is not None
    assert write_class_data(jvm) is None


def test_archives_are_written_aside_once(java: JavaRuntime, jar: Path, cache: Path) -> None:
    """A run's whole lines become an archive that is moved into place when it is done; those used longest ago go."""
    said = java.home / "said"
    head = '"$(printf "\\242\\253\\013\\360")"'
    dumping(java, f'echo "$@" > {said}; cat "${{2#*=}}" >> {said}; printf %s {head} > "${{3#*=}}"')
    data = found(java, jar)
    cache.mkdir(parents=True)
    for age in range(5):
        (cache / f"{age}.jsa").write_bytes(HEAD)
        os.utime(cache / f"{age}.jsa", (age, age))
    for left in ("old.1.making", "old.1.list", "old.1.listed"):
        (cache / left).touch()
        os.utime(cache / left, (0, 0))
    write(java, data)
    told, *classes = said.read_text(encoding="utf-8").splitlines()
    assert classes == ["java/lang/Object", "org/x/Spark"]
    assert told.startswith("-Xshare:dump ") and told.endswith("-cp /a.jar:/b.jar")
    assert str(data.archive) not in told and data.archive.read_bytes() == HEAD
    assert {file.name for file in cache.iterdir()} == {data.archive.name, *(f"{age}.jsa" for age in range(6 - KEPT, 5))}
    assert data.options(lists_classes=True)[-1].startswith("-XX:SharedArchiveFile")


def test_one_run_of_several_writes_the_archive(java: JavaRuntime, jar: Path) -> None:
    """Where an archive is there, or is being written, a run only removes its list."""
    data = found(java, jar)
    listing = Path(data.options(lists_classes=True)[-1].partition("=")[2])
    for other in (data.archive, data.archive.with_suffix(".1.listed")):
        listing.write_bytes(b"java/lang/Object\n")
        other.touch()
        assert write_class_data(Jvm(java, listing)) is None
        assert not listing.exists()
        other.unlink()


def test_a_java_that_writes_none_leaves_nothing(java: JavaRuntime, jar: Path, cache: Path) -> None:
    """A dump that fails, or a list that is gone, changes nothing."""
    dumping(java, 'echo torn > "${3#*=}"; exit 1')
    data = found(java, jar)
    write(java, data)
    assert write_class_data(Jvm(java, cache / "gone.1.list")) is None
    assert write_class_data(Jvm(java, None)) is None
    assert not list(cache.iterdir())


def test_an_archive_that_java_refuses_is_not_given_again(java: JavaRuntime, jar: Path) -> None:
    """A JVM that has not mapped the archive it was given is the last to get it; one that is gone tells nothing."""
    data = found(java, jar)
    data.options(lists_classes=True)
    data.archive.write_bytes(HEAD)
    check_use(data, 2**30)
    assert data.options(lists_classes=True)
    check_use(data, os.getpid())
    assert data.options(lists_classes=True) == ()
    data.archive.unlink()
    check_use(data, os.getpid())
    assert data.options(lists_classes=True)[-1].startswith(f"-D{TO_WRITE}")


def test_an_archive_that_comes_after_a_start_is_not_refused_by_it(
    java: JavaRuntime, jar: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run may write the archive while a JVM starts that was told to list its classes: the next start has it."""
    (tmp_path / "spark" / "jars").mkdir(parents=True)
    started: list[dict[str, str]] = []

    class Starting:
        """A JVM of which nothing is needed but its process: this one, which maps no archive."""

        process = SimpleNamespace(pid=os.getpid())

        def __init__(self, _: Path, settings: dict[str, str], *__: object) -> None:
            started.append(settings)

        def connect(self) -> object:
            """Find that another run has written the archive meanwhile."""
            data.archive.write_bytes(HEAD)
            return object()

    monkeypatch.setattr(driver_jvm, "StartingJvm", Starting)
    data = found(java, jar)
    for refused in (False, True):
        driver_jvm.start_driver_jvm(java, {}, [jar], tmp_path / "spark", lists_classes=True).connect()
        assert (data.options(lists_classes=True) == ()) is refused
    assert ["-XX:DumpLoadedClassList" in one[JAVA_OPTIONS] for one in started] == [True, False]
    assert ["-XX:SharedArchiveFile" in one[JAVA_OPTIONS] for one in started] == [False, True]


def test_jars_stand_on_the_class_path_unless_spark_adds_others(tmp_path: Path) -> None:
    """Jars that Spark adds to the running JVM, by our settings or its own defaults, take ours with them."""
    assert fits_class_path({"spark.jars": " ", "spark.driver.extraClassPath": "/x.jar"}, tmp_path)
    assert not fits_class_path({"spark.jars": "/x.jar"}, tmp_path)
    assert not fits_class_path({"spark.jars.packages": "a:b:1"}, tmp_path)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text("spark.jars   /x.jar\n", encoding="utf-8")
    assert not fits_class_path({}, tmp_path)


def test_a_script_of_the_environment_takes_jars_from_the_class_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a `spark-env.sh` may set what Spark's scripts put on the class path, Spark adds our jars itself."""
    assert fits_class_path({}, tmp_path)
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "spark-env.sh").write_text("SPARK_DIST_CLASSPATH=/hadoop/*\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path / "own"))
    assert not fits_class_path({}, tmp_path)


def test_folders_on_the_class_path_are_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Folders of settings, folders and patterns of the user's: none of them can be archived."""
    jar = tmp_path / "x.jar"
    jar.touch()
    assert not has_folders({"spark.driver.extraClassPath": str(jar)}, tmp_path)
    assert has_folders({"spark.driver.extraClassPath": f"{jar}:{tmp_path}"}, tmp_path)
    assert has_folders({"spark.driver.extraClassPath": f"{tmp_path}/*"}, tmp_path)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert has_folders({}, tmp_path)
    monkeypatch.delenv("HADOOP_CONF_DIR")
    assert not has_folders({}, tmp_path)
    monkeypatch.setenv(MORE_JARS, str(jar))
    assert has_folders({}, tmp_path)
