"""Which Java is taken, from candidates as values; the shim's script with a stand-in for Java."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from connector.errors import FatalError
from connector.runtime.jvm.java import (
    VECTOR_MODULE,
    JavaChoice,
    JavaRuntime,
    choose_java,
    find_executables,
    make_shim,
    parse_java,
)

PLAIN = frozenset({"java.base"})
WHOLE = frozenset({"java.base", VECTOR_MODULE})
JAVA_11 = JavaRuntime(Path("/j11"), 11, WHOLE)
JAVA_17 = JavaRuntime(Path("/j17"), 17, WHOLE)
JAVA_17_PLAIN = JavaRuntime(Path("/j17p"), 17, PLAIN)
JAVA_21 = JavaRuntime(Path("/j21"), 21, WHOLE)
JAVA_25 = JavaRuntime(Path("/j25"), 25, WHOLE)
WHEEL = JavaRuntime(Path("/wheel"), 21, PLAIN)


@pytest.mark.parametrize(
    ("installed", "need", "expected"),
    [
        ((JAVA_17, JAVA_21), VECTOR_MODULE, JavaChoice(JAVA_17, VECTOR_MODULE)),
        ((JAVA_21, JAVA_17), VECTOR_MODULE, JavaChoice(JAVA_21, VECTOR_MODULE)),
        ((JAVA_11, JAVA_17), VECTOR_MODULE, JavaChoice(JAVA_17, VECTOR_MODULE)),
        ((JAVA_25, JAVA_17), VECTOR_MODULE, JavaChoice(JAVA_17, VECTOR_MODULE)),
        ((JAVA_17_PLAIN, JAVA_21), VECTOR_MODULE, JavaChoice(JAVA_21, VECTOR_MODULE)),
        ((JAVA_17_PLAIN,), VECTOR_MODULE, JavaChoice(WHEEL, VECTOR_MODULE)),
        ((JAVA_17_PLAIN,), None, JavaChoice(JAVA_17_PLAIN)),
        ((JAVA_11,), VECTOR_MODULE, JavaChoice(WHEEL, VECTOR_MODULE)),
        ((), VECTOR_MODULE, JavaChoice(WHEEL, VECTOR_MODULE)),
        ((), None, JavaChoice(WHEEL)),
    ],
)
def test_first_fitting_java_wins(installed: tuple[JavaRuntime, ...], need: str | None, expected: JavaChoice) -> None:
    """The first installed Java in range that has the module is taken, else the wheel's; neither is told of it."""
    assert choose_java(installed, WHEEL, 17, 21, need) == expected


def test_nothing_fits() -> None:
    """Without the wheel, or with a minimum above it, there is no choice."""
    assert choose_java((JAVA_11, JAVA_17_PLAIN), None, 17, 21, VECTOR_MODULE) is None
    assert choose_java((JAVA_17,), WHEEL, 25, None, None) is None


def test_answer_of_java_is_read() -> None:
    """Home, major version and modules come from what `java` prints."""
    settings = "Property settings:\n    java.home = /opt/my java\n    java.specification.version = 21\n"
    assert parse_java("java.base@21.0.8\njava.xml@21.0.8\n", settings) == JavaRuntime(
        Path("/opt/my java"), 21, frozenset({"java.base", "java.xml"})
    )


@pytest.mark.parametrize("modules", ["", "Error: no such option\n"])
def test_other_answers_are_no_java(modules: str) -> None:
    """Java 8 (version 1.8, no modules) and programs that are not Java are passed over."""
    assert parse_java(modules, "    java.home = /j8\n    java.specification.version = 1.8\n") is None
    assert parse_java("java.base@17\n", "command not found") is None


def _stand_in(folder: Path, text: str = "#!/bin/sh\n") -> Path:
    file = folder / "bin" / "java"
    file.parent.mkdir(parents=True)
    file.write_text(text)
    file.chmod(0o755)
    return file


def test_candidates_in_order(tmp_path: Path) -> None:
    """JAVA_HOME comes before PATH; a JAVA_HOME that is no Java and a PATH without one give nothing."""
    home, other = tmp_path / "home", tmp_path / "other"
    first, second = _stand_in(home), _stand_in(other)
    assert find_executables(str(home), f"/nowhere:{second.parent}") == (first, second)
    assert find_executables("/garbage", str(second.parent)) == (second,)
    assert find_executables("", "") == ()
    assert find_executables(None, None) == ()


def test_shim_drops_one_argument_and_keeps_the_others(tmp_path: Path) -> None:
    """Only the module's argument goes; spaces, quotes, empty and starred arguments arrive as they were."""
    real = _stand_in(tmp_path / "it's java", '#!/bin/sh\nfor a in "$@"; do printf "<%s>" "$a"; done\n')
    home = make_shim(JavaRuntime(real.parent.parent, 21, PLAIN), VECTOR_MODULE, tmp_path / "cache")
    arguments = ["-cp", "a b", f"--add-modules={VECTOR_MODULE}", "", "*", "-Dx='\"$HOME", "--add-modules=java.sql"]
    done = subprocess.run([home / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == "<-cp><a b><><*><-Dx='\"$HOME><--add-modules=java.sql>"


def test_shim_is_made_once_per_runtime(tmp_path: Path) -> None:
    """The same runtime gives the same private home, another runtime another one."""
    assert make_shim(WHEEL, VECTOR_MODULE, tmp_path) == make_shim(WHEEL, VECTOR_MODULE, tmp_path)
    assert make_shim(WHEEL, VECTOR_MODULE, tmp_path) != make_shim(JAVA_21, VECTOR_MODULE, tmp_path)


def test_the_runtime_stands_without_a_script_where_it_can(tmp_path: Path) -> None:
    """Where the cache takes no script, a Java that has the module runs as it is, and one without it is an error."""
    cache = tmp_path / "cache"
    choice = JavaChoice(JAVA_17, VECTOR_MODULE)
    assert choice.home(cache) == make_shim(JAVA_17, VECTOR_MODULE, cache)
    full = tmp_path / "file"
    full.touch()
    assert choice.home(full) == JAVA_17.home
    with pytest.raises(FatalError, match=r"file.*; set ICEBRIDGE_CACHE"):
        JavaChoice(WHEEL, VECTOR_MODULE).home(full)


def test_a_cache_that_runs_no_programs_has_no_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a file system without programs (noexec) a Java that has the module runs as it is."""
    monkeypatch.setattr("os.access", lambda path, mode: False)
    assert JavaChoice(JAVA_17, VECTOR_MODULE).home(tmp_path) == JAVA_17.home


def test_a_cache_that_runs_no_programs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that needs the script is an error there which says what to mount or set, not one of Spark's start."""
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(FatalError, match=r"noexec.*ICEBRIDGE_CACHE"):
        JavaChoice(WHEEL, VECTOR_MODULE).home(tmp_path)
