"""The dead letters of a sink, listed, shown and put through again (`icebridge dlq`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import attrs
import click
from rich.console import Console
from rich.table import Table as Grid

from connector.errors import ConfigError
from connector.kafka.admin import Cluster
from connector.kafka.dlq.reader import DeadLetter, mark, read
from connector.runtime.retry import retried
from connector.runtime.spark.session import session
from connector.settings import SinkSettings
from connector.sink.destinations.iceberg.committer import Commits
from connector.sink.destinations.iceberg.replay import IntoIndexes, IntoTables, Through
from connector.sink.destinations.iceberg.tables import Targets
from connector.sink.factory import Sink, build, look
from connector.sink.replay import Replay, Replayer


def listed(settings: SinkSettings) -> None:
    """Print every letter: its id, where its record stood, why it is dead, and whether it was put through again."""
    grid = Grid("letter", "record", "stage", "reason", "replayed", title=f"{settings.errors.topic}: dead letters")
    for letter in _letters(settings):
        place = f"{letter.topic}-{letter.partition} offset {letter.offset}"
        grid.add_row(letter.id, place, letter.stage, letter.reason, "yes" if letter.replayed else "")
    Console().print(grid)


def show(settings: SinkSettings, *, letter: str, save: Path | None) -> None:
    """Print one letter whole, or save its key and value as `<id>.key` and `<id>.value` to be repaired."""
    (found,) = _chosen(_letters(settings), (letter,))
    click.echo(f"{found.topic}-{found.partition} offset {found.offset}: {found.stage}: {found.reason}")
    for name, data in (("key", found.key), ("value", found.value)):
        if save is None:
            click.echo(f"{name}: {'null' if data is None else data.decode('utf-8', 'backslashreplace')}")
        elif data is not None:
            save.mkdir(parents=True, exist_ok=True)
            (save / f"{found.id}.{name}").write_bytes(data)
            click.echo(f"saved {save / f'{found.id}.{name}'}")


def replay(settings: SinkSettings, *, letters: tuple[str, ...], repaired: Path | None, execute: bool) -> None:
    """Put letters that were not yet through the sink again; without `execute` only tell what would become of them.

    Args:
        settings: the sink's, which must not run meanwhile.
        letters: ids; all when none is given.
        repaired: folder with `<id>.key` and `<id>.value` that stand for what the letter has.
        execute: do it.
    """
    known = _letters(settings)
    waiting = [one for one in _chosen(known, letters) if not one.replayed]
    waiting = [_repaired(one, repaired) for one in waiting]
    if not waiting:
        click.echo("there are no letters to put through")
        return
    cluster = Cluster(settings.kafka)
    seen = retried(lambda: look(cluster), settings.errors)
    with session(settings) as spark:
        sink = build(spark, settings, lambda _: None, seen, prime=False)
        try:
            replayer = Replayer(settings, sink.targets, sink.batches, _through(sink), cluster, known)
            result = replayer.replay(waiting, execute=execute)
        finally:
            sink.close()
    if execute:
        through = {*result.done, *result.overtaken}
        mark(settings.kafka, settings.errors.topic, [one for one in waiting if one.id in through])
    _tell(waiting, result, place="index" if settings.search else "table", execute=execute)


def _through(sink: Sink) -> Through:
    if isinstance(sink.targets, Targets):
        assert isinstance(sink.landing, Commits)
        return IntoTables(sink.targets, sink.landing)
    return IntoIndexes()


def _letters(settings: SinkSettings) -> list[DeadLetter]:
    find: Callable[[], list[DeadLetter]] = lambda: read(  # noqa: E731 - tried again as a whole
        Cluster(settings.kafka), settings.kafka, settings.errors.topic
    )
    return retried(find, settings.errors)


def _chosen(found: Sequence[DeadLetter], wanted: tuple[str, ...]) -> list[DeadLetter]:
    unknown = set(wanted) - {letter.id for letter in found}
    if unknown:
        raise ConfigError(f"--letter {', '.join(sorted(unknown))}: there is no such letter; see icebridge dlq list")
    return [letter for letter in found if not wanted or letter.id in wanted]


def _repaired(letter: DeadLetter, folder: Path | None) -> DeadLetter:
    if folder is None:
        return letter
    key, value = (folder / f"{letter.id}.{name}" for name in ("key", "value"))
    return attrs.evolve(
        letter,
        key=key.read_bytes() if key.exists() else letter.key,
        value=value.read_bytes() if value.exists() else letter.value,
    )


def _tell(letters: Sequence[DeadLetter], result: Replay, *, place: str, execute: bool) -> None:
    grid = Grid("letter", "record", "outcome", title="put through again" if execute else "what would be done")
    for letter in letters:
        if letter.id in result.dead:
            outcome = f"still dead: {result.dead[letter.id]}"
        else:
            late = letter.id in result.overtaken
            outcome = "later records changed its key: left out" if late else f"in its {place}"
        grid.add_row(letter.id, f"{letter.topic}-{letter.partition} offset {letter.offset}", outcome)
    Console().print(grid)
    if not execute:
        click.echo("nothing was changed; say --execute to do it")
