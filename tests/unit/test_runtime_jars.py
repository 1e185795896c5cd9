"""The committed lock, its text form, and the check of what lies in the Maven cache."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from connector.errors import ConfigError, FatalError
from connector.runtime.jvm import jars as jars_module
from connector.runtime.jvm.jars import choose_components, copy_jars, fetch_artifacts, fetch_jars
from connector.runtime.jvm.lock import join_artifacts, resolve_artifacts
from connector.runtime.jvm.lockfile import LOCK_FILE, Artifact, parse_lockfile, render_lockfile


def _artifact(name: str, version: str = "1.0", content: bytes = b"jar", **more: str) -> Artifact:
    return Artifact("org.example.x", name, version, hashlib.sha256(content).hexdigest(), **more)


def _put(home: Path, artifact: Artifact, content: bytes) -> Path:
    file = home / artifact.relative
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


@pytest.fixture
def maven(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Maven cache, a cache folder of its own, and a registry that refuses connections."""
    monkeypatch.setenv("JGO_CONFIG_FILE", str(tmp_path / "jgo.conf"))
    monkeypatch.setenv("M2_REPO", str(tmp_path / "m2"))
    monkeypatch.setenv("ICEBRIDGE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(jars_module, "_PAUSE_S", 0.0)
    _use_registry(tmp_path, 9)
    return tmp_path / "m2"


@pytest.fixture
def registry(maven: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder that a web server on loopback offers as the registry."""
    folder = tmp_path / "registry"
    folder.mkdir()
    handler = functools.partial(SimpleHTTPRequestHandler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        _use_registry(tmp_path, server.server_port)
        yield folder
        server.shutdown()


def _use_registry(tmp_path: Path, port: int) -> None:
    (tmp_path / "jgo.conf").write_text(f"[repositories]\ncentral = http://127.0.0.1:{port}\n")


def test_text_form_reads_back() -> None:
    """What is rendered parses to the same value, classifier and packaging included."""
    components = {"a": (_artifact("x"), _artifact("y", classifier="all", packaging="tar.gz")), "b": (_artifact("z"),)}
    assert parse_lockfile(render_lockfile(components)) == components


def test_committed_lock_is_exact() -> None:
    """Every locked jar has a full checksum, no component two versions of an artifact, no host is named."""
    text = LOCK_FILE.read_text()
    components = parse_lockfile(text)
    assert {"spark", "broker"} <= set(components)
    for artifacts in components.values():
        assert all(re.fullmatch("[0-9a-f]{64}", artifact.sha256) for artifact in artifacts)
        assert len({(a.group, a.name, a.classifier) for a in artifacts}) == len(artifacts)
    assert "://" not in text


def test_joined_coordinates_are_no_archive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two coordinates joined with + are resolved together, though they have as many colons as that of an archive."""
    asked: list[str] = []
    monkeypatch.setattr("jgo.resolve", lambda root: asked.append(root) or [])
    assert resolve_artifacts("org.example:a:1+org.example:b:2") == []
    assert asked == ["org.example:a:1+org.example:b:2"]


def test_each_component_has_the_kafka_clients_it_was_built_for() -> None:
    """The broker and Spark's Kafka source need different versions of kafka-clients; a plugin takes its worker's."""
    components = parse_lockfile(LOCK_FILE.read_text())
    versions = {n: a.version for n, artifacts in components.items() for a in artifacts if a.name == "kafka-clients"}
    assert versions == {"spark": "3.9.1", "broker": "4.2.0", "connect": "4.2.0"}


def test_file_names_follow_maven() -> None:
    """Classifier and packaging are part of the file's name and the group of its folder."""
    archive = _artifact("app", "2", classifier="all", packaging="tar.gz")
    assert archive.relative.as_posix() == "org/example/x/app/2/app-2-all.tar.gz"


def test_join_refuses_two_versions() -> None:
    """Parts that bring different versions of one artifact cannot be one class path."""
    assert join_artifacts([[_artifact("a")], [_artifact("a"), _artifact("b")]], frozenset({"b"})) == (_artifact("a"),)
    with pytest.raises(FatalError, match=r"a:1\.0 and .*a:2\.0"):
        join_artifacts([[_artifact("a")], [_artifact("a", "2.0")]], frozenset())


def test_present_jars_are_checked_once(maven: Path, tmp_path: Path) -> None:
    """Right files are accepted without a registry; a second call takes the remembered check."""
    artifacts = [_artifact(f"n{i}", content=b"x" * 1_000_000) for i in range(10)]
    files = tuple(_put(maven, artifact, b"x" * 1_000_000) for artifact in artifacts)
    stamp = tmp_path / "stamp.json"
    assert fetch_artifacts(artifacts, stamp, lambda _: None) == files
    checked: list[Artifact] = []
    assert fetch_artifacts(artifacts, stamp, checked.append) == files
    assert checked == []


def test_a_changed_jar_is_noticed(maven: Path, tmp_path: Path) -> None:
    """A file that changes after its check is checked again and not used."""
    artifact, stamp = _artifact("n"), tmp_path / "stamp.json"
    file = _put(maven, artifact, b"jar")
    fetch_artifacts([artifact], stamp, lambda _: None)
    file.write_bytes(b"bad")
    with pytest.raises(FatalError, match=r"org.example.x:n:1.0: cannot be downloaded"):
        fetch_artifacts([artifact], stamp, lambda _: None)


def test_registry_out_of_reach(maven: Path, tmp_path: Path) -> None:
    """A missing jar and no registry: the error names the artifact and what to do, and leaves nothing behind."""
    with pytest.raises(FatalError, match=r"org.example.x:n:1.0: cannot be downloaded.*check the network"):
        fetch_artifacts([_artifact("n")], tmp_path / "stamp.json", lambda _: None)
    assert [file for file in maven.rglob("*") if file.is_file()] == []


def test_missing_jars_are_fetched(maven: Path, registry: Path, tmp_path: Path) -> None:
    """What is missing or damaged in the Maven cache comes from the registry, and nothing else is left there."""
    artifacts = [_artifact(f"n{i}") for i in range(5)]
    for artifact in artifacts:
        _put(registry, artifact, b"jar")
    _put(maven, artifacts[0], b"half")
    files = fetch_artifacts(artifacts, tmp_path / "stamp.json", lambda _: None)
    assert [file.read_bytes() for file in files] == [b"jar"] * 5
    assert sorted(file for file in maven.rglob("*") if file.is_file()) == sorted(files)


def test_what_a_fetch_that_was_ended_left_is_removed(maven: Path, registry: Path, tmp_path: Path) -> None:
    """The next fetch does, once it is old; another process may be at work in one that is not."""
    old, new = (maven / f"{jars_module._ASIDE}{name}" for name in ("old", "new"))
    for aside in (old, new):
        aside.mkdir(parents=True)
    os.utime(old, (0, 0))
    artifact = _artifact("n")
    _put(registry, artifact, b"jar")
    fetch_artifacts([artifact], tmp_path / "stamp.json", lambda _: None)
    assert (old.exists(), new.exists()) == (False, True)


def test_registry_with_another_file(maven: Path, registry: Path, tmp_path: Path) -> None:
    """A registry that gives another file than the locked one is refused, and the file does not reach the cache."""
    artifact = _artifact("n")
    _put(registry, artifact, b"other")
    with pytest.raises(FatalError, match=r"SHA-256 .* do not use it"):
        fetch_artifacts([artifact], tmp_path / "stamp.json", lambda _: None)
    assert not (maven / artifact.relative).exists()


@pytest.mark.parametrize("text", ["", "{", "[]", json.dumps({"a": 1})])
def test_a_broken_memory_is_forgotten(maven: Path, tmp_path: Path, text: str) -> None:
    """A stamp file that cannot be read costs a new check, nothing else."""
    stamp = tmp_path / "stamp.json"
    stamp.write_text(text)
    artifact = _artifact("n")
    file = _put(maven, artifact, b"jar")
    assert fetch_artifacts([artifact], stamp, lambda _: None) == (file,)


@pytest.mark.usefixtures("maven")
def test_unknown_component() -> None:
    """An unknown component is an error that lists the known ones."""
    with pytest.raises(
        FatalError,
        match=r"adls, avro-converter, broker, connect, flink, gcs, iceberg-connect, .*registry, s3, search, spark",
    ):
        fetch_jars("nothing")


def test_test_equipment_is_fetched_only_when_named() -> None:
    """Without names everyone's components are fetched; those of tests and peers by name; a wrong name is refused."""
    known = parse_lockfile(LOCK_FILE.read_text())
    assert choose_components([], known) == ("spark", "broker", "search")
    assert choose_components(["jdbc-sink", "flink"], known) == ("jdbc-sink", "flink")
    with pytest.raises(ConfigError, match="no component sink in"):
        choose_components(["sink"], known)


def test_a_folder_of_jars_takes_the_registrys_place(
    maven: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With ICEBRIDGE_JARS the files come from there, checked; one that is missing or another is named, none fetched."""
    folder, stamp = tmp_path / "jars", tmp_path / "stamp.json"
    folder.mkdir()
    monkeypatch.setenv("ICEBRIDGE_JARS", str(folder))
    artifact = _artifact("n")
    _put(maven, artifact, b"jar")
    with pytest.raises(FatalError, match=r"n-1\.0\.jar is not in .*jars --to FOLDER"):
        fetch_artifacts([artifact], stamp, lambda _: None)
    (folder / "n-1.0.jar").write_bytes(b"bad")
    with pytest.raises(FatalError, match=r"n-1\.0\.jar is not the file of jars\.lock"):
        fetch_artifacts([artifact], stamp, lambda _: None)
    (folder / "n-1.0.jar").write_bytes(b"jar")
    assert fetch_artifacts([artifact], stamp, lambda _: None) == (folder / "n-1.0.jar",)


def test_jars_are_copied_for_another_machine(maven: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is copied into a folder is found there by another machine that reaches nothing."""
    artifact = _artifact("n")
    _put(maven, artifact, b"jar")
    monkeypatch.setattr(jars_module, "_locked_artifacts", lambda component: (artifact,))
    assert copy_jars(["x"], tmp_path / "jars", lambda _: None) == 3
    assert [path.name for path in (tmp_path / "jars").iterdir()] == ["n-1.0.jar"]
    monkeypatch.setenv("ICEBRIDGE_JARS", str(tmp_path / "jars"))
    assert fetch_jars("x") == (tmp_path / "jars" / "n-1.0.jar",)


def test_a_spoilt_jar_of_a_folder_is_copied_again(maven: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of the same size that is not the locked one is replaced, as the error about it says to do."""
    artifact = _artifact("n")
    monkeypatch.setattr(jars_module, "_locked_artifacts", lambda _: (artifact,))
    _put(maven, artifact, b"jar")
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / artifact.file_name).write_bytes(b"jax")
    copy_jars(["x"], tmp_path / "jars", lambda _: None)
    assert (tmp_path / "jars" / artifact.file_name).read_bytes() == b"jar"


def test_a_cache_that_cannot_be_written_is_no_fault(maven: Path, tmp_path: Path) -> None:
    """On a read-only file system the check is made at each start."""
    artifact = _artifact("n")
    file = _put(maven, artifact, b"jar")
    (tmp_path / "taken").write_text("a file where the folder would be")
    assert fetch_artifacts([artifact], tmp_path / "taken" / "stamp.json", lambda _: None) == (file,)


@pytest.mark.parametrize("variable", ["M2_REPO", "ICEBRIDGE_CACHE"])
def test_a_folder_that_cannot_be_made_is_told(variable: str, maven: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home that is read-only, or missing, is an error that names the variable to set."""
    monkeypatch.setenv(variable, "/proc/no/folder")
    with pytest.raises(FatalError, match=f"set {variable} to one"):
        fetch_jars("spark")


def test_a_user_without_a_home_is_told(maven: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user that has no home, as a container's may, is told which variable to set."""

    def find_none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("M2_REPO")
    monkeypatch.setattr(Path, "home", find_none)
    with pytest.raises(FatalError, match="set M2_REPO to one"):
        fetch_jars("spark")


def test_a_full_or_locked_repository_is_told(maven: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the local repository cannot be written, the error says so, and names the variables to set."""

    def refuse(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(jars_module, "TemporaryDirectory", refuse)
    with pytest.raises(FatalError, match=r"No space left.*M2_REPO.*ICEBRIDGE_JARS"):
        fetch_jars("spark")
