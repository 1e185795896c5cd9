"""declarations -> reference and shipped files: complete, true and not stale."""

from __future__ import annotations

from pathlib import Path

import javaproperties
import pytest

from connector.settings import load
from connector.settings.configdef.common import OptionScope
from connector.settings.reference.markdown import render_outputs
from connector.settings.sink.options import collect_options, scopes_of
from connector.settings.source.settings import is_source, load_source

ROOT = Path(__file__).parents[2]
ENVIRON = {
    "CATALOG_USER": "u",
    "CATALOG_PASSWORD": "p",
    "CATALOG_CREDENTIAL": "c:s",
    "AWS_REGION": "eu-west-1",
    "NESSIE_TOKEN": "t",
    "POSTGRES_PASSWORD": "p",
}
SINK = ROOT / "config/iceberg-sink.properties"
SEARCH = ROOT / "config/opensearch-sink.properties"
LAYERS = sorted((ROOT / "config/catalogs").glob("*.properties"))


@pytest.mark.parametrize("path", render_outputs(), ids=str)
def test_generated_files_are_not_stale(path: Path) -> None:
    """Reference and complete files are what the declarations give: run make docs."""
    assert (ROOT / path).read_text("utf-8") == render_outputs()[path]


@pytest.mark.parametrize("path", sorted((ROOT / "config").glob("*.properties*")), ids=lambda path: path.name)
def test_files_load(path: Path) -> None:
    """Every file of a way of running is complete."""
    read = load_source if is_source([path]) else load
    assert read([path], environ=ENVIRON).kafka.bootstrap_servers == "localhost:9092"


@pytest.mark.parametrize("path", LAYERS, ids=lambda path: path.stem)
def test_catalog_layers_load(path: Path) -> None:
    """Every catalog layer goes on top of a sink's file, and nothing in it looks like a slip."""
    settings = load([SINK, path], environ=ENVIRON)
    assert settings.catalog.properties["type"] == path.stem
    assert settings.notes == ()


@pytest.mark.parametrize("path", LAYERS, ids=lambda path: path.stem)
def test_commented_catalog_keys_load(path: Path, tmp_path: Path) -> None:
    """What a layer shows as a comment can be switched on."""
    layer = tmp_path / path.name
    layer.write_text(path.read_text().replace("\n#debezium", "\ndebezium").replace("\n#spark", "\nspark"))
    assert load([SINK, layer], environ=ENVIRON).notes == ()


def test_all_catalogs_are_there() -> None:
    """There is a layer for each catalog that runs by configuration."""
    assert [path.stem for path in LAYERS] == ["glue", "hadoop", "hive", "jdbc", "nessie", "rest"]


def shown(file: Path) -> dict[str, str]:
    """Every key of a sink's file, set or commented out, and its text."""
    lines = [line.removeprefix("#") for line in file.read_text("utf-8").splitlines() if not line.startswith("# ")]
    return javaproperties.loads("\n".join(lines))


@pytest.mark.parametrize(("file", "scopes"), [(SINK, scopes_of("iceberg")), (SEARCH, scopes_of("opensearch"))])
def test_sink_file_shows_every_option(file: Path, scopes: tuple[OptionScope, ...]) -> None:
    """A sink's file shows every key declared for it, and no other."""
    options = {option.name for scope in scopes for option in scope.options}
    assert set(shown(file)) == options | {f"{prefix.name}<key>" for scope in scopes for prefix in scope.prefixes}


@pytest.mark.parametrize(("file", "scopes"), [(SINK, scopes_of("iceberg")), (SEARCH, scopes_of("opensearch"))])
def test_shown_defaults_are_the_declared_ones(file: Path, scopes: tuple[OptionScope, ...]) -> None:
    """What a sink's file shows commented out is the declared default."""
    active = javaproperties.loads(file.read_text("utf-8"))
    options = [option for scope in scopes for option in scope.options]
    defaults = {option.name: option.default_text for option in options if option.name not in active}
    assert {name: shown(file)[name] for name in defaults} == defaults


@pytest.mark.parametrize("file", [SINK, SEARCH])
def test_switching_a_shown_default_on_changes_nothing(tmp_path: Path, file: Path) -> None:
    """A sink's file with every plain default switched on gives the same settings."""
    full = tmp_path / "full.properties"
    plain = {key: text for key, text in shown(file).items() if "<" not in key + text}
    full.write_text(javaproperties.dumps(plain, timestamp=False), "latin-1")
    assert load([full], environ={}) == load([file], environ={})


def test_names_are_unique() -> None:
    """No two options share a name or alias."""
    names = collect_options().names
    assert len(set(names)) == len(names)


def test_every_option_has_a_sentence() -> None:
    """Every option and prefix says in one line what it does."""
    every = collect_options()
    docs = [option.doc for option in every.options] + [prefix.doc for prefix in every.prefixes]
    assert all(doc and doc.endswith((".", "...")) and "\n" not in doc and len(doc) <= 118 for doc in docs)


def test_server_example_adds_only_bootstrap_servers() -> None:
    """The Debezium Server example is such a file plus bootstrap.servers: every other key is Debezium Server's."""
    keys = javaproperties.loads((ROOT / "config/debezium-server.properties.example").read_text())
    assert [key for key in keys if not key.startswith(("debezium.", "quarkus."))] == ["bootstrap.servers"]
